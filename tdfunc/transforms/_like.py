"""Trees that must be like others: tangents, carried values, the results of branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils import _pytree

from tdfunc import ops
from tdfunc._errors import StructureError, describe
from tdfunc.core import TensorDict

from ._flat import flatten


def leaves_like(model: Any, tree: Any, op: str, what: str, counts: Callable[[Any], bool]) -> list[Any]:
    """Return the leaves of a tree in the order of those of the one that it must be like.

    Args:
        model: What it must be like.
        tree: A pytree.
        op: What the user called, for messages.
        what: What the tree is, for messages.
        counts: Says of which leaves of the model shape and dtype must be the same.

    Raises:
        StructureError: If the trees, or shapes or dtypes of leaves that count, differ.
    """
    if type(model) is TensorDict:
        leaves = list(ops.aligned(model, tree, f"{op} ({what})"))
    elif type(model) is tuple and type(tree) is tuple and len(model) == len(tree):
        return [leaf for part, given in zip(model, tree, strict=True) for leaf in leaves_like(part, given, op, what, counts)]
    else:
        leaves, spec = _pytree.tree_flatten(tree)
        if isinstance(model, Tensor) != isinstance(tree, Tensor) or (not isinstance(model, Tensor) and spec != _pytree.tree_structure(model)):
            raise StructureError(
                describe(f"{op}: the {what} is not like what it belongs to", expected=_shown(model), got=_shown(tree), fix=f"a {what} of that form")
            )
    for leaf, given in zip(flatten(model)[0], leaves, strict=True):
        if counts(leaf) and (not isinstance(given, Tensor) or given.shape != leaf.shape or given.dtype != leaf.dtype):
            raise StructureError(
                describe(
                    f"{op}: the {what} has a leaf of another shape or dtype",
                    expected=f"{tuple(leaf.shape)} {leaf.dtype}",
                    got=f"{tuple(given.shape)} {given.dtype}" if isinstance(given, Tensor) else type(given).__name__,
                    fix=f"a {what} of these shapes and dtypes, e.g. x.to(torch.float32)",
                )
            )
    return leaves


def _shown(tree: Any) -> str:
    return type(tree).__name__ if isinstance(tree, Tensor) else str(_pytree.tree_structure(tree))
