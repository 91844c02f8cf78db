"""Elementwise arithmetic and comparisons."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tdfunc._typing import T
from tdfunc.structure import traced_as

from ._batch import rederive
from ._map import aligned

_NUMBERS = (int, float, complex, torch.SymInt, torch.SymFloat)
_REAL = frozenset({int, float})
_PLAIN = frozenset({Tensor, torch.nn.Parameter})
_EXACT = 2**53
"""Beyond it torch treats an int as what it is: it overflows."""


def binary(tree: T, other: Any, fn: Callable[[Any, Any], Tensor], op: str) -> T:
    """Return the tree of `fn(leaf, other)`.

    Args:
        tree: The left operand.
        other: A tree with the same paths; a number; or a tensor, broadcast over the batch shape from its last dim on
            (torch's rule, the event dims of each leaf taken as added on the right).
        fn: The operation on two tensors, or a tensor and a number.
        op: Its name, for messages.
    """
    if isinstance(other, _NUMBERS):
        return tree._rebuild(_with_number(tree._leaves, other, fn), tree._structure)
    if isinstance(other, Tensor) or hasattr(other, "__array__"):
        return _with_tensor(tree, torch.as_tensor(other), fn)
    results = tuple([fn(a, b) for a, b in zip(tree._leaves, aligned(tree, other, op), strict=True)])
    structure = tree._structure
    return tree._rebuild(results, structure if other._structure is structure else rederive(tree, results))


def _each_with_number(leaves: tuple[Tensor, ...], other: Any, fn: Callable[[Any, Any], Tensor]) -> tuple[Tensor, ...]:
    return tuple([fn(leaf, other) for leaf in leaves])


@traced_as(_each_with_number)
def _with_number(leaves: tuple[Tensor, ...], other: Any, fn: Callable[[Any, Any], Tensor]) -> tuple[Tensor, ...]:
    """Return `fn(leaf, other)` for each leaf.

    In eager, torch makes a tensor of a number at each call, of the number's own dtype, and casts it to the leaf's: two
    thirds of the time for a small leaf. A tensor of the leaf's dtype made once gives the same values wherever the leaf is
    float32 or float64, on the CPU, and has a dim (of a leaf without one, a number does not promote the dtype).
    """
    if fn not in _LINEAR or type(other) not in _REAL or len(leaves) < 2 or not -_EXACT < other < _EXACT:
        return _each_with_number(leaves, other, fn)
    made: dict[torch.dtype, Any] = {}
    results: list[Tensor] = []
    for leaf in leaves:
        dtype = leaf.dtype
        number = made.get(dtype)
        if number is None:
            quick = dtype is torch.float32 or dtype is torch.float64
            number = made[dtype] = torch.tensor(other, dtype=dtype, device="cpu") if quick else other
        results.append(fn(leaf, number if leaf.is_cpu and leaf.dim() and type(leaf) in _PLAIN else other))
    return tuple(results)


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

_LINEAR = frozenset({operator.add, operator.sub, operator.mul, operator.truediv, rsub})
"""The operations for which a tensor of the leaf's dtype does for a number; powers have kernels of their own for numbers."""
