"""Schedules of one curve."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ._base import Schedule, as_schedule, as_time, at_least


def constant(value: float) -> Schedule:
    """The same at all steps.

    Args:
        value: The value.

    Returns:
        A function of the step; here, as for all schedules, a float64 tensor.

    Raises:
        StructureError: If the value is no finite number.

    Example:
        >>> import tdfunc
        >>> tdfunc.optim.schedules.constant(0.1)(5)
        tensor(0.1000, dtype=torch.float64)
    """
    return as_schedule(value, "value")


def linear(start: float, end: float, steps: int) -> Schedule:
    """From one value to another in a straight line, and then no further; as `LinearLR`.

    Args:
        start: The value at step 0.
        end: The value from step `steps` on.
        steps: How many steps it takes.

    Returns:
        A function of the step.

    Raises:
        StructureError: If an argument is no number, or `steps` not above 0.

    Example:
        >>> import tdfunc
        >>> tdfunc.optim.schedules.linear(1.0, 0.0, 4)(1)
        tensor(0.7500, dtype=torch.float64)
    """
    _check(steps, start=start, end=end)

    def at(step: object) -> Tensor:
        return start + (end - start) * (as_time(step).clamp(0, steps) / steps)

    return at


def cosine(start: float, steps: int, end: float = 0.0) -> Schedule:
    r"""From one value to another along half a cosine, and then no further.

    .. math::
        e + (s - e) \frac{1 + \cos(\pi t / T)}{2}

    with `start` :math:`s`, `end` :math:`e` and `steps` :math:`T`: as `CosineAnnealingLR` up to step `T_max`, after which
    that one goes up again.

    Args:
        start: The value at step 0.
        steps: How many steps it takes.
        end: The value from step `steps` on.

    Returns:
        A function of the step.

    Raises:
        StructureError: If an argument is no number, or `steps` not above 0.

    References:
        Loshchilov, Hutter: SGDR: Stochastic Gradient Descent with Warm Restarts. ICLR 2017. https://arxiv.org/abs/1608.03983

    Example:
        >>> import tdfunc
        >>> tdfunc.optim.schedules.cosine(1.0, 10)(5)
        tensor(0.5000, dtype=torch.float64)
    """
    _check(steps, start=start, end=end)

    def at(step: object) -> Tensor:
        return end + (start - end) * (1 + torch.cos(as_time(step).clamp(0, steps) * (math.pi / steps))) / 2

    return at


def exponential(start: float, factor: float, steps: int = 1, *, staircase: bool = False) -> Schedule:
    """A power of a factor: as `ExponentialLR`; with `staircase`, in jumps, as `StepLR`.

    Args:
        start: The value at step 0.
        factor: What it is multiplied by in `steps` steps.
        steps: How many steps that takes.
        staircase: Change only after each `steps` steps.

    Returns:
        A function of the step.

    Raises:
        StructureError: If an argument is no number, or `factor` or `steps` not above 0.

    Example:
        >>> import tdfunc
        >>> tdfunc.optim.schedules.exponential(1.0, 0.5)(2)
        tensor(0.2500, dtype=torch.float64)
    """
    _check(steps, start=start)
    at_least("factor", factor, 0.0, above=True)
    log = math.log(factor)

    def at(step: object) -> Tensor:
        time = as_time(step) / steps
        # exp rather than pow: inductor computes a pow again for each element that needs it
        return start * torch.exp((time.floor() if staircase else time) * log)

    return at


def piecewise(start: float, factors: Mapping[int, float]) -> Schedule:
    """Jumps: the value is multiplied by a factor from each of some steps on; as `MultiStepLR`.

    Args:
        start: The value at step 0.
        factors: The factor by step.

    Returns:
        A function of the step.

    Raises:
        StructureError: If a value is no number, or a step below 0.

    Example:
        >>> import tdfunc
        >>> tdfunc.optim.schedules.piecewise(1.0, {10: 0.5, 20: 0.1})(15)
        tensor(0.5000, dtype=torch.float64)
    """
    at_least("start", start, -math.inf)
    for boundary, factor in factors.items():
        at_least("a step of factors", boundary, 0)
        at_least("a factor", factor, -math.inf)
    jumps: list[tuple[int, float]] = []
    value = start
    for boundary in sorted(factors):
        value = value * factors[boundary]
        jumps.append((boundary, value))

    def at(step: object) -> Tensor:
        time = as_time(step)
        value = torch.full_like(time, start)
        for boundary, after in jumps:
            value = torch.where(time >= boundary, after, value)
        return value

    return at


def _check(steps: float, **values: float) -> None:
    for name, value in values.items():
        at_least(name, value, -math.inf)
    at_least("steps", steps, 0, above=True)
