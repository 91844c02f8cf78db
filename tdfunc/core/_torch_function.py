"""torch functions on trees: `tensor * td`, `torch.stack([td, ...])`, `torch.sum(td, 0)`, `torch.autograd.grad(loss, td)`."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from tdfunc import ops
from tdfunc._errors import StructureError, describe


def _both(names: tuple[str, ...]) -> list[Any]:
    """Return the functions of these names, of torch and of tensors."""
    return [getattr(home, name) for name in names for home in (torch, torch.Tensor) if hasattr(home, name)]


# A tensor on the left, a tree on the right: the operation with its operands in their order. By name, since under Dynamo
# (torch 2.13) some of these functions are other objects than those that the name gives here.
_REFLECTED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
for _names, _fn, _reverse in (
    (("add", "__add__", "__radd__"), operator.add, operator.add),
    (("mul", "__mul__", "__rmul__", "multiply"), operator.mul, operator.mul),
    (("sub", "__sub__", "subtract"), operator.sub, ops.rsub),
    (("div", "true_divide", "__truediv__", "__div__"), operator.truediv, ops.rdiv),
    (("pow", "__pow__"), operator.pow, ops.rpow),
    (("floor_divide", "__floordiv__"), operator.floordiv, ops.rfloordiv),
    (("remainder", "__mod__"), operator.mod, ops.rmod),
    (("eq", "__eq__"), operator.eq, operator.eq),
    (("ne", "__ne__"), operator.ne, operator.ne),
    (("lt", "__lt__"), operator.lt, operator.gt),
    (("gt", "__gt__"), operator.gt, operator.lt),
    (("le", "__le__"), operator.le, operator.ge),
    (("ge", "__ge__"), operator.ge, operator.le),
    (("__and__", "__rand__", "bitwise_and"), operator.and_, operator.and_),
    (("__xor__", "__rxor__", "bitwise_xor"), operator.xor, operator.xor),
    (("__or__", "__ror__", "bitwise_or"), operator.or_, operator.or_),
    (("maximum",), ops.maximum, ops.maximum),
    (("minimum",), ops.minimum, ops.minimum),
    (("logical_and",), ops.logical_and, ops.logical_and),
    (("logical_or",), ops.logical_or, ops.logical_or),
    (("logical_xor",), ops.logical_xor, ops.logical_xor),
    (("atan2",), ops.atan2, ops.flipped(ops.atan2)),
    (("fmod",), torch.fmod, ops.flipped(torch.fmod)),
):
    for _each in _names:
        _REFLECTED[_each] = (_fn, _reverse)
# Reflected methods of a tensor have the operands swapped already: tensor.__rsub__(td) is td - tensor.
_SWAPPED: dict[str, Any] = {
    "__rsub__": operator.sub,
    "__rdiv__": operator.truediv,
    "__rtruediv__": operator.truediv,
    "__rpow__": operator.pow,
    "__rfloordiv__": operator.floordiv,
    "__rmod__": operator.mod,
}
# A tree first: its method of the same name.
_METHODS: dict[Any, str] = {
    torch.remainder: "mod",
    torch.Tensor.remainder: "mod",
    functional.relu: "relu",
    functional.softplus: "softplus",
    functional.softmax: "softmax",
}
_METHODS.update(
    {
        function: name
        for name in (
            *(
                "abs",
                "acos",
                "asin",
                "atan",
                "ceil",
                "cos",
                "cosh",
                "erf",
                "erfc",
                "exp",
                "expm1",
                "floor",
                "frac",
                "lgamma",
                "log",
                "log10",
                "log1p",
            ),
            *("log2", "neg", "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc"),
            *("isfinite", "isinf", "isnan", "isneginf", "isposinf", "isreal", "logical_not", "bitwise_not", "nan_to_num"),
            *(
                "add",
                "sub",
                "rsub",
                "mul",
                "div",
                "pow",
                "fmod",
                "floor_divide",
                "atan2",
                "maximum",
                "minimum",
                "bitwise_and",
                "bitwise_or",
                "bitwise_xor",
            ),
            *("logical_and", "logical_or", "logical_xor", "eq", "ne", "lt", "le", "gt", "ge", "clamp", "clamp_min", "clamp_max", "lerp", "addcmul"),
            *("addcdiv", "sum", "mean", "nansum", "nanmean", "prod", "std", "var", "amax", "amin", "max", "min", "argmax", "argmin", "all", "any"),
            *("logsumexp", "count_nonzero", "median", "quantile", "cumsum", "cumprod", "cummax", "cummin", "softmax", "log_softmax", "dot"),
            *("reshape", "flatten", "unflatten", "permute", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis", "squeeze", "unsqueeze"),
            *("broadcast_to", "tile", "repeat_interleave", "flip", "fliplr", "flipud", "roll", "rot90", "narrow", "unbind", "split", "chunk"),
            *("tensor_split", "gather", "index_select", "take", "masked_select", "masked_fill", "atleast_1d", "atleast_2d", "atleast_3d"),
            *("clone", "detach", "zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like", "numel", "equal", "allclose"),
        )
        for function in _both((name,))
    }
)


def _where(condition: Any, *choices: Any, **named: Any) -> Any:
    both = (*choices, *named.values())
    if len(both) != 2:
        raise StructureError(
            describe("where: two choices are needed", got=f"{len(both)} beside the condition", fix="torch.where(condition, td, other)")
        )
    return ops.where(condition, *both)


def _norm(input: Any, p: Any = 2.0, dim: Any = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> Any:
    return ops.norm(input, 2.0 if p in (None, "fro") else p, dim, keepdim=keepdim, dtype=dtype)


def _loss(fn: Callable[..., Any], input: Any, target: Any, *, reduction: str = "mean", **kwargs: Any) -> Any:
    ops.aligned(input, target, _name(fn))
    return ops.tree_map(input, functools.partial(fn, reduction=reduction, **kwargs), target)


def _grad(outputs: Any, inputs: Any, grad_outputs: Any = None, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Return `torch.autograd.grad` with trees among the outputs and inputs: a tuple with a tree for each tree."""

    def flat(items: Any) -> list[Any]:
        given = items if isinstance(items, tuple | list) else (items,)
        return [leaf for item in given for leaf in (item._leaves if hasattr(item, "_structure") else (item,))]

    found = iter(torch.autograd.grad(flat(outputs), flat(inputs), None if grad_outputs is None else flat(grad_outputs), *args, **kwargs))
    return tuple([_taken(item, found) for item in (inputs if isinstance(inputs, tuple | list) else (inputs,))])


def _taken(item: Any, found: Any) -> Any:
    if not hasattr(item, "_structure"):
        return next(found)
    grads = [next(found) for _ in item._leaves]
    structure, index = item._structure.keeping(tuple([i for i, grad in enumerate(grads) if grad is not None]), True)
    return item._rebuild(tuple([grads[i] for i in index]), structure)


_SPECIAL: dict[Any, Callable[..., Any]] = {
    torch.stack: ops.stack,
    torch.cat: ops.cat,
    torch.concat: ops.cat,
    torch.concatenate: ops.cat,
    torch.where: _where,
    torch.norm: _norm,
    torch.Tensor.norm: _norm,
    torch.autograd.grad: _grad,
    functional.mse_loss: functools.partial(_loss, functional.mse_loss),
    functional.l1_loss: functools.partial(_loss, functional.l1_loss),
    functional.smooth_l1_loss: functools.partial(_loss, functional.smooth_l1_loss),
}


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of a torch function of which some argument is a tree."""
    name = _name(func)
    if kwargs.get("out") is not None:
        raise StructureError(describe(f"{name}: a TensorDict never changes: out= is refused", fix="take the result"))
    given = {key: value for key, value in kwargs.items() if key not in _IDLE or value not in _IDLE[key]}
    if func in _SPECIAL:
        return _SPECIAL[func](*args, **given)
    first: Any = args[0] if args else given.pop("input", None)
    if func in _METHODS and hasattr(first, "_structure"):
        return getattr(first, _METHODS[func])(*args[1:], **{_SPELLED.get(key, key): value for key, value in given.items()})
    if len(args) == 2 and not given:
        left, right = args
        if name in _SWAPPED and hasattr(right, "_structure"):
            return ops.binary(right, left, _SWAPPED[name], name)
        if name in _REFLECTED:
            fn, reverse = _REFLECTED[name]
            if hasattr(left, "_structure"):
                return ops.binary(left, right, fn, name)
            return ops.binary(right, left, reverse, name)
    raise StructureError(
        describe(
            f"torch.{name} does not take a TensorDict here",
            got=[type(arg).__name__ for arg in args],
            fix="td.map(lambda leaf: ...), with the function of the leaf, or a method of the tree",
        )
    )


_IDLE: dict[str, tuple[Any, ...]] = {"out": (None,), "inplace": (False,), "_stacklevel": (3, 5), "dtype": (None,)}
"""Arguments that torch hands on at their defaults, and a tree has no use for."""
_SPELLED = {"axis": "dim", "keepdims": "keepdim"}


def _name(func: Any) -> str:
    return getattr(func, "__name__", str(func))
