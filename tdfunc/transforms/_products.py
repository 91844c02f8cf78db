"""Products with Jacobians and Hessians: jvp, vjp, hvp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tdfunc._errors import StructureError, describe
from tdfunc.structure import whole

from ._flat import flatten
from ._grad import grad
from ._like import leaves_like
from ._outputs import Outputs, outputs
from ._parts import Part, is_float, part_of


def jvp(fn: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...], *, strict: bool = False, has_aux: bool = False) -> Any:
    """Return a function's value and its derivative in a direction.

    Args:
        fn: A function that returns tensors or trees of them, or `(value, aux)` with `has_aux`.
        primals: The arguments, a tuple.
        tangents: The direction: for each argument a tree like it, or None to hold the argument constant. What stands there
            for integer and bool leaves does not count.
        strict: Raise where the value does not depend on the arguments, instead of giving zeros.
        has_aux: The function returns something else beside the value: any pytree; what is no tensor passes through.

    Returns:
        `(value, tangent)`, or `(value, tangent, aux)`; the tangent is a tree like the value, zero at integer leaves.

    Raises:
        StructureError: If tangents are not like the arguments, or nothing has a derivative.

    Example:
        >>> import torch, tdfunc
        >>> p = tdfunc.TensorDict(x=torch.tensor(3.0))
        >>> tdfunc.jvp(lambda p: p["x"] ** 2, (p,), (p.ones_like(),))
        (tensor(9.), tensor(6.))
    """
    return _jvp(fn, primals, tangents, strict, has_aux)


def _jvp_of_trees(fn: Callable[..., Any], primals: Any, tangents: Any, strict: bool, has_aux: bool) -> Any:
    argnums, directions = _directions(primals, tangents, "jvp")
    part = part_of(tuple(primals), argnums, None, "jvp")
    passed: list[Outputs] = []
    inner = _inner(fn, part, has_aux, passed, "jvp")
    done: Any = torch.func.jvp(inner, (part.floats,), (directions,), strict=strict, has_aux=True)
    out = passed[-1]
    leaves, aux = out.split(list(done[2]))
    tangent = out.value(out.spread(list(done[1]), [torch.zeros_like(leaf) for leaf in leaves]))
    return (out.value(leaves), tangent, aux) if has_aux else (out.value(leaves), tangent)


_jvp = whole(_jvp_of_trees)


def vjp(fn: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return a function's value, and the function that gives products of a cotangent with its Jacobian.

    Args:
        fn: A function that returns tensors or trees of them, or `(value, aux)` with `has_aux`.
        *primals: The arguments.
        has_aux: The function returns something else beside the value: any pytree; what is no tensor passes through.

    Returns:
        `(value, vjp_fn)`, or `(value, vjp_fn, aux)`. `vjp_fn(cotangent)` takes a tree like the value and returns a tuple with
        a tree like each argument, as torch.func does, also for one. Integer and bool leaves have zeros; an argument without
        a float leaf is held constant.

    Raises:
        StructureError: If no argument has a float leaf, nothing has a derivative, or a cotangent is not like the value.

    Example:
        >>> import torch, tdfunc
        >>> value, vjp_fn = tdfunc.vjp(lambda p: p["x"] ** 2, tdfunc.TensorDict(x=torch.tensor([1.0, 3.0])))
        >>> vjp_fn(torch.ones(2))[0]["x"]
        tensor([2., 6.])
    """
    return _vjp(fn, primals, has_aux)


def _vjp_of_trees(fn: Callable[..., Any], primals: Any, has_aux: bool) -> Any:
    part = part_of(tuple(primals), tuple(range(len(primals))), None, "vjp")
    passed: list[Outputs] = []
    done: Any = torch.func.vjp(_inner(fn, part, has_aux, passed, "vjp"), part.floats, has_aux=True)
    pull, out = done[1], passed[-1]
    leaves, aux = out.split(list(done[2]))
    value = out.value(leaves)

    def vjp_fn(cotangents: Any) -> Any:
        (found,) = pull(tuple(out.floats(leaves_like(value, cotangents, "vjp", "cotangent", is_float))))
        return part.like(list(found), torch.zeros_like)

    return (value, vjp_fn, aux) if has_aux else (value, vjp_fn)


_vjp = whole(_vjp_of_trees)


def hvp(fn: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...], *, has_aux: bool = False) -> Any:
    """Return the product of a scalar function's Hessian with a direction, forward over reverse: no Hessian is made.

    Args:
        fn: A function that returns a scalar, or `(scalar, aux)` with `has_aux`.
        primals: The arguments, a tuple.
        tangents: The direction: for each argument a tree like it, or None to hold the argument constant.
        has_aux: The function returns something else beside the scalar: any pytree; what is no tensor passes through.

    Returns:
        A tree like the argument that has a tangent, a tuple of such for several; or `(product, aux)`.

    Raises:
        StructureError: If tangents are not like the arguments, there is no float leaf, or the value is no scalar.

    Example:
        >>> import torch, tdfunc
        >>> p = tdfunc.TensorDict(x=torch.tensor([1.0, 2.0]))
        >>> tdfunc.hvp(lambda p: (p["x"] ** 3).sum(), (p,), (p.ones_like(),))["x"]
        tensor([ 6., 12.])
    """
    argnums, _ = _directions(primals, tangents, "hvp")
    slope = grad(fn, argnums[0] if len(argnums) == 1 else argnums, has_aux)
    result = jvp(slope, primals, tangents, has_aux=has_aux)
    return result[1:] if has_aux else result[1]


def _inner(fn: Callable[..., Any], part: Part, has_aux: bool, passed: list[Outputs], op: str) -> Callable[[list[Tensor]], Any]:
    def inner(floats: list[Tensor]) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        differentiated, tensors, rest = outputs(fn(*part.fill(floats)), has_aux, op)
        passed.append(rest)
        return tuple(differentiated), tensors

    return inner


def _directions(primals: Any, tangents: Any, op: str) -> tuple[tuple[int, ...], list[Tensor]]:
    """Return which arguments have a tangent, and the tangents of their float leaves."""
    if not (isinstance(primals, tuple | list) and isinstance(tangents, tuple | list) and len(primals) == len(tangents)):
        raise StructureError(
            describe(
                f"{op}: primals and tangents are tuples with a place for each argument",
                expected="two tuples of one length",
                got=f"{_length(primals)} and {_length(tangents)}",
                fix=f"{op}(fn, (params, x), (direction, None))",
            )
        )
    argnums = tuple([n for n, tangent in enumerate(tangents) if tangent is not None])
    if not argnums:
        raise StructureError(
            describe(f"{op}: no argument has a tangent", expected="a tree like the argument", got="None", fix=f"{op}(fn, (x,), (x.ones_like(),))")
        )
    directions: list[Tensor] = []
    for n in argnums:
        leaves = leaves_like(primals[n], tangents[n], op, "tangent", is_float)
        directions += [given for leaf, given in zip(flatten(primals[n])[0], leaves, strict=True) if is_float(leaf)]
    return argnums, directions


def _length(given: Any) -> str:
    return f"{len(given)} in a {type(given).__name__}" if isinstance(given, tuple | list) else type(given).__name__
