"""Arguments and results as flat lists of leaves: what torch.func handles fastest, in eager and in a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils import _pytree

from tdfunc.core import TensorDict

Rebuild = Callable[[list[Any]], Any]


def flatten(tree: Any) -> tuple[list[Any], Rebuild]:
    """Return the leaves of any pytree, and the function that puts such leaves together again.

    `tree_flatten` visits each leaf; a tensor and a TensorDict are known to be flat. In a trace that is most of the time that
    a transform takes.
    """
    if isinstance(tree, Tensor):
        return [tree], _first
    if type(tree) is TensorDict:
        structure = tree._structure
        return list(tree._leaves), lambda leaves: TensorDict._rebuild(tuple(leaves), structure)
    if type(tree) is tuple:
        return _flatten_tuple(tree)
    leaves, spec = _pytree.tree_flatten(tree)
    return leaves, lambda leaves: _pytree.tree_unflatten(leaves, spec)


def _first(leaves: list[Any]) -> Any:
    return leaves[0]


def _flatten_tuple(items: tuple[Any, ...]) -> tuple[list[Any], Rebuild]:
    leaves: list[Any] = []
    parts: list[tuple[int, int, Rebuild]] = []  # no leaves: inside a transform they must not outlive it
    for item in items:
        found, rebuild = flatten(item)
        parts.append((len(leaves), len(leaves) + len(found), rebuild))
        leaves += found
    return leaves, lambda leaves: tuple([rebuild(leaves[start:stop]) for start, stop, rebuild in parts])


def split(aux: Any) -> tuple[list[Tensor], Rebuild]:
    """Return the tensors of a pytree, and the function that puts others in their places."""
    leaves, rebuild = flatten(aux)
    if all(isinstance(leaf, Tensor) for leaf in leaves):
        return leaves, rebuild

    rest = [None if isinstance(leaf, Tensor) else (leaf,) for leaf in leaves]

    def filled(tensors: list[Tensor]) -> Any:
        waiting = iter(tensors)
        return rebuild([next(waiting) if kept is None else kept[0] for kept in rest])

    return [leaf for leaf in leaves if isinstance(leaf, Tensor)], filled
