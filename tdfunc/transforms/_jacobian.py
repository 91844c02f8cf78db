"""Jacobians and Hessians of functions of trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from tdfunc import ops
from tdfunc._errors import StructureError, describe
from tdfunc.core import TensorDict
from tdfunc.structure import named_after, whole

from ._outputs import Outputs, outputs
from ._parts import part_of

Argnums = int | tuple[int, ...]
Rows = list[list[Tensor]]  # for each float leaf of the result, a Jacobian for each leaf that is differentiated
Inner = Callable[[list[Tensor]], tuple[list[Tensor], list[Tensor]]]


def jacrev(
    fn: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False, wrt: Any = None, chunk_size: int | None = None
) -> Callable[..., Any]:
    """Give a function's Jacobian, row by row, by reverse mode: for more inputs than outputs.

    Args:
        fn: A function that returns tensors or trees of them, or `(value, aux)` with `has_aux`.
        argnums: Which positional argument to differentiate with respect to, or several.
        has_aux: The function returns something else beside the value: any pytree; what is no tensor passes through.
        wrt: Which leaves of a TensorDict to differentiate with respect to, as for `grad`.
        chunk_size: Compute this many rows at a time, to bound memory; 1 does without vmap.

    Returns:
        A function with the arguments of `fn` that returns the Jacobian, or `(jacobian, aux)`. In the place of each leaf of
        the value stands a tree like the argument, as torch.func gives for dicts: `jac["y", "w"]` is the derivative of
        `value["y"]` with respect to `params["w"]`. For several argnums there is a tuple of such trees; where the value is a
        TensorDict, which cannot hold a tuple, the tuple holds one TensorDict for each argument instead. Integer and bool
        leaves, of the argument or the value, have zeros. Tied leaves have one entry.

    Raises:
        StructureError: If there is no float leaf to differentiate with respect to, or none in the value.
        KeyPathError: If `wrt` matches nothing.

    Shapes:
        Value `(*out)` and leaf `(*in)` to `(*out, *in)`; a value with a batch size gives a Jacobian with this batch size.

    Example:
        >>> import torch, tdfunc
        >>> p = tdfunc.TensorDict(w=torch.ones(2, 3), b=torch.zeros(2))
        >>> jac = tdfunc.jacrev(lambda p, x: p["w"] @ x + p["b"])(p, torch.ones(3))
        >>> jac["w"].shape, jac["b"].shape
        (torch.Size([2, 2, 3]), torch.Size([2, 2]))
    """
    return _jacobian(fn, argnums, has_aux, wrt, "jacrev", lambda inner, floats: _reverse(inner, floats, chunk_size))


def jacfwd(
    fn: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    wrt: Any = None,
    randomness: str = "error",
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Give a function's Jacobian, column by column, by forward mode: for more outputs than inputs; see `jacrev`.

    Args:
        fn: As for `jacrev`.
        argnums: As for `jacrev`.
        has_aux: As for `jacrev`.
        wrt: As for `jacrev`.
        randomness: "error" or "same": what random operations inside do. With "different" columns would be of different
            functions, so it is refused.
        chunk_size: Compute this many columns at a time, to bound memory.

    Returns:
        A function as that of `jacrev`.

    Raises:
        StructureError: As for `jacrev`, and for another `randomness`.

    Example:
        >>> import torch, tdfunc
        >>> tdfunc.jacfwd(lambda p: p["x"] ** 2)(tdfunc.TensorDict(x=torch.tensor([1.0, 2.0])))["x"]
        tensor([[2., 0.],
                [0., 4.]])
    """
    if randomness not in {"error", "same"}:
        raise StructureError(
            describe("jacfwd: the columns must be of one function", expected="randomness 'error' or 'same'", got=repr(randomness), fix="'same'")
        )
    return _jacobian(fn, argnums, has_aux, wrt, "jacfwd", lambda inner, floats: _forward(inner, floats, randomness, chunk_size))


def hessian(
    fn: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False, wrt: Any = None, chunk_size: int | None = None
) -> Callable[..., Any]:
    """Give a function's second derivatives: the Jacobian, by forward mode, of its Jacobian by reverse mode.

    Args:
        fn: As for `jacrev`.
        argnums: As for `jacrev`.
        has_aux: As for `jacrev`.
        wrt: As for `jacrev`.
        chunk_size: Compute this many columns at a time, to bound memory.

    Returns:
        A function with the arguments of `fn` that returns a Jacobian of a Jacobian, or that and aux: for a scalar function of
        a tree `hess["w", "b"]` is the derivative by `p["w"]` and `p["b"]`.

    Raises:
        StructureError: As for `jacrev`.
        KeyPathError: If `wrt` matches nothing.

    Shapes:
        Value `(*out)`, leaves `(*a)` and `(*b)` to `(*out, *a, *b)`.

    Example:
        >>> import torch, tdfunc
        >>> p = tdfunc.TensorDict(x=torch.tensor([1.0, 2.0]), y=torch.tensor(3.0))
        >>> tdfunc.hessian(lambda p: (p["x"] ** 2).sum() * p["y"])(p)["x", "y"]
        tensor([2., 4.])
    """
    inner = jacrev(fn, argnums, has_aux=has_aux, wrt=wrt)
    return named_after(fn, jacfwd(inner, argnums, has_aux, wrt=wrt, chunk_size=chunk_size))


def _jacobian(
    fn: Callable[..., Any],
    argnums: Argnums,
    has_aux: bool,
    wrt: Any,
    op: str,
    rows: Callable[[Inner, list[Tensor]], tuple[Rows, list[Tensor]]],
) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        floats, fill, like = part_of(args, argnums, wrt, op)
        passed: list[Outputs] = []

        def inner(floats: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            differentiated, tensors, rest = outputs(fn(*fill(floats), **kwargs), has_aux, op)
            passed.append(rest)
            return differentiated, tensors

        found, tensors = rows(inner, floats) if floats else _no_rows(inner)
        out = passed[-1]
        leaves, aux = out.split(tensors)
        held = [_zeros(leaf) for leaf in leaves]
        rows_of_all = out.spread(found, [[zeros(leaf) for leaf in floats] for zeros in held])
        jacobian = _placed(out.value(leaves), [like(row, zeros) for row, zeros in zip(rows_of_all, held, strict=True)])
        return (jacobian, aux) if has_aux else jacobian

    return named_after(fn, whole(call))


def _no_rows(inner: Inner) -> tuple[Rows, list[Tensor]]:
    differentiated, tensors = inner([])
    return [[] for _ in differentiated], tensors


def _zeros(out: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the function that gives the Jacobian of a result with respect to what is held constant, in no memory."""
    return lambda leaf: leaf.new_zeros(()).expand((*out.shape, *leaf.shape))


def _reverse(inner: Inner, floats: list[Tensor], chunk_size: int | None) -> tuple[Rows, list[Tensor]]:
    def tuples(floats: list[Tensor]) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        differentiated, tensors = inner(floats)
        return tuple(differentiated), tensors

    found, tensors = torch.func.jacrev(tuples, has_aux=True, chunk_size=chunk_size)(floats)
    return [list(row) for row in found], list(tensors)


def _forward(inner: Inner, floats: list[Tensor], randomness: str, chunk_size: int | None) -> tuple[Rows, list[Tensor]]:
    sizes = [leaf.numel() for leaf in floats]

    def column(i: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Return the derivative by the i-th number of all leaves, one after the other, and what comes out beside it."""
        tangents: list[Tensor] = []
        start = 0
        for leaf, n in zip(floats, sizes, strict=True):
            hot = torch.arange(start, start + n, device=leaf.device) == i.to(leaf.device)
            tangents.append(hot.to(leaf.dtype).reshape(leaf.shape))
            start += n
        done: Any = torch.func.jvp(inner, (floats,), (tangents,), has_aux=True)
        return list(done[1]), list(done[2])

    total = sum(sizes)
    step = total if chunk_size is None else chunk_size
    columns = torch.arange(max(total, 1))  # leaves without numbers have one column, which is cut off below
    chunks: list[list[Tensor]] = []
    tensors: list[Tensor] = []
    for chunk in columns.split(max(step, 1)):
        found, tensors = torch.vmap(column, randomness=randomness)(chunk)
        chunks.append(found)
    joined = chunks[0] if len(chunks) == 1 else [torch.cat(pieces) for pieces in zip(*chunks, strict=True)]
    # What comes out beside a column is the same for all: (columns, *shape), expanded.
    return [_cut(leaf[:total].movedim(0, -1), floats, sizes) for leaf in joined], [tensor.select(0, 0) for tensor in tensors]


def _cut(columns: Tensor, floats: list[Tensor], sizes: list[int]) -> list[Tensor]:
    """Return the Jacobians with respect to the leaves: (*out, numbers) to (*out, *in) each."""
    parts = columns.split(sizes, -1)
    return [part.reshape((*part.shape[:-1], *leaf.shape)) for part, leaf in zip(parts, floats, strict=True)]


def _placed(value: Any, trees: list[Any]) -> Any:
    """Return the tree of the value with a tree like the argument in the place of each leaf."""
    if isinstance(value, Tensor):
        return trees[0]
    if type(value) is TensorDict:
        return _below(value, trees)
    parts, spec = _pytree.tree_flatten(value, is_leaf=_is_tree)
    placed: list[Any] = []
    start = 0
    for part in parts:
        count = len(part._leaves) if type(part) is TensorDict else 1
        placed.append(_placed(part, trees[start : start + count]))
        start += count
    return _pytree.tree_unflatten(placed, spec)


def _below(value: TensorDict, trees: Any) -> Any:
    """Return trees below the leaves of a TensorDict; containers that it cannot hold stay outside."""
    first = trees[0]
    if isinstance(first, Tensor):
        waiting = iter(trees)
        return value.map(lambda _: next(waiting))
    if type(first) is TensorDict:
        return _nested(value, trees)
    columns = [_pytree.tree_flatten(tree, is_leaf=_is_tree)[0] for tree in trees]
    spec = _pytree.tree_flatten(first, is_leaf=_is_tree)[1]
    parts = zip(*columns, strict=True)
    return _pytree.tree_unflatten([_below(value, list(part)) if isinstance(part[0], Tensor | TensorDict) else part[0] for part in parts], spec)


def _is_tree(node: Any) -> bool:
    return type(node) is TensorDict


def _nested(value: TensorDict, trees: list[TensorDict]) -> TensorDict:
    structure = value._structure
    size = ops.batch_size(value)
    slots = structure.slots()
    made = TensorDict({path: trees[i] for path, i in slots}, batch_size=size)
    for group in structure.ties():
        for path in trees[0]._structure.paths():
            made = ops.tie(made, tuple([(*root, *path) for root in group]))
    return made
