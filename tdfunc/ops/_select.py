"""Choosing and joining entries: select, exclude, filter, partition, merge, rename, tie."""

from __future__ import annotations

from typing import Any

from tdfunc._errors import BatchSizeError, KeyPathError, StructureError, describe, nearest, show_path
from tdfunc._typing import Key, T, TensorTree
from tdfunc.structure import KeyPath, Structure, Subtree, as_path, is_pattern

from ._batch import batch_size, common_prefix, front, front_at, held_size, with_batch_size


def unknown_key(tree: TensorTree, path: KeyPath, op: str) -> KeyPathError:
    """Return the error for a path that is not there, with the nearest names."""
    structure: Any = tree._structure
    depth = 0
    for depth in range(len(path)):
        if structure.find(path[: depth + 1]) is None:
            break
    entry = structure.find(path[:depth]) if depth else None
    names = list(structure.entries() if not depth else getattr(getattr(entry, "structure", None), "entries", dict)())
    dotted = _split(structure, path)
    shown = ", ".join(map(repr, names[:12])) + (", ..." if len(names) > 12 else "")
    return KeyPathError(
        describe(
            f"{op}: no entry {show_path(path)}{nearest(path[depth], names)}",
            at=show_path(path[:depth]),
            expected=f"one of {shown}" if names else "a subtree there",
            got=repr(path[depth]),
            fix=f"td[{show_path(dotted)}], one name per level"
            if dotted
            else f"td.get({path if len(path) > 1 else path[0]!r}) gives None for what is missing",  # pyright: ignore[reportGeneralTypeIssues] - a path is never empty
        )
    )


def _split(structure: Any, path: KeyPath) -> KeyPath:
    """Return the path that is meant by names joined with dots, as in a state dict; the empty one if there is none."""
    parts = tuple([part for name in path for part in name.split(".")])
    return parts if len(parts) > len(path) and all(parts) and structure.find(parts) is not None else ()


def picked(tree: T, leaf_index: tuple[int, ...], structure: Structure) -> T:
    leaves = tree._leaves
    if not leaf_index:
        structure = structure.sized(held_size(batch_size(tree)))
    return tree._rebuild(tuple([leaves[i] for i in leaf_index]), structure)


def select(tree: T, keys: tuple[Any, ...], *, strict: bool = True) -> T:
    """Return the tree with only the entries under these keys, those that patterns match, and the leaves of predicates."""
    if any(map(callable, keys)):
        return _by_leaf(tree, keys, "select", inside=True)
    paths, missing = tree._structure.expanding(_normal(keys))
    if strict and missing is not None:
        raise _names_nothing(tree, as_path(missing), "select")
    structure, index = tree._structure.selecting(paths)
    return picked(tree, index, structure)


def exclude(tree: T, keys: tuple[Any, ...]) -> T:
    """Return the tree without the entries under these keys; what is not there anyway does not matter."""
    if any(map(callable, keys)):
        return _by_leaf(tree, keys, "exclude", inside=False)
    structure, index = tree._structure.excluding(tree._structure.expanding(_normal(keys))[0])
    return picked(tree, index, structure)


def _by_leaf(tree: T, wheres: tuple[Any, ...], op: str, *, inside: bool) -> T:
    hits = [any(column) for column in zip(*[chosen(tree, where, op) for where in wheres], strict=True)]
    structure, index = tree._structure.keeping(tuple([i for i, hit in enumerate(hits) if hit is inside]), not inside)
    return picked(tree, index, structure)


def _names_nothing(tree: TensorTree, path: KeyPath, op: str) -> KeyPathError:
    """Return the error for a key or a pattern that names nothing."""
    if not is_pattern(path):
        return unknown_key(tree, path, op)
    return KeyPathError(
        describe(
            f"{op}: no entry matches the pattern {show_path(path)}",
            expected=f"a pattern for some of {', '.join(map(repr, list(tree._structure.entries())[:12]))}",
            got=show_path(path),
            fix="one glob a level, '**' for any number of levels: ('layers', '*', 'weight')",
        )
    )


def chosen(tree: TensorTree, where: Any, op: str) -> tuple[bool, ...]:
    """Say for each leaf whether it is meant.

    Args:
        tree: The tree.
        where: A predicate of `(path, leaf)`, called once for a tied leaf; a key, key path or pattern, for the leaf or
            the subtree under it; or a list of these, any of which may hold.
        op: What the user called, for messages.
    """
    structure = tree._structure
    if callable(where):
        return tuple([bool(where(path, leaf)) for path, leaf in zip(structure.paths(), tree._leaves, strict=True)])
    given: list[Any] = list(where) if isinstance(where, list | set | frozenset) else [where]
    hits, missing = structure.covering(tuple([as_path(item) for item in given if not callable(item)]))
    if missing is not None:
        raise _names_nothing(tree, missing, op)
    columns = [hits, *[chosen(tree, item, op) for item in given if callable(item)]]
    return hits if len(columns) == 1 else tuple([any(column) for column in zip(*columns, strict=True)])


def _normal(keys: tuple[Key, ...]) -> tuple[Key, ...]:
    return tuple([key if type(key) is str else as_path(key) for key in keys])


def require(tree: TensorTree, keys: tuple[Key, ...], op: str) -> None:
    """Raise if nothing stands under one of the keys, given in normal form."""
    missing = tree._structure.lacking(keys)
    if missing is not None:
        raise unknown_key(tree, missing, op)


def filter_leaves(tree: T, where: Any) -> T:
    """Return the tree of the leaves that are meant, with the static values."""
    return partition(tree, where, "filter")[0]


def partition(tree: T, where: Any, op: str = "partition") -> tuple[T, T]:
    """Return the tree of the leaves that are meant, and that of the others; static values are in both."""
    structure = tree._structure
    hits = chosen(tree, where, op)
    yes = structure.keeping(tuple([i for i, hit in enumerate(hits) if hit]), True)
    no = structure.keeping(tuple([i for i, hit in enumerate(hits) if not hit]), True)
    return picked(tree, yes[1], yes[0]), picked(tree, no[1], no[0])


def split_keys(tree: T, *wheres: Any) -> tuple[T, ...]:
    """Return a tree for each of several sets of leaves, and one of the rest; a leaf goes to the first set that has it."""
    structure = tree._structure
    columns = [chosen(tree, where, "split_keys") for where in wheres]
    parts: list[T] = []
    taken = [False] * structure.count()
    for column in columns:
        positions = tuple([i for i, hit in enumerate(column) if hit and not taken[i]])
        taken = [a or b for a, b in zip(taken, column, strict=True)]
        kept, index = structure.keeping(positions, False)
        parts.append(picked(tree, index, kept))
    rest, index = structure.keeping(tuple([i for i, hit in enumerate(taken) if not hit]), True)
    return (*parts, picked(tree, index, rest))


def merge(first: T, *others: TensorTree) -> T:
    """Return the union of trees; under a key path that several have, the last one wins."""
    for other in others:
        if getattr(other, "_structure", None) is None:
            raise StructureError(describe("merge: expected TensorDicts", got=type(other).__name__, fix="TensorDict(...) first"))
        first, other = _agreed(first, other)
        structure, index = first._structure.merging(other._structure)
        pool = first._leaves + other._leaves
        first = first._rebuild(tuple([pool[i] for i in index]), structure)
    return first


def _agreed(first: T, other: Any) -> tuple[T, Any]:
    """Return two trees with the batch dims on which both agree; one without leaves agrees to all."""
    if not first._leaves or not other._leaves:
        return first, other
    if first._structure.first_rank() == other._structure.first_rank() and first._leaves[0].shape == other._leaves[0].shape:
        return first, other
    ours, theirs = front(first), front(other)
    if ours == theirs:
        return first, other
    common = common_prefix(ours, theirs)
    return with_batch_size(first, common), with_batch_size(other, common)


def rename_key(tree: T, old: Key, new: Key) -> T:
    """Return the tree with an entry under another key path."""
    source, target = as_path(old), as_path(new)
    structure = tree._structure
    if structure.find(source) is None:
        raise unknown_key(tree, source, "rename_key")
    if source == target:
        return tree
    moved = structure.renaming(source, target) if structure.find(target) is None else None
    if moved is None:
        raise KeyPathError(
            describe(
                "rename_key: the new key is taken, or leads through a leaf, or into a node with more batch dims than the entry has",
                at=show_path(target),
                expected="a key path that is free",
                fix=f"td.exclude({target!r}) first",
            )
        )
    _check_moved(tree, source, target)
    return picked(tree, moved[1], moved[0])


def _check_moved(tree: TensorTree, source: KeyPath, target: KeyPath) -> None:
    """Raise if an entry that moves into a node with more batch dims has other sizes there."""
    structure = tree._structure
    extra = structure.extra_at(target[:-1])
    if extra <= structure.extra_at(source[:-1]):
        return
    size = front_at(tree, target, extra)
    entry: Any = structure.find(source)
    at = [entry] if type(entry) is int else [entry.leaf(i) for i in range(entry.structure.count())] if type(entry) is Subtree else []
    for i in at:
        if tree._leaves[i].shape[: len(size)] != size:
            raise BatchSizeError(
                describe(
                    "rename_key: the shape does not start with the batch size at the new key",
                    at=show_path(target),
                    expected=f"a shape that starts with {tuple(size)}",
                    got=tuple(tree._leaves[i].shape),
                    fix="another key, or expand the entry first",
                )
            )


def tie(tree: T, keys: tuple[Key, ...]) -> T:
    """Return the tree in which the paths share one leaf: that of the first path."""
    positions: list[int] = []
    keys = _normal(keys)
    require(tree, keys, "tie")
    for path in map(as_path, keys):
        entry = tree._structure.find(path)
        if type(entry) is not int:
            raise KeyPathError(describe("tie: not a leaf", at=show_path(path), fix="tie the leaves of the subtree one by one"))
        positions.append(entry)
    shapes = [tree._leaves[i].shape for i in positions]
    wrong = [shape for shape in shapes[1:] if shape != shapes[0]]
    if wrong:
        raise StructureError(
            describe("tie: leaves of different shapes", at=keys, expected=tuple(shapes[0]), got=tuple(wrong[0]), fix="tie leaves of one shape")
        )
    first = positions[0] if positions else 0
    structure, index = tree._structure.tying(((first, *[i for i in positions if i != first]),) if positions else ())
    return picked(tree, index, structure)


def untie(tree: T, keys: tuple[Key, ...]) -> T:
    """Return the tree in which each of the paths has a leaf of its own, with the value it had."""
    keys = _normal(keys)
    require(tree, keys, "untie")
    structure, index = tree._structure.untying(tuple([as_path(key) for key in keys]))
    return picked(tree, index, structure)


def in_order_of(tree: T, model: TensorTree) -> T:
    """Return a tree with its keys in the order of another one; keys that the other has not stay behind."""
    structure, index = model._structure.merging(tree._structure)
    if structure.count() != tree._structure.count():  # the other has leaves that this one has not
        return tree
    offset = model._structure.count()
    return tree._rebuild(tuple([tree._leaves[i - offset] for i in index]), structure) if min(index, default=offset) >= offset else tree
