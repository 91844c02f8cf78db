"""The batch dims arranged anew, cut, picked from and filled."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from tdfunc import ops
from tdfunc.core._slots import Tree


class Shapes(Tree):
    """Operations on the batch dims of all leaves; the event dims stay as they are.

    Dims count from 0, or from -1 backwards, among the batch dims. Where torch gives a view, so does this.
    """

    __slots__ = ()

    def reshape(self, *shape: Any) -> Self:
        """Return the tree with another batch size of as many rows; one size may be -1."""
        return ops.reshape(self, shape)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Return the tree with a range of batch dims made one."""
        return ops.flatten(self, start_dim, end_dim)

    def unflatten(self, dim: int, sizes: Any) -> Self:
        """Return the tree with one batch dim made several; one size may be -1."""
        return ops.unflatten(self, dim, sizes)

    def permute(self, *dims: Any) -> Self:
        """Return the tree with its batch dims in another order."""
        return ops.permute(self, dims)

    def transpose(self, dim0: int, dim1: int) -> Self:
        """Return the tree with two batch dims swapped."""
        return ops.transpose(self, dim0, dim1)

    def movedim(self, source: Any, destination: Any) -> Self:
        """Return the tree with batch dims moved to other places."""
        return ops.movedim(self, source, destination)

    def squeeze(self, dim: Any = None) -> Self:
        """Return the tree without the batch dims of size 1, or without these of them."""
        return ops.squeeze(self, dim)

    def unsqueeze(self, dim: int) -> Self:
        """Return the tree with a batch dim of size 1 more."""
        return ops.unsqueeze(self, dim)

    def expand(self, *sizes: Any) -> Self:
        """Return the tree with batch dims of size 1 expanded, and new ones in front; -1 keeps a size."""
        return ops.expand(self, sizes)

    def expand_as(self, other: Any) -> Self:
        """Return the tree expanded to the batch size of another, or to the shape of a tensor."""
        return ops.expand(self, tuple(other.shape), "expand_as")

    def broadcast_to(self, *shape: Any) -> Self:
        """Return the tree expanded to a batch size."""
        return ops.expand(self, shape, "broadcast_to")

    def repeat(self, *repeats: Any) -> Self:
        """Return the tree repeated along its batch dims, with copies."""
        return ops.repeat(self, repeats)

    def tile(self, *repeats: Any) -> Self:
        """Return the tree repeated along its last batch dims, with copies."""
        return ops.tile(self, repeats)

    def repeat_interleave(self, repeats: Any, dim: int | None = None, *, output_size: int | None = None) -> Self:
        """Return the tree with each row along a batch dim repeated; without a dim, over the flattened batch."""
        return ops.repeat_interleave(self, repeats, dim, output_size)

    def flip(self, *dims: Any) -> Self:
        """Return the tree reversed along batch dims."""
        return ops.flip(self, ops.sizes(dims))

    def roll(self, shifts: Any, dims: Any = None) -> Self:
        """Return the tree rolled along batch dims; without dims, over the flattened batch."""
        return ops.roll(self, shifts, dims)

    def rot90(self, k: int = 1, dims: Any = (0, 1)) -> Self:
        """Return the tree turned by 90 degrees, k times, in the plane of two batch dims."""
        return ops.rot90(self, k, dims)

    def narrow(self, dim: int, start: int, length: int) -> Self:
        """Return a stretch of the tree along a batch dim."""
        return ops.narrow(self, dim, start, length)

    def pad(self, pads: Any, value: float = 0.0) -> Self:
        """Return the tree with rows of a value around its batch dims: pairs (before, after), the first batch dim first.

        The pairs stand in the order of the dims, not in the reversed one of `torch.nn.functional.pad`.
        """
        return ops.pad(self, pads, value)

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """Return the trees along a batch dim, which is taken off."""
        return ops.unbind(self, dim)

    def split(self, split_size: Any, dim: int = 0) -> tuple[Self, ...]:
        """Return the pieces of this size along a batch dim, the last one perhaps smaller, or of these sizes."""
        return ops.split(self, split_size, dim)

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """Return at most this many pieces of equal size along a batch dim."""
        return ops.chunk(self, chunks, dim)

    def tensor_split(self, indices_or_sections: Any, dim: int = 0) -> tuple[Self, ...]:
        """Return this many pieces whose sizes differ by at most one, or the pieces between these indices."""
        return ops.tensor_split(self, indices_or_sections, dim)

    def gather(self, dim: int, index: Tensor) -> Self:
        """Return the rows that an index with as many dims as the batch picks along a batch dim."""
        return ops.gather(self, dim, index)

    def index_select(self, dim: int, index: Tensor) -> Self:
        """Return the rows at these positions along a batch dim."""
        return ops.index_select(self, dim, index)

    def take(self, index: Tensor) -> Self:
        """Return the rows at these positions of the flattened batch; the batch size is the index's shape."""
        return ops.take(self, index)

    def masked_select(self, mask: Tensor) -> Self:
        """Return the rows for which a bool mask over the leading batch dims is true, as one dim; its size depends on data."""
        return ops.masked_select(self, mask)

    def masked_fill(self, mask: Tensor, value: Any) -> Self:
        """Return the tree with a value in the rows for which a bool mask over the leading batch dims is true."""
        return ops.masked_fill(self, mask, value)

    def where(self, condition: Any, other: Any) -> Self:
        """Return this tree where a condition over the batch shape, or a tree of bools, is true, and the other elsewhere."""
        return ops.where(condition, self, other)

    def contiguous(self) -> Self:
        """Return the tree with leaves that are laid out row by row, copied where they are not."""
        return ops.unary(self, Tensor.contiguous, "contiguous")

    def is_contiguous(self) -> bool:
        """Say whether all leaves are laid out row by row."""
        return all(leaf.is_contiguous() for leaf in self._leaves)

    def view(self, *shape: Any) -> Self:
        """Return the tree with another batch size over the same memory, or its bytes read as another dtype."""
        if len(shape) == 1 and isinstance(shape[0], torch.dtype):
            return ops.view_dtype(self, shape[0])
        return ops.reshape(self, shape, view=True)

    def fliplr(self) -> Self:
        """Return the tree reversed along its second batch dim."""
        return ops.flip(self, 1, "fliplr")

    def flipud(self) -> Self:
        """Return the tree reversed along its first batch dim."""
        return ops.flip(self, 0, "flipud")

    def atleast_1d(self) -> Self:
        """Return the tree with at least one batch dim."""
        return ops.atleast(self, 1)

    def atleast_2d(self) -> Self:
        """Return the tree with at least two batch dims."""
        return ops.atleast(self, 2)

    def atleast_3d(self) -> Self:
        """Return the tree with at least three batch dims."""
        return ops.atleast(self, 3)

    swapaxes = swapdims = transpose
    moveaxis = movedim
