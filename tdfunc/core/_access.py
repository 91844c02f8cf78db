"""Reading entries: the way from a key, a path or an index to a leaf, a subtree or a static value."""

from __future__ import annotations

from collections.abc import ItemsView, KeysView, ValuesView
from typing import Any

from tdfunc import ops
from tdfunc._errors import KeyPathError, describe, show_path
from tdfunc.structure import Entry, Subtree, as_path, is_path

from ._slots import construct, views


def getitem(tree: Any, key: Any) -> Any:
    """Return `tree[key]`: what stands under a key or a key path, or the tree indexed over its batch dims."""
    if not is_path(key):
        return ops.index(tree, key)
    path = as_path(key)
    entry = tree._structure.find(path)
    if entry is None:
        raise ops.unknown_key(tree, path, "get")
    return fetch(tree, key, entry)


def get(tree: Any, key: Any, default: Any = None) -> Any:
    """Return what stands under a key or a key path, or the default."""
    entry = tree._structure.find(as_path(key))
    return default if entry is None else fetch(tree, key, entry)


def get_at(tree: Any, key: Any, index: Any, default: tuple[Any, ...]) -> Any:
    """Return what stands under a key or a key path, indexed; a default where there is one and nothing stands there."""
    path = as_path(key)
    entry = tree._structure.find(path)
    if entry is None and default:
        return default[0]
    found = getitem(tree, path)
    if type(entry) is int or type(entry) is Subtree:
        return found[index]
    raise KeyPathError(
        describe(
            "get_at: a static value has no rows", at=show_path(path), expected="a leaf or a subtree", got=repr(found), fix=f"td[{show_path(path)}]"
        )
    )


def contains(tree: Any, key: Any) -> bool:
    """Say whether something stands under a key or a key path."""
    return is_path(key) and tree._structure.find(as_path(key)) is not None


def fetch(tree: Any, key: Any, entry: Entry) -> Any:
    """Return what stands at an entry of the structure."""
    if type(entry) is int:
        return tree._leaves[entry]
    if type(entry) is Subtree:
        return subtree(tree, key, entry)
    return entry.get()  # type: ignore[union-attr]


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
        return construct(type(tree), (), structure.sized(ops.held_size(ops.batch_size(tree))))
    leaves = tree._leaves
    cut = leaves[start:stop] if index is None else tuple([leaves[i] for i in index])
    return construct(type(tree), cut, structure)


def children(tree: Any) -> dict[str, Any]:
    """Return the entries under each name of a tree: leaves, subtrees and static values. Not to be changed."""
    entries = tree._structure.entries()
    if tree._structure.is_flat():
        return dict(zip(entries, tree._leaves, strict=True))
    return {name: fetch(tree, name, entry) for name, entry in entries.items()}


def kept_children(tree: Any) -> dict[str, Any]:
    """Return `children`, made once in eager."""
    kept = views(tree)
    found = kept.get(None)
    if found is None:
        found = kept[None] = children(tree)
    return found


def keys(tree: Any, include_nested: bool = False, leaves_only: bool = False) -> KeysView[Any]:
    """Return the keys of a tree, of all below it, of leaves only."""
    structure = tree._structure
    if leaves_only:
        return structure.leaf_keys().keys() if include_nested else _listed(tree, False, True).keys()
    return (structure.all_entries() if include_nested else structure.entries()).keys()


def values(tree: Any, include_nested: bool = False, leaves_only: bool = False) -> ValuesView[Any]:
    """Return the entries of a tree, of all below it, leaves only."""
    return _listed(tree, include_nested, leaves_only).values()


def items(tree: Any, include_nested: bool = False, leaves_only: bool = False) -> ItemsView[Any, Any]:
    """Return the pairs of key and entry of a tree, of all below it, leaves only."""
    return _listed(tree, include_nested, leaves_only).items()


def _listed(tree: Any, include_nested: bool, leaves_only: bool) -> dict[Any, Any]:
    leaves = tree._leaves
    if leaves_only:
        keys = tree._structure.leaf_keys().items()
        return {key: leaves[i] for key, i in keys if include_nested or type(key) is str}
    if not include_nested:
        return kept_children(tree)
    entries = tree._structure.all_entries().items()
    return {key: leaves[entry] if type(entry) is int else fetch(tree, key, entry) for key, entry in entries}
