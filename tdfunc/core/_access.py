"""Reading entries: the way from a key, a path or an index to a leaf, a subtree or a static value."""

from __future__ import annotations

from typing import Any

from tdfunc import ops
from tdfunc.structure import Entry, Subtree, as_path, is_path

from ._slots import construct, views


def fetch(tree: Any, key: Any, entry: Entry | None) -> Any:
    """Return what stands under a key or path, `entry` being what the structure has there."""
    if type(entry) is int:
        return tree._leaves[entry]
    if type(entry) is Subtree:
        return subtree(tree, key, entry)
    if entry is None:
        raise ops.unknown_key(tree, as_path(key), "get")
    return entry.get()  # type: ignore[union-attr]


def path_or_index(tree: Any, key: Any) -> Any:
    """Return `tree[key]` for anything but a plain str: a key path, or an index over batch dims."""
    if not is_path(key):
        return ops.index(tree, key)
    path = as_path(key)
    return fetch(tree, path, tree._structure.find(path))


def subtree(tree: Any, key: Any, entry: Subtree) -> Any:
    """Return the subtree at an entry; the same object each time in eager."""
    kept = views(tree)
    found = kept.get(key)
    if found is None:
        found = kept[key] = _cut(tree, entry)
    return found


def _cut(tree: Any, entry: Subtree) -> Any:
    start, stop, index, structure, _ = entry
    if not structure.count():
        return construct(type(tree), (), structure.sized(tuple(ops.batch_size(tree))))
    leaves = tree._leaves
    cut = leaves[start:stop] if index is None else tuple([leaves[i] for i in index])
    return construct(type(tree), cut, structure)


def children(tree: Any) -> dict[str, Any]:
    """Return the entries under each name of a tree: leaves, subtrees and static values. Not to be changed."""
    entries = tree._structure.entries()
    if tree._structure.is_flat():
        return dict(zip(entries, tree._leaves, strict=True))
    return {name: fetch(tree, name, entry) for name, entry in entries.items()}


def items(tree: Any) -> dict[str, Any]:
    """Return `children`, made once in eager."""
    kept = views(tree)
    found = kept.get(None)
    if found is None:
        found = kept[None] = children(tree)
    return found


def listed(tree: Any, include_nested: bool, leaves_only: bool) -> dict[Any, Any]:
    """Return entries by key for `keys`, `values` and `items`."""
    if include_nested:
        return nested_items(tree, leaves_only=leaves_only)
    return {name: value for name, value in items(tree).items() if not isinstance(value, type(tree))}


def nested_items(tree: Any, *, leaves_only: bool) -> dict[Any, Any]:
    """Return all entries below a tree by path: leaves under every path that they have, subtrees, static values."""
    found: dict[Any, Any] = {}
    for name, value in items(tree).items():
        inner = nested_items(value, leaves_only=leaves_only) if isinstance(value, type(tree)) else None
        if inner is None or not leaves_only:
            found[name] = value
        if inner is not None:
            found.update({(name, *(path if isinstance(path, tuple) else (path,))): item for path, item in inner.items()})
    return found
