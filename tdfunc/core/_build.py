"""From what a user writes to leaves and a structure: the constructor's work, and that of `set` and `update`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from tdfunc import ops
from tdfunc._errors import BatchSizeError, KeyPathError, StructureError, TdfuncError, describe, show_path
from tdfunc._typing import Size
from tdfunc.structure import KeyPath, Spec, Static, Structure, as_path, compose, compose_shapes, empty, is_static

from ._slots import Slots, construct

TENSORS = frozenset({Tensor, Parameter})
_dim, _size = Tensor.dim, Tensor.size
_ROOT = empty()

Built = tuple[tuple[Tensor, ...], Structure]


def make(cls: Any, /, source: Any = (), batch_size: Size = (), **entries: Any) -> Any:
    """Return a container of a class from all that its constructor takes."""
    size = ops.as_size(batch_size)
    if not isinstance(source, Slots):
        return construct(cls, *build(source, size, entries))
    tree: Any = ops.with_batch_size(source, size) if size else source  # type: ignore[type-var]
    if entries:
        leaves, structure = build((), tuple(ops.batch_size(tree)), entries)
        tree = ops.update(tree, construct(cls, leaves, structure))
    return construct(cls, tree._leaves, tree._structure)


def quick_build(items: dict[Any, Any], batch_size: Size) -> Built | None:
    """Return what is built of right-shaped tensors and nested dicts of them; None if it is not that simple."""
    size = () if type(batch_size) is tuple and not batch_size else ops.as_size(batch_size)
    if not items:
        return (), empty(ops.held_size(size))
    try:
        built = _flat_tensors(items, size)
    except TypeError:  # a value is no tensor
        built = _nested_tensors(items, size)
    if built is None and tuple in map(type, items):
        grown = _quick_grow(items)
        built = None if grown is None else _nested_tensors(grown, size)
    return built if built is None or built[0] else (built[0], built[1].sized(ops.held_size(size)))


def _quick_grow(items: dict[Any, Any]) -> dict[Any, Any] | None:
    """Return a dict whose tuple keys became nested dicts; None if two keys meet or a tuple holds no names."""
    grown: dict[Any, Any] = {}
    made: set[int] = set()  # the nested dicts that are ours to write to
    for key, value in items.items():
        node, last = grown, key
        if type(key) is tuple:
            if not key or any(type(name) is not str for name in key):
                return None
            for name in key[:-1]:
                inner = node.get(name)
                if inner is None:
                    inner = node[name] = {}
                    made.add(id(inner))
                elif id(inner) not in made:
                    return None
                node = inner
            last = key[-1]
        if last in node:
            return None
        node[last] = value
    return grown


def _flat_tensors(items: dict[Any, Any], size: tuple[int, ...]) -> Built | None:
    """Return what is built of a flat dict of tensors, by loops in C."""
    values = tuple(items.values())
    names = tuple(items)
    structure = compose_shapes(names, tuple(map(_size, values)), size) if size else compose(names, tuple(map(_dim, values)))
    return None if structure is None else (values, structure)


def _nested_tensors(items: dict[Any, Any], size: tuple[int, ...]) -> Built | None:
    """Return what is built of dicts of tensors and such dicts."""
    n = len(size)
    leaves: list[Tensor] = []
    specs: list[Spec] = []
    for value in items.values():
        if type(value) in TENSORS:
            if n:
                shape = value.shape
                if shape[:n] != size:
                    return None
                specs.append(len(shape) - n)
            else:
                specs.append(value.dim())
            leaves.append(value)
        elif type(value) is dict:
            inner = _nested_tensors(value, size)  # pyright: ignore[reportUnknownArgumentType]
            if inner is None:
                return None
            leaves += inner[0]
            specs.append((inner[1], 0))
        else:
            return None
    structure = compose(tuple(items), tuple(specs))
    return None if structure is None else (tuple(leaves), structure)


def build(source: Any, size: tuple[int, ...], entries: dict[str, Any]) -> Built:
    """Return the leaves and the structure of a mapping, of pairs, or of a tree, with more entries given by keyword."""
    items = _items(source)
    if entries:
        items = {**items, **entries}
    problems: list[tuple[type[TdfuncError], str]] = []
    built = _node(_grow(items, (), problems), size, (), problems)
    if problems:
        raise problems[0][0](together("TensorDict", problems))
    return built if built[0] else (built[0], built[1].sized(ops.held_size(size)))


def _items(source: Any) -> dict[Any, Any]:
    if type(source) is dict:
        return source  # pyright: ignore[reportUnknownVariableType]
    if isinstance(source, Mapping):
        return dict(source.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(source, torch.nn.Module):
        raise StructureError(describe("TensorDict: got a module", expected="a mapping or pairs", got=type(source).__name__, fix="params_of(module)"))
    if isinstance(source, Iterable) and not isinstance(source, Tensor | str | bytes):
        pairs: list[Any] = list(source)  # pyright: ignore[reportUnknownArgumentType]
        if all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):  # pyright: ignore[reportUnknownArgumentType]
            for key, _ in pairs:
                as_path(key)  # before a key that cannot be hashed is met
            return dict(pairs)
    raise StructureError(
        describe(
            "TensorDict: cannot read the source",
            expected="a mapping, or pairs of a key and a value",
            got=type(source).__name__,
            fix="TensorDict({'key': value})",
        )
    )


def _grow(items: Mapping[Any, Any], at: KeyPath, problems: list[tuple[type[TdfuncError], str]]) -> dict[str, Any]:
    """Return a mapping with its keys in normal form: tuples become nested dicts."""
    grown: dict[str, Any] = {}
    for key, value in items.items():
        try:
            path = as_path(key)
        except KeyPathError as error:
            problems.append((KeyPathError, f"{error}\n  inside: {show_path(at)}"))
            continue
        *above, last = path
        node = grown
        for name in above:
            below = node.get(name, {})
            if not isinstance(below, Mapping):
                problems.append((KeyPathError, _leaf_and_subtree((*at, name))))
                below = {}
            node[name] = dict(below.items())
            node = node[name]
        old = node.get(last)
        if isinstance(old, Mapping) and not isinstance(value, Mapping):
            problems.append((KeyPathError, _leaf_and_subtree((*at, *path))))
        node[last] = {**old, **value} if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return grown


def _leaf_and_subtree(at: KeyPath) -> str:
    return describe(
        "two entries want this key, one as a leaf and one as a subtree",
        at=show_path(at),
        expected="one of them",
        fix="give one of them another name",
    )


def _node(items: Mapping[Any, Any], size: tuple[int, ...], at: KeyPath, problems: list[tuple[type[TdfuncError], str]]) -> Built:
    names: list[str] = []
    specs: list[Spec] = []
    leaves: list[Tensor] = []
    for name, value in items.items():
        found = read(value, size, (*at, name), problems)
        if found is not None:
            names.append(name)
            specs.append(found[1])
            leaves.extend(found[0])
    structure = _ROOT.compose(tuple(names), tuple(specs))
    assert structure is not None, "names are in normal form"
    return tuple(leaves), structure


def read(value: Any, size: tuple[int, ...], at: KeyPath, problems: list[tuple[type[TdfuncError], str]]) -> tuple[tuple[Tensor, ...], Spec] | None:
    """Return the leaves and the spec of one value in a tree of this batch size, or None and one more problem."""
    if isinstance(value, Tensor):
        return _leaf(value, size, at, problems)
    if isinstance(value, Slots):
        return _subtree(value, size, at, problems)
    if isinstance(value, Mapping):
        leaves, structure = _node(_grow(value, at, problems), size, at, problems)  # pyright: ignore[reportUnknownArgumentType]
        return leaves, (structure, 0)
    if is_static(value):
        try:
            return (), value if isinstance(value, Static) else Static(value)
        except StructureError as error:  # a frozen dataclass or a tuple with something else inside
            problems.append((StructureError, f"{error}\n  inside: {show_path(at)}"))
            return None
    if isinstance(value, int | float | complex | torch.SymInt | torch.SymFloat) or hasattr(value, "__array__"):
        return _leaf(torch.as_tensor(value), size, at, problems)
    problems.append((StructureError, _no_entry(value, at)))
    return None


def _leaf(value: Tensor, size: tuple[int, ...], at: KeyPath, problems: list[Any]) -> tuple[tuple[Tensor, ...], Spec] | None:
    if value.shape[: len(size)] != size:
        problems.append((BatchSizeError, _wrong_size(tuple(value.shape), size, at)))
        return None
    return (value,), value.dim() - len(size)


def _subtree(tree: Any, size: tuple[int, ...], at: KeyPath, problems: list[Any]) -> tuple[tuple[Tensor, ...], Spec] | None:
    n = len(size)
    if not tree._leaves:
        return (), (tree._structure.sized(()), 0)
    own = tuple(ops.batch_size(tree))
    if own[:n] == size:
        return tree._leaves, (tree._structure, len(own) - n)
    if len(own) < n and all(leaf.shape[:n] == size for leaf in tree._leaves):  # it has fewer batch dims than its shapes allow
        return tree._leaves, (ops.with_batch_size(tree, size)._structure, 0)
    problems.append((BatchSizeError, _wrong_size(own, size, at)))
    return None


def _wrong_size(shape: tuple[int, ...], size: tuple[int, ...], at: KeyPath) -> str:
    return describe(
        "the shape does not start with the batch size",
        at=show_path(at),
        expected=f"a shape that starts with {tuple(size)}",
        got=shape,
        fix=f"give batch_size={shape[: _agree(shape, size)]}, or a tensor of shape ({', '.join(map(str, size))}, ...)",
    )


def _agree(shape: tuple[int, ...], size: tuple[int, ...]) -> int:
    n = 0
    while n < min(len(shape), len(size)) and shape[n] == size[n]:
        n += 1
    return n


def _no_entry(value: Any, at: KeyPath) -> str:
    fixes = {
        "list": "torch.tensor(value) for numbers, torch.stack(value) for tensors, tuple(value) for a static value",
        "tuple": "torch.stack(value) for tensors",
        "set": "tuple(sorted(value)) for a static value",
    }
    if isinstance(value, torch.nn.Module):
        fix = "params_of(module) gives its parameters"
    else:
        fix = fixes.get(type(value).__name__, f"register_static({type(value).__name__}, to_json, from_json)")
    return describe(
        "this value can be no entry",
        at=show_path(at),
        expected="a tensor, a number, an array, a mapping, or a static value",
        got=f"{type(value).__name__}",
        fix=fix,
    )


def together(op: str, problems: list[tuple[type[TdfuncError], str]]) -> str:
    """Return one message for all problems."""
    if len(problems) == 1:
        return f"{op}: {problems[0][1]}"
    return f"{op}: {len(problems)} problems\n" + "\n".join(f"- {text}" for _, text in problems)
