"""Which entries a tree has: chosen, renamed, moved between levels, tied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from tdfunc import ops
from tdfunc._typing import Key
from tdfunc.core import _access, _write
from tdfunc.core._slots import Tree


class Entries(Tree):
    """The keys of a tree.

    Where leaves are meant, `where` is a predicate of `(path, leaf)`, called once for a tied leaf under its first path; a
    key, a key path or a pattern, for what stands under it; or a list of these. A pattern is a key path with a glob for
    each level (`("layers", "*", "weight")`) and `**` for any number of levels; a key that is there stands for itself,
    whatever it contains.
    """

    __slots__ = ()

    def select(self, *keys: Any, strict: bool = True) -> Self:
        """Return the tree with only these entries, in the order of the tree: keys, patterns or predicates of leaves.

        `strict=False` ignores missing ones.
        """
        return ops.select(self, keys, strict=strict)

    def exclude(self, *keys: Any) -> Self:
        """Return the tree without these entries: keys, patterns or predicates of leaves; missing ones do not matter."""
        return ops.exclude(self, keys)

    def get_at(self, key: Key, index: Any, *default: Any) -> Any:
        """Return an entry indexed over its dims, or the default where there is no such entry."""
        return _access.get_at(self, key, index, default)

    def pop(self, key: Key, *default: Any) -> tuple[Any, Self]:
        """Return an entry and the tree without it."""
        return _write.pop(self, key, default)

    def with_default(self, key: Key, value: Any) -> Self:
        """Return the tree with a value under a key path, or as it is where something stands there."""
        return ops.with_default(self, key, value)

    def rename_key(self, old: Key, new: Key) -> Self:
        """Return the tree with an entry under another key path."""
        return ops.rename_key(self, old, new)

    def rename_keys(self, mapping: Mapping[Key, Key]) -> Self:
        """Return the tree with several entries under other key paths at once, so that two may change places."""
        return ops.rename_keys(self, mapping)

    def filter(self, where: Any) -> Self:
        """Return the tree of the leaves that are meant, with the static values."""
        return ops.filter_leaves(self, where)

    def partition(self, where: Any) -> tuple[Self, Self]:
        """Return the tree of the leaves that are meant, and that of the others; `merge` is the inverse."""
        return ops.partition(self, where)

    def split_keys(self, *wheres: Any) -> tuple[Self, ...]:
        """Return a tree for each of several sets of leaves, and one of the rest, which has the static values."""
        return ops.split_keys(self, *wheres)

    def flatten_keys(self, sep: str = ".") -> Self:
        """Return the tree with all entries at the root, their key paths joined; `unflatten_keys` is the inverse.

        A key that contains the separator is refused. Batch dims that a nested node has more become event dims.
        """
        return ops.flatten_keys(self, sep)

    def unflatten_keys(self, sep: str = ".") -> Self:
        """Return the tree with the keys of the root taken apart into key paths."""
        return ops.unflatten_keys(self, sep)

    def sort_keys(self) -> Self:
        """Return the tree with the keys of each node in order: trees with the same keys then have one structure."""
        return ops.sort_keys(self)

    def prune(self) -> Self:
        """Return the tree without the nodes that hold nothing."""
        return ops.prune(self)

    def empty(self, recurse: bool = False) -> Self:
        """Return a tree of the same batch size without leaves; with `recurse` the nodes and the static values stay."""
        return ops.empty(self, recurse=recurse)

    def tie(self, *paths: Key) -> Self:
        """Return the tree in which the paths share one leaf, that of the first path."""
        return ops.tie(self, paths)

    def untie(self, *paths: Key) -> Self:
        """Return the tree in which each of the paths has a leaf of its own."""
        return ops.untie(self, paths)
