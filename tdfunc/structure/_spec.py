"""Structures as plain data: for pickle, `treespec_dumps` and files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tdfunc._errors import StorageError, describe

from ._draft import Branch, Leaf, fold, unfold
from ._static import Static, static_from_json, static_to_json

if TYPE_CHECKING:
    from ._structure import Structure

_VERSION = 1


def to_spec(structure: Structure) -> tuple[Any, ...]:
    """Return a structure as nested tuples of names, ints and static values."""
    return _VERSION, structure.size, _write(unfold(structure))


def from_spec(spec: tuple[Any, ...]) -> Structure:
    """Return the structure that `to_spec` wrote."""
    version, size, node = spec
    if version != _VERSION:
        raise StorageError(describe("unknown version of a stored structure", expected=_VERSION, got=version, fix="update tdfunc"))
    return fold(_read(0, node), tuple(size))[0]


def _write(node: Branch) -> tuple[Any, ...]:
    return tuple(_write_item(name, item) for name, item in node.items.items())


def _write_item(name: str, item: Leaf | Branch | Static) -> tuple[Any, ...]:
    if isinstance(item, Leaf):
        return name, "leaf", item.rank, item.label
    if isinstance(item, Branch):
        return name, "node", item.extra, _write(item)
    return name, "static", item.value


def _read(extra: int, node: tuple[Any, ...]) -> Branch:
    items: dict[str, Leaf | Branch | Static] = {}
    for name, kind, *data in node:
        if kind == "leaf":
            items[name] = Leaf(*data)
        elif kind == "node":
            items[name] = _read(*data)
        else:
            items[name] = Static(*data)
    return Branch(extra, items)


def to_json(structure: Structure) -> str:
    """Return a structure as a JSON text."""
    version, size, node = to_spec(structure)
    return json.dumps([version, list(size), [_plain(*item) for item in node]], separators=(",", ":"))


def _plain(name: str, kind: str, *data: Any) -> list[Any]:
    if kind == "node":
        return [name, kind, data[0], [_plain(*item) for item in data[1]]]
    return [name, kind, *(data if kind == "leaf" else map(static_to_json, data))]


def from_json(text: str) -> Structure:
    """Return the structure that `to_json` wrote."""
    version, size, node = json.loads(text)
    return from_spec((version, tuple(size), tuple(_rich(*item) for item in node)))


def _rich(name: str, kind: str, *data: Any) -> tuple[Any, ...]:
    if kind == "node":
        return name, kind, data[0], tuple(_rich(*item) for item in data[1])
    return (name, kind, *(data if kind == "leaf" else map(static_from_json, data)))
