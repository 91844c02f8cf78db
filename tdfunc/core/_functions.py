"""Functions of several trees."""

from __future__ import annotations

from collections.abc import Sequence

from tdfunc import ops
from tdfunc._typing import T


def stack(trees: Sequence[T], dim: int = 0) -> T:
    """Stack trees along a new batch dim.

    Args:
        trees: TensorDicts with the same key paths, shapes and static values; the order of keys is that of the first.
        dim: Where the new dim goes among the batch dims.

    Returns:
        One tree with a batch dim more; `unbind` is the inverse. Ties stay ties.

    Raises:
        StructureError: If the trees differ in key paths, ties or static values, or there is none.
        BatchSizeError: If shapes differ, or `dim` is no batch dim of the result.

    Shapes:
        `(*batch, *event)` each to `(*batch[:dim], len(trees), *batch[dim:], *event)`.

    Example:
        >>> import torch, tdfunc
        >>> tdfunc.stack([tdfunc.TensorDict(w=torch.ones(2)) for _ in range(3)]).batch_size
        torch.Size([3])
    """
    return ops.stack(trees, dim)


def merge(tree: T, /, *others: T) -> T:
    """Join trees; under a key path that several have, the last one wins.

    Args:
        tree: The first tree, whose order of keys comes first.
        *others: More trees. Where a leaf meets a subtree, the later one replaces the earlier.

    Returns:
        The union. `merge(*td.partition(pred))` equals `td`, the order of keys aside.

    Example:
        >>> import tdfunc
        >>> sorted(tdfunc.merge(tdfunc.TensorDict(a=1.0), tdfunc.TensorDict(b=2.0)))
        ['a', 'b']
    """
    return ops.merge(tree, *others)
