"""Gradients with respect to trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tdfunc._errors import StructureError, describe
from tdfunc.structure import named_after, whole

from . import _autograd as grad_by_autograd
from ._flat import Rebuild, split
from ._outputs import with_aux
from ._parts import part_of


def _by_func(inner: grad_by_autograd.Inner, floats: list[Tensor]) -> grad_by_autograd.Result:
    return torch.func.grad_and_value(inner, has_aux=True)(floats)


_BACKENDS = {"func": _by_func, "autograd": grad_by_autograd.grad_and_value}


def value_and_grad(
    fn: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *, wrt: Any = None, backend: str = "func"
) -> Callable[..., Any]:
    """Give a function's value and its gradient, in this order.

    Args:
        fn: A function that returns a scalar, or `(scalar, aux)` with `has_aux`.
        argnums: Which positional argument to differentiate with respect to, or several.
        has_aux: The function returns something else beside the scalar: any pytree; what is no tensor passes through.
        wrt: Which leaves of a TensorDict to differentiate with respect to: a key, key path or glob, a predicate of
            `(path, leaf)`, or a list of these. The others are held constant.
        backend: "func" is torch.func. "autograd" is torch.autograd on fresh leaves: with it, activation checkpoints and
            saved-tensor hooks work inside the function.

    Returns:
        A function with the arguments of `fn` that returns `(value, grads)`, or `((value, aux), grads)`. `grads` has the
        structure of the argument, a tuple of such for several; with `wrt`, that of `argument.filter(wrt)`. Integer and bool
        leaves are held constant: their gradient is zero, of their dtype. A tied leaf has one gradient, the sum over its uses.

    Raises:
        StructureError: If the value is no scalar tensor, an argument has leaves but no float or complex one that is meant,
            `argnums` names no argument, or the autograd backend runs inside vmap, another transform or a trace.
        KeyPathError: If `wrt` matches nothing.

    Note:
        With torch.func it nests in itself and vmap, and traces under torch.compile; activation checkpoints inside it are
        refused by torch. The autograd backend nests in itself and around torch.func. A reentrant checkpoint has no second
        derivative, and adds to `.grad` of tensors that its function closes over and that require one.

    Example:
        >>> import torch, tdfunc
        >>> td = tdfunc.TensorDict(w=torch.tensor(3.0), n=2)
        >>> value, grads = tdfunc.value_and_grad(lambda p: p["w"] ** 2)(td)
        >>> value, grads["w"], grads["n"]
        (tensor(9.), tensor(6.), tensor(0))
    """
    if backend not in _BACKENDS:
        raise StructureError(describe("grad: unknown backend", expected=list(_BACKENDS), got=repr(backend), fix="backend='func'"))
    run = _BACKENDS[backend]

    def call(*args: Any, **kwargs: Any) -> Any:
        floats, fill, like = part_of(args, argnums, wrt, "grad")
        passed: list[Rebuild] = []  # torch.func takes only tensors through; the rest of aux waits here

        def inner(floats: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
            value, aux = _value(fn(*fill(floats), **kwargs), has_aux)
            tensors, rest = split(aux)
            passed.append(rest)
            return value, tensors

        found, (value, tensors) = run(inner, floats) if floats else ([], inner([]))
        grads = like(list(found), torch.zeros_like)
        return ((value, passed[-1](list(tensors))), grads) if has_aux else (value, grads)

    return named_after(fn, whole(call))


def grad(
    fn: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *, wrt: Any = None, backend: str = "func"
) -> Callable[..., Any]:
    """Give a function's gradient; see `value_and_grad`.

    Returns:
        A function with the arguments of `fn` that returns `grads`, or `(grads, aux)` with `has_aux`, as torch.func does.

    Example:
        >>> import torch, tdfunc
        >>> tdfunc.grad(lambda p: (p["w"] ** 2).sum())(tdfunc.TensorDict(w=torch.ones(2)))["w"]
        tensor([2., 2.])
    """
    both = value_and_grad(fn, argnums, has_aux, wrt=wrt, backend=backend)

    def call(*args: Any, **kwargs: Any) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return named_after(fn, whole(call))


def _value(result: Any, has_aux: bool) -> tuple[Tensor, Any]:
    value, aux = with_aux(result, "grad") if has_aux else (result, None)
    if not isinstance(value, Tensor) or value.dim() != 0:
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        fix = "return (value, aux) with has_aux=True" if isinstance(value, tuple) else "reduce it, e.g. value.mean()"
        raise StructureError(describe("grad: the function must return a scalar tensor", expected="shape ()", got=got, fix=fix))
    return value, aux
