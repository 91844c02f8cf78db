"""Functions of several trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tdfunc import ops
from tdfunc._typing import Size, T

from ._convert import unflat
from ._tensordict import TensorDict


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


def cat(trees: Sequence[T], dim: int = 0) -> T:
    """Concatenate trees along a batch dim.

    Args:
        trees: TensorDicts with the same key paths and static values, and the same shapes but for that dim.
        dim: The batch dim.

    Returns:
        One tree, whose order of keys is that of the first; `split` is the inverse. Ties stay ties.

    Raises:
        StructureError: If the trees differ in key paths, ties or static values, or there is none.
        BatchSizeError: If other sizes differ, or `dim` is no batch dim.

    Shapes:
        `(n, *batch, *event)` and `(m, *batch, *event)` to `(n + m, *batch, *event)`, for dim 0.

    Example:
        >>> import torch, tdfunc
        >>> td = tdfunc.TensorDict({"x": torch.ones(2, 3)}, 2)
        >>> tdfunc.cat([td, td]).batch_size
        torch.Size([4])
    """
    return ops.cat(trees, dim)


def where(condition: Any, tree: Any, other: Any) -> Any:
    """Choose between two trees, element by element.

    Args:
        condition: A bool tensor, broadcast over the batch shape, or a tree of bools.
        tree: What to take where it is true: a tree, a tensor over the batch shape, or a number.
        other: What to take elsewhere, likewise. At least one of the three is a tree.

    Returns:
        The tree of `torch.where` of the leaves.

    Raises:
        StructureError: If none is a tree, or the trees have different key paths.
        BatchSizeError: If shapes do not broadcast, or the condition is a tensor of another dtype than bool.

    Example:
        >>> import torch, tdfunc
        >>> td = tdfunc.TensorDict(x=torch.tensor([-1.0, 2.0]))
        >>> tdfunc.where(td > 0, td, 0.0)["x"]
        tensor([0., 2.])
    """
    return ops.where(condition, tree, other)


def diff(a: Any, b: Any, *, rtol: float = 0.0, atol: float = 0.0, equal_nan: bool = True) -> ops.Diff:
    """Tell what two trees differ in.

    Args:
        a: A tree.
        b: Another one.
        rtol: How far a value may be off, relative to that of `b`.
        atol: How far a value may be off.
        equal_nan: Whether nan is taken as equal to nan.

    Returns:
        A `Diff`: the changes from `a` to `b`, to be iterated over; empty if there is none; as text, one line each. Each
        change has a kind ("removed", "added", "moved", "shape", "dtype", "value", "static", "ties", "batch_size"), a path,
        what was before and after, and for values the largest absolute and relative error.

    Raises:
        StructureError: If one of the two is no tree.

    Note:
        Reads values, so it runs in eager only. The order of keys does not matter.

    Example:
        >>> import torch, tdfunc
        >>> old = tdfunc.TensorDict(a=torch.zeros(2), b=torch.ones(1))
        >>> print(tdfunc.diff(old, tdfunc.TensorDict(a=torch.tensor([0.0, 0.5]), c=torch.ones(1))))
        moved: 'b' to 'c'
        value: 'a' 1 elements differ, at most by 0.5 (relative 1)
    """
    return ops.diff(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
) -> None:
    """Raise an AssertionError that lists all differences if two trees are not close.

    Args:
        actual: A tree.
        expected: What it should be.
        rtol: Relative tolerance; None takes that of `torch.testing.assert_close` for the dtypes.
        atol: Absolute tolerance, likewise.
        equal_nan: Whether nan is taken as equal to nan.
        check_dtype: Whether dtypes must be the same.

    Raises:
        AssertionError: If key paths, ties, static values, batch sizes, shapes, dtypes or values differ. The order of keys
            does not matter.
        StructureError: If one of the two is no tree.

    Example:
        >>> import torch, tdfunc
        >>> tdfunc.assert_close(tdfunc.TensorDict(a=torch.ones(2)), tdfunc.TensorDict(a=torch.ones(2) + 1e-7))
    """
    found = ops.diff(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, dtypes=check_dtype)
    if len(found):
        raise AssertionError(f"the trees are not close, {len(found)} differences (from the actual to the expected one)\n{found}")


def from_flat(mapping: Mapping[Any, Any], sep: str = ".", batch_size: Size = ()) -> TensorDict:
    """Build a tree from one dict under joined key paths, such as a `state_dict`.

    Args:
        mapping: Values as the constructor takes them. A str key is taken apart at the separator, so that `"a.b"` is the
            path `("a", "b")`; a tuple is a key path as it is.
        sep: The separator.
        batch_size: The batch size, which a flat dict does not tell.

    Returns:
        The tree. It is the inverse of `td.to_flat(sep)`: values that are one and the same tensor object become one leaf
        with several paths. Not in the flat dict, and so not in the tree, are nodes that hold nothing, the batch dims that
        a nested node has more, and that a number was `static`.

    Raises:
        KeyPathError: If two keys want one place, or a key is no str or tuple of str.
        BatchSizeError: If a shape does not start with the batch size.
        StructureError: If a value can be no entry.

    Example:
        >>> import torch, tdfunc
        >>> td = tdfunc.from_flat({"a.b": torch.ones(2), "a.c": torch.zeros(2), "d": "static"}, batch_size=2)
        >>> list(td["a"]), td.to_flat().keys()
        (['b', 'c'], dict_keys(['a.b', 'a.c', 'd']))
    """
    return unflat(TensorDict, mapping, sep, batch_size)
