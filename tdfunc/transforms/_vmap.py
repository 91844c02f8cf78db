"""vmap with the traps of keyword arguments closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from tdfunc._errors import StructureError, describe
from tdfunc.structure import named_after, whole

from ._flat import Rebuild, flatten


def vmap(
    fn: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Map a function over a dim of its arguments; `torch.vmap`, with trees and without silent broadcasting.

    Args:
        fn: A function of tensors and trees.
        in_dims: The dim to map of each positional argument: an int for all, or a tuple with an int or None each. For a
            TensorDict an int counts for every leaf, as its batch dims come first.
        out_dims: Where the mapped dim goes in the results.
        randomness: "error", "different" or "same": what random operations inside do.
        chunk_size: Map this many at a time, to bound memory.

    Returns:
        The mapped function. Inside, a TensorDict's batch size has the mapped dim no more; outside, results have it again.

    Raises:
        StructureError: When called with a tensor as keyword argument: `torch.vmap` would not map it, without a word.

    Shapes:
        Arguments `(n, ...)` to results `(n, ...)`, for in_dims and out_dims 0.

    Note:
        Traces in torch.compile(fullgraph=True), around or inside. Gradients flow.

    Example:
        >>> import torch, tdfunc
        >>> td = tdfunc.TensorDict({"x": torch.ones(3, 4)}, batch_size=3)
        >>> tdfunc.vmap(lambda row: row.set("sum", row["x"].sum()))(td)["sum"]
        tensor([4., 4., 4.])
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        _refuse_tensors(kwargs)
        flat = _flat_arguments(args, in_dims) if isinstance(out_dims, int) else None
        if flat is None:
            return torch.vmap(fn, in_dims, out_dims, randomness, chunk_size=chunk_size)(*args, **kwargs)
        leaves, dims, rebuild = flat
        results: list[Rebuild] = []

        def inner(*leaves: Any) -> tuple[Any, ...]:
            found, again = flatten(fn(*rebuild(list(leaves)), **kwargs))
            results.append(again)
            return tuple(found)

        mapped = torch.vmap(inner, dims, out_dims, randomness, chunk_size=chunk_size)(*leaves)
        return results[-1](list(mapped))

    return named_after(fn, whole(call))


def _refuse_tensors(kwargs: dict[str, Any]) -> None:
    for name, value in kwargs.items():
        if any(isinstance(leaf, Tensor) for leaf in _pytree.tree_leaves(value)):
            raise StructureError(
                describe(
                    "vmap: a tensor given by keyword would not be mapped",
                    at=f"keyword {name!r}",
                    expected="tensors as positional arguments, in_dims=None for those that all share",
                    fix=f"vmap(lambda ..., {name}: fn(..., {name}={name}))",
                )
            )


def _flat_arguments(args: tuple[Any, ...], in_dims: Any) -> tuple[list[Any], Any, Rebuild] | None:
    """Return the mapped leaves of all arguments, their dims, and the function that puts such leaves among the shared ones.

    None where torch has to look, be it to say what is wrong.
    """
    per_argument = (in_dims,) * len(args) if isinstance(in_dims, int) else in_dims
    if not isinstance(per_argument, tuple | list) or len(per_argument) != len(args):
        return None
    leaves: list[Any] = []
    dims: list[int] = []
    parts: list[tuple[Any, int, Rebuild]] = []  # a shared argument as it is, or how many of the mapped leaves are its own
    for argument, dim in zip(args, per_argument, strict=True):
        if dim is None:  # pyright: ignore[reportUnnecessaryComparison]
            parts.append((argument, 0, _no_rebuild))
            continue
        found, rebuild = flatten(argument)
        if not isinstance(dim, int) or not all(isinstance(leaf, Tensor) for leaf in found):
            return None
        parts.append((None, len(found), rebuild))
        leaves += found
        dims += [dim] * len(found)
    if not leaves:
        return None

    def arguments(leaves: list[Any]) -> list[Any]:
        built: list[Any] = []
        start = 0
        for shared, count, rebuild in parts:
            built.append(shared if rebuild is _no_rebuild else rebuild(leaves[start : start + count]))
            start += count
        return built

    return leaves, dims[0] if len(set(dims)) == 1 else tuple(dims), arguments


def _no_rebuild(_leaves: list[Any]) -> Any:
    """Mark an argument that all share."""
