"""Optimizers that are one update for each leaf: what such a rule needs beside it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tdfunc.core import TensorDict

from ._base import (
    LearningRate,
    Optimizer,
    Update,
    componentwise,
    count_of,
    gradients_of,
    init_state,
    is_trained,
    next_state,
    rate,
    spread,
    state_leaves,
)

Factors = Callable[[Any, Tensor], tuple[Any, ...]]
"""(learning rate, step count from 1 on) -> numbers, or float64 tensors of the count's shape, that the update of each leaf takes."""


def rule(lr: LearningRate, moments: tuple[str, ...], factors: Factors, update: Update, *, starts: float = 0.0) -> Optimizer:
    """Return the optimizer of an update.

    Args:
        lr: The learning rate.
        moments: The names of the trees that the state keeps.
        factors: What is computed once a step.
        update: Gives a leaf and its moments after a gradient: `update(leaf, (gradient, *moments), factors)`.
        starts: What the moments are filled with at first.
    """

    def init(params: TensorDict) -> TensorDict:
        state = init_state(params, *moments)
        return state if not starts else state.update({name: state[name].map(started) for name in moments})

    def started(zeros: Tensor) -> Tensor:
        return zeros + (complex(starts, starts) if zeros.is_complex() else starts) if is_trained(zeros) else zeros

    def step(params: TensorDict, grads: TensorDict, state: TensorDict) -> tuple[TensorDict, TensorDict]:
        before = count_of(params, grads, state)
        count = before + 1
        columns = zip(*[spread(factor, params) for factor in factors(rate(lr, before), count)], strict=True)
        old = zip(*state_leaves(params, state, *moments), strict=True) if moments else itertools.repeat(())
        new: list[Tensor] = []
        after: dict[str, list[Tensor]] = {name: [] for name in moments}
        for leaf, g, kept, numbers in zip(params._leaves, gradients_of(params, grads), old, columns, strict=False):
            moved, held = componentwise(update, leaf, (g, *kept), numbers) if is_trained(leaf) else (leaf, kept)
            new.append(moved)
            for column, moment in zip(after.values(), held, strict=True):
                column.append(moment)
        return params._rebuild(tuple(new), params._structure), next_state(params, state, count, after)

    return Optimizer(init, step)


def penalised(leaf: Tensor, g: Tensor, weight_decay: float, maximize: bool) -> Tensor:
    """Return a gradient with its sign turned where asked, and the L2 penalty in it."""
    g = -g if maximize else g
    return g.add(leaf, alpha=weight_decay) if weight_decay else g


def power(beta: float, count: Tensor) -> Tensor:
    r"""Return :math:`\beta^t` in float64."""
    return torch.pow(torch.full_like(count, beta, dtype=torch.float64), count)
