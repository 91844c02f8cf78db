"""Gradients by torch.autograd on fresh leaves: for what torch.func refuses, as checkpoints and saved-tensor hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tdfunc import ops
from tdfunc._errors import StructureError, describe
from tdfunc.structure import traced_as

Inner = Callable[[list[Tensor]], tuple[Tensor, list[Tensor]]]
Result = tuple[list[Tensor], tuple[Tensor, list[Tensor]]]


def _refused(where: str) -> StructureError:
    return StructureError(
        describe(
            f"grad: backend='autograd' does not work inside {where}",
            expected="a call in eager, outside of vmap, grad and other transforms",
            got=where,
            fix="backend='func'",
        )
    )


def _in_a_trace(_inner: Inner, _floats: list[Tensor]) -> Result:
    raise _refused("torch.compile")


@traced_as(_in_a_trace)
def grad_and_value(inner: Inner, floats: list[Tensor]) -> Result:
    """Return what `torch.func.grad_and_value(inner, has_aux=True)(floats)` does.

    The graph of the gradients is made where one is recorded around the call: a leaf, or a tensor that the function closes
    over, requires a gradient.
    """
    if ops.in_transform():
        raise _refused("a transform of torch.func")
    recording = torch.is_grad_enabled()
    with torch.enable_grad():
        fresh = [leaf.view_as(leaf) if recording and leaf.requires_grad else leaf.detach().requires_grad_() for leaf in floats]
        value, aux = inner(fresh)
        others, reentrant = _graph([value, *aux], fresh)
        outer = recording and (bool(others) or any(leaf.requires_grad for leaf in floats))
        if not value.requires_grad:
            found = [torch.zeros_like(leaf) for leaf in floats]
        elif reentrant:
            found = _backward(value, fresh, others, outer=outer)
        else:
            found = list(torch.autograd.grad(value, fresh, create_graph=outer, allow_unused=True, materialize_grads=True))
    if not outer:
        found, value, aux = [g.detach() for g in found], value.detach(), [tensor.detach() if tensor.requires_grad else tensor for tensor in aux]
    return found, (value, aux)


def _graph(roots: list[Tensor], fresh: list[Tensor]) -> tuple[list[Tensor], bool]:
    """Return the leaves of a graph beside the fresh ones, and whether a reentrant checkpoint is in it."""
    ours = {id(leaf) for leaf in fresh}
    seen: set[Any] = {leaf.grad_fn for leaf in fresh}
    ahead: list[Any] = [root.grad_fn for root in roots]
    others: list[Tensor] = [root for root in roots if root.is_leaf and root.requires_grad and id(root) not in ours]
    reentrant = False
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None and id(variable) not in ours:
            others.append(variable)
        reentrant = reentrant or node.name() == "CheckpointFunctionBackward"
        ahead += [before for before, _ in node.next_functions]
    return others, reentrant


def _backward(value: Tensor, fresh: list[Tensor], others: list[Tensor], *, outer: bool) -> list[Tensor]:
    """Return the gradients by `backward`, the only way through a reentrant checkpoint; other leaves keep their `.grad`."""
    if outer:
        raise StructureError(
            describe(
                "grad: a reentrant checkpoint has no second derivative",
                expected="no tensor that requires a gradient around the call",
                got="a graph that is recorded around it",
                fix="checkpoint(..., use_reentrant=False)",
            )
        )
    kept = [leaf.grad for leaf in others]
    for leaf in others:
        leaf.grad = None
    try:
        value.backward()
    finally:
        for leaf, g in zip(others, kept, strict=True):
            leaf.grad = g
    return [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in fresh]
