"""Reductions, and functions along a batch dim."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from tdfunc import ops
from tdfunc._typing import Dim
from tdfunc.core._slots import Tree


class Reductions(Tree):
    """Reductions of each leaf.

    `dim=None` reduces every element of each leaf; an int or several reduce batch dims; `dim="feature"` reduces the event
    dims of each leaf and leaves the batch. `keepdim` keeps the reduced dims with size 1. `reduce=True` gives one tensor,
    as if all leaves were one (along a batch dim their shapes must be the same). A tied leaf counts once.
    """

    __slots__ = ()

    def sum(self, dim: Dim = None, keepdim: bool = False, *, dtype: torch.dtype | None = None, reduce: bool = False) -> Any:
        """Return the sums."""
        return ops.reduce(self, torch.sum, "sum", dim, keepdim=keepdim, joined=reduce, **ops.unless(None, dtype=dtype))

    def mean(self, dim: Dim = None, keepdim: bool = False, *, dtype: torch.dtype | None = None, reduce: bool = False) -> Any:
        """Return the means."""
        return ops.reduce(self, torch.mean, "mean", dim, keepdim=keepdim, joined=reduce, **ops.unless(None, dtype=dtype))

    def nansum(self, dim: Dim = None, keepdim: bool = False, *, dtype: torch.dtype | None = None, reduce: bool = False) -> Any:
        """Return the sums, nan taken as 0."""
        return ops.reduce(self, torch.nansum, "nansum", dim, keepdim=keepdim, joined=reduce, **ops.unless(None, dtype=dtype))

    def nanmean(self, dim: Dim = None, keepdim: bool = False, *, dtype: torch.dtype | None = None, reduce: bool = False) -> Any:
        """Return the means of what is not nan."""
        return ops.reduce(self, torch.nanmean, "nanmean", dim, keepdim=keepdim, joined=reduce, **ops.unless(None, dtype=dtype))

    def prod(self, dim: Dim = None, keepdim: bool = False, *, dtype: torch.dtype | None = None, reduce: bool = False) -> Any:
        """Return the products."""
        return ops.reduce(self, torch.prod, "prod", dim, keepdim=keepdim, joined=reduce, one=True, **ops.unless(None, dtype=dtype))

    def std(self, dim: Dim = None, keepdim: bool = False, *, correction: float = 1, reduce: bool = False) -> Any:
        """Return the standard deviations, divided by the number of elements minus the correction."""
        return ops.reduce(self, torch.std, "std", dim, keepdim=keepdim, joined=reduce, correction=correction)

    def var(self, dim: Dim = None, keepdim: bool = False, *, correction: float = 1, reduce: bool = False) -> Any:
        """Return the variances, divided by the number of elements minus the correction."""
        return ops.reduce(self, torch.var, "var", dim, keepdim=keepdim, joined=reduce, correction=correction)

    def amax(self, dim: Dim = None, keepdim: bool = False, *, reduce: bool = False) -> Any:
        """Return the largest elements."""
        return ops.reduce(self, torch.amax, "amax", dim, keepdim=keepdim, joined=reduce)

    def amin(self, dim: Dim = None, keepdim: bool = False, *, reduce: bool = False) -> Any:
        """Return the smallest elements."""
        return ops.reduce(self, torch.amin, "amin", dim, keepdim=keepdim, joined=reduce)

    def logsumexp(self, dim: Dim = None, keepdim: bool = False, *, reduce: bool = False) -> Any:
        """Return the logarithms of the sums of e to the power of the elements."""
        return ops.reduce(self, torch.logsumexp, "logsumexp", dim, keepdim=keepdim, joined=reduce)

    def max(self, dim: Dim = None, keepdim: bool = False, *, reduce: bool = False) -> Any:
        """Return the largest elements; along a dim, a pair `(values, indices)` of trees, as torch does."""
        if dim is None or reduce:
            return ops.reduce(self, torch.amax, "max", dim, keepdim=keepdim, joined=reduce)
        return ops.extrema(self, torch.max, "max", dim, keepdim=keepdim)

    def min(self, dim: Dim = None, keepdim: bool = False, *, reduce: bool = False) -> Any:
        """Return the smallest elements; along a dim, a pair `(values, indices)` of trees, as torch does."""
        if dim is None or reduce:
            return ops.reduce(self, torch.amin, "min", dim, keepdim=keepdim, joined=reduce)
        return ops.extrema(self, torch.min, "min", dim, keepdim=keepdim)

    def argmax(self, dim: Dim = None, keepdim: bool = False) -> Self:
        """Return the positions of the largest elements: in the flattened leaf, along a batch dim, or in the flattened event dims."""
        return ops.reduce(self, torch.argmax, "argmax", dim, keepdim=keepdim, one=True)

    def argmin(self, dim: Dim = None, keepdim: bool = False) -> Self:
        """Return the positions of the smallest elements: in the flattened leaf, along a batch dim, or in the flattened event dims."""
        return ops.reduce(self, torch.argmin, "argmin", dim, keepdim=keepdim, one=True)

    def all(self, dim: Dim = None, keepdim: bool = False) -> Any:
        """Say whether all elements are true: of the whole tree, as a 0-dim tensor; with a dim, for each leaf, as a tree."""
        return ops.every(self) if dim is None else ops.reduce(self, torch.all, "all", dim, keepdim=keepdim)

    def any(self, dim: Dim = None, keepdim: bool = False) -> Any:
        """Say whether any element is true: of the whole tree, as a 0-dim tensor; with a dim, for each leaf, as a tree."""
        return ops.some(self) if dim is None else ops.reduce(self, torch.any, "any", dim, keepdim=keepdim)

    def count_nonzero(self, dim: Dim = None) -> Self:
        """Return how many elements are not zero."""
        return ops.reduce(self, torch.count_nonzero, "count_nonzero", dim)

    def median(self, dim: Dim = None, keepdim: bool = False) -> Any:
        """Return the medians, of two in the middle the lower one; along a dim, a pair `(values, indices)` of trees."""
        if dim is None:
            return ops.reduce(self, lambda leaf, dim: torch.median(leaf, dim)[0], "median", None, keepdim=keepdim)
        return ops.extrema(self, torch.median, "median", dim, keepdim=keepdim)

    def quantile(self, q: Any, dim: Dim = None, keepdim: bool = False, *, interpolation: str = "linear") -> Self:
        """Return the quantiles; of a sequence of q, the first batch dim of the result counts them."""
        return ops.quantile(self, q, dim, keepdim=keepdim, interpolation=interpolation)

    def norm(self, dim: Dim = None, keepdim: bool = False, *, p: float = 2.0, dtype: torch.dtype | None = None, reduce: bool = False) -> Any:
        """Return the p-norm of each leaf; `global_norm` is that of the whole tree."""
        return ops.norm(self, p, dim, keepdim=keepdim, joined=reduce, dtype=dtype)

    def global_norm(self, p: float = 2.0) -> Tensor:
        """Return the p-norm of all elements as one vector, a 0-dim tensor."""
        return ops.global_norm(self, p)

    def dot(self, other: Any) -> Tensor:
        """Return the sum of the products of all elements of two trees, this one conjugated: a 0-dim tensor."""
        return ops.dot(self, other)

    def cumsum(self, dim: int = 0) -> Self:
        """Return the running sums along a batch dim."""
        return ops.along(self, torch.cumsum, "cumsum", dim)

    def cumprod(self, dim: int = 0) -> Self:
        """Return the running products along a batch dim."""
        return ops.along(self, torch.cumprod, "cumprod", dim)

    def cummax(self, dim: int = 0) -> ops.Extrema:
        """Return the running maxima along a batch dim and their indices, a pair of trees."""
        return ops.cumulative_extrema(self, torch.cummax, "cummax", dim)

    def cummin(self, dim: int = 0) -> ops.Extrema:
        """Return the running minima along a batch dim and their indices, a pair of trees."""
        return ops.cumulative_extrema(self, torch.cummin, "cummin", dim)

    def softmax(self, dim: int = -1, *, dtype: torch.dtype | None = None) -> Self:
        """Return the softmax along a batch dim."""
        return ops.along(self, torch.softmax, "softmax", dim, **ops.unless(None, dtype=dtype))

    def log_softmax(self, dim: int = -1, *, dtype: torch.dtype | None = None) -> Self:
        """Return the logarithm of the softmax along a batch dim."""
        return ops.along(self, torch.log_softmax, "log_softmax", dim, **ops.unless(None, dtype=dtype))
