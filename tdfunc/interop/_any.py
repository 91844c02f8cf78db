"""Trees from lists of rows, and from whatever can be told to be a tree."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from tdfunc._errors import StructureError, TdfuncError, describe, show_path
from tdfunc._typing import KeyPath, Size
from tdfunc.core import TensorDict, stack
from tdfunc.core._convert import tie_shared

from ._pandas import from_pandas
from ._records import can_be_static, fields_of, is_dataclass, is_namedtuple
from ._struct_array import from_struct_array
from ._tensordict import from_tensordict


def from_list(rows: Any, /) -> TensorDict:
    """Build a tree from a list of rows.

    Args:
        rows: A list with a row for each index of the first batch dim: what `from_any` takes, or a list of rows in turn for
            the next batch dim. All rows have the same keys, shapes and static values; a bool of a row is a number.

    Returns:
        The rows stacked: their number is the first batch dim.

    Raises:
        StructureError: If it is no list, has no rows, or rows differ in key paths or static values.
        BatchSizeError: If rows differ in shapes.

    Example:
        >>> import tdfunc
        >>> tdfunc.interop.from_list([{"x": 1, "y": [0.5, 1.0]}, {"x": 2, "y": [1.5, 2.0]}])
        TensorDict(batch_size=(2,),
          x  (2,)    int64
          y  (2, 2)  float32)
    """
    if not isinstance(rows, list):
        raise StructureError(describe("from_list: no list", expected="a list of rows", got=type(rows).__name__, fix="from_list(list(rows))"))
    return _rows(rows, (), "from_list")


def from_any(value: Any, /, batch_size: Size | None = None) -> TensorDict:
    """Build a tree from a value of any type that tells what its entries are.

    Args:
        value: A mapping, a namedtuple, an instance of a dataclass, a structured numpy array, a `pandas.DataFrame`, a list of
            rows, a tree of tensordict or a TensorDict. The same are taken as entries, and lists of numbers as tensors.
        batch_size: The batch size; None takes that which the value tells: rows are a batch dim, mappings and records tell
            none.

    Returns:
        The tree; entries that are one and the same tensor object are tied. A TensorDict is returned as it is.

    Raises:
        StructureError: If it is none of these, or an entry can be none.
        BatchSizeError: If a shape does not start with the batch size.
        KeyPathError: If a key is no str or tuple of str.

    Example:
        >>> import tdfunc
        >>> tdfunc.interop.from_any({"a": [1, 2], "b": {"c": [[0.5], [1.5]]}}, batch_size=2)
        TensorDict(batch_size=(2,),
          a    (2,)    int64
          b.c  (2, 1)  float32)
    """
    if isinstance(value, TensorDict):
        made = value
    else:
        made = _tree(value, (), "from_any")
        if made is None:
            tuples = "from_list(list(value)) for rows, or a dict with a name for each item"
            raise StructureError(
                describe(
                    "from_any: a value that tells no entries",
                    expected="a mapping, a record, a structured array, a data frame, a list of rows or a tree",
                    got=type(value).__name__,
                    fix=tuples if isinstance(value, tuple) else "TensorDict({'name': value})",
                )
            )
        made = tie_shared(made)
    return made if batch_size is None else made.with_batch_size(batch_size)


def _tree(value: Any, at: KeyPath, op: str, *, row: bool = False) -> TensorDict | None:
    """Return a value as a tree, or None if it is none; in a row, a bool is a number."""
    if isinstance(value, TensorDict):
        return value
    foreign = _foreign(value)
    if foreign is not None:
        return foreign(value)
    if is_namedtuple(value) or is_dataclass(value):
        return TensorDict(_entries(fields_of(value), at, op, row))
    if isinstance(value, Mapping):
        return TensorDict(_entries(value, at, op, row))
    return _rows(value, at, op) if isinstance(value, list) else None


def _foreign(value: Any) -> Callable[[Any], TensorDict] | None:
    """Return what reads a value of another library, if it is one; a library that nobody has imported made no values."""
    tensordict, pandas = sys.modules.get("tensordict"), sys.modules.get("pandas")
    if tensordict is not None and tensordict.is_tensor_collection(value) and not tensordict.is_non_tensor(value):
        return from_tensordict
    if pandas is not None and isinstance(value, pandas.DataFrame):
        return from_pandas
    return from_struct_array if getattr(getattr(value, "dtype", None), "names", None) is not None else None


def _entries(items: Mapping[Any, Any], at: KeyPath, op: str, row: bool) -> dict[Any, Any]:
    return {name: _entry(item, (*at, *map(str, name if isinstance(name, tuple) else (name,))), op, row) for name, item in items.items()}


def _entry(value: Any, at: KeyPath, op: str, row: bool) -> Any:
    """Return a value as the constructor of a tree takes it."""
    if row and isinstance(value, bool):
        return torch.tensor(value)
    if is_dataclass(value) and _foreign(value) is None and can_be_static(value):
        return value
    if isinstance(value, list) and not _holds_rows(value):
        try:
            return _tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise StructureError(
                describe(
                    f"{op}: a list that can be no tensor, {str(error).splitlines()[0]}",
                    at=show_path(at),
                    expected="numbers or tensors of one shape",
                    got=repr(value)[:80],
                    fix="leave it out, pad it, or give a tensor of codes",
                )
            ) from error
    made = _tree(value, at, op, row=row)
    return value if made is None else made


def _innermost(value: list[Any]) -> Any:
    """Return the first item that is no list, or None."""
    first: Any = value
    while isinstance(first, list):
        first = first[0] if first else None
    return first


def _holds_rows(value: list[Any]) -> bool:
    first = _innermost(value)
    return isinstance(first, Mapping) or is_namedtuple(first) or is_dataclass(first) or _foreign(first) is not None


def _tensor(value: Any) -> Tensor:
    """Return nested lists of numbers, arrays or tensors as one tensor; gradients flow."""
    if not isinstance(value, list) or not hasattr(_innermost(value), "__array__"):
        return torch.as_tensor(value)
    return torch.stack([_tensor(item) for item in value])


def _rows(rows: list[Any], at: KeyPath, op: str) -> TensorDict:
    """Return the stack of rows."""
    if not rows:
        raise StructureError(
            describe(f"{op}: no rows, so no keys", at=show_path(at), expected="at least one row", got="[]", fix="TensorDict({}, batch_size=0)")
        )
    members = [_tree(row, at, op, row=True) for row in rows]
    lost = [i for i, member in enumerate(members) if member is None]
    if lost:
        raise StructureError(
            describe(
                f"{op}: row {lost[0]} tells no entries",
                at=show_path(at),
                expected="a mapping or a record",
                got=type(rows[lost[0]]).__name__,
                fix="{'name': torch.as_tensor(rows)} for rows of numbers",
            )
        )
    try:
        return stack([member for member in members if member is not None])
    except TdfuncError as error:
        raise type(error)(f"{op}: rows that cannot be stacked\n  at: {show_path(at)}\n{error}") from error
