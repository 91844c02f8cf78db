"""How structures are kept: hash-consed, in a tree of continuations, with tables that can be computed again."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from ._keys import KeyPath
from ._memo import memo
from ._static import Static
from ._table import Entry, Spec, Subtree, Table, Tables

if TYPE_CHECKING:
    from ._structure import Structure


# Re-entrant, because a garbage collection inside the locked part may call `_unlink` in the same thread.
_LOCK = threading.RLock()


class _Link(weakref.ref["Structure"]):
    """A parent's weak reference to a structure that continues it; leaves the parent's table when the child dies."""

    __slots__ = ("home", "key")

    home: dict[Any, _Link]
    key: Any


def _unlink(link: Any, lock: threading.RLock = _LOCK) -> None:  # bound here, for when the interpreter shuts down
    with lock:  # without it, a thread that just made a new child under this key would lose it
        if link.home.get(link.key) is link:
            del link.home[link.key]


_tables = Tables(limit=200_000)


class Trie:
    """A structure as its parent, one entry shorter, plus one entry.

    Each parent knows its continuations (weakly), so two equal structures are the same object: the tree of all structures
    is the intern table, and a chain of sets shares everything but its ends.

    An entry is `(name, spec, where)`: for a leaf, the spec is its event rank; for a nested node, its own structure and
    how many more batch dims it has; or a static value. `where` is None unless a tie reaches outside the entry: then it
    names, per leaf of the entry, the earlier leaf that it is (-1 for a new one).
    """

    __slots__ = ("__weakref__", "_links", "_lookup", "_table", "entry", "leaf_count", "parent", "rank", "size", "width")

    parent: Trie | None
    entry: tuple[str, Spec, tuple[int, ...] | None] | None
    leaf_count: int
    width: int
    size: tuple[int, ...]
    rank: int
    """The event rank of the first leaf; without leaves, minus the number of batch dims."""
    _links: dict[Any, _Link]
    _table: Table | None
    _lookup: dict[Any, Entry] | None

    kind: ClassVar[type[Structure]]
    """The one class whose instances the trie is made of."""

    def __init_subclass__(cls) -> None:
        Trie.kind = cls  # type: ignore[assignment]

    # --- identity -----------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __copy__(self: Self) -> Self:
        return self

    def __deepcopy__(self: Self, memo: dict[int, Any]) -> Self:
        return self

    # --- growth: the only way to a new structure ----------------------------------------------------------------

    def append(self, name: str, spec: Spec, where: tuple[int, ...] | None = None) -> Structure:
        """Return the structure with one more entry; the name must be new."""
        fresh = _fresh(spec, where)
        parent: Trie = empty() if fresh and self.size else self
        if parent is not self:  # the first leaf makes the stored batch size superfluous
            for entry in self._chain():
                parent = parent.append(*entry)
        return parent._continue((name, spec, where), parent.leaf_count + fresh)

    def _continue(self, entry: tuple[str, Spec, tuple[int, ...] | None], leaf_count: int) -> Structure:
        with _LOCK:
            link = self._links.get(entry)
            child = link() if link is not None else None
            if child is None:
                child = _make(self, entry, leaf_count, self.size)
                link = _Link(child, _unlink)
                link.home, link.key = self._links, entry
                self._links[entry] = link
            return child

    def sized(self, size: tuple[int, ...]) -> Structure:
        """Return the structure, holding a batch size if it has no leaf to tell it."""
        if self.leaf_count or size == self.size:
            return cast("Structure", self)
        structure = empty(size)
        for entry in self._chain():
            structure = structure.append(*entry)
        return structure

    def _chain(self, since: Trie | None = None) -> list[tuple[str, Spec, tuple[int, ...] | None]]:
        """Return the entries after those of `since`, or all."""
        entries: list[tuple[str, Spec, tuple[int, ...] | None]] = []
        node: Trie = self
        while node is not since and node.parent is not None:
            assert node.entry is not None
            entries.append(node.entry)
            node = node.parent
        return entries[::-1]

    # --- reading ------------------------------------------------------------------------------------------------

    def find(self, key: Any) -> Entry | None:
        """Return what stands under a key or a path, positions counted in this structure; None if nothing does."""
        try:
            entry = self._lookup.get(key)  # type: ignore[union-attr]
        except AttributeError:
            entry = self._read().lookup.get(key)
        if entry is None and type(key) is tuple and key:
            entry = self._descend(key)
        return entry

    def _descend(self, path: tuple[Any, ...]) -> Entry | None:
        entry = self.find(path[0])
        if len(path) > 1:
            if type(entry) is not Subtree:
                return None
            inner = entry.structure.find(path[1:])
            if type(inner) is int:
                entry = entry.leaf(inner)
            elif type(inner) is Subtree:
                entry = _nest(entry, inner)
            else:
                return inner
        if entry is not None:
            self._read().lookup[path] = entry
        return entry

    def entries(self) -> dict[str, Entry]:
        """Return what stands under each name, in order. Not to be changed."""
        return self._read().entries

    def ranks(self) -> tuple[int, ...]:
        """Return the event rank of each leaf: how many of its trailing dims are no batch dims of this tree."""
        return self._read().ranks

    def slots(self) -> tuple[tuple[KeyPath, int], ...]:
        """Return every path to a leaf with the leaf's position, depth first; a tied leaf has several."""
        table = self._read()
        if table.slots is None:
            table.slots = tuple(self._walk())
        return table.slots

    def _walk(self) -> Iterator[tuple[KeyPath, int]]:
        for name, entry in self.entries().items():
            if type(entry) is int:
                yield (name,), entry
            elif type(entry) is Subtree:
                for path, i in entry.structure.slots():
                    yield (name, *path), entry.leaf(i)

    def paths(self) -> tuple[KeyPath, ...]:
        """Return the first path of each leaf."""
        table = self._read()
        if table.paths is None:
            first: dict[int, KeyPath] = {}
            for path, i in self.slots():
                first.setdefault(i, path)
            table.paths = tuple(first.values())
        return table.paths

    def leaf_keys(self) -> dict[str | KeyPath, int]:
        """Return every key of a leaf with the leaf's position: a str at the top, below it a path. Not to be changed."""
        table = self._read()
        if table.leaf_keys is None:
            table.leaf_keys = {path if len(path) > 1 else path[0]: i for path, i in self.slots()}  # pyright: ignore[reportGeneralTypeIssues] - nor is a path empty
        return table.leaf_keys

    def all_entries(self) -> dict[str | KeyPath, Entry]:
        """Return what stands under every key and path, each subtree before what it holds. Not to be changed."""
        table = self._read()
        if table.all_entries is None:
            table.all_entries = dict(self._walk_entries())
        return table.all_entries

    def _walk_entries(self) -> Iterator[tuple[str | KeyPath, Entry]]:
        for name, entry in self.entries().items():
            yield name, entry
            if type(entry) is Subtree:
                for key, inner in entry.structure.all_entries().items():
                    path = (name, *key) if isinstance(key, tuple) else (name, key)
                    yield path, entry.leaf(inner) if type(inner) is int else _nest(entry, inner) if type(inner) is Subtree else inner

    def ties(self) -> tuple[tuple[KeyPath, ...], ...]:
        """Return the groups of paths that share one leaf."""
        if len(self.slots()) == self.leaf_count:
            return ()
        groups: dict[int, list[KeyPath]] = {}
        for path, i in self.slots():
            groups.setdefault(i, []).append(path)
        return tuple(tuple(group) for group in groups.values() if len(group) > 1)

    def extras(self) -> tuple[tuple[KeyPath, int, tuple[int, ...]], ...]:
        """Return the nested nodes with more batch dims than their parent: path, how many more, positions of the leaves."""
        table = self._read()
        if table.extras is None:
            table.extras = tuple(self._walk_extras())
        return table.extras

    def _walk_extras(self) -> Iterator[tuple[KeyPath, int, tuple[int, ...]]]:
        for name, entry in self.entries().items():
            if type(entry) is Subtree:
                if entry.extra:
                    yield (name,), entry.extra, tuple(entry.leaf(i) for i in range(entry.structure.leaf_count))
                for path, extra, leaves in entry.structure.extras():
                    yield (name, *path), extra, tuple(entry.leaf(i) for i in leaves)

    def statics(self) -> tuple[tuple[KeyPath, Any], ...]:
        """Return the paths and values of the static entries."""
        found: list[tuple[KeyPath, Any]] = []
        for name, entry in self.entries().items():
            if type(entry) is Static:
                found.append(((name,), entry.value))
            elif type(entry) is Subtree:
                found.extend(((name, *path), value) for path, value in entry.structure.statics())
        return tuple(found)

    def count(self) -> int:
        """Return the number of leaves."""
        return self.leaf_count

    def first_rank(self) -> int:
        """Return the event rank of the first leaf; of a tree without leaves, minus the number of batch dims."""
        return self.rank

    def stored_size(self) -> tuple[int, ...]:
        """Return the batch size of a tree without leaves."""
        return self.size

    def is_flat(self) -> bool:
        """Say whether each name is a leaf of its own: then the entries and the leaves run side by side."""
        return self.width == self.leaf_count == sum(type(entry) is int for entry in self.entries().values())

    # --- the table ----------------------------------------------------------------------------------------------

    def _read(self) -> Table:
        return self._table or self._tabulate()

    def release(self) -> None:
        """Forget the table; it is made again when it is next read."""
        self._table = self._lookup = None

    def _tabulate(self) -> Table:
        entries: dict[str, Entry] = {}
        ranks: list[int] = []
        known = self.parent  # the nearest ancestor with a table: in a chain of sets, the parent
        while known is not None and known._table is None:
            known = known.parent
        if known is not None and (table := known._table) is not None:
            entries.update(table.entries)
            ranks.extend(table.ranks)
        else:
            known = None
        for name, spec, where in self._chain(known):
            entries[name] = _place(spec, where, ranks)
        table = Table(entries, tuple(ranks))
        with _LOCK:
            if self._table is None:
                self._table, self._lookup = table, table.lookup
                _tables.add(self, self.width + self.leaf_count)
            return self._table


def _fresh(spec: Spec, where: tuple[int, ...] | None) -> int:
    """Return how many leaves an entry adds."""
    if type(spec) is Static:
        return 0
    if where is not None:
        return where.count(-1)
    return spec[0].leaf_count if isinstance(spec, tuple) else 1


def _place(spec: Spec, where: tuple[int, ...] | None, ranks: list[int]) -> Entry:
    """Return the entry of a spec in a tree whose leaves so far have these ranks, and add the ranks of its new leaves."""
    if type(spec) is Static:
        return spec
    start = len(ranks)
    if isinstance(spec, int):
        if where is not None:
            return where[0]
        ranks.append(spec)
        return start
    assert isinstance(spec, tuple)
    structure, extra = spec
    index: list[int] = []
    for i, rank in enumerate(structure.ranks()):
        if where is None or where[i] < 0:
            index.append(len(ranks))
            ranks.append(rank + extra)
        else:
            index.append(where[i])
    first = index[0] if index else start
    contiguous = index == list(range(first, first + len(index)))
    return Subtree(first, first + len(index), None if contiguous else tuple(index), structure, extra)


def _nest(outer: Subtree, inner: Subtree) -> Subtree:
    """Return the place of a subtree's subtree among the leaves of the root."""
    extra = outer.extra + inner.extra
    if outer.picks is None and inner.picks is None:
        return Subtree(outer.start + inner.start, outer.start + inner.stop, None, inner.structure, extra)
    index = tuple(outer.leaf(inner.leaf(i)) for i in range(inner.structure.leaf_count))
    return Subtree(0, 0, index, inner.structure, extra)


def _make(parent: Trie | None, entry: tuple[str, Spec, tuple[int, ...] | None] | None, leaf_count: int, size: tuple[int, ...]) -> Structure:
    structure = object.__new__(Trie.kind)
    structure.parent, structure.entry, structure.leaf_count, structure.size = parent, entry, leaf_count, size
    structure.width = 0 if parent is None else parent.width + 1
    structure.rank = -len(size) if not leaf_count else parent.rank if parent is not None and parent.leaf_count else _rank(entry)
    structure._links = {}
    structure._table = structure._lookup = None
    return structure


def _rank(entry: tuple[str, Spec, tuple[int, ...] | None] | None) -> int:
    """Return the event rank of the first leaf of an entry."""
    spec = entry[1] if entry is not None else 0
    return spec[0].rank + spec[1] if isinstance(spec, tuple) else spec if isinstance(spec, int) else 0


_roots: weakref.WeakValueDictionary[tuple[int, ...], Structure] = weakref.WeakValueDictionary()
_root: list[Structure] = []  # the one without a batch size, made when the class is there


def empty(size: tuple[int, ...] = ()) -> Structure:
    """Return the structure without entries that holds this batch size."""
    if not size and _root:
        return _root[0]
    return _sized(size)


@functools.partial(memo, most=256)
def _sized(size: tuple[int, ...]) -> Structure:
    with _LOCK:
        structure = _roots.get(size)
        if structure is None:
            structure = _roots[size] = _make(None, None, 0, tuple(size))
        if not size and not _root:
            _root.append(structure)
        return structure
