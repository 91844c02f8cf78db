"""Static values: the entries of a tree that are no tensors and live in its structure."""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch

from tdfunc._errors import StorageError, StructureError, describe

from ._opaque import register_value

_PLAIN = (str, bytes, bool, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


class _Codec(NamedTuple):
    to_json: Callable[[Any], Any]
    from_json: Callable[[Any], Any]


_REGISTERED: dict[type, _Codec] = {}


class Static:
    """A static value of a tree, compared by type and value.

    `1`, `True` and `1.0` are equal and hash alike, and so are `"a"` and a str-enum member; a structure that took
    them for one another would hand one user the other's value. So the types are part of the comparison.
    """

    __slots__ = ("_key", "value")

    value: Any
    _key: Any

    def __init__(self, value: Any) -> None:
        self.value = value
        self._key = _typed(value)

    def get(self) -> Any:
        """Return the value; under torch.compile it is read at trace time."""
        return self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"static({self.value!r})"

    def __reduce__(self) -> tuple[type[Static], tuple[Any]]:
        return Static, (self.value,)

    def __fx_repr__(self) -> tuple[str, dict[str, Any]]:
        return f"static_from_json({static_to_json(self.value)!r})", {"static_from_json": _static}


register_value(Static, ("get",))


def _static(data: Any) -> Static:
    return Static(static_from_json(data))


def static(value: Any) -> Static:
    """Mark a value as static: part of a tree's structure, not a tensor of it.

    A number given to a TensorDict becomes a tensor; `static(5)` keeps it a number. A static value describes the whole
    tree: it is not indexed, not stacked, and a compiled function recompiles when it changes.

    Args:
        value: A number, str, bytes, bool, None, torch.dtype, torch.device, torch.Size, enum member, frozen dataclass,
            a tuple of these, or an instance of a type given to `register_static`.

    Returns:
        A marker that a TensorDict unwraps: `TensorDict(n=static(5))["n"]` is `5`.

    Raises:
        StructureError: If the value is of no such type.

    Example:
        >>> import tdfunc
        >>> tdfunc.TensorDict(n=tdfunc.static(5))["n"]
        5
    """
    return value if isinstance(value, Static) else Static(value)


def register_static(cls: type, to_json: Callable[[Any], Any], from_json: Callable[[Any], Any]) -> None:
    """Let instances of a class be static values.

    Args:
        cls: The class. Its instances must be immutable and hashable, equal instances interchangeable.
        to_json: Gives for an instance what `json` can write.
        from_json: Its inverse.

    Example:
        >>> import fractions, tdfunc
        >>> tdfunc.register_static(fractions.Fraction, str, fractions.Fraction)
        >>> tdfunc.TensorDict(ratio=fractions.Fraction(1, 3))["ratio"]
        Fraction(1, 3)
    """
    _REGISTERED[cls] = _Codec(to_json, from_json)


def is_static(value: object) -> bool:
    """Say whether a value is static as it is, without `static(...)`: of the listed types, and no number."""
    kind = type(value)
    if kind in _PLAIN or kind in _REGISTERED or isinstance(value, Static | enum.Enum):
        return True
    if kind is tuple or kind is torch.Size:
        return all(is_static(item) or isinstance(item, int | float | complex) for item in cast(Any, value))
    return _is_frozen(value)


def _is_frozen(value: object) -> bool:
    params = getattr(type(value), "__dataclass_params__", None)
    return params is not None and params.frozen and not isinstance(value, type)


def _typed(value: Any) -> Any:
    """Return a hashable that is equal for two values just if both types and values are."""
    kind = type(value)
    if isinstance(value, enum.Enum):
        return kind, value.name, value.value if isinstance(value, enum.Flag) else None
    if kind in _PLAIN or kind in _REGISTERED or kind is int:
        return kind, value
    if kind is tuple or kind is torch.Size:
        return kind, tuple(_typed(item) for item in value)
    if kind is float:
        return kind, value.hex()  # tells 0.0 from -0.0, and nan is equal to itself
    if kind is complex:
        return kind, value.real.hex(), value.imag.hex()
    if _is_frozen(value):
        return kind, tuple(_typed(getattr(value, field.name)) for field in dataclasses.fields(value))
    raise StructureError(
        describe(
            "this value cannot be static",
            expected="a number, str, bytes, bool, None, dtype, device, Size, enum member, frozen dataclass or a tuple of these",
            got=f"{value!r} of type {kind.__name__}",
            fix=f"make it a tensor, or call register_static({kind.__name__}, to_json, from_json)",
        )
    )


def _find(name: str) -> Any:
    """Return a class by its name, if its module is imported: to read data must not run a module's code."""
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not (found in _REGISTERED or issubclass(found, enum.Enum) or dataclasses.is_dataclass(found)):
        raise StorageError(
            describe(
                "a static value of a class that is not known here",
                expected="an enum, a frozen dataclass or a type given to register_static, in a module that is imported",
                got=f"{module}.{qualname}",
                fix=f"import {module} first",
            )
        )
    return found


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def static_to_json(value: Any) -> Any:
    """Return a static value as what `json` can write: plain where json has the type, else `[tag, ...]`."""
    kind = type(value)
    if kind in _REGISTERED:
        return ["registered", _name(kind), _REGISTERED[kind].to_json(value)]
    if isinstance(value, enum.Enum):
        return ["flag", _name(kind), value.value] if isinstance(value, enum.Flag) else ["enum", _name(kind), value.name]
    if value is None or kind in (str, bool, int):
        return value
    if kind is float:
        return ["float", value.hex()]
    if kind is complex:
        return ["complex", value.real.hex(), value.imag.hex()]
    if kind is bytes:
        return ["bytes", value.hex()]
    if kind in (torch.dtype, torch.layout, torch.memory_format):
        return ["torch", str(value).removeprefix("torch.")]
    if kind is torch.device:
        return ["device", str(value)]
    if kind is torch.Size:
        return ["size", *value]
    if kind is tuple:
        return ["tuple", *map(static_to_json, value)]
    if _is_frozen(value):
        fields = {field.name: static_to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return ["dataclass", _name(kind), fields]
    raise StructureError(
        describe("a static value of this type cannot be written", at=repr(value), got=kind.__name__, fix="register_static for its type")
    )


def _dataclass(name: str, fields: dict[str, Any]) -> Any:
    kind = _find(name)
    value = object.__new__(kind)
    for field, data in fields.items():  # past __init__, which may have other arguments than fields
        object.__setattr__(value, field, static_from_json(data))
    return value


_DECODERS: dict[str, Callable[..., Any]] = {
    "registered": lambda name, data: _REGISTERED[_find(name)].from_json(data),
    "enum": lambda name, member: _find(name)[member],
    "flag": lambda name, value: _find(name)(value),  # a combination has no name
    "float": float.fromhex,
    "complex": lambda real, imag: complex(float.fromhex(real), float.fromhex(imag)),
    "bytes": bytes.fromhex,
    "torch": lambda name: getattr(torch, name),
    "device": torch.device,
    "size": lambda *sizes: torch.Size(sizes),
    "tuple": lambda *items: tuple(map(static_from_json, items)),
    "dataclass": _dataclass,
}


def static_from_json(data: Any) -> Any:
    """Return the static value that `static_to_json` wrote."""
    return _DECODERS[data[0]](*data[1:]) if isinstance(data, list) else data
