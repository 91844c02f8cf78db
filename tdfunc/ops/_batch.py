"""The batch size of a tree: derived from its leaves, never stored."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from tdfunc._errors import BatchSizeError, describe, show_path
from tdfunc._typing import Size, T, TensorTree
from tdfunc.structure import KeyPath, Structure, Subtree

_INTS = (int, torch.SymInt)


def batch_size(tree: TensorTree) -> torch.Size:
    """Return the longest leading shape on which all leaves agree, event dims aside."""
    structure, leaves = tree._structure, tree._leaves
    if not leaves:
        return torch.Size(structure.stored_size())
    common: tuple[int, ...] | None = None
    for leaf, rank in zip(leaves, structure.ranks(), strict=True):
        shape = _shape(leaf)
        batch = shape[: max(0, len(shape) - rank)]
        common = batch if common is None else common_prefix(common, batch)
        if not common:
            break
    return torch.Size(common or ())


def _shape(leaf: Any) -> tuple[int, ...]:
    # An unflattened tree may hold anything: what has no shape has no batch dims.
    return leaf.shape if isinstance(leaf, Tensor) else ()


def common_prefix(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the longest start that two shapes have in common."""
    n = min(len(a), len(b))
    while n and a[:n] != b[:n]:
        n -= 1
    return a[:n]


def batch_dims(tree: TensorTree) -> int:
    """Return the number of batch dims, told by the first leaf: all agree, but in a tree that a raw tree_map bent."""
    leaves = tree._leaves
    rank = tree._structure.first_rank()
    return max(0, leaves[0].dim() - rank) if leaves else -rank


def front(tree: TensorTree) -> tuple[int, ...]:
    """Return the batch size as the first leaf tells it."""
    leaves = tree._leaves
    return leaves[0].shape[: batch_dims(tree)] if leaves else tree._structure.stored_size()


def front_at(tree: TensorTree, path: KeyPath, extra: int) -> tuple[int, ...]:
    """Return the batch size at the node that holds a path, as its first leaf tells it."""
    if not extra:
        return front(tree)
    node: Any = tree._structure.find(path[:-1])
    while type(node) is not Subtree or not node.structure.count():  # made on the way, or without leaves
        path = path[:-1]
        node = tree._structure.find(path[:-1])
    return tree._leaves[node.leaf(0)].shape[: batch_dims(tree) + extra]


def held_size(size: Iterable[Any]) -> tuple[int, ...]:
    """Return a batch size that a structure without leaves can hold: of numbers, not of symbols.

    A symbolic size becomes the number that it stands for, which makes a guard of it, so a trace for each. (The length of a
    range is how Dynamo, in torch 2.13, is told so; it does not trace `int` and `operator.index` to a number.)
    """
    return tuple([n if type(n) is int else len(range(n)) for n in size])


def as_size(size: Size) -> tuple[int, ...]:
    """Return a batch size given as an int or a sequence as a tuple."""
    kind = type(size)
    if kind is torch.Size:
        return size  # type: ignore[return-value]
    given: Any = size if kind is tuple or kind is list else (size,)
    for n in given:
        if type(n) is not int or n < 0:
            given = [_as_int(n) for n in given]
            break
    if None not in given:
        return tuple(given)
    raise BatchSizeError(
        describe("a batch size is an int or a sequence of ints, none negative", got=f"{size!r} of type {type(size).__name__}", fix="pass e.g. (3, 4)")
    )


def _as_int(n: Any) -> Any:
    """Return a dim of a batch size, be it a symbolic or a numpy integer; None if it is none."""
    if isinstance(n, torch.SymInt):
        return n
    if isinstance(n, Tensor | bool) or not hasattr(n, "__index__") or n < 0:
        return None
    return operator.index(n)


def rederive(tree: TensorTree, leaves: Sequence[Tensor]) -> Structure:
    """Return the structure for new leaves of a tree: the batch dims stay as far as the leading dims still match."""
    structure = tree._structure
    old = tree._leaves
    if not old:
        return structure
    size = front(tree)
    if not size and not structure.extras():
        ranks = tuple([leaf.dim() for leaf in leaves])
        return structure if ranks == structure.ranks() else structure.ranking(ranks, ())
    shapes = [leaf.shape for leaf in leaves]
    kept = _kept(size, shapes)
    ranks = tuple([len(shape) - kept for shape in shapes])
    if structure.extras():
        return _with_extras(tree, shapes, ranks, kept)
    return structure if ranks == structure.ranks() else structure.ranking(ranks, ())


def _with_extras(tree: TensorTree, shapes: list[torch.Size], ranks: tuple[int, ...], kept: int) -> Structure:
    """Return the structure with these event ranks, each nested node's extra batch dims as far as its leaves still agree."""
    structure = tree._structure
    totals: dict[tuple[str, ...], tuple[int, int]] = {(): (batch_dims(tree), kept)}  # path -> batch dims before and after
    changed: list[int] = []
    for path, extra, at in structure.extras():
        above = next(totals[path[:n]] for n in range(len(path) - 1, -1, -1) if path[:n] in totals)
        before = above[0] + extra
        after = max(above[1], _kept(tree._leaves[at[0]].shape[:before], [shapes[i] for i in at])) if at else above[1]
        totals[path] = (before, after)
        changed.append(after - above[1])
    return structure.ranking(ranks, tuple(changed))


def _kept(size: tuple[int, ...], shapes: Sequence[tuple[int, ...]]) -> int:
    n = len(size)
    for shape in shapes if n else ():  # no set of them: a hash would make a symbolic size a number
        while n and shape[:n] != size[:n]:
            n -= 1
    return n


def with_batch_size(tree: T, size: Size) -> T:
    """Return the tree with another batch size, over the same leaves."""
    wanted = as_size(size)
    structure, leaves = tree._structure, tree._leaves
    if not leaves:
        return tree._rebuild(leaves, structure.sized(held_size(wanted)))
    n = len(wanted)
    wrong = [
        f"{show_path(path)}: shape {tuple(leaf.shape)}" for path, leaf in zip(structure.paths(), leaves, strict=True) if leaf.shape[:n] != wanted
    ]
    if wrong:
        raise BatchSizeError(
            describe(
                "with_batch_size: leaves whose shape does not start with the batch size",
                at="; ".join(wrong),
                expected=f"shapes that start with {wanted}",
                fix=f"td.with_batch_size({tuple(batch_size(tree))})",
            )
        )
    dims = batch_dims(tree)
    totals: dict[tuple[str, ...], tuple[int, int]] = {(): (dims, n)}
    changed: list[int] = []
    for path, extra, _ in structure.extras():
        above = next(totals[path[:k]] for k in range(len(path) - 1, -1, -1) if path[:k] in totals)
        before = above[0] + extra
        totals[path] = (before, max(before, above[1]))
        changed.append(totals[path][1] - above[1])
    ranks = tuple(leaf.dim() - n for leaf in leaves)
    return tree._rebuild(leaves, structure.ranking(ranks, tuple(changed)))


def auto_batch_size(tree: T) -> T:
    """Return the tree with the longest batch size that its leaves' shapes allow."""
    leaves = tree._leaves
    if not leaves:
        return tree
    common: tuple[int, ...] = tuple(leaves[0].shape)
    for leaf in leaves[1:]:
        common = common_prefix(common, tuple(leaf.shape))
    return with_batch_size(tree, tuple(common))
