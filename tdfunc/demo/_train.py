"""An ensemble trained by one pure function. This is the file to copy."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tdfunc import TensorDict, bind, buffers_of, value_and_grad, vmap
from tdfunc.optim import Optimizer


class State(NamedTuple):
    """All that a step changes: three trees, each with batch size `(members,)`."""

    params: TensorDict
    buffers: TensorDict
    moments: TensorDict


Step: TypeAlias = Callable[[State, Tensor, Tensor], tuple[State, Tensor, Tensor]]
"""`state, losses, accuracies = step(state, x, y)`."""


def make_step(net: nn.Module, opt: Optimizer) -> Step:
    """Make the step of training of all members at once.

    Args:
        net: The template of a member; on the meta device it costs no memory.
        opt: The optimizer, the same for all members.

    Returns:
        A pure function of the state and a minibatch per member that gives the next state, the members' losses and their
        accuracies. The state that it is given stays as it is.

    Shapes:
        Images `(members, batch, ...)`, labels `(members, batch)`, losses and accuracies `(members,)`.
    """

    def loss(params: TensorDict, buffers: TensorDict, x: Tensor, y: Tensor) -> tuple[Tensor, tuple[TensorDict, Tensor]]:
        member = bind(net, params, buffers)
        logits = member(x)  # (batch, classes)
        accuracy = (logits.argmax(-1) == y).float().mean()
        return cross_entropy(logits, y), (buffers_of(member), accuracy)

    def step(state: State, x: Tensor, y: Tensor) -> tuple[State, Tensor, Tensor]:
        per_member = vmap(value_and_grad(loss, has_aux=True))
        (losses, (buffers, accuracies)), grads = per_member(state.params, state.buffers, x, y)
        params, moments = opt.step(state.params, grads, state.moments)
        return State(params, buffers, moments), losses, accuracies

    return step


def train(step: Step, state: State, batches: Iterable[tuple[Tensor, Tensor]], watch: Callable[[Tensor, Tensor], None]) -> tuple[State, Tensor]:
    """Take a step for each minibatch.

    Args:
        step: The step, compiled or not.
        state: Where to start.
        batches: Pairs of images and labels, each with a member dim first.
        watch: Is shown the losses and accuracies of each step.

    Returns:
        The state after the last step, and all losses.

    Shapes:
        Losses `(steps, members)`.
    """
    curve: list[Tensor] = []
    for x, y in batches:
        state, losses, accuracies = step(state, x, y)
        watch(losses, accuracies)
        curve.append(losses)
    return state, torch.stack(curve)


@torch.no_grad()
def predict(net: nn.Module, params: TensorDict, buffers: TensorDict, x: Tensor) -> Tensor:
    """Return each member's log-probabilities for the same images, by the statistics that BatchNorm has gathered.

    Shapes:
        Images `(n, 1, 8, 8)` to `(members, n, classes)`.
    """

    def member(params: TensorDict, buffers: TensorDict) -> Tensor:
        # The bound module is its own: to put it into eval mode leaves `net` in training mode.
        return bind(net, params, buffers).eval()(x).log_softmax(-1)

    return vmap(member)(params, buffers)
