"""Maps over the leaves of one tree, or of several with the same paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from tdfunc._errors import StructureError, describe, show_path
from tdfunc._typing import T, TensorTree

from ._batch import rederive


def aligned(tree: TensorTree, other: Any, op: str) -> tuple[Tensor, ...]:
    """Return the leaves of `other` in the order of those of `tree`.

    Raises:
        StructureError: If `other` is no tree, or the paths or ties of the two differ.
    """
    theirs = getattr(other, "_structure", None)
    if theirs is tree._structure:
        return other._leaves
    if theirs is None:
        raise StructureError(describe(f"{op}: expected another TensorDict", got=type(other).__name__, fix="wrap it: TensorDict(...)"))
    index = tree._structure.aligning(theirs)
    if index is None:
        raise StructureError(
            describe(
                f"{op}: the trees have different leaves",
                at=tree._structure.distinction(theirs),
                expected="the same key paths, tied alike",
                got="that, from the first tree to the second",
                fix=f"td.select(...) the common keys before {op}",
            )
        )
    return tuple([other._leaves[i] for i in index])


def as_leaf(value: Any, op: str, path: Iterable[str]) -> Tensor:
    """Return a function's result as a tensor; numbers and arrays become tensors."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, bool | int | float | complex) or hasattr(value, "__array__"):
        return torch.as_tensor(value)
    raise StructureError(
        describe(
            f"{op}: the function must return a tensor for each leaf",
            at=show_path(path),
            expected="a tensor",
            got=f"{value!r} of type {type(value).__name__}",
            fix="return a tensor; to drop leaves, use td.filter(pred)",
        )
    )


def tree_map(tree: T, fn: Callable[..., Any], *others: Any) -> T:
    """Return the tree of `fn(leaf, *leaves of the others)`."""
    columns = [aligned(tree, other, "map") for other in others]
    results = [fn(*leaves) for leaves in zip(tree._leaves, *columns, strict=True)] if columns else [fn(leaf) for leaf in tree._leaves]
    return rebuilt(tree, results, "map")


def tree_map_with_path(tree: T, fn: Callable[..., Any], *others: Any) -> T:
    """Return the tree of `fn(path, leaf, *leaves of the others)`; a tied leaf is seen once, under its first path."""
    columns = [aligned(tree, other, "map_with_path") for other in others]
    paths = tree._structure.paths()
    results = [fn(path, *leaves) for path, *leaves in zip(paths, tree._leaves, *columns, strict=True)]
    return rebuilt(tree, results, "map_with_path")


def rebuilt(tree: T, results: list[Any], op: str) -> T:
    """Return a tree of a function's results, its event ranks derived anew."""
    for i, result in enumerate(results):
        if not isinstance(result, Tensor):
            results[i] = as_leaf(result, op, tree._structure.paths()[i])
    return tree._rebuild(tuple(results), rederive(tree, results))


def leafwise(tree: T, fn: Callable[[Tensor], Tensor]) -> T:
    """Return the tree of `fn(leaf)` for a function that keeps the shape."""
    return tree._rebuild(tuple([fn(leaf) for leaf in tree._leaves]), tree._structure)
