"""Namedtuples as trees; `td.to_namedtuple()` is the way back."""

from __future__ import annotations

from typing import Any

from tdfunc._errors import StructureError, describe
from tdfunc._typing import Size
from tdfunc.core import TensorDict
from tdfunc.core._convert import tie_shared

from ._records import as_entries, is_namedtuple


def from_namedtuple(value: Any, /, batch_size: Size = ()) -> TensorDict:
    """Build a tree from a namedtuple.

    Args:
        value: A namedtuple. Namedtuples, dataclasses and dicts among its fields become subtrees; a frozen dataclass
            without tensors is a static value.
        batch_size: The batch size.

    Returns:
        The tree; fields that are one and the same tensor object are tied. `td.to_namedtuple()` is the inverse, a number
        aside: it comes back as a tensor.

    Raises:
        StructureError: If it is no namedtuple, or a field can be no entry.
        BatchSizeError: If a shape does not start with the batch size.

    Example:
        >>> import collections, torch, tdfunc
        >>> Point = collections.namedtuple("Point", ["x", "y"])
        >>> tdfunc.interop.from_namedtuple(Point(torch.ones(3), torch.zeros(3)), batch_size=3)
        TensorDict(batch_size=(3,),
          x  (3,)  float32
          y  (3,)  float32)
    """
    if not is_namedtuple(value):
        raise StructureError(
            describe("from_namedtuple: no namedtuple", expected="a namedtuple", got=type(value).__name__, fix="TensorDict(mapping) for a mapping")
        )
    return tie_shared(TensorDict(as_entries(value), batch_size))
