"""Keys moved between levels, renamed together, sorted; trees left without their leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdfunc._errors import KeyPathError, describe, show_path
from tdfunc._typing import Key, T, TensorTree
from tdfunc.structure import KeyPath, Structure, as_path
from tdfunc.structure import empty as no_entries

from ._batch import front, held_size
from ._select import picked, rename_key, unknown_key


def separator(sep: Any, op: str) -> None:
    """Raise if a separator cannot separate."""
    if not isinstance(sep, str) or not sep:
        raise KeyPathError(describe(f"{op}: the separator is no str, or empty", expected="a str such as '.'", got=repr(sep), fix=f"{op}(sep='.')"))


def check_separator(tree: TensorTree, sep: str, op: str) -> None:
    """Raise if a key contains the separator: joined with it, the keys could not be told apart again."""
    separator(sep, op)
    paths: list[KeyPath] = [key if isinstance(key, tuple) else (key,) for key in tree._structure.all_entries()]
    bad = [path for path in paths if sep in path[-1]]
    if bad:
        raise KeyPathError(
            describe(
                f"{op}: a key contains the separator {sep!r}, so the joined keys could not be told apart",
                at="; ".join(map(show_path, bad)),
                expected=f"keys without {sep!r}",
                fix=f"{op}(sep='/'), or another separator that no key contains",
            )
        )


def flatten_keys(tree: T, sep: str) -> T:
    """Return the tree with all entries at the root, their key paths joined."""
    check_separator(tree, sep, "flatten_keys")
    structure, index = tree._structure.flattening(sep)
    return picked(tree, index, structure)


def unflatten_keys(tree: T, sep: str) -> T:
    """Return the tree with the keys of the root taken apart into paths."""
    separator(sep, "unflatten_keys")
    structure, index = tree._structure.unflattening(sep)
    if structure is None:
        raise KeyPathError(
            describe(
                f"unflatten_keys: two entries want one place, the keys taken apart at {sep!r}",
                at=show_path(index),
                expected="keys of which none is the start of another",
                fix="td.rename_key(...) one of them",
            )
        )
    return picked(tree, index, structure)


def sort_keys(tree: T) -> T:
    """Return the tree with the keys of each node in order."""
    structure, index = tree._structure.sorting()
    return picked(tree, index, structure)


def prune(tree: T) -> T:
    """Return the tree without the nodes that hold nothing."""
    structure, index = tree._structure.pruning()
    return picked(tree, index, structure)


def empty(tree: T, *, recurse: bool) -> T:
    """Return a tree of the same batch size without leaves; with `recurse` the nodes and the static values stay."""
    size = held_size(front(tree))
    return tree._rebuild((), tree._structure.emptying().sized(size) if recurse else _bare(size))


def _bare(size: tuple[int, ...]) -> Structure:
    return no_entries().sized(size)  # a method of a structure, which a trace may call


def rename_keys(tree: T, mapping: Mapping[Key, Key]) -> T:
    """Return the tree with several entries under other key paths at once, so that two may change places."""
    pairs = [(as_path(old), as_path(new)) for old, new in mapping.items()]
    for old, _ in pairs:
        if tree._structure.find(old) is None:
            raise unknown_key(tree, old, "rename_keys")
    for i, (old, _) in enumerate(pairs):
        tree = rename_key(tree, old, (*old[:-1], f"\0{i}"))
    for i, (old, new) in enumerate(pairs):
        tree = rename_key(tree, (*old[:-1], f"\0{i}"), new)
    return tree


def with_default(tree: Any, key: Key, value: Any) -> Any:
    """Return the tree with a value under a key path, or as it is where something stands there."""
    return tree if tree._structure.find(as_path(key)) is not None else tree.set(key, value)
