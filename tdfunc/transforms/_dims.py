"""Which dim of which leaf is mapped: rules for the leaves of a tree, names for keyword arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils import _pytree

from tdfunc import ops
from tdfunc._errors import StructureError, describe
from tdfunc.core import TensorDict


def by_name(in_dims: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the dims of the positional arguments, and those of the keyword arguments that `in_dims` names."""
    if type(in_dims) is not dict:
        return in_dims, {}
    given: dict[Any, Any] = in_dims
    unknown = [key for key in given if key not in kwargs and not (type(key) is int and 0 <= key < len(args))]
    if unknown:
        raise StructureError(
            describe(
                "vmap: in_dims names no argument of the call",
                expected=[*range(len(args)), *kwargs],
                got=unknown,
                fix="a position, or the name of an argument that is passed by keyword",
            )
        )
    return tuple([given.get(n, 0) for n in range(len(args))]), {name: given[name] for name in kwargs if name in given}


def without_rules(args: tuple[Any, ...], in_dims: Any) -> Any:
    """Return the dims of arguments with a tree like the argument for each that has rules for the leaves of a TensorDict."""
    if not isinstance(in_dims, tuple | list) or len(in_dims) != len(args):
        return in_dims  # pyright: ignore[reportUnknownVariableType]
    return tuple([_as_tree(argument, dims) for argument, dims in zip(args, in_dims, strict=True)])


def _as_tree(argument: Any, dims: Any) -> Any:
    if type(dims) is not dict or type(argument) is not TensorDict:
        return dims
    return TensorDict._rebuild(tuple(_ruled(argument, dims, None, "in_dims")), argument._structure)


def has_rules(out_dims: Any) -> bool:
    """Say whether out_dims may be rules for a TensorDict, rather than something for torch."""
    parts: Any = out_dims if isinstance(out_dims, tuple | list) else (out_dims,)
    return any(type(part) is dict for part in parts) and None not in _pytree.tree_leaves(out_dims)


def moved(result: Any, out_dims: Any) -> Any:
    """Return results whose mapped dim is in front with that dim where out_dims say."""
    if type(result) is TensorDict and type(out_dims) is dict:
        dims = _ruled(result, out_dims, 0, "out_dims")
        return TensorDict._rebuild(tuple([leaf.movedim(0, dim) for leaf, dim in zip(result._leaves, dims, strict=True)]), result._structure)
    if type(out_dims) is int:
        return _pytree.tree_map_only(Tensor, lambda leaf: leaf.movedim(0, out_dims), result)
    if isinstance(result, tuple | list) and isinstance(out_dims, tuple | list) and len(result) == len(out_dims):
        return type(result)([moved(part, dims) for part, dims in zip(result, out_dims, strict=True)])  # type: ignore[call-arg]
    if type(result) is dict and type(out_dims) is dict and result.keys() == out_dims.keys():
        return {key: moved(part, out_dims[key]) for key, part in result.items()}  # pyright: ignore[reportUnknownVariableType]
    raise StructureError(
        describe(
            "vmap: out_dims do not fit what the function returns",
            expected="an int, rules for a TensorDict, or a container like that of the results",
            got=f"{out_dims!r} for a {type(result).__name__}",
            fix="out_dims=0",
        )
    )


def _ruled(tree: TensorDict, rules: dict[Any, Any], default: Any, what: str) -> list[Any]:
    """Return the dim of each leaf: that of the first rule that names it."""
    dims = [default] * len(tree._leaves)
    for where in reversed(list(rules)):
        dim = rules[where]
        if type(dim) is not int and not (dim is None and default is None):
            raise StructureError(
                describe(
                    f"vmap: a rule of {what} must give a dim", at=where, expected="an int" + (", or None" if default is None else ""), got=repr(dim)
                )
            )
        dims = [dim if hit else old for old, hit in zip(dims, ops.chosen(tree, where, f"vmap ({what})"), strict=True)]
    return dims


def among(leaves: list[Any], at: list[int], rebuild: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Return the function that puts mapped leaves among the shared ones."""

    def filled(mapped: list[Any]) -> Any:
        full = list(leaves)
        for i, leaf in zip(at, mapped, strict=True):
            full[i] = leaf
        return rebuild(full)

    return filled
