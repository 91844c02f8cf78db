"""Dims that a user gives: counted from 0, and within the batch dims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tdfunc._errors import BatchSizeError, describe
from tdfunc._typing import T, TensorTree

from ._batch import batch_dims, batch_size
from ._foreach import each


def batch_dim(tree: TensorTree, dim: Any, op: str, *, new: int = 0) -> int:
    """Return a dim counted from 0 that lies in the batch dims, or among them and `new` more."""
    dims = batch_dims(tree) + new
    if type(dim) is not int:
        dim = _as_int(dim, op)
    if not -dims <= dim < dims:
        raise BatchSizeError(
            describe(
                f"{op}: dim {dim} is no batch dim",
                expected=f"a dim in [{-dims}, {dims - 1}]" if dims else "a tree with batch dims",
                got=f"dim {dim}, the batch size being {tuple(batch_size(tree))}",
                fix="td.with_batch_size(...) gives a tree more batch dims",
            )
        )
    return dim % dims


def _as_int(dim: Any, op: str) -> int:
    if isinstance(dim, bool) or not hasattr(dim, "__index__"):
        raise BatchSizeError(describe(f"{op}: a dim is an int", got=f"{dim!r} of type {type(dim).__name__}", fix=f"td.{op}(0)"))
    return dim.__index__()


def normal_dims(tree: TensorTree, dims: Any, op: str, *, new: int = 0) -> tuple[int, ...]:
    """Return one or several dims counted from 0, all different, in the order given."""
    given = tuple(dims) if isinstance(dims, tuple | list) else (dims,)
    found = tuple([batch_dim(tree, dim, op, new=new) for dim in given])
    if len(set(found)) < len(found):
        raise BatchSizeError(describe(f"{op}: a dim is given twice", expected="different dims", got=given, fix=f"td.{op}({sorted(set(found))})"))
    return found


def over_batch(tree: T, op: str, fn: Callable[..., Tensor], by_rank: Callable[[int], Any] | None = None, **kwargs: Any) -> T:
    """Return the tree of `fn(leaf, **kwargs)`, for a function that works on the batch dims and leaves the event dims.

    Args:
        tree: The tree. One without leaves has its batch size put through the same function, on a tensor that holds nothing.
        op: What the user called, for messages.
        fn: The function.
        by_rank: What `fn` takes after the leaf, made once for each event rank.
        **kwargs: Further arguments of `fn`.
    """
    leaves, structure = tree._leaves, tree._structure
    if not leaves:
        held = torch.empty(structure.stored_size(), device="meta")
        result = fn(held, **kwargs) if by_rank is None else fn(held, by_rank(0), **kwargs)
        return tree._rebuild(leaves, structure.sized(tuple(result.shape)))
    if by_rank is None:
        return tree._rebuild(each(tree, op, fn, leaves, **kwargs), structure)
    ranks = structure.ranks()
    made = {rank: by_rank(rank) for rank in sorted(set(ranks))}
    return tree._rebuild(each(tree, op, fn, leaves, tuple([made[rank] for rank in ranks]), **kwargs), structure)


def over_batch_many(tree: T, op: str, fn: Callable[[Tensor], tuple[Tensor, ...]]) -> tuple[T, ...]:
    """Return the trees of the pieces that `fn` cuts each leaf into."""
    leaves, structure = tree._leaves, tree._structure
    if not leaves:
        pieces = fn(torch.empty(structure.stored_size(), device="meta"))
        return tuple([tree._rebuild((), structure.sized(tuple(piece.shape))) for piece in pieces])
    columns: Any = each(tree, op, fn, leaves)
    return tuple([tree._rebuild(row, structure) for row in zip(*columns, strict=True)])
