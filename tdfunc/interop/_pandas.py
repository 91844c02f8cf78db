"""Data frames of pandas: a column for each leaf, a row for each row of the batch."""

from __future__ import annotations

from typing import Any

from tdfunc._errors import BatchSizeError, KeyPathError, StructureError, describe, show_path
from tdfunc.core import TensorDict, from_flat
from tdfunc.core._convert import arrays, imported

from ._arrays import as_tensor
from ._tables import refuse_statics


def to_pandas(td: TensorDict, /, sep: str = ".") -> Any:
    """Return a tree as a `pandas.DataFrame`.

    Args:
        td: A tree with one batch dim, whose leaves have no event dims; it may hold no static values.
        sep: What joins the names of a key path to the label of a column.

    Returns:
        A data frame of copies: a row for each row of the batch, numbered from 0, and a column for each leaf.

    Raises:
        BatchSizeError: If there is not just one batch dim, or a leaf has event dims.
        StructureError: If there are static values, or a leaf can be no array.
        KeyPathError: If a key contains the separator.
        ImportError: If pandas is not installed.

    Example:
        >>> import torch, tdfunc
        >>> td = tdfunc.TensorDict({"a": torch.arange(2), "n": {"b": torch.ones(2)}}, 2)
        >>> list(tdfunc.interop.to_pandas(td).columns)  # doctest: +SKIP
        ['a', 'n.b']
    """
    pandas = imported("pandas", "to_pandas")
    if td.batch_dims != 1:
        raise BatchSizeError(
            describe("to_pandas: the batch dims are not one", expected="one batch dim, for the rows", got=tuple(td.batch_size), fix="td.flatten()")
        )
    wide = [(path, leaf) for path, leaf in zip(td.structure.paths(), td._leaves, strict=True) if leaf.dim() != 1]
    if wide:
        raise BatchSizeError(
            describe(
                "to_pandas: leaves with more than one number a row",
                at="; ".join(f"{show_path(path)}: shape {tuple(leaf.shape)}" for path, leaf in wide),
                expected=f"shape {tuple(td.batch_size)}",
                fix=f"td.set({wide[0][0]!r}, {{str(i): column for i, column in enumerate(td[{wide[0][0]!r}].unbind(1))}})",
            )
        )
    refuse_statics(td, "to_pandas")
    return pandas.DataFrame(arrays(td, "to_pandas").to_flat(sep), index=range(td.batch_size[0]), copy=True)


def from_pandas(frame: Any, /, sep: str = ".") -> TensorDict:
    """Build a tree from a `pandas.DataFrame`.

    Args:
        frame: A data frame whose columns are numbers or bools, as its `to_numpy` gives them. The index is no column:
            `frame.reset_index()` makes it one.
        sep: Where the label of a column is taken apart into a key path; a tuple of str is a path as it is.

    Returns:
        A tree of copies, with the number of rows as its batch size.

    Raises:
        StructureError: If it is no data frame, or a column holds neither numbers nor bools.
        KeyPathError: If a label is no str or tuple of str, or two labels want one place.
        ImportError: If pandas is not installed.
    """
    pandas = imported("pandas", "from_pandas")
    if not isinstance(frame, pandas.DataFrame):
        raise StructureError(
            describe("from_pandas: no data frame", expected="a pandas.DataFrame", got=type(frame).__name__, fix="pandas.DataFrame(data) it first")
        )
    twice = list(frame.columns[frame.columns.duplicated()])
    if twice:
        raise KeyPathError(
            describe("from_pandas: labels that stand twice", at=twice, expected="each label once", fix="frame.set_axis(labels, axis=1)")
        )
    columns = {label: as_tensor(frame.iloc[:, i].to_numpy(copy=True)) for i, label in enumerate(frame.columns)}
    bad = [label for label, column in columns.items() if column is None]
    if bad:
        raise StructureError(
            describe(
                "from_pandas: columns that can be no tensors",
                at="; ".join(f"{label!r}: {frame[label].dtype}" for label in bad),
                expected="numbers or bools",
                fix=f"frame.drop(columns={bad!r})",
            )
        )
    return from_flat(columns, sep, len(frame))
