"""What goes for each member of stacked parameters: the batch dims are members, all that follows is one of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tdfunc import ops
from tdfunc._errors import StructureError, describe
from tdfunc.core import TensorDict

from ._base import check_number, gradients_of, is_trained


def check_factor(name: str, value: Any) -> None:
    """Raise if a value is no number and no tensor, or a number out of range."""
    if callable(value):
        raise StructureError(
            describe(
                f"optim: {name} is no number", expected="a number or a tensor", got=f"a function, {value!r}", fix=f"{name}=0.1, the same all along"
            )
        )
    check_number(name, value)


def check_count(name: str, value: Any) -> None:
    """Raise if a value is no int of 1 or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise StructureError(
            describe(f"optim: {name} is no count", expected="an int, 1 or more", got=f"{value!r} of type {type(value).__name__}", fix=f"{name}=2")
        )


def like_params(params: TensorDict, grads: TensorDict) -> TensorDict:
    """Return gradients with the structure of the parameters."""
    return params._rebuild(gradients_of(params, grads), params._structure)


def wide(value: Tensor, leaf: Tensor) -> Tensor:
    """Return a value per member with a dim of 1 for each further dim of a leaf; one without dims stays."""
    return value[(..., *[None] * (leaf.dim() - value.dim()))] if value.dim() else value


def either(condition: Tensor, new: TensorDict, old: TensorDict) -> TensorDict:
    """Return the new tree where a condition holds, member by member, and the old one elsewhere.

    By `torch.where`, so that one graph serves both, and no NaN of the tree that is not taken comes through.
    """
    theirs = ops.aligned(new, old, "optim: the state")
    leaves = [a if a is b else torch.where(wide(condition, a), a, b) for a, b in zip(new._leaves, theirs, strict=True)]
    return new._rebuild(tuple(leaves), new._structure)


def finite(params: TensorDict, grads: TensorDict) -> Tensor:
    """Say for each member whether all its gradients are finite; the trees have one structure."""
    dims = ops.batch_dims(params)
    verdicts = [_events(g.isfinite(), dims).all(-1) for g in grads._leaves if is_trained(g)]
    if not verdicts:
        return torch.ones(tuple(params.batch_size), dtype=torch.bool, device=params.device)
    return torch.stack([verdict.to(verdicts[0].device) for verdict in verdicts]).all(0)


def norm(params: TensorDict, grads: TensorDict) -> Tensor:
    """Return the 2-norm of the gradients of each member, all leaves as one vector; half precision is summed in float32."""
    dims = ops.batch_dims(params)
    norms = [torch.linalg.vector_norm(_events(single(g), dims), dim=-1) for g in grads._leaves if is_trained(g)]
    if not norms:
        return torch.zeros(tuple(params.batch_size), device=params.device)
    dtype = torch.float64 if any(n.dtype is torch.float64 for n in norms) else torch.float32
    return torch.linalg.vector_norm(torch.stack([n.to(norms[0].device, dtype) for n in norms]), dim=0)


def single(leaf: Tensor) -> Tensor:
    """Return a leaf in no less than single precision."""
    return leaf.to(torch.promote_types(leaf.dtype, torch.float32))


def _events(leaf: Tensor, dims: int) -> Tensor:
    return leaf.flatten(dims) if leaf.dim() > dims else leaf.unsqueeze(-1)  # (*members, elements)
