"""Several trees made one: along a new batch dim, or along one that they have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tdfunc._errors import BatchSizeError, StructureError, describe, show_path
from tdfunc._typing import T, TensorTree

from ._compare import same_statics
from ._dims import batch_dim
from ._map import aligned


def stack(trees: Sequence[T], dim: int = 0) -> T:
    """Return the tree whose leaves are stacked along a new batch dim."""
    first, columns = _members(trees, "stack")
    at = batch_dim(first, dim, "stack", new=1)
    if not first._leaves:
        size = first._structure.stored_size()
        _check_sizes(trees, "stack", None)
        return first._rebuild((), first._structure.sized((*size[:at], len(columns), *size[at:])))
    return _joined(first, columns, "stack", None, lambda rows: torch.stack(rows, at))


def cat(trees: Sequence[T], dim: int = 0) -> T:
    """Return the tree whose leaves are concatenated along a batch dim."""
    first, columns = _members(trees, "cat")
    at = batch_dim(first, dim, "cat")
    if not first._leaves:
        sizes = _check_sizes(trees, "cat", at)
        whole = torch.cat([torch.empty(size, device="meta") for size in sizes], at)
        return first._rebuild((), first._structure.sized(tuple(whole.shape)))
    return _joined(first, columns, "cat", at, lambda rows: torch.cat(rows, at))


def _check_sizes(trees: Sequence[TensorTree], op: str, free: int | None) -> list[tuple[int, ...]]:
    """Return the batch sizes of trees without leaves, which must be the same, one dim aside."""
    sizes = [tuple(tree._structure.stored_size()) for tree in trees]
    for member, size in enumerate(sizes):
        if len(size) != len(sizes[0]) or any(n != m for i, (n, m) in enumerate(zip(size, sizes[0], strict=True)) if i != free):
            raise BatchSizeError(
                describe(f"{op}: the members have different batch sizes", at=f"member {member}", expected=sizes[0], got=size, fix="expand one")
            )
    return sizes


def _members(trees: Sequence[T], op: str) -> tuple[T, list[tuple[torch.Tensor, ...]]]:
    """Return the first tree, and the leaves of all in its order."""
    members = tuple(trees)
    if not members:
        raise StructureError(describe(f"{op}: no trees given", expected="at least one", fix=f"{op}([td, ...])"))
    return members[0], [_members_leaves(members[0], tree, i, op) for i, tree in enumerate(members)]


def _joined(first: T, columns: list[Any], op: str, free: int | None, join: Callable[[tuple[torch.Tensor, ...]], torch.Tensor]) -> T:
    try:
        leaves = [join(rows) for rows in zip(*columns, strict=True)]
    except RuntimeError as error:
        raise _unequal_shapes(first, columns, op, free) or error from None
    return first._rebuild(tuple(leaves), first._structure)


def _members_leaves(first: TensorTree, tree: Any, member: int, op: str) -> tuple[torch.Tensor, ...]:
    """Return the leaves of a member in the order of the first; static values must be the same."""
    if getattr(tree, "_structure", None) is None:
        raise StructureError(describe(f"{op}: expected TensorDicts", at=f"member {member}", got=type(tree).__name__, fix="TensorDict(...) it first"))
    if tree._structure is first._structure:
        return tree._leaves
    if not same_statics(first, tree):
        raise StructureError(
            describe(
                f"{op}: the members have different static values",
                at=f"member {member}",
                expected=first._structure.statics(),
                got=tree._structure.statics(),
                fix="td.set(key, value) the same static value in all of them",
            )
        )
    return aligned(first, tree, f"{op} (member {member})")


def _unequal_shapes(first: TensorTree, columns: list[tuple[torch.Tensor, ...]], op: str, free: int | None) -> BatchSizeError | None:
    """Return the error that names the first member with other shapes, one dim aside, if shapes are what is wrong."""

    def fixed(shape: torch.Size) -> tuple[int, ...]:
        return tuple([n for i, n in enumerate(shape) if i != free])

    shapes = [leaf.shape for leaf in first._leaves]
    for member, leaves in enumerate(columns):
        wrong = [
            f"{show_path(path)}: {tuple(leaf.shape)} for {tuple(shape)}"
            for path, leaf, shape in zip(first._structure.paths(), leaves, shapes, strict=True)
            if fixed(leaf.shape) != fixed(shape)
        ]
        if wrong:
            return BatchSizeError(
                describe(
                    f"{op}: the members have different shapes",
                    at=f"member {member}, {'; '.join(wrong)}",
                    expected="the shapes of member 0" + ("" if free is None else f", but for dim {free}"),
                    fix="pad them, or keep them in a list",
                )
            )
    return None
