"""The static half of a TensorDict: a tree of names, hash-consed, without tensors."""

from __future__ import annotations

from typing import Any

from . import _differences, _glob, _levels, _spec, _transitions
from ._keys import KeyPath
from ._opaque import register_value
from ._table import Spec
from ._transitions import Splice
from ._trie import Trie


class Structure(Trie):
    """Names, event ranks, ties and static values of a tree: everything but its tensors.

    Equal structures are the same object, so equality is identity and the hash is O(1). Insertion order counts: `{a, b}`
    and `{b, a}` are two structures. The event rank of a leaf is the number of its trailing dims that are no batch dims.

    A structure holds no sizes, dtypes or devices. Only one without any leaf holds a batch size, since no leaf tells it.
    It never changes; the methods below give the next one. They are described in the modules that have them.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _spec.from_spec, (_spec.to_spec(self),)

    def __repr__(self) -> str:
        return f"Structure({', '.join(f'{name!r}: {entry}' for name, entry in self.entries().items())})"

    def __fx_repr__(self) -> tuple[str, dict[str, Any]]:
        return f"structure_from_json({_spec.to_json(self)!r})", {"structure_from_json": _spec.from_json}

    def compose(self, names: tuple[str, ...], specs: tuple[Spec, ...]) -> Structure | None:
        return _transitions.compose(names, specs)

    def setting(self, path: KeyPath, spec: Spec) -> Splice | None:
        return _transitions.setting(self, path, spec)

    def selecting(self, keys: tuple[Any, ...]) -> tuple[Structure, tuple[int, ...]]:
        return _transitions.selecting(self, keys)

    def excluding(self, keys: tuple[Any, ...]) -> tuple[Structure, tuple[int, ...]]:
        return _transitions.excluding(self, keys)

    def lacking(self, keys: tuple[Any, ...]) -> KeyPath | None:
        return _transitions.lacking(self, keys)

    def keeping(self, positions: tuple[int, ...], statics: bool) -> tuple[Structure, tuple[int, ...]]:
        return _transitions.keeping(self, frozenset(positions), statics)

    def merging(self, other: Structure) -> tuple[Structure, tuple[int, ...]]:
        return _transitions.merging(self, other)

    def renaming(self, old: KeyPath, new: KeyPath) -> tuple[Structure, tuple[int, ...]] | None:
        return _transitions.renaming(self, old, new)

    def tying(self, groups: tuple[tuple[int, ...], ...]) -> tuple[Structure, tuple[int, ...]]:
        return _transitions.tying(self, groups)

    def untying(self, paths: tuple[KeyPath, ...]) -> tuple[Structure, tuple[int, ...]]:
        return _transitions.untying(self, paths)

    def ranking(self, ranks: tuple[int, ...], extras: tuple[int, ...]) -> Structure:
        return _transitions.ranking(self, ranks, extras)

    def aligning(self, other: Structure) -> tuple[int, ...] | None:
        return _transitions.aligning(self, other)

    def differences(self, other: Structure) -> tuple[_differences.Difference, ...]:
        return _differences.differences(self, other)

    def distinction(self, other: Structure) -> str:
        return _differences.distinction(self, other)

    def extra_at(self, path: KeyPath) -> int:
        return _transitions.extra_at(self, path)

    def flattening(self, sep: str) -> tuple[Structure, tuple[int, ...]]:
        return _levels.flattening(self, sep)

    def unflattening(self, sep: str) -> tuple[Structure | None, Any]:
        return _levels.unflattening(self, sep)

    def sorting(self) -> tuple[Structure, tuple[int, ...]]:
        return _levels.sorting(self)

    def emptying(self) -> Structure:
        return _levels.emptying(self)

    def pruning(self) -> tuple[Structure, tuple[int, ...]]:
        return _levels.pruning(self)

    def expanding(self, keys: tuple[Any, ...]) -> tuple[tuple[KeyPath, ...], Any]:
        return _glob.expanding(self, keys)

    def covering(self, keys: tuple[Any, ...]) -> tuple[tuple[bool, ...], Any]:
        return _glob.covering(self, keys)


register_value(
    Structure,
    (
        *("find", "entries", "ranks", "slots", "paths", "ties", "extras", "statics", "count", "first_rank", "stored_size"),
        *("is_flat", "leaf_keys", "all_entries", "sized", "compose", "setting", "selecting", "excluding", "keeping", "merging", "renaming", "tying"),
        *("untying", "ranking", "aligning", "distinction", "extra_at", "lacking", "flattening", "unflattening", "sorting", "emptying", "pruning"),
        *("expanding", "covering"),
    ),
)
