"""Elementwise arithmetic and comparisons."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tdfunc._typing import T

from ._batch import rederive
from ._map import aligned


def binary(tree: T, other: Any, fn: Callable[[Any, Any], Tensor], op: str) -> T:
    """Return the tree of `fn(leaf, other)`.

    Args:
        tree: The left operand.
        other: A tree with the same paths; a number; or a tensor, broadcast over the batch shape from its last dim on
            (torch's rule, the event dims of each leaf taken as added on the right).
        fn: The operation on two tensors, or a tensor and a number.
        op: Its name, for messages.
    """
    if isinstance(other, int | float | complex | torch.SymInt | torch.SymFloat):
        return tree._rebuild(tuple([fn(leaf, other) for leaf in tree._leaves]), tree._structure)
    if isinstance(other, Tensor) or hasattr(other, "__array__"):
        return _with_tensor(tree, torch.as_tensor(other), fn)
    results = tuple([fn(a, b) for a, b in zip(tree._leaves, aligned(tree, other, op), strict=True)])
    structure = tree._structure
    return tree._rebuild(results, structure if other._structure is structure else rederive(tree, results))


def _with_tensor(tree: T, other: Tensor, fn: Callable[[Any, Any], Tensor]) -> T:
    if other.dim() == 0:
        return tree._rebuild(tuple([fn(leaf, other) for leaf in tree._leaves]), tree._structure)
    ranks = tree._structure.ranks()
    # (*batch,) -> (*batch, 1, ..., 1): one 1 per event dim
    spread = {rank: other[(..., *[None] * rank)] for rank in sorted(set(ranks))}
    return tree._rebuild(tuple([fn(leaf, spread[rank]) for leaf, rank in zip(tree._leaves, ranks, strict=True)]), tree._structure)


def flipped(fn: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
    """Return the operation with its operands swapped, for the reflected operators."""

    def swapped(a: Any, b: Any) -> Tensor:
        return fn(b, a)

    return swapped


rsub = flipped(operator.sub)
rdiv = flipped(operator.truediv)
rpow = flipped(operator.pow)
rmod = flipped(operator.mod)
rfloordiv = flipped(operator.floordiv)
