"""What is computed of a structure when it is first read: look-ups, paths, ranks. It can be computed again."""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ._keys import KeyPath
from ._static import Static

if TYPE_CHECKING:
    from ._structure import Structure
    from ._trie import Trie


class Subtree(NamedTuple):
    """Where a nested node lies in the leaves of its parent: a slice, or an index where a tie reaches outside it."""

    start: int
    stop: int
    picks: tuple[int, ...] | None
    structure: Structure
    extra: int
    """How many more batch dims the node has than its parent."""

    def leaf(self, i: int) -> int:
        """Return the position among the parent's leaves of the node's leaf `i`."""
        return self.start + i if self.picks is None else self.picks[i]


Spec: TypeAlias = "int | Static | tuple[Structure, int]"
"""What stands under a name: a leaf's event rank, a static value, or a nested structure and its extra batch dims."""

Entry: TypeAlias = int | Subtree | Static
"""The same inside a structure: a leaf's position, a subtree with its place, or a static value."""


class Table:
    """What is computed of a structure when it is first read, and can be computed again."""

    __slots__ = ("all_entries", "entries", "extras", "leaf_keys", "lookup", "paths", "ranks", "slots")

    def __init__(self, entries: dict[str, Entry], ranks: tuple[int, ...]) -> None:
        self.entries = entries
        self.lookup: dict[Any, Entry] = dict(entries)  # and every longer path once asked for
        self.ranks = ranks
        self.slots: tuple[tuple[KeyPath, int], ...] | None = None
        self.paths: tuple[KeyPath, ...] | None = None
        self.leaf_keys: dict[str | KeyPath, int] | None = None
        self.all_entries: dict[str | KeyPath, Entry] | None = None
        self.extras: tuple[tuple[KeyPath, int, tuple[int, ...]], ...] | None = None


class Tables:
    """The tables of recently read structures, the oldest of which are released over a limit.

    A structure is small, but the table of a wide one is not: a chain of thousands of sets makes structures each one wider
    than the last. Counted in entries, such a chain stays linear in memory.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._weight = 0
        self._recent: deque[tuple[weakref.ref[Trie], int]] = deque()

    def add(self, structure: Trie, weight: int) -> None:
        """Count a new table. To be called under a lock."""
        self._recent.append((weakref.ref(structure), weight))
        self._weight += weight
        while self._weight > self._limit and len(self._recent) > 1:
            link, weight = self._recent.popleft()
            self._weight -= weight
            oldest = link()
            if oldest is not None:
                oldest.release()
