"""Structured numpy arrays: a field for each entry, a structured field for each node."""

from __future__ import annotations

from typing import Any

from tdfunc._errors import StructureError, describe, show_path
from tdfunc._typing import KeyPath
from tdfunc.core import TensorDict
from tdfunc.core._convert import arrays, imported

from ._arrays import as_tensor
from ._tables import refuse_statics


def to_struct_array(td: TensorDict, /, *, align: bool = False) -> Any:
    """Return a tree as a structured numpy array, one record for each row.

    Args:
        td: A tree of leaves whose dtypes numpy has; it may hold no static values.
        align: Whether to pad the records as a C compiler does, so that `from_struct_array` need not copy.

    Returns:
        A copy: an array of the batch size, with a field for each entry. A node is a structured field; the batch dims that
        it has more are the shape of that field, the event dims those of its own fields.

    Raises:
        StructureError: If there are static values, or a leaf can be no array.

    Shapes:
        `(*batch, *event)` is a field of shape `event` in an array of shape `batch`.

    Example:
        >>> import torch, tdfunc
        >>> tdfunc.interop.to_struct_array(tdfunc.TensorDict({"a": torch.arange(2), "n": {"b": torch.ones(2, 1)}}, 2))
        array([(0, ([1.],)), (1, ([1.],))],
              dtype=[('a', '<i8'), ('n', [('b', '<f4', (1,))])])
    """
    numpy = imported("numpy", "to_struct_array")
    refuse_statics(td, "to_struct_array")
    values = arrays(td, "to_struct_array")
    size = tuple(td.batch_size)
    return _filled(td, values, numpy.zeros(size, _dtype(numpy, td, values, size, align)))


def _dtype(numpy: Any, td: TensorDict, values: Any, size: tuple[int, ...], align: bool) -> Any:
    """Return the dtype of the records of a node, given its arrays and its batch size."""
    formats: list[Any] = []
    for name, value in td.items():
        if isinstance(value, TensorDict):
            inner = tuple(value.batch_size)
            formats.append((_dtype(numpy, value, values[name], inner, align), inner[len(size) :]))
        else:
            formats.append((values[name].dtype, values[name].shape[len(size) :]))
    return numpy.dtype({"names": list(td), "formats": formats}, align=align)


def _filled(td: TensorDict, values: Any, records: Any) -> Any:
    """Return the records, with the arrays of a node written into them."""
    for name, value in td.items():
        if isinstance(value, TensorDict):
            _filled(value, values[name], records[name])
        else:
            records[name][...] = values[name]
    return records


def from_struct_array(array: Any, /) -> TensorDict:
    """Build a tree from a structured numpy array.

    Args:
        array: An array whose dtype has fields: numbers, bools, or fields in turn.

    Returns:
        The tree, of the array's shape as batch size; a structured field becomes a subtree, with the shape of the field as
        further batch dims. A leaf shares the memory of the array unless torch cannot view it: the array is read-only, of
        another byte order, or its records are not aligned.

    Raises:
        StructureError: If the array has no fields, or a field holds neither numbers nor bools.

    Example:
        >>> import numpy, tdfunc
        >>> tdfunc.interop.from_struct_array(numpy.array([(1, 0.5), (2, 1.5)], dtype=[("n", "i8"), ("x", "f8")]))
        TensorDict(batch_size=(2,),
          n  (2,)  int64
          x  (2,)  float64)
    """
    dtype = getattr(array, "dtype", None)
    if getattr(dtype, "names", None) is None:
        got = f"{type(array).__name__} of {dtype}"
        raise StructureError(
            describe("from_struct_array: an array without fields", expected="a structured dtype", got=got, fix="TensorDict({'name': array})")
        )
    problems: list[str] = []
    td = _tree(array, (), problems)
    if problems:
        raise StructureError(
            describe(
                "from_struct_array: fields that can be no tensors",
                at="; ".join(problems),
                expected="numbers or bools",
                fix="leave them out: array[['name', ...]]",
            )
        )
    return td


def _tree(array: Any, at: KeyPath, problems: list[str]) -> TensorDict:
    entries: dict[str, Any] = {}
    for name in array.dtype.names:
        column = array[name]
        if column.dtype.names is not None:
            entries[name] = _tree(column, (*at, name), problems)
            continue
        entries[name] = as_tensor(column)
        if entries[name] is None:
            problems.append(f"{show_path((*at, name))}: {column.dtype}")
    return TensorDict(entries, array.shape)
