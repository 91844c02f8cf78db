"""Reductions: over all of each leaf, over batch dims, over the event dims, and over the whole tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tdfunc._errors import BatchSizeError, StructureError, describe, show_path
from tdfunc._typing import Dim, T, TensorTree
from tdfunc.structure import Structure

from ._batch import batch_dims, batch_size
from ._dims import batch_dim, normal_dims
from ._foreach import each, kernel
from ._map import aligned


class Extrema(NamedTuple):
    """The values and the indices of a minimum or maximum along a dim, as trees."""

    values: Any
    indices: Any


class _Way(NamedTuple):
    """How one leaf is reduced: what is done before, along which dim, what after, and the structure that results."""

    before: Callable[[Tensor], Tensor]
    dim: Any
    after: Callable[[Tensor, Tensor], Tensor]
    structure: Structure


def _way(tree: TensorTree, op: str, dim: Dim, keepdim: bool, one: bool) -> _Way:
    """Return how to reduce over all, over batch dims or over the event dims; `one`: the function takes one dim only."""
    structure = tree._structure
    scalar = structure if keepdim else _scalars(tree)
    if dim is None:
        return _Way(_flat, 0, _ones if keepdim else _as_it_is, scalar if tree._leaves else structure.sized(()))
    dims = batch_dims(tree)
    if type(dim) is str:
        if dim != "feature":
            raise BatchSizeError(
                describe(f"{op}: not a dim", expected="an int, several, None or 'feature'", got=repr(dim), fix=f"td.{op}('feature')")
            )
        return _Way(lambda leaf: _features(leaf, dims), dims, (lambda new, leaf: _events_as_ones(new, leaf, dims)) if keepdim else _as_it_is, scalar)
    at = normal_dims(tree, dim, op)
    if not tree._leaves:
        left = tuple([1 if i in at else n for i, n in enumerate(batch_size(tree)) if keepdim or i not in at])
        structure = structure.sized(left)
    ones: Callable[[Tensor, Tensor], Tensor] = (lambda new, leaf: _dims_as_ones(new, leaf, at)) if keepdim else _as_it_is
    if len(at) == 1 or not one:
        return _Way(lambda leaf: leaf, at[0] if len(at) == 1 else at, ones, structure)
    return _Way(lambda leaf: _gathered(leaf, at), 0, ones, structure)


def _scalars(tree: TensorTree) -> Structure:
    """Return the structure with all event dims gone: of a leaf, the batch is what is left."""
    structure = tree._structure
    return structure.ranking((0,) * structure.count(), (0,) * len(structure.extras()))


_WHOLE = frozenset({torch.sum, torch.mean, torch.nansum, torch.nanmean, torch.prod, torch.amax, torch.amin})
"""The reductions that take a whole tensor where no dim is given."""


def _flat(leaf: Tensor) -> Tensor:
    return leaf.reshape(-1)


def _features(leaf: Tensor, dims: int) -> Tensor:
    """Return a leaf with its event dims made one: (*batch, event)."""
    return leaf.flatten(dims) if leaf.dim() > dims else leaf.unsqueeze(dims)


def _gathered(leaf: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return a leaf with some dims moved to the front and made one."""
    return leaf.movedim(dims, tuple(range(len(dims)))).flatten(0, len(dims) - 1)


def _as_it_is(new: Tensor, _leaf: Tensor) -> Tensor:
    return new


# A quantile of several has one dim more, in front; the reduced ones come back behind it.


def _ones(new: Tensor, leaf: Tensor) -> Tensor:
    return new[(..., *[None] * leaf.dim())]


def _events_as_ones(new: Tensor, leaf: Tensor, dims: int) -> Tensor:
    return new[(..., *[None] * (leaf.dim() - dims))]


def _dims_as_ones(new: Tensor, leaf: Tensor, dims: tuple[int, ...]) -> Tensor:
    more = new.dim() - (leaf.dim() - len(dims))
    for i in dims:
        new = new.unsqueeze(i + more)
    return new


def reduce(
    tree: TensorTree,
    fn: Callable[..., Tensor],
    op: str,
    dim: Dim = None,
    *,
    keepdim: bool = False,
    joined: bool = False,
    one: bool = False,
    **kwargs: Any,
) -> Any:
    """Return the tree of the leaves reduced, or one tensor for all of them.

    Args:
        tree: The tree.
        fn: A reduction of torch that takes `dim`.
        op: Its name, for messages.
        dim: None reduces every element of each leaf; an int or several, batch dims; "feature", the event dims.
        keepdim: Keep the reduced dims, with size 1.
        joined: Reduce over all leaves as if they were one, to one tensor.
        one: `fn` takes one dim and no more.
        **kwargs: Further arguments of `fn`.
    """
    if joined:
        if keepdim and dim is None:
            raise StructureError(
                describe(f"{op}: one number for the whole tree has no dims to keep", got="keepdim=True, reduce=True", fix=f"td.{op}(reduce=True)")
            )
        return _joined(tree, fn, op, dim, keepdim, kwargs)
    if not keepdim and tree._leaves:
        if type(dim) is int:
            return tree._rebuild(each(tree, op, fn, tree._leaves, dim=batch_dim(tree, dim, op), **kwargs), tree._structure)
        if dim is None and fn in _WHOLE:
            return tree._rebuild(each(tree, op, fn, tree._leaves, **kwargs), _scalars(tree))
    before, at, after, structure = _way(tree, op, dim, keepdim, one)
    return tree._rebuild(each(tree, op, lambda leaf: after(fn(before(leaf), dim=at, **kwargs), leaf), tree._leaves), structure)


def _joined(tree: TensorTree, fn: Callable[..., Any], op: str, dim: Dim, keepdim: bool, kwargs: dict[str, Any]) -> Tensor:
    """Return one tensor: `fn` over the leaves as if they were one."""
    if not tree._leaves:
        raise StructureError(describe(f"{op}: no leaves to reduce to one tensor", expected="at least one leaf", fix="check td.is_empty()"))
    if dim is None:
        return fn(torch.cat([_flat(leaf) for leaf in tree._leaves]), dim=0, **kwargs)
    if type(dim) is str:
        dims = _way(tree, op, dim, keepdim, True).dim
        return fn(torch.cat([_features(leaf, dims) for leaf in tree._leaves], dims), dim=dims, keepdim=keepdim, **kwargs)
    at = batch_dim(tree, dim, op)
    shapes = [tuple(leaf.shape) for leaf in tree._leaves]
    wrong = [f"{show_path(path)}: {shape}" for path, shape in zip(tree._structure.paths(), shapes, strict=True) if shape != shapes[0]]
    if wrong:
        raise BatchSizeError(
            describe(
                f"{op}: leaves of different shapes cannot be joined along a batch dim",
                at="; ".join(wrong),
                expected=shapes[0],
                fix=f"td.{op}('feature', reduce=True), or td.{op}(reduce=True)",
            )
        )
    return fn(torch.cat(tuple(tree._leaves), at), dim=at, keepdim=keepdim, **kwargs)


def extrema(tree: TensorTree, fn: Callable[..., Any], op: str, dim: Dim, *, keepdim: bool = False) -> Extrema:
    """Return the values and indices along a batch dim, or along the flattened event dims, of `torch.max` and the like."""
    if isinstance(dim, Tensor) or hasattr(dim, "_structure"):
        raise BatchSizeError(describe(f"{op}: a dim is an int", got=f"a {type(dim).__name__}", fix=f"td.{op}imum(other), of two trees"))
    if type(dim) is not str:
        dim = batch_dim(tree, dim, op)
    before, at, after, structure = _way(tree, op, dim, keepdim, True)
    pairs: Any = each(tree, op, lambda leaf: fn(before(leaf), dim=at), tree._leaves)
    columns = [tuple([after(pair[i], leaf) for pair, leaf in zip(pairs, tree._leaves, strict=True)]) for i in (0, 1)]
    return Extrema(*[tree._rebuild(column, structure) for column in columns])


def along(tree: T, fn: Callable[..., Tensor], op: str, dim: int, **kwargs: Any) -> T:
    """Return the tree of `fn(leaf, dim, **kwargs)` along a batch dim, for a function that keeps the shape."""
    at = batch_dim(tree, dim, op)
    return tree._rebuild(each(tree, op, fn, tree._leaves, dim=at, **kwargs), tree._structure)


def cumulative_extrema(tree: TensorTree, fn: Callable[..., Any], op: str, dim: int) -> Extrema:
    """Return the values and indices of `torch.cummin` or `torch.cummax` along a batch dim."""
    at = batch_dim(tree, dim, op)
    pairs: Any = each(tree, op, fn, tree._leaves, dim=at)
    return Extrema(*[tree._rebuild(tuple([pair[i] for pair in pairs]), tree._structure) for i in (0, 1)])


def quantile(tree: TensorTree, q: Any, dim: Dim = None, *, keepdim: bool = False, interpolation: str = "linear") -> Any:
    """Return the tree of quantiles; of several, a first batch dim counts them."""

    def fn(leaf: Tensor, dim: int) -> Tensor:
        return torch.quantile(leaf, torch.as_tensor(q, dtype=leaf.dtype, device=leaf.device), dim=dim, interpolation=interpolation)

    return reduce(tree, fn, "quantile", dim, keepdim=keepdim, one=True)


@kernel("norm")
def _norm(leaf: Tensor, p: float) -> Tensor:
    return torch.linalg.vector_norm(leaf, p)


def norm(tree: TensorTree, p: float, dim: Dim = None, *, keepdim: bool = False, joined: bool = False, dtype: torch.dtype | None = None) -> Any:
    """Return the tree of the p-norms."""
    if dim is None and dtype is None and not (keepdim or joined) and tree._leaves:
        return tree._rebuild(each(tree, "norm", _norm, tree._leaves, p), _scalars(tree))
    return reduce(tree, lambda leaf, **kw: torch.linalg.vector_norm(leaf, p, dtype=dtype, **kw), "norm", dim, keepdim=keepdim, joined=joined)


def every(tree: TensorTree) -> Tensor:
    """Return a 0-dim tensor that says whether all elements of all leaves are true."""
    return _verdict(tree, torch.all, empty=True)


def some(tree: TensorTree) -> Tensor:
    """Return a 0-dim tensor that says whether any element of any leaf is true."""
    return _verdict(tree, torch.any, empty=False)


def _verdict(tree: TensorTree, fn: Callable[[Tensor], Tensor], *, empty: bool) -> Tensor:
    verdicts = [fn(leaf) for leaf in tree._leaves]
    if not verdicts:
        return torch.tensor(empty)
    return fn(torch.stack([verdict.to(device=verdicts[0].device, dtype=torch.bool) for verdict in verdicts]))


def global_norm(tree: TensorTree, p: float = 2.0) -> Tensor:
    """Return the p-norm of all elements of all leaves as one vector; a tied leaf counts once."""
    if not any(leaf.numel() for leaf in tree._leaves):
        return torch.zeros(())
    if p == 0:  # a count of what is not zero
        counts = each(tree, "global_norm", _norm, tree._leaves, 0)
        return torch.stack([count.to(counts[0].device) for count in counts]).sum()
    leaves = tuple([leaf for leaf in tree._leaves if leaf.numel()]) if p == float("inf") else tree._leaves
    norms = each(tree, "global_norm", _norm, leaves, p)
    return torch.linalg.vector_norm(torch.stack([n.to(norms[0].device) for n in norms]), p)


def dot(tree: TensorTree, other: Any) -> Tensor:
    """Return the sum over all elements of the products of two trees with the same paths, the first one conjugated."""
    columns = aligned(tree, other, "dot")
    for path, a, b in zip(tree._structure.paths(), tree._leaves, columns, strict=True):
        if a.shape != b.shape:
            raise BatchSizeError(
                describe("dot: different shapes", at=show_path(path), expected=tuple(a.shape), got=tuple(b.shape), fix="expand one first")
            )
    if not tree._leaves:
        return torch.zeros(())
    first, *more = each(tree, "dot", _product, tree._leaves, columns)
    for product in more:
        first = first + product
    return first


def _product(a: Tensor, b: Tensor) -> Tensor:
    dtype = torch.promote_types(a.dtype, b.dtype)
    return torch.vdot(a.reshape(-1).to(dtype), b.reshape(-1).to(dtype))
