"""Single numpy arrays as tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def as_tensor(array: Any) -> Tensor | None:
    """Return an array as a tensor, over the same memory where torch can; None if torch has no such dtype."""
    if array.dtype.kind not in "biufc":
        return None
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    try:
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    except ValueError:  # strides that are negative or no multiples of the size of an element
        return torch.from_numpy(array.copy())
    except TypeError:  # a number type of numpy alone, such as longdouble
        return None
