"""Out of the container and back: nested dicts, one flat dict, arrays, lists, namedtuples, and the tensordict library's trees."""

from __future__ import annotations

import collections
import importlib
import keyword
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tdfunc import ops
from tdfunc._errors import KeyPathError, StructureError, describe, show_path
from tdfunc._typing import Size, T
from tdfunc.structure import KeyPath, Static, Structure, Subtree, as_path, constant

from ._access import children, kept_children
from ._slots import Slots

Entries = list[tuple[KeyPath, Any]]


# --- dicts -----------------------------------------------------------------------------------------------------------


def dense(tree: Any) -> dict[str, Any]:
    """Return nested dicts of the leaves and static values."""
    return _dense(tree._structure, tree._leaves)


def _dense(structure: Structure, leaves: Sequence[Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, entry in structure.entries().items():
        if type(entry) is int:
            made[name] = leaves[entry]
        elif type(entry) is Subtree:
            inner = entry.structure
            made[name] = _dense(inner, [leaves[entry.leaf(i)] for i in range(inner.count())])
        else:
            made[name] = entry.get()  # type: ignore[union-attr]
    return made


def flat(tree: Any, sep: str) -> dict[str, Any]:
    """Return one dict of the leaves and static values under joined key paths."""
    ops.check_separator(tree, sep, "to_flat")
    return {sep.join(path): value for path, value in flat_entries(tree)}


def flat_entries(tree: Any) -> Entries:
    """Return the paths with the leaves and static values under them, in order."""
    leaves = tree._leaves
    found: Entries = []
    for key, entry in tree._structure.all_entries().items():
        if type(entry) is not Subtree:
            path = key if isinstance(key, tuple) else (key,)
            found.append((path, leaves[entry] if type(entry) is int else entry.get()))
    return found


def unflat(cls: Any, mapping: Any, sep: str, size: Size) -> Any:
    """Return the tree of a flat mapping: each str key is taken apart at the separator, a tuple is a path."""
    ops.separator(sep, "from_flat")
    if not isinstance(mapping, Mapping):
        raise StructureError(
            describe("from_flat: not a mapping", expected="a mapping of joined keys", got=type(mapping).__name__, fix="from_flat(dict(pairs))")
        )
    pairs = [(tuple(key.split(sep)) if isinstance(key, str) else as_path(key), value) for key, value in mapping.items()]
    entries = dict(pairs)
    counts = collections.Counter([path for path, _ in pairs])
    clash = next((path for path, _ in pairs if counts[path] > 1 or any(path[:n] in entries for n in range(1, len(path)))), None)
    if clash is not None:
        raise KeyPathError(
            describe(
                f"from_flat: two entries want one place, the keys taken apart at {sep!r}",
                at=show_path(clash),
                expected="keys of which none is the start of another",
                fix="give one of them another name",
            )
        )
    return tie_shared(cls(_nested(entries), size))


def _nested(entries: Mapping[KeyPath, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in entries.items():
        node = nested
        for name in path[:-1]:
            node = node.setdefault(name, {})
        node[path[-1]] = value
    return nested


def tie_shared(tree: T) -> T:
    """Return the tree in which leaves that are one and the same tensor object are one leaf with several paths."""
    first: dict[Tensor, int] = {}  # tensors hash by identity, and torch.compile follows that; it does not follow `id`
    groups: dict[int, list[int]] = {}
    for i, leaf in enumerate(tree._leaves):
        groups.setdefault(first.setdefault(leaf, i), []).append(i)
    shared = tuple([tuple(group) for group in groups.values() if len(group) > 1])
    if not shared:
        return tree
    structure, index = tree._structure.tying(shared)
    return tree._rebuild(tuple([tree._leaves[i] for i in index]), structure)


# --- numpy -----------------------------------------------------------------------------------------------------------


def arrays(tree: T, op: str) -> T:
    """Return the tree with numpy arrays in the place of its leaves, over the same memory where it is the CPU's."""
    paths = tree._structure.paths()
    return tree._rebuild(tuple([_array(leaf, path, op) for path, leaf in zip(paths, tree._leaves, strict=True)]), tree._structure)


def _array(leaf: Any, path: KeyPath, op: str) -> Any:
    if not isinstance(leaf, Tensor):  # an unflattened tree may hold anything
        return leaf
    try:
        return leaf.numpy(force=True)
    except (TypeError, RuntimeError) as error:
        raise _no_array(leaf, path, op, error) from error


def _no_array(leaf: Tensor, path: KeyPath, op: str, error: Exception) -> StructureError:
    if "ScalarType" in str(error):
        like = torch.complex64 if leaf.is_complex() else torch.float32
        what, expected, fix = f"{op}: numpy has no {leaf.dtype}", "a dtype that numpy has", f"td.type({like}, where={path!r})"
    else:  # sparse, on the meta device, or inside a transform
        what = f"{op}: this leaf cannot be an array, {str(error).splitlines()[0]}"
        expected, fix = "a dense tensor with values", f"td.exclude({path!r})"
    return StructureError(describe(what, at=show_path(path), expected=expected, got=f"{leaf.dtype}, {leaf.layout}, {leaf.device}", fix=fix))


# --- lists -----------------------------------------------------------------------------------------------------------


def listed(tree: Any) -> Any:
    """Return nested lists over the batch dims, of a dict for each row."""
    dims = ops.batch_dims(tree)
    columns: dict[str, Any] = {}
    for name, value in children(tree).items():
        if isinstance(value, Slots):
            columns[name] = listed(value)
        else:
            columns[name] = value.tolist() if isinstance(value, Tensor) else value
    rows = {name for name, entry in tree._structure.entries().items() if not isinstance(entry, Static)}
    return _turned(columns, rows, tuple(ops.front(tree)), dims)


def _turned(columns: dict[str, Any], rows: set[str], size: tuple[int, ...], dims: int) -> Any:
    """Return a dict of nested lists as nested lists of dicts."""
    if not dims:
        return columns
    below = [{name: column[i] if name in rows else column for name, column in columns.items()} for i in range(size[0])]
    return [_turned(row, rows, size[1:], dims - 1) for row in below]


# --- namedtuples -----------------------------------------------------------------------------------------------------


def named(tree: Any) -> Any:
    """Return nested namedtuples of the leaves and static values."""
    check_names(tree, "to_namedtuple")
    return _named(tree)


def check_names(tree: Any, op: str) -> None:
    """Raise if a key can be no field of a namedtuple."""
    bad = bad_names(tree._structure)
    if bad:
        raise KeyPathError(
            describe(
                f"{op}: keys that can be no field names",
                at="; ".join(map(show_path, bad)),
                expected="identifiers that are no keyword and do not start with an underscore",
                fix="td.to_dict()",
            )
        )


@constant
def bad_names(structure: Any) -> tuple[KeyPath, ...]:
    """Return the paths whose last name can be no field name."""
    paths = [key if isinstance(key, tuple) else (key,) for key in structure.all_entries()]
    return tuple(path for path in paths if not path[-1].isidentifier() or keyword.iskeyword(path[-1]) or path[-1].startswith("_"))


def _named(tree: Any) -> Any:
    items = kept_children(tree)
    values = [_named(value) if isinstance(value, Slots) else value for value in items.values()]
    return tuple.__new__(fields(tuple(items)), values)  # the class's own `__new__` is one that torch.compile cannot trace (torch 2.13)


_kinds: weakref.WeakValueDictionary[tuple[str, ...], type[Any]] = weakref.WeakValueDictionary()


@constant
def fields(names: tuple[str, ...]) -> type[Any]:
    """Return the namedtuple class with these fields: one for the same names, so that pytrees of two are alike."""
    kind = _kinds.get(names)
    if kind is None:
        made: Any = collections.namedtuple("Tree", names, module=__name__)  # noqa: PYI024  # pyright: ignore[reportUntypedNamedTuple]
        made.__reduce__ = _reduce
        kind = _kinds.setdefault(names, made)
    return kind


def _reduce(value: Any) -> tuple[Any, tuple[Any, ...]]:
    return rebuild_namedtuple, (value._fields, tuple(value))


def rebuild_namedtuple(names: tuple[str, ...], values: Sequence[Any]) -> Any:
    """Return the namedtuple that was pickled."""
    return fields(names)(*values)


# --- tensordict ------------------------------------------------------------------------------------------------------


def peer(tree: Any) -> Any:
    """Return the tensordict.TensorDict with the same tensors, batch sizes and values."""
    return _peer(tree, imported("tensordict", "to_tensordict"), ())


def _peer(tree: Any, tensordict: Any, at: KeyPath) -> Any:
    size = tuple(ops.batch_size(tree))
    entries = tree._structure.entries()
    made: dict[str, Any] = {}
    for name, value in children(tree).items():
        if isinstance(value, Slots):
            made[name] = _peer(value, tensordict, (*at, name))
        elif isinstance(value, Tensor):
            made[name] = value
        elif type(entries[name]) is int:
            raise StructureError(
                describe("to_tensordict: a leaf that is no tensor", at=show_path((*at, name)), got=type(value).__name__, fix="td.to_dict()")
            )
        else:
            made[name] = tensordict.NonTensorData(value, batch_size=size)
    return tensordict.TensorDict(made, batch_size=size)


def imported(name: str, op: str) -> Any:
    """Return an optional library, imported on use.

    Raises:
        ImportError: If it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(describe(f"{op} needs {name}, which is not installed", fix=f"pip install {name}")) from error
