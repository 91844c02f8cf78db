"""Dynamic sizes of trees, as torch.export takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdfunc import ops
from tdfunc._errors import BatchSizeError, StructureError, describe, show_path
from tdfunc.core import TensorDict


def dynamic_shapes(tree: TensorDict, rules: Mapping[Any, Mapping[int, Any]]) -> list[dict[int, Any]]:
    """Return which sizes of a tree may change, leaf by leaf: `torch.export` knows a TensorDict as a list of leaves.

    Args:
        tree: The tree that is exported with.
        rules: From a key path, a glob or a predicate of `(path, leaf)` to what `torch.export` takes for a tensor: a dict from
            dim to `torch.export.Dim`. A leaf has the dims of all rules that name it, the last one counts.

    Returns:
        A dict for each leaf, empty where all sizes are fixed.

    Raises:
        KeyPathError: If a rule matches nothing.
        BatchSizeError: If a leaf has no such dim.
        StructureError: If a rule is no dict from dims.

    Note:
        Without `strict=True`, torch 2.13 cannot run the guards of such a program: `program.module(check_guards=False)`.

    Example:
        >>> import torch, tdfunc
        >>> td = tdfunc.TensorDict({"x": torch.ones(4, 3), "y": torch.ones(4)}, batch_size=4)
        >>> batch = torch.export.Dim("batch")
        >>> [sorted(dims) for dims in tdfunc.dynamic_shapes(td, {"**": {0: batch}})]
        [[0], [0]]
    """
    dims: list[dict[int, Any]] = [{} for _ in tree._leaves]
    for where, rule in rules.items():
        if not isinstance(rule, Mapping) or not all(type(dim) is int for dim in rule):
            raise StructureError(
                describe("dynamic_shapes: a rule must be a dict from dims", at=where, expected="{0: Dim('batch')}", got=repr(rule), fix="{dim: size}")
            )
        for i, hit in enumerate(ops.chosen(tree, where, "dynamic_shapes")):
            if hit:
                dims[i] |= {_dim(tree, i, dim): size for dim, size in rule.items()}
    return dims


def _dim(tree: TensorDict, i: int, dim: int) -> int:
    n = tree._leaves[i].dim()
    if -n <= dim < n:
        return dim % n
    raise BatchSizeError(
        describe(
            "dynamic_shapes: a leaf has no such dim",
            at=show_path(tree._structure.paths()[i]),
            expected=f"less than {n}",
            got=dim,
            fix="a rule for leaves that have it",
        )
    )
