"""Moves to other devices and dtypes, and out of the autograd graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tdfunc._errors import StructureError, describe
from tdfunc._typing import T, TensorTree

from ._map import leafwise
from ._select import chosen


def to(tree: T, *args: Any, **kwargs: Any) -> T:
    """Return the tree with `leaf.to(...)` for each leaf; see `torch.Tensor.to` for the arguments."""
    if any(isinstance(arg, Tensor) or hasattr(arg, "_structure") for arg in args):
        raise StructureError(
            describe("to: expected a device, a dtype or both", got=[type(arg).__name__ for arg in args], fix="td.to(other.device, other.dtype)")
        )
    if len(args) == 1 and not kwargs:
        (target,) = args
        return leafwise(tree, lambda leaf: leaf.to(target))
    return leafwise(tree, lambda leaf: leaf.to(*args, **kwargs))


def requires_grad(tree: T, flag: bool = True) -> T:
    """Return the tree of fresh autograd leaves that share the values; integer and bool leaves stay as they are."""

    def fresh(leaf: Tensor) -> Tensor:
        if flag and not (leaf.is_floating_point() or leaf.is_complex()):
            return leaf
        return leaf.detach().requires_grad_() if flag else leaf.detach()

    return leafwise(tree, fresh)


def device(tree: TensorTree) -> torch.device | None:
    """Return the device of all leaves, or None if they differ or there is none."""
    found = {leaf.device for leaf in tree._leaves}
    return found.pop() if len(found) == 1 else None


def dtype(tree: TensorTree) -> torch.dtype | None:
    """Return the dtype of all leaves, or None if they differ or there is none."""
    found = {leaf.dtype for leaf in tree._leaves}
    return found.pop() if len(found) == 1 else None


def on(tree: TensorTree, kind: str) -> bool:
    """Say whether all leaves are on devices of a kind; False where there is no leaf."""
    return bool(tree._leaves) and all(leaf.device.type == kind for leaf in tree._leaves)


def cuda_device(device: Any) -> torch.device:
    """Return a CUDA device: that given, that of a number, or the current one."""
    return torch.device("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)


def cast(tree: T, dtype: torch.dtype, where: Any = None) -> T:
    """Return the tree as a dtype, all leaves or those that are meant."""
    if where is None:
        return to(tree, dtype)
    hits = chosen(tree, where, "type")
    return tree._rebuild(tuple([leaf.to(dtype) if hit else leaf for leaf, hit in zip(tree._leaves, hits, strict=True)]), tree._structure)


def grads(tree: T) -> T:
    """Return the tree of the leaves' `.grad`, without those that have none."""
    found = tuple([leaf.grad if leaf.is_leaf or leaf.retains_grad else None for leaf in tree._leaves])
    structure, index = tree._structure.keeping(tuple([i for i, grad in enumerate(found) if grad is not None]), True)
    return tree._rebuild(tuple([grad for i in index if (grad := found[i]) is not None]), structure)
