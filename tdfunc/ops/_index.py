"""Indexing over the batch dims."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tdfunc._errors import BatchSizeError, describe
from tdfunc._typing import T, TensorTree

from ._batch import batch_dims, batch_size

_PARTS = (int, slice, Tensor, torch.SymInt)


def index(tree: T, idx: Any) -> T:
    """Return the tree whose leaves are indexed over the batch dims.

    The event dims of a leaf are out of reach of the index, so the structure stays as it is.
    """
    leaves, structure = tree._leaves, tree._structure
    dims = batch_dims(tree)
    if not dims or not (type(idx) is int or (type(idx) is slice and idx.step is None) or idx is None):
        idx = within(tree, idx, dims)
    if not leaves:
        size = torch.empty(structure.stored_size(), device="meta")[idx].shape
        return tree._rebuild(leaves, structure.sized(tuple(size)))
    return tree._rebuild(tuple([leaf[idx] for leaf in leaves]), structure)


def within(tree: TensorTree, idx: Any, dims: int) -> Any:
    """Return an index in a form that torch takes and that stays within the batch dims."""
    parts = tuple([_as_part(part) for part in (idx if isinstance(idx, tuple) else (idx,))])
    used = sum([_dims_used(part) for part in parts])
    if used > dims:
        raise BatchSizeError(
            describe(
                "index: it reaches past the batch dims",
                expected=f"at most {dims} dims indexed, the batch size being {tuple(batch_size(tree))}",
                got=f"{used} dims indexed by {idx!r}",
                fix="index the leaf: td['key'][...]; or give the batch dims: td.with_batch_size(...)",
            )
        )
    if any(part is Ellipsis for part in parts):
        # The ellipsis stands for the batch dims that are left, never for event dims.
        at = [part is Ellipsis for part in parts].index(True)
        return (*parts[:at], *[slice(None)] * (dims - used), *parts[at + 1 :])
    return parts


def _as_part(part: Any) -> Any:
    if isinstance(part, slice) and type(part.step) is int and part.step < 0:
        raise BatchSizeError(describe("index: torch has no slices with negative steps", got=part, fix="td.flip(dim), then a slice"))
    if part is None or part is Ellipsis or isinstance(part, _PARTS):
        return part
    if isinstance(part, list | range):
        if any(isinstance(item, str) for item in part):
            raise BatchSizeError(describe("index: a list of keys", expected="an index over batch dims", got=part, fix="td.select(*keys)"))
        return torch.tensor(list(part), dtype=None if len(part) else torch.long)
    if hasattr(part, "__array__"):
        return torch.as_tensor(part.copy() if any(stride < 0 for stride in getattr(part, "strides", ())) else part)
    raise BatchSizeError(
        describe(
            "index: not an index over batch dims, nor a key path",
            expected="int, slice, None, Ellipsis, tensor, list, range, array, or a tuple of these; a str or a tuple of str for keys",
            got=f"{part!r} of type {type(part).__name__}",
            fix="td[key][index] to take a key first",
        )
    )


def _dims_used(part: Any) -> int:
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    if isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8):
        return part.dim()
    return 1
