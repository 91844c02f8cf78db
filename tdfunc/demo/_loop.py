"""What the compiled step is measured against: a loop over stateful modules with `torch.optim.Adam`."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tdfunc import TensorDict, load_into


def members_of(factory: Callable[[], nn.Module], params: TensorDict, buffers: TensorDict) -> list[nn.Module]:
    """Return an ordinary module for each member of an ensemble, with its tensors copied in."""
    members: list[nn.Module] = []
    for state in (params | buffers).unbind():
        members.append(factory())
        load_into(members[-1], state)
    return members


def make_loop(members: list[nn.Module], lr: float) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Make a step of training that does what the functional one does, member by member and in place.

    Returns:
        `losses, accuracies = loop(x, y)`; the shapes are those of the functional step.
    """
    optimizers = [torch.optim.Adam(member.parameters(), lr=lr) for member in members]

    def loop(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        seen = [_step(*parts) for parts in zip(members, optimizers, x, y, strict=True)]
        losses, accuracies = zip(*seen, strict=True)
        return torch.stack(losses), torch.stack(accuracies)

    return loop


def _step(member: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    logits = member(x)
    loss = cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach(), (logits.argmax(-1) == y).float().mean()
