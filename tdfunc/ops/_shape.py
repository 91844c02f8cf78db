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
    if any(getattr(tree, "_structure", None) is None for tree in trees):
        raise StructureError(
            describe("stack: expected TensorDicts", got=[type(tree).__name__ for tree in trees], fix="TensorDict(...) each of them first")
        )
    columns = _columns(trees)
    at = batch_dim(first, dim, "stack", new=1)
    if not first._leaves:
        size = first._structure.stored_size()
        return first._rebuild((), first._structure.sized((*size[:at], len(trees), *size[at:])))
    return first._rebuild(tuple([torch.stack(leaves, at) for leaves in zip(*columns, strict=True)]), first._structure)


def _columns(trees: tuple[Any, ...]) -> list[tuple[torch.Tensor, ...]]:
    """Return the leaves of each tree in the order of the first, all shapes and statics compared."""
    first = trees[0]
    columns = [first._leaves]
    shapes = [leaf.shape for leaf in first._leaves]
    for member, tree in enumerate(trees[1:], 1):
        leaves = aligned(first, tree, f"stack (member {member})")
        if tree._structure is not first._structure and not same_statics(first, tree):
            raise StructureError(
                describe(
                    "stack: the members have different static values",
                    at=f"member {member}",
                    expected=first._structure.statics(),
                    got=tree._structure.statics(),
                    fix="td.set(key, value) the same static value in all of them",
                )
            )
        if [leaf.shape for leaf in leaves] != shapes:
            wrong = [
                f"{show_path(path)}: {tuple(leaf.shape)} for {tuple(shape)}"
                for path, leaf, shape in zip(first._structure.paths(), leaves, shapes, strict=True)
                if leaf.shape != shape
            ]
            raise BatchSizeError(
                describe(
                    "stack: the members have different shapes",
                    at=f"member {member}, {'; '.join(wrong)}",
                    expected="the shapes of member 0",
                    fix="pad them, or keep them in a list",
                )
            )
        columns.append(leaves)
    return columns


def unbind(tree: T, dim: int = 0) -> tuple[T, ...]:
    """Return the trees along a batch dim, which is taken off; the leaves are views."""
    at = batch_dim(tree, dim, "unbind")
    if not tree._leaves:
        size = tree._structure.stored_size()
        return (tree._rebuild((), tree._structure.sized((*size[:at], *size[at + 1 :]))),) * size[at]
    rows = zip(*[leaf.unbind(at) for leaf in tree._leaves], strict=True)
    return tuple([tree._rebuild(row, tree._structure) for row in rows])
