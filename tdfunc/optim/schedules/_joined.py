"""Schedules made of others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tdfunc._errors import StructureError, describe

from ._base import Schedule, as_schedule, as_time, at_least
from ._curves import linear


def join(schedules: Sequence[Any], boundaries: Sequence[int]) -> Schedule:
    """One schedule after the other, each with steps of its own; as `SequentialLR`.

    Args:
        schedules: Functions of the step, or numbers.
        boundaries: The step at which each but the first begins, ascending; to it, that is step 0.

    Returns:
        A function of the step.

    Raises:
        StructureError: If there is not one boundary less than schedules, or they do not ascend.

    Example:
        >>> from tdfunc.optim import schedules
        >>> rate = schedules.join([0.1, schedules.exponential(1.0, 0.5)], [10])
        >>> rate(9), rate(11)
        (tensor(0.1000, dtype=torch.float64), tensor(0.5000, dtype=torch.float64))
    """
    parts = [as_schedule(schedule, "a schedule") for schedule in schedules]
    starts = list(boundaries)
    if len(starts) != len(parts) - 1 or any(a >= b for a, b in itertools.pairwise([0, *starts])):
        raise StructureError(
            describe(
                "schedules: the boundaries do not fit the schedules",
                expected="ascending steps above 0, one less than there are schedules",
                got=f"{starts} for {len(schedules)} schedules",
                fix="join([a, b, c], [100, 200])",
            )
        )

    def at(step: Any) -> Tensor:
        step = torch.as_tensor(step)
        value = parts[0](step)
        for start, schedule in zip(starts, parts[1:], strict=True):
            value = torch.where(step >= start, schedule((step - start).clamp(min=0)), value)
        return value

    return at


def warmup(then: Any, steps: int, start: float = 0.0) -> Schedule:
    """A straight line up to where another schedule begins, then that schedule.

    Args:
        then: A function of the step, or a number. Its step 0 is step `steps`.
        steps: How many steps the line takes.
        start: The value at step 0.

    Returns:
        A function of the step.

    Raises:
        StructureError: If an argument is no number, or `steps` not above 0.

    Example:
        >>> from tdfunc.optim import schedules
        >>> rate = schedules.warmup(schedules.cosine(1.0, 100), 10)
        >>> rate(5), rate(10)
        (tensor(0.5000, dtype=torch.float64), tensor(1., dtype=torch.float64))
    """
    at_least("steps", steps, 0, above=True)
    after = as_schedule(then, "then")
    line = linear(0.0, 1.0, steps)
    at_least("start", start, -float("inf"))

    def at(step: Any) -> Tensor:
        share = line(step)
        return start + (after(torch.zeros_like(torch.as_tensor(step))) - start) * share

    return join([at, after], [steps])


def one_cycle(
    peak: float,
    steps: int,
    warm: float = 0.3,
    *,
    curve: str = "cos",
    start_divisor: float = 25.0,
    end_divisor: float = 1e4,
    three_phase: bool = False,
) -> Schedule:
    """Up to a peak and down to almost nothing; as `OneCycleLR`, whose last value stays from step `steps - 1` on.

    Args:
        peak: The highest value.
        steps: How many steps the cycle has.
        warm: The share of the steps that goes up.
        curve: "cos" or "linear": how it goes from one value to the next.
        start_divisor: The first value is `peak / start_divisor`.
        end_divisor: The last one is `peak / start_divisor / end_divisor`.
        three_phase: Come down to the first value as fast as it went up, and then go on to the last.

    Returns:
        A function of the step.

    Raises:
        StructureError: If a number is out of range, or the curve is none of the two.

    References:
        Smith, Topin: Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates. 2017.
        https://arxiv.org/abs/1708.07120

    Example:
        >>> from tdfunc.optim import schedules
        >>> rate = schedules.one_cycle(1.0, 11, 0.5454545454545454)
        >>> rate(0), rate(5)
        (tensor(0.0400, dtype=torch.float64), tensor(1., dtype=torch.float64))
    """
    if curve not in {"cos", "linear"}:
        raise StructureError(describe("schedules: not a curve", expected="'cos' or 'linear'", got=repr(curve), fix="curve='cos'"))
    for name, value in {"steps": steps, "start_divisor": start_divisor, "end_divisor": end_divisor}.items():
        at_least(name, value, 0, above=True)
    at_least("peak", peak, -float("inf"))
    at_least("warm", warm, 0)
    first = peak / start_divisor
    points = [(0.0, first), (warm * steps - 1, peak), (steps - 1, first / end_divisor)]
    if three_phase:
        points[2:] = [(2 * warm * steps - 2, first), (steps - 1, first / end_divisor)]
    if any(a[0] >= b[0] for a, b in itertools.pairwise(points)):
        raise StructureError(
            describe(
                "schedules: a phase of the cycle has no steps",
                expected="phases that end one after the other",
                got=f"ends at {[end for end, _ in points[1:]]}",
                fix="a warm further from 0 and 1 (with three_phase, from 0.5), or more steps",
            )
        )

    def at(step: Any) -> Tensor:
        time = as_time(step)
        value = torch.full_like(time, first)
        for (begin, low), (end, high) in itertools.pairwise(points):
            share = ((time - begin) / (end - begin)).clamp(0, 1)
            share = (1 - torch.cos(torch.pi * share)) / 2 if curve == "cos" else share
            value = torch.where(time > begin, low + (high - low) * share, value)
        return value

    return at
