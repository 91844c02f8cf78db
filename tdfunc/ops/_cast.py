"""Moves to other devices and dtypes, and out of the autograd graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tdfunc._errors import StructureError, describe
from tdfunc._typing import T, TensorTree

from ._map import leafwise


def to(tree: T, *args: Any, **kwargs: Any) -> T:
    """Return the tree with `leaf.to(...)` for each leaf; see `torch.Tensor.to` for the arguments."""
    if any(isinstance(arg, Tensor) or hasattr(arg, "_structure") for arg in args):
        raise StructureError(
            describe("to: expected a device, a dtype or both", got=[type(arg).__name__ for arg in args], fix="td.to(other.device, other.dtype)")
        )
    return leafwise(tree, lambda leaf: leaf.to(*args, **kwargs))


def requires_grad(tree: T, flag: bool = True) -> T:
    """Return the tree of fresh autograd leaves that share the values; integer and bool leaves stay as they are."""

    def fresh(leaf: Tensor) -> Tensor:
        if flag and not (leaf.is_floating_point() or leaf.is_complex()):
            return leaf
        return leaf.detach().requires_grad_(flag)

    return leafwise(tree, fresh)


def device(tree: TensorTree) -> torch.device | None:
    """Return the device of all leaves, or None if they differ or there is none."""
    found = {leaf.device for leaf in tree._leaves}
    return found.pop() if len(found) == 1 else None


def dtype(tree: TensorTree) -> torch.dtype | None:
    """Return the dtype of all leaves, or None if they differ or there is none."""
    found = {leaf.dtype for leaf in tree._leaves}
    return found.pop() if len(found) == 1 else None
