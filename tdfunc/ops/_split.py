"""One tree cut into several along a batch dim; the leaves of the pieces are views."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tdfunc._errors import BatchSizeError, describe
from tdfunc._typing import T

from ._batch import front
from ._dims import batch_dim, over_batch_many


def unbind(tree: T, dim: int = 0) -> tuple[T, ...]:
    """Return the trees along a batch dim, which is taken off."""
    at = batch_dim(tree, dim, "unbind")
    return over_batch_many(tree, "unbind", lambda leaf: leaf.unbind(at))


def split(tree: T, size: Any, dim: int = 0) -> tuple[T, ...]:
    """Return the pieces of this size, the last one perhaps smaller, or of these sizes."""
    at = batch_dim(tree, dim, "split")
    whole = front(tree)[at]
    wrong = sum(size) != whole or min(size, default=0) < 0 if isinstance(size, tuple | list) else size < 0 or (size == 0 and whole != 0)
    if wrong:
        raise BatchSizeError(
            describe(
                "split: the sizes do not add up to the dim",
                expected=f"a size > 0, or sizes whose sum is {whole}",
                got=size,
                fix=f"td.split(1, {dim})",
            )
        )
    return over_batch_many(tree, "split", lambda leaf: leaf.split(size, at))


def chunk(tree: T, chunks: int, dim: int = 0) -> tuple[T, ...]:
    """Return at most this many pieces of equal size, the last one perhaps smaller."""
    at = batch_dim(tree, dim, "chunk")
    if chunks < 1:
        raise BatchSizeError(describe("chunk: a number of pieces is at least 1", got=chunks, fix=f"td.chunk(2, {dim})"))
    return over_batch_many(tree, "chunk", lambda leaf: leaf.chunk(chunks, at))


def tensor_split(tree: T, indices_or_sections: Any, dim: int = 0) -> tuple[T, ...]:
    """Return this many pieces whose sizes differ by at most one, or the pieces between these indices."""
    at = batch_dim(tree, dim, "tensor_split")
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if type(indices_or_sections) is int and indices_or_sections < 1:
        raise BatchSizeError(describe("tensor_split: a number of pieces is at least 1", got=indices_or_sections, fix=f"td.tensor_split(2, {dim})"))
    where = tuple(indices_or_sections) if isinstance(indices_or_sections, list) else indices_or_sections
    return over_batch_many(tree, "tensor_split", lambda leaf: torch.tensor_split(leaf, where, dim=at))
