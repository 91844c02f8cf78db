"""Leaves joined: all of them to one tensor, or some of them to one entry; jagged leaves padded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from tdfunc._errors import BatchSizeError, KeyPathError, StructureError, describe, show_path
from tdfunc._typing import Key, T, TensorTree
from tdfunc.structure import KeyPath, as_path

from ._batch import batch_dims
from ._foreach import each
from ._select import exclude, unknown_key
from ._update import set_leaf

_Named: TypeAlias = "list[tuple[KeyPath, Tensor]]"


def stack_leaves(tree: TensorTree, dim: int = 0) -> Tensor:
    """Return the leaves stacked along a new dim."""
    return _stacked(list(zip(tree._structure.paths(), tree._leaves, strict=True)), dim, "stack_leaves", 0)


def cat_leaves(tree: TensorTree, dim: int = 0) -> Tensor:
    """Return the leaves concatenated along a dim."""
    return _catted(list(zip(tree._structure.paths(), tree._leaves, strict=True)), dim, "cat_leaves", 0)


def stack_tensors(tree: T, keys: tuple[Key, ...], out_key: Key, dim: int, *, keep_entries: bool) -> T:
    """Return the tree in which leaves are one entry, stacked along a new dim."""
    named = _leaves_at(tree, keys, "stack_tensors")
    return _replaced(tree, named, out_key, _stacked(named, dim, "stack_tensors", batch_dims(tree)), keep_entries)


def cat_tensors(tree: T, keys: tuple[Key, ...], out_key: Key, dim: int, *, keep_entries: bool) -> T:
    """Return the tree in which leaves are one entry, concatenated along a dim."""
    named = _leaves_at(tree, keys, "cat_tensors")
    return _replaced(tree, named, out_key, _catted(named, dim, "cat_tensors", batch_dims(tree)), keep_entries)


def _leaves_at(tree: TensorTree, keys: tuple[Key, ...], op: str) -> _Named:
    """Return the leaves under these keys, which must be leaves."""
    found: _Named = []
    for path in map(as_path, keys):
        entry = tree._structure.find(path)
        if entry is None:
            raise unknown_key(tree, path, op)
        if not isinstance(entry, int):
            raise KeyPathError(
                describe(f"{op}: no leaf", at=show_path(path), expected="a tensor", got="a subtree or a static value", fix="name the leaves below it")
            )
        found.append((path, tree._leaves[entry]))
    return found


def _replaced(tree: T, named: _Named, out_key: Key, value: Tensor, keep_entries: bool) -> T:
    out = as_path(out_key)
    made = set_leaf(tree, out, value)
    gone = () if keep_entries else tuple([path for path, _ in named if path != out])
    return exclude(made, gone) if gone else made


def _stacked(named: _Named, dim: int, op: str, fixed: int) -> Tensor:
    """Return tensors stacked along a new dim, which may not be one of the first `fixed`."""
    shape = _first_shape(named, op)
    at = _dim(dim, len(shape) + 1, op, fixed, shape)
    _check_shapes(named, op, None)
    return _run(named, op, torch.stack, at)


def _catted(named: _Named, dim: int, op: str, fixed: int) -> Tensor:
    """Return tensors concatenated along a dim, which may not be one of the first `fixed`."""
    shape = _first_shape(named, op)
    at = _dim(dim, len(shape), op, fixed, shape)
    _check_shapes(named, op, at)
    return _run(named, op, torch.cat, at)


def _first_shape(named: _Named, op: str) -> tuple[int, ...]:
    if not named:
        raise StructureError(describe(f"{op}: no leaves to join", expected="at least one", fix="check td.is_empty()"))
    return tuple(named[0][1].shape)


def _dim(dim: Any, dims: int, op: str, fixed: int, shape: tuple[int, ...]) -> int:
    """Return a dim counted from 0, among all dims of the leaves but for the batch dims that stay as they are."""
    if isinstance(dim, bool) or not hasattr(dim, "__index__"):
        raise BatchSizeError(describe(f"{op}: a dim is an int", got=f"{dim!r} of type {type(dim).__name__}", fix=f"td.{op}(..., dim={fixed})"))
    at = dim + dims if dim < 0 else dim
    if not fixed <= at < dims:
        raise BatchSizeError(
            describe(
                f"{op}: dim {dim} is no {'event dim' if fixed else 'dim'} of the leaves",
                expected=f"a dim in [{fixed}, {dims - 1}], or counted from -1 backwards" if dims > fixed else "leaves with event dims",
                got=f"dim {dim}, the first leaf being of shape {shape}" + (f" with {fixed} batch dims" if fixed else ""),
                fix=f"dim={dims - 1}" if dims > fixed else "td.stack_tensors(...), along a new dim",
            )
        )
    return at


def _check_shapes(named: _Named, op: str, free: int | None) -> None:
    """Raise if the shapes of tensors differ, one dim aside."""
    first = named[0][1].shape
    wrong = [
        f"{show_path(path)}: {tuple(leaf.shape)}"
        for path, leaf in named
        if leaf.dim() != len(first) or any(n != m for i, (n, m) in enumerate(zip(leaf.shape, first, strict=True)) if i != free)
    ]
    if wrong:
        raise BatchSizeError(
            describe(
                f"{op}: leaves of different shapes",
                at="; ".join(wrong),
                expected=f"{tuple(first)}" + ("" if free is None else f", but for dim {free}"),
                fix="td.pack(), which takes leaves of any shapes",
            )
        )


def _run(named: _Named, op: str, fn: Callable[..., Tensor], at: int) -> Tensor:
    try:
        return fn([leaf for _, leaf in named], at)
    except (RuntimeError, TypeError) as error:
        error.add_note(f"in {op}, of {'; '.join([show_path(path) for path, _ in named])}")
        raise


def to_padded_tensor(tree: T, padding: float = 0.0) -> T:
    """Return the tree with dense leaves in the place of jagged ones."""

    def padded(leaf: Tensor) -> Tensor:
        return torch.nested.to_padded_tensor(leaf, padding) if leaf.is_nested else leaf

    return tree._rebuild(each(tree, "to_padded_tensor", padded, tree._leaves), tree._structure)
