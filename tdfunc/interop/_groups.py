"""Rows that share a value, in trees of their own."""

from __future__ import annotations

import torch
from torch import Tensor

from tdfunc._errors import BatchSizeError, KeyPathError, StructureError, describe, show_path
from tdfunc._typing import Key
from tdfunc.core import TensorDict
from tdfunc.structure import as_path


def group_by(td: TensorDict, key: Key, /) -> tuple[Tensor, tuple[TensorDict, ...]]:
    """Split a tree into the rows that share the value of a leaf.

    Args:
        td: A tree with at least one batch dim, the first of which counts the rows.
        key: The leaf. One with more than one number a row is compared row by row.

    Returns:
        The values that occur, each once and in order, and a tree for each of them with its rows in their order.

    Raises:
        BatchSizeError: If the tree has no batch dim.
        KeyPathError: If the key is missing or names no leaf.
        StructureError: In a trace or under vmap: how many groups there are depends on data.

    Note:
        Reads the values, so it runs in eager only. Gradients flow to the groups. Each nan is a group by itself.

    Example:
        >>> import torch, tdfunc
        >>> td = tdfunc.TensorDict({"id": torch.tensor([2, 0, 2]), "x": torch.arange(3)}, 3)
        >>> values, groups = tdfunc.interop.group_by(td, "id")
        >>> values, [group["x"].tolist() for group in groups]
        (tensor([0, 2]), [[1], [0, 2]])
    """
    if torch.compiler.is_compiling():
        raise StructureError(_in_eager_only())
    path = as_path(key)
    column = td[path]
    if not isinstance(column, Tensor):
        got = "a subtree" if isinstance(column, TensorDict) else f"the static value {column!r}, which all rows share"
        raise KeyPathError(describe("group_by: no leaf", at=show_path(path), expected="a tensor", got=got, fix="name a leaf"))
    if not td.batch_dims:
        raise BatchSizeError(
            describe(
                "group_by: the tree has no rows",
                expected="at least one batch dim",
                got=tuple(td.batch_size),
                fix="group_by(td.auto_batch_size(), key)",
            )
        )
    try:
        values, inverse, counts = torch.unique(column.detach(), return_inverse=True, return_counts=True, dim=None if column.dim() == 1 else 0)
        lengths = counts.tolist()
    except RuntimeError as error:
        if "vmap" in str(error):
            raise StructureError(_in_eager_only()) from error
        error.add_note(f"in group_by, at {show_path(path)}")
        raise
    order = torch.argsort(inverse, stable=True)
    return values, td[order].split(lengths)


def _in_eager_only() -> str:
    return describe(
        "group_by: how many groups there are depends on data",
        expected="a call in eager, outside vmap",
        fix="group before the compiled or mapped function",
    )
