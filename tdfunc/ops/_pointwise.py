"""Elementwise maths: functions of one tree, operations with a number, a tensor or another tree, and comparisons."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tdfunc._errors import StructureError, describe, show_path
from tdfunc._typing import T, TensorTree

from ._batch import rederive
from ._foreach import each, kernel
from ._map import aligned
from ._select import in_order_of, merge

_NUMBERS = (int, float, complex, torch.SymInt, torch.SymFloat)


def unary(tree: T, fn: Callable[..., Any], op: str, **kwargs: Any) -> T:
    """Return the tree of `fn(leaf, **kwargs)`, for a function that keeps the shape."""
    return tree._rebuild(each(tree, op, fn, tree._leaves, **kwargs), tree._structure)


def binary(tree: T, other: Any, fn: Callable[..., Tensor], op: str, *, default: Any = None, **kwargs: Any) -> T:
    """Return the tree of `fn(leaf, other, **kwargs)`.

    Args:
        tree: The left operand.
        other: A tree with the same paths; a number; or a tensor, broadcast over the batch shape from its last dim on
            (torch's rule, the event dims of each leaf taken as added on the right).
        fn: The operation on two tensors, or a tensor and a number.
        op: Its name, for messages.
        default: What stands for a leaf that only one of two trees has: a number or a tensor; "intersection" leaves such
            leaves out; None refuses them.
        **kwargs: Keyword arguments of `fn`.
    """
    if default is not None and hasattr(other, "_structure"):
        return _with_default(tree, other, fn, op, default, kwargs)
    column, same = operand(tree, other, op)
    results = each(tree, op, fn, tree._leaves, column, **kwargs)
    return tree._rebuild(results, tree._structure if same else rederive(tree, results))


def ternary(tree: T, first: Any, second: Any, fn: Callable[..., Tensor], op: str, **kwargs: Any) -> T:
    """Return the tree of `fn(leaf, first, second, **kwargs)`; operands as in `binary`, or None."""
    columns = [(None, True) if other is None else operand(tree, other, op) for other in (first, second)]
    if fn is addcdiv and all(type(column) is tuple for column, _ in columns):
        fn = torch.addcdiv  # nothing is left to make a tensor of
    results = each(tree, op, fn, tree._leaves, *[column for column, _ in columns], **kwargs)
    return tree._rebuild(results, tree._structure if all(same for _, same in columns) else rederive(tree, results))


def operand(tree: TensorTree, other: Any, op: str) -> tuple[Any, bool]:
    """Return what goes with each leaf, as one value or a tuple, and whether the event ranks stay by construction."""
    if isinstance(other, _NUMBERS):
        return other, True
    if isinstance(other, Tensor) or hasattr(other, "__array__"):
        return spread(tree, torch.as_tensor(other)), True
    return aligned(tree, other, op), other._structure is tree._structure


def spread(tree: TensorTree, tensor: Tensor) -> Any:
    """Return a tensor over the batch shape with the event dims of each leaf added on the right, one for each leaf."""
    if tensor.dim() == 0:
        return tensor
    ranks = tree._structure.ranks()
    # (*batch,) -> (*batch, 1, ..., 1): one 1 per event dim
    shaped = {rank: tensor[(..., *[None] * rank)] for rank in sorted(set(ranks))}
    return tuple([shaped[rank] for rank in ranks])


def _with_default(tree: T, other: Any, fn: Callable[..., Tensor], op: str, default: Any, kwargs: dict[str, Any]) -> T:
    """Return the tree of `fn` over the leaves that both have, and of `fn` with a default over those that one has."""
    ours, theirs = tree._structure, other._structure
    both, left = _inside(tree, theirs)
    met, right = _inside(other, ours)
    result = binary(both, met, fn, op, **kwargs)
    if type(default) is str:
        if default != "intersection":
            raise StructureError(
                describe(f"{op}: not a default", expected="a number, a tensor, or 'intersection'", got=repr(default), fix="default='intersection'")
            )
        return result
    _check_apart(left, right, op)
    parts = [result, binary(left, default, fn, op, **kwargs), binary(right, default, flipped(fn), op, **kwargs)]
    parts = [part for part in parts if part._leaves] or parts[:1]
    whole = merge(parts[0], *parts[1:])
    return in_order_of(whole, tree)


def _inside(tree: T, other: Any) -> tuple[T, T]:
    """Return the tree of the leaves that a structure has too, and that of those which it has not."""
    shared = [other.find(path) is not None for path in tree._structure.paths()]
    parts: list[T] = []
    for wanted in (True, False):
        structure, index = tree._structure.keeping(tuple([i for i, inside in enumerate(shared) if inside is wanted]), True)
        parts.append(tree._rebuild(tuple([tree._leaves[i] for i in index]), structure))
    return parts[0], parts[1]


def _check_apart(left: TensorTree, right: TensorTree, op: str) -> None:
    """Raise where what is a leaf in one tree is a subtree in the other: no default stands for that."""
    for a, b in ((left, right), (right, left)):
        for path in b._structure.paths():
            for n in range(1, len(path)):
                if type(a._structure.find(path[:n])) is int:
                    raise StructureError(
                        describe(
                            f"{op}: a leaf in one tree, a subtree in the other", at=show_path(path[:n]), fix="td.exclude(...) it from one of them"
                        )
                    )


def flipped(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the operation with its operands swapped, for the reflected operators."""

    def swapped(a: Any, b: Any, **kwargs: Any) -> Tensor:
        return fn(b, a, **kwargs)

    return swapped


rsub = flipped(operator.sub)
rdiv = flipped(operator.truediv)
rpow = flipped(operator.pow)
rmod = flipped(operator.mod)
rfloordiv = flipped(operator.floordiv)


# What torch has for tensors only, or under another name for numbers.


def _tensor(value: Any, like: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.as_tensor(value, device=like.device if isinstance(like, Tensor) else None)


@kernel("maximum")
def maximum(a: Any, b: Any) -> Tensor:
    """Return the larger of the two."""
    if not isinstance(b, Tensor):
        return torch.maximum(a, torch.as_tensor(b)) if isinstance(b, bool) else torch.clamp_min(a, b)
    return torch.maximum(a, b) if isinstance(a, Tensor) else maximum(b, a)


@kernel("minimum")
def minimum(a: Any, b: Any) -> Tensor:
    """Return the smaller of the two."""
    if not isinstance(b, Tensor):
        return torch.minimum(a, torch.as_tensor(b)) if isinstance(b, bool) else torch.clamp_max(a, b)
    return torch.minimum(a, b) if isinstance(a, Tensor) else minimum(b, a)


def logical_and(a: Any, b: Any) -> Tensor:
    """Return whether both are not zero."""
    return torch.logical_and(_tensor(a, b), _tensor(b, a))


def logical_or(a: Any, b: Any) -> Tensor:
    """Return whether either is not zero."""
    return torch.logical_or(_tensor(a, b), _tensor(b, a))


def logical_xor(a: Any, b: Any) -> Tensor:
    """Return whether one of the two is not zero."""
    return torch.logical_xor(_tensor(a, b), _tensor(b, a))


def atan2(a: Any, b: Any) -> Tensor:
    """Return the angle whose tangent is a / b."""
    return torch.atan2(_tensor(a, b), _tensor(b, a))


@kernel("lerp")
def lerp(start: Tensor, end: Any, weight: Any) -> Tensor:
    """Return the point at a weight between two."""
    return torch.lerp(start, _tensor(end, start).to(start.dtype), weight)


@kernel("addcmul")
def addcmul(a: Tensor, b: Any, c: Any, **kwargs: Any) -> Tensor:
    """Return a + b * c."""
    return torch.addcmul(a, _tensor(b, a), _tensor(c, a), **kwargs)


def addcdiv(a: Tensor, b: Any, c: Any, **kwargs: Any) -> Tensor:
    """Return a + b / c."""
    return torch.addcdiv(a, _tensor(b, a), _tensor(c, a), **kwargs)


def clamp(tree: T, low: Any, high: Any) -> T:
    """Return the tree within two bounds, either of which may be None; where they cross, the upper one holds."""
    if low is None and high is None:
        raise StructureError(describe("clamp: no bound is given", expected="min, max or both", fix="td.clamp(min=0)"))
    if low is not None:
        tree = binary(tree, low, maximum, "clamp")
    return tree if high is None else binary(tree, high, minimum, "clamp")


def unless(default: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the keyword arguments that are not the default: what is given to torch, and is no argument elsewhere."""
    return {name: value for name, value in kwargs.items() if value is not default and value != default}
