"""From one structure to the next: memoised, so that a loop which repeats itself costs look-ups.

Each transition gives the next structure and says how the leaves follow: `Splice` where one stretch of them is
replaced, an index otherwise. The memos are bounded; what falls out is computed again and is the same object.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from ._draft import Branch, Leaf, fold, has_leaf, reach, unfold
from ._keys import KeyPath, as_key, as_path
from ._memo import memo
from ._static import Static
from ._table import Spec, Subtree
from ._trie import empty

if TYPE_CHECKING:
    from ._structure import Structure


def _paths(keys: tuple[Any, ...]) -> list[KeyPath]:
    return [as_path(key) for key in keys]


class Splice(NamedTuple):
    """New leaves for the stretch `start:stop` of the old ones; `picks` from old + new leaves where that is not enough."""

    start: int
    stop: int
    picks: tuple[int, ...] | None
    structure: Structure


@memo
def compose(names: tuple[str, ...], specs: tuple[Spec, ...]) -> Structure | None:
    """Return the structure with these entries, none of them tied to another; None where a name is no str.

    A str-enum member is equal to its value and hashes alike: it must give the same, whichever the memo saw first.
    """
    if not all(isinstance(name, str) for name in names):
        return None
    names = tuple(map(as_key, names))
    structure = empty()
    for name, spec in zip(names, specs, strict=True):
        structure = structure.append(name, (spec[0].sized(()), spec[1]) if isinstance(spec, tuple) else spec)
    return structure


@functools.partial(memo, most=512)
def compose_shapes(names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...], size: tuple[int, ...]) -> Structure | None:
    """Return the structure of leaves with these shapes in a tree of this batch size; None where one does not fit."""
    n = len(size)
    if any(shape[:n] != size for shape in shapes):
        return None
    return compose(names, tuple([len(shape) - n for shape in shapes]))


@memo
def setting(structure: Structure, path: KeyPath, spec: Spec) -> Splice | None:
    """Return the structure with a path set; None where the path leads through a leaf or a static value."""
    entry = structure.find(path)
    count = structure.leaf_count
    if entry is None and len(path) == 1 and not isinstance(spec, tuple):
        return Splice(count, count, None, structure.append(path[0], spec))
    if type(entry) is int and type(spec) is int and _rank_at(structure, path, entry) == spec:
        return Splice(entry, entry + 1, None, structure)
    return _set_in_draft(structure, path, spec)


def _rank_at(structure: Structure, path: KeyPath, position: int) -> int:
    return structure.ranks()[position] - extra_at(structure, path[:-1])


def extra_at(structure: Structure, path: KeyPath) -> int:
    """Return how many more batch dims the node at a path has than the root; nodes that do not exist have none more."""
    extra = 0
    for i in range(1, len(path) + 1):
        entry = structure.find(path[:i])
        if type(entry) is not Subtree:
            break
        extra = entry.extra
    return extra


def _set_in_draft(structure: Structure, path: KeyPath, spec: Spec) -> Splice | None:
    draft = unfold(structure)
    node = reach(draft, path)
    if node is None:
        return None
    count = structure.leaf_count
    old = node.items.get(path[-1])
    if isinstance(spec, tuple):
        new = Branch(spec[1], unfold(spec[0], range(count, count + spec[0].leaf_count)).items)
    elif type(spec) is int:
        new = Leaf(spec, count)
    else:
        assert type(spec) is Static
        new = spec
    node.items[path[-1]] = new
    _retie(draft, old, new)
    result, index = fold(draft, structure.size)
    return _as_splice(count, index, result)


def _retie(draft: Branch, old: Leaf | Branch | Static | None, new: Leaf | Branch | Static) -> None:
    """Let the leaves that were tied to a replaced one follow it: setting one path of a tie sets the group."""
    followed = dict(_pairs(old, new))
    if not followed:
        return
    stack = [draft]
    while stack:
        for item in stack.pop().items.values():
            if isinstance(item, Branch):
                stack.append(item)
            elif isinstance(item, Leaf) and item.label in followed:
                item.label, grown = followed[item.label]
                item.rank += grown


def _pairs(old: Leaf | Branch | Static | None, new: Leaf | Branch | Static) -> list[tuple[int, tuple[int, int]]]:
    """Return, for each old leaf that a new one stands for: its label, the new label and the growth of its event rank."""
    if isinstance(old, Leaf) and isinstance(new, Leaf):
        return [(old.label, (new.label, new.rank - old.rank))]
    if isinstance(old, Branch) and isinstance(new, Branch):
        return [pair for name, item in old.items.items() if name in new.items for pair in _pairs(item, new.items[name])]
    return []


def _as_splice(count: int, index: tuple[int, ...], structure: Structure) -> Splice:
    """Return the index into old + new leaves as a replaced stretch where it is one."""
    new = [i for i in index if i >= count]
    start = next((at for at, i in enumerate(index) if i != at or i >= count), len(index))
    tail = index[start + len(new) :]
    stop = count - len(tail)
    if index == (*range(start), *range(count, count + len(new)), *range(stop, count)) and start <= stop:
        return Splice(start, stop, None, structure)
    return Splice(0, 0, index, structure)


@memo
def lacking(structure: Structure, keys: tuple[Any, ...]) -> KeyPath | None:
    """Return the first of the keys, as a path, under which nothing stands; None if all are there."""
    return next((path for path in _paths(keys) if structure.find(path) is None), None)


@memo
def selecting(structure: Structure, keys: tuple[Any, ...]) -> tuple[Structure, tuple[int, ...]]:
    """Return the structure with only what stands under the keys, in the order of the old structure."""
    wanted = set(_paths(keys))
    draft = unfold(structure)

    def keep(node: Branch, at: KeyPath) -> Branch:
        items: dict[str, Leaf | Branch | Static] = {}
        for name, item in node.items.items():
            path = (*at, name)
            if path in wanted:
                items[name] = item
            elif isinstance(item, Branch):
                inner = keep(item, path)
                if inner.items:
                    items[name] = inner
        return Branch(node.extra, items)

    return fold(keep(draft, ()), structure.size)


@memo
def excluding(structure: Structure, keys: tuple[Any, ...]) -> tuple[Structure, tuple[int, ...]]:
    """Return the structure without what stands under the keys; the nodes that held it stay."""
    draft = unfold(structure)
    for path in _paths(keys):
        node: Leaf | Branch | Static | None = draft
        for name in path[:-1]:
            node = node.items.get(name) if isinstance(node, Branch) else None
        if isinstance(node, Branch):
            node.items.pop(path[-1], None)
    return fold(draft, structure.size)


@memo
def keeping(structure: Structure, positions: frozenset[int], statics: bool) -> tuple[Structure, tuple[int, ...]]:
    """Return the structure with only the leaves at these positions under all their paths, and the statics if asked."""
    draft = unfold(structure)

    def keep(node: Branch) -> Branch:
        items: dict[str, Leaf | Branch | Static] = {}
        for name, item in node.items.items():
            if isinstance(item, Branch):
                inner = keep(item)
                if inner.items or (statics and not item.items):
                    items[name] = inner
            elif item.label in positions if isinstance(item, Leaf) else statics:
                items[name] = item
        return Branch(node.extra, items)

    return fold(keep(draft), structure.size)


@memo
def merging(left: Structure, right: Structure) -> tuple[Structure, tuple[int, ...]]:
    """Return the union of two structures, the right one winning; labels count the left leaves, then the right ones."""
    draft = unfold(left)
    count = left.leaf_count
    renamed: list[tuple[Leaf | Branch | Static, Leaf | Branch | Static]] = []

    def merge(into: Branch, other: Branch) -> None:
        for name, item in other.items.items():
            old = into.items.get(name)
            if isinstance(old, Branch) and isinstance(item, Branch):
                # A node without leaves has its parent's batch size: the other one tells how many more dims there are.
                old.extra = min(old.extra, item.extra) if has_leaf(old) and has_leaf(item) else max(old.extra, item.extra)
                merge(old, item)
            else:
                if old is not None:
                    renamed.append((old, item))
                into.items[name] = item

    merge(draft, unfold(right, range(count, count + right.leaf_count)))
    last: dict[int, int] = {}  # what replaces a leaf of the left one: under several paths, the last
    for old, new in renamed:
        last.update({label: follower[0] for label, follower in _pairs(old, new)})
    for old, new in renamed:
        _relabel(new, {follower[0]: last[label] for label, follower in _pairs(old, new)})
    for old, new in renamed:
        _retie(draft, old, new)
    return fold(draft, left.size)


def _relabel(item: Leaf | Branch | Static, labels: dict[int, int]) -> None:
    if isinstance(item, Leaf):
        item.label = labels.get(item.label, item.label)
    elif isinstance(item, Branch):
        for inner in item.items.values():
            _relabel(inner, labels)


@memo
def tying(structure: Structure, groups: tuple[tuple[int, ...], ...]) -> tuple[Structure, tuple[int, ...]]:
    """Return the structure in which each group of leaves is one leaf, the first of the group."""
    first = {i: group[0] for group in groups for i in group}
    return fold(unfold(structure, [first.get(i, i) for i in range(structure.leaf_count)]), structure.size)


@memo
def untying(structure: Structure, paths: tuple[KeyPath, ...]) -> tuple[Structure, tuple[int, ...]]:
    """Return the structure in which each path has a leaf of its own; labels are positions of the old leaves."""
    draft = unfold(structure)
    origin = list(range(structure.leaf_count))
    for path in paths:
        node = reach(draft, path)
        leaf = node.items.get(path[-1]) if node is not None else None
        if isinstance(leaf, Leaf):
            origin.append(leaf.label)
            leaf.label = len(origin) - 1
    result, labels = fold(draft, structure.size)
    return result, tuple(origin[label] for label in labels)


@memo
def renaming(structure: Structure, old: KeyPath, new: KeyPath) -> tuple[Structure, tuple[int, ...]] | None:
    """Return the structure with one entry under another path; in its old place where only its name changes."""
    draft = unfold(structure)
    source = reach(draft, old)
    assert source is not None
    if old[:-1] == new[:-1]:
        source.items = {new[-1] if name == old[-1] else name: item for name, item in source.items.items()}
    else:
        item = source.items.pop(old[-1])
        target = reach(draft, new)
        if target is None:
            return None
        # Event ranks count from the node that holds the leaf; seen from the root they stay.
        deeper = extra_at(structure, new[:-1]) - extra_at(structure, old[:-1])
        if isinstance(item, Leaf):
            item.rank -= deeper
        elif isinstance(item, Branch):
            item.extra -= deeper
        if (item.rank if isinstance(item, Leaf) else item.extra if isinstance(item, Branch) else 0) < 0:
            return None
        target.items[new[-1]] = item
    return fold(draft, structure.size)


@memo
def ranking(structure: Structure, ranks: tuple[int, ...], extras: tuple[int, ...]) -> Structure:
    """Return the structure with other event ranks, and other extra batch dims for the nodes of `structure.extras()`."""
    draft = unfold(structure)
    changed = dict(zip((path for path, _, _ in structure.extras()), extras, strict=True))

    def visit(node: Branch, at: KeyPath, outer: int) -> None:
        node.extra = changed.get(at, node.extra)
        for name, item in node.items.items():
            if isinstance(item, Branch):
                visit(item, (*at, name), outer + node.extra)
            elif isinstance(item, Leaf):
                item.rank = ranks[item.label] - outer - node.extra

    visit(draft, (), 0)
    return fold(draft, structure.size)[0]


@memo
def aligning(structure: Structure, other: Structure) -> tuple[int, ...] | None:
    """Return, for each leaf of `structure`, the position of its leaf in `other`; None if their paths differ.

    Ties are part of what must agree: a group of `structure` may not meet two leaves of `other`.
    """
    theirs = dict(other.slots())
    index: dict[int, int] = {}
    for path, i in structure.slots():
        j = theirs.get(path)
        if j is None or index.setdefault(i, j) != j:
            return None
    matches = len(theirs) == len(structure.slots()) and len(set(index.values())) == other.leaf_count == len(index)
    return tuple(index.values()) if matches else None
