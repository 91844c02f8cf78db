"""Averages of parameters over the steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tdfunc import ops
from tdfunc._errors import StructureError, describe
from tdfunc.core import TensorDict

from ._base import LearningRate, check_number, init_state, is_trained, rate, spread


class Average(NamedTuple):
    """A pair of pure functions that follow parameters.

    `init(params)` gives a state, `update(params, state)` the next one; `state["average"]` is the average so far, a tree
    like the parameters, and `state["step"]` the number of updates.
    """

    init: Callable[[TensorDict], TensorDict]
    update: Callable[[TensorDict, TensorDict], TensorDict]


def ema(decay: LearningRate = 0.999, *, debias: bool = False) -> Average:
    r"""The exponential moving average of parameters.

    .. math::
        a_1 = \theta_1, \qquad a_t = \beta a_{t-1} + (1 - \beta) \theta_t

    with `decay` :math:`\beta`: that of `torch.optim.swa_utils.get_ema_multi_avg_fn`. With `debias`, the weights are those of
    Adam's corrected moments, :math:`a_t = \sum_i \beta^{t-i} (1 - \beta) \theta_i / (1 - \beta^t)`: the first parameters
    count no more than they should.

    Args:
        decay: A number, a tensor of shape `()` or of the parameters' batch size, or a function of the number of updates so
            far (not with `debias`).
        debias: Weigh the parameters seen so far alone.

    Returns:
        An `Average`. Before the first update the average is the parameters given to `init`. Integer and bool leaves are
        the newest.

    Raises:
        StructureError: If the decay is out of range, or a function where `debias` needs a number.

    Note:
        The average has the dtype of the parameters given to `init`: follow bfloat16 parameters by `init(params.float())`,
        since small steps are lost in bfloat16.

    Example:
        >>> import torch, tdfunc
        >>> ema = tdfunc.optim.ema(0.9)
        >>> state = ema.init(tdfunc.TensorDict(w=0.0))
        >>> for value in (1.0, 2.0):
        ...     state = ema.update(tdfunc.TensorDict(w=value), state)
        >>> state["average", "w"]
        tensor(1.1000)
    """
    check_number("decay", decay, high=1.0)
    if debias and callable(decay):
        raise StructureError(
            describe("ema: debias needs the same decay all along", expected="a number or a tensor", got=f"a function, {decay!r}", fix="debias=False")
        )

    def weight(count: Tensor) -> Tensor:
        beta: Any = rate(decay, count)
        if debias:
            return (1 - beta) / _one_minus_power(beta, count + 1)
        return torch.where(count > 0, 1 - torch.as_tensor(beta, dtype=torch.float64, device=count.device), 1.0)

    return _average(weight)


def swa() -> Average:
    """The mean of parameters over the updates: stochastic weight averaging, as `torch.optim.swa_utils.AveragedModel`.

    Returns:
        An `Average`. Before the first update the average is the parameters given to `init`. Integer and bool leaves are
        the newest.

    Note:
        BatchNorm statistics are not averaged with it: run the averaged module over the data once more, in training mode.

    References:
        Izmailov, Podoprikhin, Garipov, Vetrov, Wilson: Averaging Weights Leads to Wider Optima and Better Generalization.
        UAI 2018. https://arxiv.org/abs/1803.05407

    Example:
        >>> import torch, tdfunc
        >>> swa = tdfunc.optim.swa()
        >>> state = swa.init(tdfunc.TensorDict(w=0.0))
        >>> for value in (1.0, 2.0):
        ...     state = swa.update(tdfunc.TensorDict(w=value), state)
        >>> state["average", "w"]
        tensor(1.5000)
    """
    return _average(lambda count: 1 / (count + 1).to(torch.float64))


def _one_minus_power(beta: Any, count: Tensor) -> Tensor:
    return 1 - beta ** count.to(torch.float64)


def _average(weight: Callable[[Tensor], Tensor]) -> Average:
    """Return the average whose newest member has this weight, given the number of those before."""

    def init(params: TensorDict) -> TensorDict:
        return init_state(params).set("average", params.clone())

    def update(params: TensorDict, state: TensorDict) -> TensorDict:
        if not isinstance(params, TensorDict) or not isinstance(state, TensorDict) or "average" not in state:
            raise _wrong_update(params, state)
        count, old = state["step"], state["average"]
        new = ops.aligned(old, params, "optim: the parameters")
        leaves = [
            a.lerp(p.to(a.dtype), w) if is_trained(a) else p.clone() for a, p, w in zip(old._leaves, new, spread(weight(count), old), strict=True)
        ]
        return state.set("step", count + 1).set("average", old._rebuild(tuple(leaves), old._structure))

    return Average(init, update)


def _wrong_update(*given: Any) -> StructureError:
    return StructureError(
        describe(
            "optim: an average is updated with parameters and its state",
            expected="update(params, state), with what init(params) gave as state",
            got=", ".join(f"a TensorDict of {list(tree)}" if isinstance(tree, TensorDict) else type(tree).__name__ for tree in given),
            fix="state = ema.init(params); state = ema.update(params, state)",
        )
    )
