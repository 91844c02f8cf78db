"""Gradients with respect to trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tdfunc._errors import StructureError, describe
from tdfunc.structure import named_after, whole

from ._flat import Rebuild, flatten


def value_and_grad(fn: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Give a function's value and its gradient, in this order.

    Args:
        fn: A function that returns a scalar, or `(scalar, aux)` with `has_aux`.
        argnums: Which positional argument to differentiate with respect to, or several.
        has_aux: The function returns something else beside the scalar: any pytree; what is no tensor passes through.

    Returns:
        A function with the arguments of `fn` that returns `(value, grads)`, or `((value, aux), grads)`. `grads` has the
        structure of the argument, a tuple of such for several. Integer and bool leaves are held constant: their gradient
        is zero, of their dtype. A tied leaf has one gradient, the sum over its uses.

    Raises:
        StructureError: If the value is no scalar tensor, an argument has leaves but no float or complex one, or `argnums`
            names no argument.

    Note:
        `torch.func` underneath: nests in itself and vmap, traces under torch.compile. Activation checkpointing inside it
        is refused by torch.

    Example:
        >>> import torch, tdfunc
        >>> td = tdfunc.TensorDict(w=torch.tensor(3.0), n=2)
        >>> value, grads = tdfunc.value_and_grad(lambda p: p["w"] ** 2)(td)
        >>> value, grads["w"], grads["n"]
        (tensor(9.), tensor(6.), tensor(0))
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        wanted = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        leaves, rebuild = flatten(tuple([_argument(args, n) for n in wanted]))
        at = _differentiable(leaves)
        passed: list[Rebuild] = []  # torch.func takes only tensors through; the rest of aux waits here

        def inner(floats: list[Tensor]) -> tuple[Tensor, Any]:
            filled = list(leaves)
            for i, leaf in zip(at, floats, strict=True):
                filled[i] = leaf
            given = list(args)
            for n, target in zip(wanted, rebuild(filled), strict=True):
                given[n] = target
            value, aux = _value(fn(*given, **kwargs), has_aux)
            tensors, rest = _split(aux)
            passed.append(rest)
            return value, tensors

        floats = [leaves[i] for i in at]
        if floats:
            found, (value, tensors) = torch.func.grad_and_value(inner, has_aux=True)(floats)
        else:
            found, (value, tensors) = [], inner([])
        full = [torch.zeros_like(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves] if len(at) < len(leaves) else list(leaves)
        for i, leaf in zip(at, found, strict=True):
            full[i] = leaf
        grads = rebuild(full)
        grads = grads[0] if isinstance(argnums, int) else grads
        return ((value, passed[-1](list(tensors))), grads) if has_aux else (value, grads)

    return named_after(fn, whole(call))


def grad(fn: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Give a function's gradient; see `value_and_grad`.

    Returns:
        A function with the arguments of `fn` that returns `grads`, or `(grads, aux)` with `has_aux`, as torch.func does.

    Example:
        >>> import torch, tdfunc
        >>> tdfunc.grad(lambda p: (p["w"] ** 2).sum())(tdfunc.TensorDict(w=torch.ones(2)))["w"]
        tensor([2., 2.])
    """
    both = value_and_grad(fn, argnums, has_aux)

    def call(*args: Any, **kwargs: Any) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return named_after(fn, whole(call))


def _argument(args: tuple[Any, ...], n: int) -> Any:
    if not -len(args) <= n < len(args):
        raise StructureError(
            describe("grad: argnums names no argument", expected=f"less than {len(args)}", got=n, fix="pass the argument by position")
        )
    return args[n]


def _differentiable(leaves: list[Any]) -> list[int]:
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())]
    if leaves and not at:
        module = any(isinstance(leaf, nn.Module) for leaf in leaves)
        raise StructureError(
            describe(
                "grad: nothing to differentiate with respect to",
                expected="at least one float or complex leaf",
                got=sorted({str(leaf.dtype) if isinstance(leaf, Tensor) else type(leaf).__name__ for leaf in leaves}),
                fix="grad(fn)(params_of(module))" if module else "td.to(torch.float32), or another argnums",
            )
        )
    return at


def _value(result: Any, has_aux: bool) -> tuple[Tensor, Any]:
    if has_aux and not (isinstance(result, tuple) and len(result) == 2):  # pyright: ignore[reportUnknownArgumentType]
        raise StructureError(
            describe(
                "grad: has_aux=True, so the function must return two things",
                expected="(value, aux)",
                got=type(result).__name__,
                fix="return value, aux",
            )
        )
    value, aux = result if has_aux else (result, None)
    if not isinstance(value, Tensor) or value.dim() != 0:
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        fix = "return (value, aux) with has_aux=True" if isinstance(value, tuple) else "reduce it, e.g. value.mean()"
        raise StructureError(describe("grad: the function must return a scalar tensor", expected="shape ()", got=got, fix=fix))
    return value, aux


def _split(aux: Any) -> tuple[list[Tensor], Rebuild]:
    """Return the tensors of a pytree, and the function that puts others in their places."""
    leaves, rebuild = flatten(aux)
    if all(isinstance(leaf, Tensor) for leaf in leaves):
        return leaves, rebuild

    rest = [None if isinstance(leaf, Tensor) else (leaf,) for leaf in leaves]

    def filled(tensors: list[Tensor]) -> Any:
        waiting = iter(tensors)
        return rebuild([next(waiting) if kept is None else kept[0] for kept in rest])

    return [leaf for leaf in leaves if isinstance(leaf, Tensor)], filled
