"""Comparisons of whole trees that give one bool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tdfunc._typing import TensorTree
from tdfunc.structure import Static


def same_statics(a: TensorTree, b: TensorTree) -> bool:
    """Say whether two trees have the same static values, type and value."""
    ours, theirs = ({path: Static(value) for path, value in tree._structure.statics()} for tree in (a, b))
    return ours == theirs


def equal(a: TensorTree, b: Any) -> bool:
    """Say whether two trees have the same paths, ties, statics, dtypes, shapes and values, whatever the order of keys."""
    return _agree(a, b, lambda x, y: x.dtype == y.dtype and x.shape == y.shape and torch.equal(x, y))


def allclose(a: TensorTree, b: Any, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Say whether two trees have the same paths, ties, statics and shapes, and values within tolerance."""
    return _agree(a, b, lambda x, y: x.shape == y.shape and _near(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan))


def _near(x: Tensor, y: Tensor, **kwargs: Any) -> bool:
    dtype = torch.promote_types(x.dtype, y.dtype)
    return torch.allclose(x.to(dtype), y.to(dtype), **kwargs)


def _agree(a: TensorTree, b: Any, close: Callable[[Tensor, Tensor], bool]) -> bool:
    theirs = getattr(b, "_structure", None)
    if theirs is None:
        return False
    index = a._structure.aligning(theirs)
    if index is None or not same_statics(a, b):
        return False
    return all(close(leaf, b._leaves[i]) for leaf, i in zip(a._leaves, index, strict=True))
