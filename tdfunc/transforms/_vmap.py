"""vmap with the traps of keyword arguments closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from tdfunc._errors import StructureError, describe
from tdfunc.core import TensorDict
from tdfunc.structure import named_after, whole

from ._dims import among, by_name, has_rules, moved, without_rules
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
        in_dims: The dim to map of each positional argument: an int for all, or a tuple with an int, None (shared) or a tree
            for each. For a TensorDict an int counts for every leaf, as its batch dims come first, and a dict from key path,
            glob or predicate to dim gives rules for its leaves: the first that names a leaf counts, leaves that none names
            are shared. A dict in the place of the tuple is from argument to dim: a position (0 where it is not named), or
            the name of a keyword argument.
        out_dims: Where the mapped dim goes in the results: an int, a tree, or for a TensorDict a dict of such rules, 0 for
            leaves that none names.
        randomness: "error", "different" or "same": what random operations inside do.
        chunk_size: Map this many at a time, to bound memory.

    Returns:
        The mapped function. Inside, a TensorDict's batch size has the mapped dim no more; outside, results have it again.

    Raises:
        StructureError: When called with a tensor as keyword argument that in_dims do not name: `torch.vmap` would not map
            it, without a word; and where dims do not fit arguments or results.
        KeyPathError: If a rule matches nothing.

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
    ruled = has_rules(out_dims)
    torch_dims = 0 if ruled else out_dims

    def call(*args: Any, **kwargs: Any) -> Any:
        dims, named = by_name(in_dims, args, kwargs)
        shared = {name: value for name, value in kwargs.items() if name not in named} if named else kwargs
        _refuse_tensors(shared)
        n = len(args)

        def positional(*given: Any) -> Any:
            return fn(*given[:n], **dict(zip(named, given[n:], strict=True)), **shared)

        if named:
            dims = (*dims, *named.values())
            args = (*args, *[kwargs[name] for name in named])
        result = mapped(positional if named else fn, args, dims, {} if named else shared)
        return moved(result, out_dims) if ruled else result

    def mapped(fn: Callable[..., Any], args: tuple[Any, ...], per_argument: Any, kwargs: dict[str, Any]) -> Any:
        per_argument = without_rules(args, per_argument)
        flat = _flat_arguments(args, per_argument) if isinstance(torch_dims, int) else None
        if flat is None:
            return torch.vmap(fn, per_argument, torch_dims, randomness, chunk_size=chunk_size)(*args, **kwargs)
        leaves, dims, rebuild = flat
        results: list[Rebuild] = []

        def inner(*leaves: Any) -> tuple[Any, ...]:
            found, again = flatten(fn(*rebuild(list(leaves)), **kwargs))
            results.append(again)
            return tuple(found)

        out = torch.vmap(inner, dims, torch_dims, randomness, chunk_size=chunk_size)(*leaves)
        return results[-1](list(out))

    return named_after(fn, whole(call))


def _refuse_tensors(kwargs: dict[str, Any]) -> None:
    for name, value in kwargs.items():
        if any(isinstance(leaf, Tensor) for leaf in _pytree.tree_leaves(value)):
            raise StructureError(
                describe(
                    "vmap: a tensor given by keyword would not be mapped",
                    at=f"keyword {name!r}",
                    expected="tensors as positional arguments, or named in in_dims, with None for those that all share",
                    fix=f"in_dims={{{name!r}: 0}}, or None for 0",
                )
            )


def _flat_arguments(args: tuple[Any, ...], in_dims: Any) -> tuple[list[Any], Any, Rebuild] | None:
    """Return the mapped leaves of all arguments, their dims, and the function that puts such leaves among the shared ones.

    None where torch has to look, be it to say what is wrong.
    """
    per_argument: Any = (in_dims,) * len(args) if isinstance(in_dims, int) else in_dims
    if not isinstance(per_argument, tuple | list) or len(per_argument) != len(args):
        return None
    leaves: list[Any] = []
    dims: list[int] = []
    parts: list[tuple[Any, int, Rebuild]] = []  # a shared argument as it is, or how many of the mapped leaves are its own
    for argument, dim in zip(args, per_argument, strict=True):
        if dim is None:
            parts.append((argument, 0, _no_rebuild))
            continue
        found, rebuild = flatten(argument)
        if type(dim) is TensorDict and type(argument) is TensorDict and dim._structure is argument._structure:
            each: Any = dim._leaves
            at = [i for i, one in enumerate(each) if one is not None]
            parts.append((None, len(at), among(found, at, rebuild)))
            leaves += [found[i] for i in at]
            dims += [each[i] for i in at]
            continue
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
