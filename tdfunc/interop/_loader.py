"""TensorDicts in a `torch.utils.data.DataLoader`: as samples, as batches, and as the data set itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import torch

from tdfunc._errors import BatchSizeError, describe
from tdfunc.core import TensorDict, stack


class Rows(Sequence[TensorDict]):
    """The rows of a tree along its first batch dim, as a sequence of trees. Made by `rows`."""

    __slots__ = ("tree",)

    tree: TensorDict

    def __init__(self, tree: TensorDict) -> None:
        self.tree = tree

    def __len__(self) -> int:
        return self.tree.batch_size[0]

    def __iter__(self) -> Iterator[TensorDict]:
        return iter(self.tree.unbind())

    @overload
    def __getitem__(self, index: int) -> TensorDict: ...
    @overload
    def __getitem__(self, index: slice) -> Rows: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Rows(self.tree[index])
        at = range(len(self))[index]  # an IndexError where there is no such row
        return self.tree[at]

    def __getitems__(self, indices: Sequence[int]) -> Rows:
        """Return the rows at these positions, picked at once; what a DataLoader calls for a batch."""
        return Rows(self.tree[torch.as_tensor(indices, dtype=torch.long)])

    def __repr__(self) -> str:
        return f"Rows({self.tree!r})"


def rows(td: TensorDict, /) -> Rows:
    """View a tree as the sequence of its rows: a map-style data set.

    A TensorDict by itself is none, since it is a mapping: `len` counts its keys.

    Args:
        td: A tree with at least one batch dim.

    Returns:
        A sequence of `td[0]`, `td[1]`, ... that `DataLoader`, `Subset` and `random_split` take. With `collate` the rows
        of a batch are picked at once, without one tree a row.

    Raises:
        BatchSizeError: If the tree has no batch dim.

    Shapes:
        `(n, *batch, *event)` is `n` rows of `(*batch, *event)`.

    Example:
        >>> import torch, tdfunc
        >>> from tdfunc.interop import collate, rows
        >>> td = tdfunc.TensorDict({"x": torch.arange(5)}, 5)
        >>> [batch["x"].tolist() for batch in torch.utils.data.DataLoader(rows(td), batch_size=2, collate_fn=collate)]
        [[0, 1], [2, 3], [4]]
    """
    if not td.batch_size:
        raise BatchSizeError(
            describe("rows: the tree has no batch dim", expected="at least one", got=tuple(td.batch_size), fix="rows(td.auto_batch_size())")
        )
    return Rows(td)


def collate(batch: Any, /) -> Any:
    """Join the samples of a batch: a `collate_fn` that stacks TensorDicts along a new first batch dim.

    Without it a DataLoader rebuilds every mapping from a dict: static values, ties and the batch size are lost, or it
    raises. It also does that to batches that are trees already (`batch_size=None`).

    Args:
        batch: The samples: TensorDicts, or what torch's `default_collate` takes, with TensorDicts anywhere inside. A
            TensorDict is a batch already and is returned as it is; so is the tree of picked `rows`.

    Returns:
        What `default_collate` returns, with one TensorDict for those of all samples.

    Raises:
        StructureError: If TensorDicts differ in key paths, ties or static values.
        BatchSizeError: If their shapes differ.

    Example:
        >>> import torch, tdfunc
        >>> batch = tdfunc.interop.collate([(tdfunc.TensorDict(x=torch.ones(2), s="a"), 0), (tdfunc.TensorDict(x=torch.ones(2), s="a"), 1)])
        >>> batch[0].batch_size, batch[0]["s"], batch[1]
        (torch.Size([2]), 'a', tensor([0, 1]))
    """
    # The way that torch's documentation gives to other types; the map of all loaders, which it also offers, stays as it is.
    from torch.utils.data._utils import collate as torch_collate

    if isinstance(batch, TensorDict):
        return batch
    if isinstance(batch, Rows):
        return batch.tree
    return torch_collate.collate(batch, collate_fn_map={TensorDict: _stacked, **torch_collate.default_collate_fn_map})


def _stacked(batch: Sequence[TensorDict], *, collate_fn_map: Any = None) -> TensorDict:
    del collate_fn_map
    return stack(batch)
