"""Tables in files: CSV, JSON and Parquet, read and written by pandas, a column for each leaf."""

from __future__ import annotations

from typing import Any

from tdfunc.core import TensorDict
from tdfunc.core._convert import imported

from ._pandas import from_pandas, to_pandas


def to_csv(td: TensorDict, path: Any, /, sep: str = ".", **options: Any) -> None:
    """Write a tree as a CSV file.

    Args:
        td: A tree as `to_pandas` takes it: one batch dim, no event dims, no static values.
        path: A path, or a file to write to.
        sep: What joins the names of a key path to the label of a column.
        **options: Of `pandas.DataFrame.to_csv`.

    Note:
        A text has no dtypes: floating point numbers come back as float64, integers as int64.

    Raises:
        ImportError: If pandas is not installed; else as `to_pandas`.
    """
    to_pandas(td, sep).to_csv(path, **{"index": False, **options})


def from_csv(path: Any, /, sep: str = ".", **options: Any) -> TensorDict:
    """Build a tree from a CSV file.

    Args:
        path: A path, URL or file.
        sep: Where the label of a column is taken apart into a key path.
        **options: Of `pandas.read_csv`; `usecols` picks columns, `dtype` tells their dtypes.

    Returns:
        The tree, with the number of rows as its batch size.

    Raises:
        ImportError: If pandas is not installed; else as `from_pandas`.
    """
    return from_pandas(imported("pandas", "from_csv").read_csv(path, **options), sep)


def to_json(td: TensorDict, path: Any, /, sep: str = ".", *, lines: bool = False, **options: Any) -> None:
    """Write a tree as a JSON file: a list of rows, each an object with a number for each leaf.

    Args:
        td: A tree as `to_pandas` takes it.
        path: A path, or a file to write to.
        sep: What joins the names of a key path to a name in a row.
        lines: Whether to write one row a line and no list.
        **options: Of `pandas.DataFrame.to_json`.

    Note:
        A text has no dtypes: floating point numbers come back as float64, to 15 digits, nan and infinity as nan.

    Raises:
        ImportError: If pandas is not installed; else as `to_pandas`.
    """
    to_pandas(td, sep).to_json(path, **{"orient": "records", "lines": lines, "double_precision": 15, **options})


def from_json(path: Any, /, sep: str = ".", *, lines: bool = False, **options: Any) -> TensorDict:
    """Build a tree from a JSON file that is a list of rows.

    Args:
        path: A path, URL or file.
        sep: Where a name in a row is taken apart into a key path.
        lines: Whether there is one row a line and no list.
        **options: Of `pandas.read_json`.

    Returns:
        The tree, with the number of rows as its batch size. Numbers stay what they are, whatever their name.

    Raises:
        ImportError: If pandas is not installed; else as `from_pandas`.
    """
    chosen = {"orient": "records", "lines": lines, "dtype": False, "convert_axes": False, **options}
    return from_pandas(imported("pandas", "from_json").read_json(path, **chosen), sep)


def to_parquet(td: TensorDict, path: Any, /, sep: str = ".", **options: Any) -> None:
    """Write a tree as a Parquet file, which keeps dtypes.

    Args:
        td: A tree as `to_pandas` takes it.
        path: A path, or a file to write to.
        sep: What joins the names of a key path to the label of a column.
        **options: Of `pandas.DataFrame.to_parquet`.

    Raises:
        ImportError: If pandas or pyarrow is not installed; else as `to_pandas`.
    """
    imported("pyarrow", "to_parquet")
    to_pandas(td, sep).to_parquet(path, **{"engine": "pyarrow", "index": False, **options})


def from_parquet(path: Any, /, sep: str = ".", **options: Any) -> TensorDict:
    """Build a tree from a Parquet file.

    Args:
        path: A path, URL or file.
        sep: Where the label of a column is taken apart into a key path.
        **options: Of `pandas.read_parquet`; `columns` picks columns.

    Returns:
        The tree, with the number of rows as its batch size.

    Raises:
        ImportError: If pandas or pyarrow is not installed; else as `from_pandas`.
    """
    imported("pyarrow", "from_parquet")
    return from_pandas(imported("pandas", "from_parquet").read_parquet(path, **{"engine": "pyarrow", **options}), sep)
