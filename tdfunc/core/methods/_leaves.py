"""The leaves joined: all of them in one tensor, or some of them in one entry."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from tdfunc import ops
from tdfunc._typing import Key
from tdfunc.core._slots import Tree


class Leaves(Tree):
    """From many leaves to one; a tied leaf counts once. Gradients flow."""

    __slots__ = ()

    def pack(self, dim: int = -1, *, dtype: torch.dtype | None = None) -> tuple[Tensor, ops.Layout]:
        """Return all leaves in one tensor, and the layout that gives the tree back: ravel and unravel.

        Args:
            dim: Where the packed dim goes among the batch dims.
            dtype: What all leaves are cast to; needed where their dtypes differ. `unpack` casts them back.

        Returns:
            The tensor, and a `Layout` whose `unpack(tensor)` is the inverse. The event dims of each leaf are made one,
            and the leaves follow each other in the order of the tree.

        Raises:
            StructureError: If leaves differ in dtype and none is given, one would lose its kind (complex to real, floating
                point to integer), or devices differ.
            BatchSizeError: If `dim` is no batch dim of the result.

        Shapes:
            `(*batch, *event)` each to `(*batch, sum of the leaves' event elements)`.

        Example:
            >>> import torch, tdfunc
            >>> td = tdfunc.TensorDict({"w": torch.ones(3, 2, 2), "b": torch.zeros(3)}, 3)
            >>> tensor, layout = td.pack()
            >>> tensor.shape, layout.unpack(tensor).equal(td)
            (torch.Size([3, 5]), True)
        """
        return ops.pack(self, dim, dtype=dtype)

    def stack_leaves(self, dim: int = 0) -> Tensor:
        """Return one tensor, the leaves stacked along a new dim, in the order of the tree.

        The dim counts among all dims of the leaves, batch and event, as for `torch.stack`, and dtypes promote as there.
        """
        return ops.stack_leaves(self, dim)

    def cat_leaves(self, dim: int = 0) -> Tensor:
        """Return one tensor, the leaves concatenated along a dim, in the order of the tree.

        The dim counts among all dims of the leaves, batch and event, as for `torch.cat`, and dtypes promote as there.
        """
        return ops.cat_leaves(self, dim)

    def stack_tensors(self, *keys: Key, out_key: Key, dim: int = 0, keep_entries: bool = False) -> Self:
        """Return the tree in which leaves are one entry, stacked along a new dim behind the batch dims.

        Args:
            *keys: The leaves.
            out_key: What the new entry is called.
            dim: Where the new dim goes among all dims of a leaf, batch and event, as for `torch.stack`.
            keep_entries: Whether the leaves stay as well.

        Raises:
            KeyPathError: If a key is missing or names no leaf.
            BatchSizeError: If shapes differ, or the dim would come before a batch dim.

        Example:
            >>> import torch, tdfunc
            >>> td = tdfunc.TensorDict({"x": torch.zeros(3), "y": torch.ones(3)}, 3)
            >>> td.stack_tensors("x", "y", out_key="xy", dim=-1)
            TensorDict(batch_size=(3,),
              xy  (3, 2)  float32)
        """
        return ops.stack_tensors(self, keys, out_key, dim, keep_entries=keep_entries)

    def cat_tensors(self, *keys: Key, out_key: Key, dim: int = 0, keep_entries: bool = False) -> Self:
        """Return the tree in which leaves are one entry, concatenated along an event dim; see `stack_tensors`."""
        return ops.cat_tensors(self, keys, out_key, dim, keep_entries=keep_entries)

    def to_padded_tensor(self, padding: float = 0.0) -> Self:
        """Return the tree with dense leaves in the place of jagged ones, filled up with a number.

        Rows are as long as torch knows the longest to be: that which was given as `max_seqlen`, or else found when the leaf
        was made of a list; a leaf made of offsets alone has room for all its rows. `td.map(torch.ones_like)`, padded, tells
        what is data.
        """
        return ops.to_padded_tensor(self, padding)

    def data_ptr(self) -> Any:
        """Return the address of each leaf's first element, as a tree of numbers. It runs in eager only."""
        return ops.tree_map(self, Tensor.data_ptr)
