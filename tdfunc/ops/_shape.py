"""Operations on the batch dims: stack and unbind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tdfunc._errors import BatchSizeError, StructureError, describe, show_path
from tdfunc._typing import T, TensorTree

from ._batch import batch_dims, batch_size
from ._compare import same_statics
from ._map import aligned


def batch_dim(tree: TensorTree, dim: int, op: str, *, new: int = 0) -> int:
    """Return a dim counted from 0 that lies in the batch dims, or among them and `new` more."""
    dims = batch_dims(tree) + new
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


def stack(trees: Sequence[T], dim: int = 0) -> T:
    """Return the tree whose leaves are stacked along a new batch dim."""
    trees = tuple(trees)
    if not trees:
        raise StructureError(describe("stack: no trees given", expected="at least one", fix="stack([td, ...])"))
    first = trees[0]
    columns = [_members_leaves(first, tree, i) for i, tree in enumerate(trees)]
    at = batch_dim(first, dim, "stack", new=1)
    if not first._leaves:
        size = first._structure.stored_size()
        return first._rebuild((), first._structure.sized((*size[:at], len(trees), *size[at:])))
    try:
        leaves = [torch.stack(rows, at) for rows in zip(*columns, strict=True)]
    except RuntimeError as error:
        raise _unequal_shapes(first, columns) or error from None
    return first._rebuild(tuple(leaves), first._structure)


def _members_leaves(first: TensorTree, tree: Any, member: int) -> tuple[torch.Tensor, ...]:
    """Return the leaves of a member of a stack in the order of the first; static values must be the same."""
    if getattr(tree, "_structure", None) is None:
        raise StructureError(describe("stack: expected TensorDicts", at=f"member {member}", got=type(tree).__name__, fix="TensorDict(...) it first"))
    if tree._structure is first._structure:
        return tree._leaves
    if not same_statics(first, tree):
        raise StructureError(
            describe(
                "stack: the members have different static values",
                at=f"member {member}",
                expected=first._structure.statics(),
                got=tree._structure.statics(),
                fix="td.set(key, value) the same static value in all of them",
            )
        )
    return aligned(first, tree, f"stack (member {member})")


def _unequal_shapes(first: TensorTree, columns: list[tuple[torch.Tensor, ...]]) -> BatchSizeError | None:
    """Return the error that names the first member with other shapes, if shapes are what is wrong."""
    shapes = [leaf.shape for leaf in first._leaves]
    for member, leaves in enumerate(columns):
        wrong = [
            f"{show_path(path)}: {tuple(leaf.shape)} for {tuple(shape)}"
            for path, leaf, shape in zip(first._structure.paths(), leaves, shapes, strict=True)
            if leaf.shape != shape
        ]
        if wrong:
            return BatchSizeError(
                describe(
                    "stack: the members have different shapes",
                    at=f"member {member}, {'; '.join(wrong)}",
                    expected="the shapes of member 0",
                    fix="pad them, or keep them in a list",
                )
            )
    return None


def unbind(tree: T, dim: int = 0) -> tuple[T, ...]:
    """Return the trees along a batch dim, which is taken off; the leaves are views."""
    at = batch_dim(tree, dim, "unbind")
    if not tree._leaves:
        size = tree._structure.stored_size()
        return (tree._rebuild((), tree._structure.sized((*size[:at], *size[at + 1 :]))),) * size[at]
    rows = zip(*[leaf.unbind(at) for leaf in tree._leaves], strict=True)
    return tuple([tree._rebuild(row, tree._structure) for row in rows])
