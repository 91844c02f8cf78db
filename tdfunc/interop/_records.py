"""Records to mappings: what dataclasses and namedtuples have in common."""

from __future__ import annotations

import dataclasses
from typing import Any

from tdfunc._errors import StructureError
from tdfunc.structure import constant, is_static, static


def is_namedtuple(value: object) -> bool:
    """Say whether a value is an instance of a namedtuple class."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def is_dataclass(value: object) -> bool:
    """Say whether a value is an instance of a dataclass."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def is_record_class(kind: object) -> bool:
    """Say whether something is a dataclass or a namedtuple class."""
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields")))


@constant
def field_names(cls: Any) -> tuple[str, ...]:
    """Return the names of the fields that a record class's constructor takes."""
    return tuple(field.name for field in dataclasses.fields(cls) if field.init) if dataclasses.is_dataclass(cls) else cls._fields


@constant
def needed_names(cls: Any) -> tuple[str, ...]:
    """Return the names of those fields that have no default."""
    if not dataclasses.is_dataclass(cls):
        return tuple(name for name in cls._fields if name not in cls._field_defaults)  # pyright: ignore[reportAttributeAccessIssue]
    missing = dataclasses.MISSING
    return tuple(field.name for field in dataclasses.fields(cls) if field.init and field.default is missing and field.default_factory is missing)


def as_entries(record: Any) -> dict[str, Any]:
    """Return the fields of a record by name, records among them likewise."""
    return {name: as_entry(value) for name, value in fields_of(record).items()}


def fields_of(record: Any) -> dict[str, Any]:
    """Return the fields of a record by name, as they are."""
    # Not `field_names`: of what an instance tells, torch.compile can make keys (torch 2.13).
    names = record._fields if is_namedtuple(record) else [field.name for field in dataclasses.fields(record) if field.init]
    return {name: getattr(record, name) for name in names}


def as_entry(value: Any) -> Any:
    """Return a field's value as the constructor of a tree takes it: a record with tensors as a mapping."""
    if is_namedtuple(value) or (is_dataclass(value) and not can_be_static(value)):
        return as_entries(value)
    if type(value) is dict:
        return {name: as_entry(item) for name, item in value.items()}
    return value


def can_be_static(value: Any) -> bool:
    """Say whether a dataclass is frozen and holds nothing but static values."""
    if not is_static(value):
        return False
    try:
        static(value)
    except StructureError:
        return False
    return True
