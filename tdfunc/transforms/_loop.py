"""What runs an ensemble member by member: the slow way, for modules that vmap cannot run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from tdfunc._errors import StructureError, describe


def looped(member: Callable[..., Any], n: int, given: tuple[Any, ...], dims: tuple[Any, ...], randomness: str) -> Any:
    """Return what `torch.vmap(member, dims, randomness=randomness)(*given)` would, by a loop over the n members."""
    before = None if randomness == "different" else _random_state()
    results: list[Any] = []
    for i in range(n):
        if randomness == "same":
            _reset(before)
        results.append(member(*_row(given, dims, i)))
        if randomness == "error" and not _same(before):
            raise StructureError(
                describe(
                    'ensemble: a random operation ran, which randomness="error" refuses',
                    at=f"member {i}",
                    fix='randomness="different" for draws of its own for each member, "same" for one for all',
                )
            )
    return _stacked(results)


def _row(tree: Any, dims: Any, i: int) -> Any:
    """Return the entry of member i in what is mapped, and the rest as it is. `dims` is a tree like `torch.vmap`'s in_dims."""
    if dims is None:
        return tree
    if isinstance(dims, int):
        return _pytree.tree_map(lambda leaf: leaf.select(dims, i), tree)
    if isinstance(dims, dict):
        named: dict[Any, Any] = dims
        return {name: _row(tree[name], dim, i) for name, dim in named.items()}
    rows = [_row(part, dim, i) for part, dim in zip(tree, dims, strict=True)]
    return tuple(rows) if isinstance(tree, tuple) else rows


def _stacked(results: list[Any]) -> Any:
    """Return the results of all members as one, each tensor with the member dim first."""
    first, spec = _pytree.tree_flatten(results[0])
    columns: list[list[Any]] = [[leaf] for leaf in first]
    for i, result in enumerate(results[1:], 1):
        leaves, other = _pytree.tree_flatten(result)
        if other != spec:
            raise _differ(i, _form(results[0]), _form(result))
        for column, leaf in zip(columns, leaves, strict=True):
            column.append(leaf)
    for column in columns:
        for i, leaf in enumerate(column):
            if not isinstance(leaf, Tensor):
                raise StructureError(
                    describe(
                        "ensemble: a result is no tensor",
                        at=f"member {i}",
                        expected="tensors and trees of tensors",
                        got=type(leaf).__name__,
                        fix="return tensors only",
                    )
                )
            if leaf.shape != column[0].shape or leaf.dtype != column[0].dtype:
                raise _differ(i, f"{tuple(column[0].shape)}, {column[0].dtype}", f"{tuple(leaf.shape)}, {leaf.dtype}")
    return _pytree.tree_unflatten([torch.stack(column) for column in columns], spec)


def _differ(i: int, expected: str, got: str) -> StructureError:
    return StructureError(
        describe(
            "ensemble: the members give results of different form",
            at=f"member {i}",
            expected=f"as member 0: {expected}",
            got=got,
            fix="results that can be stacked, or [bind(module, state)(...) for state in states.unbind()]",
        )
    )


def _form(result: Any) -> str:
    return f"{type(result).__name__} of {len(_pytree.tree_leaves(result))} leaves"


def _random_state() -> list[Tensor]:
    """Return the state of the global generators that draw for a module."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [])]


def _reset(states: Any) -> None:
    torch.set_rng_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state_all(states[1:])


def _same(states: Any) -> bool:
    return all(map(torch.equal, _random_state(), states))
