"""Patterns over key paths: each part of a path may be a glob, and `**` stands for any number of levels."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

from ._keys import KeyPath, as_path
from ._memo import memo
from ._table import Subtree

if TYPE_CHECKING:
    from ._structure import Structure


def is_pattern(path: KeyPath) -> bool:
    """Say whether a path has a part that `fnmatch` reads as more than itself."""
    return any(char in part for part in path for char in "*?[")


@memo
def matching(structure: Structure, pattern: KeyPath) -> tuple[KeyPath, ...]:
    """Return the paths that a pattern matches, outermost ones only; a path that is there stands for itself."""
    if structure.find(pattern) is not None:
        return (pattern,)
    found: list[KeyPath] = []
    _walk(structure, (), [pattern], found)
    return tuple(found)


@memo
def expanding(structure: Structure, keys: tuple[Any, ...]) -> tuple[tuple[KeyPath, ...], Any]:
    """Return the paths that keys and patterns name, and the first of them that names nothing, or None."""
    found = [matching(structure, as_path(key)) for key in keys]
    return tuple([path for paths in found for path in paths]), next((key for key, paths in zip(keys, found, strict=True) if not paths), None)


@memo
def covering(structure: Structure, keys: tuple[Any, ...]) -> tuple[tuple[bool, ...], Any]:
    """Say for each leaf whether it stands under one of the keys and patterns; and the first that names nothing, or None."""
    roots, missing = expanding(structure, keys)
    hits = [False] * structure.leaf_count
    for path, i in structure.slots():
        hits[i] = hits[i] or any(path[: len(root)] == root for root in roots)
    return tuple(hits), missing


def _walk(structure: Structure, at: KeyPath, patterns: list[KeyPath], found: list[KeyPath]) -> None:
    for name, entry in structure.entries().items():
        left = [rest for pattern in patterns for rest in _after(name, pattern)]
        if () in left or ("**",) in left:
            found.append((*at, name))
        elif left and type(entry) is Subtree:
            _walk(entry.structure, (*at, name), left, found)


def _after(name: str, pattern: KeyPath) -> list[KeyPath]:
    """Return what is left of a pattern below a name that it lets through."""
    if not pattern:
        return []
    first, *rest = pattern
    if first == "**":
        return [pattern, *_after(name, tuple(rest))]
    return [tuple(rest)] if fnmatch.fnmatchcase(name, first) else []
