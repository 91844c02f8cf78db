"""What all schedules share: the step as a float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from tdfunc._errors import StructureError, describe

Schedule: TypeAlias = Callable[[Any], Tensor]
"""A pure function of the step, an int64 tensor of any shape or an int, that gives a float64 tensor of that shape."""


def as_time(step: Any) -> Tensor:
    """Return the step in float64, in which all steps below 2**53 are exact."""
    return torch.as_tensor(step).to(torch.float64)


def at_least(name: str, value: Any, low: float, *, above: bool = False) -> None:
    """Raise if a value is no finite number of at least (or above) the lowest that may be."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < low or (above and value == low):
        raise StructureError(
            describe(
                f"schedules: {name} is out of range" if number else f"schedules: {name} is no finite number",
                expected=f"{name} {'>' if above else '>='} {low}" if low > -math.inf else "a number",
                got=f"{value!r}" if number else f"{value!r} of type {type(value).__name__}",
                fix=f"{name}=...",
            )
        )


def as_schedule(value: Any, name: str) -> Schedule:
    """Return a schedule; a number is one that does not change."""
    if callable(value):
        return cast("Schedule", value)
    at_least(name, value, -math.inf)
    return lambda step: torch.full_like(as_time(step), value)
