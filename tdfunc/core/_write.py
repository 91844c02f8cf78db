"""Setting what a user gives: any value that can be an entry, under any key."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tdfunc import ops
from tdfunc._errors import TdfuncError
from tdfunc.structure import KeyPath, Static, Subtree, as_path

from ._build import TENSORS, build, read, together
from ._slots import Slots, construct


def quick_update(tree: Any, other: dict[Any, Any]) -> Any:
    """Return the tree with tensors of the same shapes under keys that it has, and under new ones; None if it is not that simple."""
    lookup = tree._structure._lookup
    if lookup is None:
        return None
    leaves = list(tree._leaves)
    new: list[tuple[str, Tensor]] = []
    for key, value in other.items():
        at = lookup.get(key)
        if at is None and type(key) is str and type(value) in TENSORS and leaves:
            new.append((key, value))
            continue
        if type(at) is not int or type(value) not in TENSORS or value.shape != leaves[at].shape:
            return None
        leaves[at] = value
    made = construct(type(tree), tuple(leaves), tree._structure)
    if not new:
        return made
    size = ops.front(tree)
    if any(value.shape[: len(size)] != size for _, value in new):
        return None
    for key, value in new:
        made = made.set(key, value)
    return made


def set_entry(tree: Any, key: Any, value: Any) -> Any:
    """Return the tree with a value under a key path."""
    path: KeyPath = (key,) if type(key) is str else as_path(key)
    if isinstance(value, Tensor):
        return ops.set_leaf(tree, path, value)
    problems: list[tuple[type[TdfuncError], str]] = []
    found = read(value, _size_at(tree, path), path, problems)
    if found is None or problems:
        raise problems[0][0](together("set", problems))
    leaves, spec = found
    if isinstance(spec, Static):
        return ops.set_static(tree, path, spec)
    if isinstance(spec, tuple):
        return ops.set_subtree(tree, path, leaves, spec)
    return ops.set_leaf(tree, path, leaves[0])


def _size_at(tree: Any, path: KeyPath) -> tuple[int, ...]:
    """Return the batch size that a new value under a path must start with."""
    size = tuple(ops.batch_size(tree))
    if not tree._structure.extra_at(path[:-1]):
        return size
    node: Any = tree
    for name in path[:-1]:
        node = node.get(name)
        if not isinstance(node, type(tree)):
            break
        size = tuple(ops.batch_size(node))
    return size


def pop(tree: Any, key: Any, default: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return an entry and the tree without it; the default and the tree as it is where the entry is missing."""
    path = as_path(key)
    if tree._structure.find(path) is None:
        if not default:
            raise ops.unknown_key(tree, path, "pop")
        return default[0], tree
    return tree[path], ops.exclude(tree, (path,))


def update(tree: Any, other: Any = (), /, **entries: Any) -> Any:
    """Return the tree with all entries of a tree or a mapping, and those given by keyword."""
    if isinstance(other, Slots) and not entries:
        grown: Any = other
        return ops.update(tree, grown)
    built = build(other, tuple(ops.batch_size(tree)), entries)  # tells all that is wrong
    new = construct(type(tree), *built)
    # What goes into a node with more batch dims has them too: by itself, a mapping does not say so.
    return _set_all(tree, new, ()) if tree._structure.extras() else ops.update(tree, new)


def _set_all(tree: Any, new: Any, at: KeyPath) -> Any:
    """Return the tree with the entries of another set one by one, whatever stands in the way of one gone."""
    for name, value in new.items():
        path = (*at, name)
        for n in range(1, len(path)):
            if tree._structure.find(path[:n]) is not None and type(tree._structure.find(path[:n])) is not Subtree:
                tree = ops.exclude(tree, (path[:n],))
        if isinstance(value, Slots) and type(tree._structure.find(path)) is Subtree:
            tree = _set_all(tree, value, path)
        else:
            tree = set_entry(tree, path, value)
    return tree
