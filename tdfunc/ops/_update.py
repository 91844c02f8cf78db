"""Setting entries: the same tree but for one path, or for many."""

from __future__ import annotations

from torch import Tensor

from tdfunc._errors import BatchSizeError, KeyPathError, describe, show_path
from tdfunc._typing import T, TensorTree
from tdfunc.structure import KeyPath, Splice, Static, Structure

from ._batch import batch_size, front_at, held_size
from ._select import merge


def set_leaf(tree: T, path: KeyPath, value: Tensor) -> T:
    """Return the tree with a tensor under a path."""
    leaves = tree._leaves
    structure = tree._structure
    extra = structure.extra_at(path[:-1]) if len(path) > 1 else 0
    dims = (leaves[0].dim() if leaves else 0) - structure.first_rank() + extra
    if dims > 0 and value.shape[:dims] != front_at(tree, path, extra):
        dims = _checked_dims(tree, path, tuple(value.shape), extra)
    return spliced(tree, path, structure.setting(path, value.dim() - max(dims, 0)), (value,))


def _checked_dims(tree: TensorTree, path: KeyPath, shape: tuple[int, ...], extra: int) -> int:
    """Return the number of batch dims at a path where the first leaf told too many, or raise."""
    size = tuple(batch_size(tree)) if not extra else tuple(front_at(tree, path, extra))
    if shape[: len(size)] != size:
        raise BatchSizeError(
            describe(
                "set: the shape does not start with the batch size",
                at=show_path(path),
                expected=f"a shape that starts with {size}",
                got=shape,
                fix=f"value.expand({', '.join(map(str, size))}, ...), or td.with_batch_size(...) first",
            )
        )
    return len(size)


def set_static(tree: T, path: KeyPath, value: Static) -> T:
    """Return the tree with a static value under a path."""
    return spliced(tree, path, tree._structure.setting(path, value), ())


def set_subtree(tree: T, path: KeyPath, leaves: tuple[Tensor, ...], spec: tuple[Structure, int]) -> T:
    """Return the tree with a subtree under a path, whole: what was there is gone."""
    return spliced(tree, path, tree._structure.setting(path, spec), leaves)


def spliced(tree: T, path: KeyPath, move: Splice | None, new: tuple[Tensor, ...]) -> T:
    """Return the tree after a move of its structure, with the new leaves."""
    if move is None:
        raise KeyPathError(
            describe(
                "set: the key path leads through a leaf or a static value",
                at=show_path(path),
                expected="subtrees up to the last key",
                fix=f"td.exclude(...) what is in the way, or td.update(...), where the right one wins ({show_path(path[:1])})",
            )
        )
    start, stop, index, structure = move
    leaves = tree._leaves
    if index is not None:
        pool = leaves + new
        made = tuple([pool[i] for i in index])
    else:
        made = leaves[:start] + new + leaves[stop:]
    if not made:
        structure = structure.sized(held_size(batch_size(tree)))
    return tree._rebuild(made, structure)


def update(tree: T, other: TensorTree) -> T:
    """Return the tree with all entries of another: subtrees are merged, and where a leaf meets a subtree `other` wins."""
    return merge(tree, other)
