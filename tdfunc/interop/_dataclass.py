"""Dataclasses as trees, and trees as instances of a dataclass."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, TypeVar

from tdfunc._errors import KeyPathError, StructureError, describe, nearest, show_path
from tdfunc._typing import KeyPath, Size
from tdfunc.core import TensorDict
from tdfunc.core._convert import tie_shared
from tdfunc.structure import constant

from ._records import as_entries, field_names, is_dataclass, is_record_class, needed_names

C = TypeVar("C")


def from_dataclass(value: Any, /, batch_size: Size = ()) -> TensorDict:
    """Build a tree from an instance of a dataclass.

    Args:
        value: The instance. Dataclasses, namedtuples and dicts among its fields become subtrees; a frozen dataclass
            without tensors is a static value. Fields that the constructor does not take (`init=False`) are left out.
        batch_size: The batch size.

    Returns:
        The tree; fields that are one and the same tensor object are tied. `to_dataclass` is the inverse, a number aside: it
        comes back as a tensor.

    Raises:
        StructureError: If it is no instance of a dataclass, or a field can be no entry.
        BatchSizeError: If a shape does not start with the batch size.

    Example:
        >>> import dataclasses, torch, tdfunc
        >>> @dataclasses.dataclass
        ... class Point:
        ...     x: torch.Tensor
        ...     name: str = "p"
        >>> td = tdfunc.interop.from_dataclass(Point(torch.ones(3)), batch_size=3)
        >>> td["name"], tdfunc.interop.to_dataclass(td * 2, Point)
        ('p', Point(x=tensor([2., 2., 2.]), name='p'))
    """
    if not is_dataclass(value):
        raise StructureError(
            describe(
                "from_dataclass: no instance of a dataclass",
                expected="an instance",
                got=f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__,
                fix="TensorDict(mapping) for a mapping",
            )
        )
    return tie_shared(TensorDict(as_entries(value), batch_size))


def to_dataclass(td: TensorDict, cls: type[C], /) -> C:
    """Make an instance of a dataclass from a tree.

    Args:
        td: The tree. Its entries are the fields by name; a field with a default may be missing.
        cls: The dataclass. A subtree becomes what its field is annotated with: a dataclass or namedtuple class, also
            beside `None`, or a dict; under any other annotation it stays a TensorDict.

    Returns:
        The instance, over the same tensors.

    Raises:
        StructureError: If `cls` is no dataclass, or its annotations cannot be read.
        KeyPathError: If the tree has an entry that is no field, or lacks a field without a default.

    Note:
        Gradients flow, and it works inside transforms. Under `torch.compile(fullgraph=True)` only a dataclass whose fields
        are no dataclasses can be made (torch 2.13).

    Example:
        >>> import dataclasses, torch, tdfunc
        >>> @dataclasses.dataclass
        ... class Point:
        ...     x: torch.Tensor
        ...     y: torch.Tensor
        >>> tdfunc.interop.to_dataclass(tdfunc.TensorDict(x=1.0, y=2.0), Point)
        Point(x=tensor(1.), y=tensor(2.))
    """
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise StructureError(
            describe("to_dataclass: no dataclass", expected="a class that is a dataclass", got=repr(cls), fix="decorate it: @dataclasses.dataclass")
        )
    return _record(td, cls, ())


def _record(td: TensorDict, cls: Any, at: KeyPath) -> Any:
    entries = dict(td.items())
    _check(cls, tuple(entries), at)
    nested = [name for name, value in entries.items() if isinstance(value, TensorDict)]
    kinds = _kinds(cls, at) if nested else {}
    made = {name: _as(entries[name], kinds[name], (*at, name)) for name in nested}
    return cls(**{**entries, **made})


def _as(td: TensorDict, kind: Any, at: KeyPath) -> Any:
    """Return a subtree as an instance of a class; None leaves it a tree."""
    if kind is None:
        return td
    return td.to_dict() if kind is dict else _record(td, kind, at)


@constant
def _kinds(cls: Any, at: KeyPath) -> dict[str, Any]:
    """Return for each field the class that a subtree under it becomes, told by its annotation; None if it stays a tree."""
    try:
        hints = typing.get_type_hints(cls)
    except NameError as error:
        raise StructureError(
            describe(
                f"to_dataclass: the annotations of {cls.__name__} cannot be read, {error}",
                at=show_path(at),
                expected="names that its module knows",
                fix="define the classes at the top of a module",
            )
        ) from error
    return {name: next((kind for kind in _classes(hints[name]) if kind is dict or is_record_class(kind)), None) for name in field_names(cls)}


def _classes(hint: Any) -> list[Any]:
    """Return the classes that an annotation names: of a union each one, of a generic alias its origin."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [kind for part in typing.get_args(hint) for kind in _classes(part)]
    return [typing.get_origin(hint) or hint]


def _check(cls: Any, names: tuple[str, ...], at: KeyPath) -> None:
    """Raise if a tree's entries are not the fields of a record class."""
    known = field_names(cls)
    unknown = [name for name in names if name not in known]
    lacking = [name for name in needed_names(cls) if name not in names]
    if not (unknown or lacking):
        return
    wrong = [f"no field {name!r}{nearest(name, known)}" for name in unknown] + [f"nothing for the field {name!r}" for name in lacking]
    raise KeyPathError(
        describe(
            f"to_dataclass: the entries are not the fields of {cls.__name__}",
            at=show_path(at),
            expected=f"the fields {list(known)}",
            got="; ".join(wrong),
            fix=f"td.exclude({(*at, unknown[0])!r})" if unknown else f"td.set({(*at, lacking[0])!r}, value)",
        )
    )
