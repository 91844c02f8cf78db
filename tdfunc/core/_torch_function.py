"""torch functions on trees: `tensor * td`, `torch.stack([td, ...])`, `torch.clone(td)`."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch

from tdfunc import ops
from tdfunc._errors import StructureError, describe

_REFLECTED: dict[Any, Any] = {}
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
):
    for _name in _names:
        for _home in (torch, torch.Tensor):
            if hasattr(_home, _name):
                _REFLECTED[getattr(_home, _name)] = (_fn, _reverse)
# Reflected methods of a tensor have the operands swapped already: tensor.__rsub__(td) is td - tensor.
_SWAPPED: dict[Any, Any] = {
    torch.Tensor.__rsub__: operator.sub,
    torch.Tensor.__rdiv__: operator.truediv,
    torch.Tensor.__rtruediv__: operator.truediv,
    torch.Tensor.__rpow__: operator.pow,
    torch.Tensor.__rfloordiv__: operator.floordiv,
    torch.Tensor.__rmod__: operator.mod,
}
_STRUCTURAL: dict[Any, Callable[..., Any]] = {
    torch.stack: ops.stack,
    torch.unbind: ops.unbind,
    torch.clone: functools.partial(ops.leafwise, fn=torch.clone),
    torch.zeros_like: functools.partial(ops.leafwise, fn=torch.zeros_like),
}


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of a torch function of which some argument is a tree."""
    if func in _STRUCTURAL:
        return _STRUCTURAL[func](*args, **kwargs)
    if len(args) == 2 and not kwargs:
        left, right = args
        if func in _SWAPPED and hasattr(right, "_structure"):
            return ops.binary(right, left, _SWAPPED[func], func.__name__)
        if func in _REFLECTED:
            fn, reverse = _REFLECTED[func]
            if hasattr(left, "_structure"):
                return ops.binary(left, right, fn, func.__name__)
            return ops.binary(right, left, reverse, func.__name__)
    name = getattr(func, "__name__", str(func))
    raise StructureError(describe(f"torch.{name} does not take a TensorDict", fix=f"td.map(lambda leaf: torch.{name}(leaf))"))
