"""Elementwise work over all leaves: by torch's foreach kernels in eager, leaf by leaf in a trace and in a transform."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from tdfunc._errors import BatchSizeError, describe, show_path
from tdfunc._typing import TensorTree
from tdfunc.structure import traced_as

Fn = TypeVar("Fn", bound=Callable[..., Any])
PLAIN = frozenset({Tensor, torch.nn.Parameter})
_NAMES = (
    *("abs", "acos", "asin", "atan", "ceil", "clone", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma", "log", "log10"),
    *("log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "add", "sub"),
    *("mul", "div", "pow", "maximum", "minimum", "addcmul", "lerp"),
)
# Private names by necessity, there are no public ones; what a torch release lacks is done leaf by leaf. So is addcdiv: the
# backward pass of its kernel takes its operands' rows for leaves (torch 2.13).
_MANY: dict[Any, Callable[..., Any]] = {
    getattr(torch, name): getattr(torch, f"_foreach_{name}") for name in _NAMES if hasattr(torch, f"_foreach_{name}")
}
for _operator, _name in (
    (operator.add, "add"),
    (operator.sub, "sub"),
    (operator.mul, "mul"),
    (operator.truediv, "div"),
    (operator.pow, "pow"),
    (operator.neg, "neg"),
    (operator.abs, "abs"),
):
    if getattr(torch, _name) in _MANY:
        _MANY[_operator] = _MANY[getattr(torch, _name)]


def kernel(name: str) -> Callable[[Fn], Fn]:
    """Let the foreach kernel of this name do what the decorated function does to one leaf."""

    def mark(fn: Fn) -> Fn:
        if hasattr(torch, f"_foreach_{name}"):
            _MANY[fn] = getattr(torch, f"_foreach_{name}")
        return fn

    return mark


def in_transform() -> bool:
    """Say whether this runs inside vmap, grad or another transform of torch.func; True where that cannot be told."""
    return _level is None or _level() is not None


_level: Callable[[], int | None] | None = getattr(getattr(torch._C, "_functorch", None), "maybe_current_level", None)


def _each(_tree: TensorTree, _op: str, fn: Callable[..., Any], leaves: tuple[Any, ...], *others: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    if not others:
        return tuple([fn(leaf, **kwargs) for leaf in leaves]) if kwargs else tuple([fn(leaf) for leaf in leaves])
    if len(others) == 1 and type(others[0]) is tuple and not kwargs:
        return tuple([fn(leaf, other) for leaf, other in zip(leaves, others[0], strict=True)])
    columns = [other if type(other) is tuple else (other,) * len(leaves) for other in others]
    return tuple([fn(*row, **kwargs) for row in zip(leaves, *columns, strict=True)])


@traced_as(_each)
def each(tree: TensorTree, op: str, fn: Callable[..., Any], leaves: tuple[Any, ...], *others: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    """Return `fn(leaf, *others, **kwargs)` for each leaf.

    Args:
        tree: Whose leaves they are, for messages.
        op: What the user called, for messages.
        fn: A function of torch, or an operator.
        leaves: The first operands.
        *others: Further operands: a tuple with one for each leaf, or one for all.
        **kwargs: Keyword arguments of `fn`.

    A foreach kernel does in one call what the loop does in many: about a quarter less time from 50 leaves on, by
    `compile_bench/foreach.py`; at 4 leaves div, maximum and minimum may take a tenth more. functorch has no batching
    rules for them, and subclasses of tensors have no kernels.
    """
    many = _MANY.get(fn)
    if many is not None and len(leaves) > 1 and PLAIN.issuperset(map(type, leaves)) and not in_transform():
        try:
            # One tensor for all would count as a number there, whose dtype does not promote.
            columns = [(other,) * len(leaves) if isinstance(other, Tensor) else other for other in others]
            return tuple(many(leaves, *columns, **kwargs))
        except (RuntimeError, TypeError):  # what is wrong is told leaf by leaf
            pass
    try:
        return _each(tree, op, fn, leaves, *others, **kwargs)
    except (RuntimeError, TypeError) as error:
        explain(tree, op, fn, leaves, others, kwargs)
        raise error from None


def explain(tree: TensorTree, op: str, fn: Callable[..., Any], leaves: tuple[Any, ...], others: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise the error of the first leaf for which `fn` fails, with its path."""
    columns = [other if type(other) is tuple else (other,) * len(leaves) for other in others]
    for path, *row in zip(tree._structure.paths(), leaves, *columns, strict=True):
        try:
            fn(*row, **kwargs)
        except (RuntimeError, TypeError) as error:
            shapes = [tuple(operand.shape) for operand in row if isinstance(operand, Tensor)]
            if not _broadcast(shapes):
                raise BatchSizeError(
                    describe(
                        f"{op}: shapes that do not go together",
                        at=show_path(path),
                        expected=f"a shape that broadcasts with {shapes[0]}",
                        got=" and ".join(map(str, shapes[1:])),
                        fix="index, expand or reshape one of them first",
                    )
                ) from None
            error.add_note(f"in {op}, at {show_path(path)}")
            raise


def _broadcast(shapes: list[tuple[int, ...]]) -> bool:
    try:
        torch.broadcast_shapes(*shapes)
    except RuntimeError:
        return False
    return True
