"""Gradient accumulation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tdfunc.core import TensorDict

from ._base import Optimizer, count_of, init_state, is_trained
from ._members import check_count, either, like_params


def accumulate(opt: Optimizer, every: int) -> Optimizer:
    """Step once for several micro-batches, with the mean of their gradients.

    Args:
        opt: The optimizer.
        every: How many calls of `step` make a step of `opt`. In the calls between, the parameters stay as they are.

    Returns:
        An `Optimizer` whose state has `step`, the number of calls, `grads`, the sum so far, and `opt`'s state under `inner`.
        A schedule in `opt` counts the steps of `opt`.

    Raises:
        StructureError: If `every` is no int of 1 or more.

    Note:
        One graph serves all calls: the step of `opt` is computed each time, and taken when it is due. Compiled, that is
        some elementwise work; a call between costs about what a step costs.

    Example:
        >>> import torch, tdfunc
        >>> opt = tdfunc.optim.accumulate(tdfunc.optim.sgd(1.0), 2)
        >>> params = tdfunc.TensorDict(w=0.0)
        >>> state = opt.init(params)
        >>> for g in (1.0, 3.0):
        ...     params, state = opt.step(params, tdfunc.TensorDict(w=g), state)
        ...     print(params["w"])
        tensor(0.)
        tensor(-2.)
    """
    check_count("every", every)

    def init(params: TensorDict) -> TensorDict:
        return init_state(params, "grads").set("inner", opt.init(params))

    def step(params: TensorDict, grads: TensorDict, state: TensorDict) -> tuple[TensorDict, TensorDict]:
        count = count_of(params, grads, state) + 1
        due = count % every == 0
        grads, before = like_params(params, grads), like_params(params, state["grads"])
        total = _trained(torch.add, before, grads)
        after, inner = opt.step(params, _trained(lambda a: a / every, total), state["inner"])
        left = either(due, _trained(torch.zeros_like, total), total)
        inner = either(due, inner, state["inner"])
        return either(due, after, params), state.set("step", count).set("grads", left).set("inner", inner)

    return Optimizer(init, step)


def _trained(fn: Callable[..., Tensor], tree: TensorDict, *others: TensorDict) -> TensorDict:
    """Return a tree with a function taken of the leaves that take steps."""
    columns = zip(tree._leaves, *[other._leaves for other in others], strict=True)
    return tree._rebuild(tuple([fn(*column) if is_trained(column[0]) else column[0] for column in columns]), tree._structure)
