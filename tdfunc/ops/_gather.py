"""Rows picked or masked by tensors over the batch shape."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tdfunc._errors import BatchSizeError, StructureError, describe
from tdfunc._typing import T, TensorTree

from ._batch import batch_dims, front, rederive
from ._dims import batch_dim, over_batch
from ._foreach import each
from ._index import index
from ._pointwise import operand, spread
from ._reshape import reshape


def gather(tree: T, dim: int, positions: Tensor) -> T:
    """Return the tree of `leaf.gather(dim, positions)`, the positions expanded over the event dims."""
    at = batch_dim(tree, dim, "gather")
    have, wanted = front(tree), tuple(positions.shape)
    if len(wanted) != len(have) or any(n > m for i, (n, m) in enumerate(zip(wanted, have, strict=True)) if i != at):
        raise BatchSizeError(
            describe(
                "gather: the index has another number of dims than the batch, or is larger",
                expected=f"a shape within {tuple(have)}, dim {at} aside",
                got=wanted,
                fix="td.index_select(dim, index) for one index for all rows",
            )
        )
    dims = len(have)
    return over_batch(
        tree,
        "gather",
        lambda leaf, index: leaf.gather(at, index.expand(*wanted, *leaf.shape[dims:])),
        lambda rank: positions[(..., *[None] * rank)],
    )


def index_select(tree: T, dim: int, positions: Any) -> T:
    """Return the tree of the rows at these positions along a batch dim."""
    at = batch_dim(tree, dim, "index_select")
    positions = torch.as_tensor(positions)
    if positions.dim() > 1 or positions.dtype not in (torch.int64, torch.int32):
        raise BatchSizeError(
            describe(
                "index_select: the index is a vector of integers",
                expected="int64 or int32, at most 1 dim",
                got=f"{positions.dtype}, {positions.dim()} dims",
                fix="td[:, index] for other indices",
            )
        )
    return over_batch(tree, "index_select", lambda leaf: leaf.index_select(at, positions.to(leaf.device)))


def take(tree: T, positions: Tensor) -> T:
    """Return the tree of the rows at these positions of the flattened batch; the batch size is that of the positions."""
    return index(reshape(tree, (math.prod(front(tree)),)), positions)


def _check_mask(tree: TensorTree, mask: Tensor, op: str) -> None:
    if mask.dtype is not torch.bool or mask.dim() > batch_dims(tree) or tuple(mask.shape) != tuple(front(tree)[: mask.dim()]):
        raise BatchSizeError(
            describe(
                f"{op}: the mask is no bool tensor over the leading batch dims",
                expected=f"bool, of a shape that {tuple(front(tree))} starts with",
                got=f"{mask.dtype}, {tuple(mask.shape)}",
                fix=f"td.{op}(mask.bool().expand(td.batch_size))",
            )
        )


def masked_select(tree: T, mask: Tensor) -> T:
    """Return the tree of the rows for which a mask is true, the masked dims made one."""
    _check_mask(tree, mask, "masked_select")
    return index(tree, mask)


def masked_fill(tree: T, mask: Tensor, value: Any) -> T:
    """Return the tree with a value in the rows for which a mask is true."""
    _check_mask(tree, mask, "masked_fill")
    more = batch_dims(tree) - mask.dim()
    columns: Any = spread(tree, mask[(..., *[None] * more)])
    return tree._rebuild(each(tree, "masked_fill", Tensor.masked_fill, tree._leaves, columns, value), tree._structure)


def where(condition: Any, tree: Any, other: Any) -> Any:
    """Return the tree of `torch.where(condition, leaf, other)`; each of the three a tree, or a tensor over the batch shape."""
    trees = [item for item in (tree, other, condition) if hasattr(item, "_structure")]
    if not trees:
        raise StructureError(
            describe("where: none of the three is a TensorDict", got=f"{type(tree).__name__} and {type(other).__name__}", fix="torch.where(...)")
        )
    if isinstance(condition, Tensor) and condition.dtype is not torch.bool:
        raise BatchSizeError(describe("where: the condition is no bool tensor", expected="bool", got=condition.dtype, fix="condition.bool()"))
    base = trees[0]
    columns = [operand(base, item, "where") for item in (condition, tree, other)]
    results = each(base, "where", _where, base._leaves, *[column for column, _ in columns])
    return base._rebuild(results, base._structure if all(same for _, same in columns) else rederive(base, results))


def _where(_leaf: Tensor, condition: Any, yes: Any, no: Any) -> Tensor:
    return torch.where(condition, yes, no)
