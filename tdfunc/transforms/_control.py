"""Control flow on trees: a branch, a scan, a loop; in eager as Python runs it, in a trace as one operation of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tdfunc._errors import BatchSizeError, StructureError, describe
from tdfunc.structure import traced_as

from ._flat import flatten
from ._like import leaves_like

Fn = Callable[..., Any]


def cond(pred: Any, true_fn: Fn, false_fn: Fn, operands: tuple[Any, ...] = (), *, both: bool = False) -> Any:
    """Run one of two functions, as the value of a tensor says; `torch.cond` with trees in and out.

    Args:
        pred: A bool, or a tensor with one element.
        true_fn: What to run if it is true, on the operands.
        false_fn: What to run if not. Both give trees of one form, with leaves of the same shapes and dtypes.
        operands: The arguments, a tuple of trees; what the functions close over counts as well.
        both: Run both and select, leaf by leaf.

    Returns:
        What the function gives.

    Raises:
        StructureError: If the predicate has more than one element, or both run and their results are not alike.

    Note:
        In eager one function runs, also inside `grad`; inside `vmap` both do where the predicate differs from row to row. In
        a trace it is `torch.cond`, which torch 2.13 does not trace inside grad, nor backwards where a result has integer
        leaves: `both=True` works there. Where both run, a gradient of the one that was not meant is multiplied by zero:
        infinities become NaN.

    Example:
        >>> import torch, tdfunc
        >>> p = tdfunc.TensorDict(x=torch.tensor([1.0, 2.0]))
        >>> tdfunc.cond(p["x"].sum() > 2, lambda p: p * 2, lambda p: p, (p,))["x"]
        tensor([2., 4.])
    """
    if isinstance(pred, Tensor):
        _one_element(pred, "cond")
    elif not both:
        return true_fn(*operands) if pred else false_fn(*operands)
    if both:
        return _selected(pred, true_fn(*operands), false_fn(*operands))
    return _cond(pred, true_fn, false_fn, operands)


def _traced_cond(pred: Tensor, true_fn: Fn, false_fn: Fn, operands: tuple[Any, ...]) -> Any:
    leaves, rebuild = flatten(tuple(operands))
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    # The form of the result has to be known outside of the branches, out of which torch.cond lets only tensors: this call
    # leaves nothing in a graph that a compiler has cleaned.
    model = true_fn(*operands)

    def branch(fn: Fn) -> Fn:
        def run(*tensors: Tensor) -> tuple[Tensor, ...]:
            full = list(leaves)
            for i, tensor in zip(at, tensors, strict=True):
                full[i] = tensor
            # What is handed through must be a tensor of its own.
            return tuple([leaf.clone() for leaf in leaves_like(model, fn(*rebuild(full)), "cond", "result of a branch", _is_tensor)])

        return run

    found = torch.cond(pred, branch(true_fn), branch(false_fn), tuple([leaves[i] for i in at]))
    return flatten(model)[1](list(found))


@traced_as(_traced_cond)
def _cond(pred: Tensor, true_fn: Fn, false_fn: Fn, operands: tuple[Any, ...]) -> Any:
    known = _known(pred)
    if known is None:
        return _selected(pred, true_fn(*operands), false_fn(*operands))
    return true_fn(*operands) if known else false_fn(*operands)


def scan(fn: Fn, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> tuple[Any, Any]:
    """Run a function over the slices of trees, handing a state from step to step.

    Args:
        fn: `fn(carry, x)` gives `(carry, y)`; the carry keeps its form, shapes and dtypes.
        init: The first carry, any tree.
        xs: A tree of tensors; each step has one slice of each.
        dim: The dim of the leaves of `xs` that is scanned.
        reverse: Go from the last slice to the first; `ys` keep the order of `xs`.

    Returns:
        `(carry, ys)`: the last carry, and the trees `y` stacked in front.

    Raises:
        StructureError: If a step gives no pair, or a carry or a `y` unlike those before.
        BatchSizeError: If `xs` has no leaves, leaves of different lengths, or no slices.

    Shapes:
        `xs` leaves `(steps, *shape)` to `ys` leaves `(steps, *shape of y)`.

    Note:
        A loop, so that it works inside every transform and traces everywhere; a trace is as long as `xs`.

    Example:
        >>> import torch, tdfunc
        >>> total, sums = tdfunc.scan(lambda c, x: (c + x["v"], c + x["v"]), torch.tensor(0), tdfunc.TensorDict(v=torch.arange(4)))
        >>> total, sums
        (tensor(6), tensor([0, 1, 3, 6]))
    """
    leaves, rebuild = flatten(xs)
    columns = [leaf.unbind(dim) for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()]
    steps = {len(column) for column in columns}
    if len(columns) < len(leaves) or len(steps) != 1 or 0 in steps:
        raise BatchSizeError(
            describe(
                "scan: xs must be tensors with one number of slices",
                expected=f"at least one tensor, all of one size in dim {dim}, not 0",
                got=[tuple(leaf.shape) if isinstance(leaf, Tensor) else type(leaf).__name__ for leaf in leaves],
                fix="what does not change from step to step goes into the carry, or is closed over",
            )
        )
    carry, ys = init, []
    rows = [list(row) for row in zip(*columns, strict=True)]
    for row in reversed(rows) if reverse else rows:
        done = fn(carry, rebuild(row))
        if not (isinstance(done, tuple) and len(done) == 2):  # pyright: ignore[reportUnknownArgumentType]
            raise StructureError(
                describe("scan: a step must give two things", expected="(carry, y)", got=type(done).__name__, fix="return carry, None")
            )
        carry = flatten(carry)[1](leaves_like(carry, done[0], "scan", "carry", _is_tensor))
        ys.append(done[1])
    if reverse:
        ys.reverse()
    return carry, _stacked(ys)


def _stacked(ys: list[Any]) -> Any:
    rows = [leaves_like(ys[0], y, "scan", "y", _is_tensor) for y in ys]
    first, rebuild = flatten(ys[0])
    return rebuild(
        [torch.stack(column) if isinstance(leaf, Tensor) else leaf for leaf, column in zip(first, list(zip(*rows, strict=True)), strict=True)]
    )


def while_loop(cond_fn: Fn, body_fn: Fn, carried: tuple[Any, ...]) -> tuple[Any, ...]:
    """Run a function on its own results as long as a condition holds; `torch.while_loop` with trees in and out.

    Args:
        cond_fn: `cond_fn(*carried)` gives a bool or a tensor with one element.
        body_fn: `body_fn(*carried)` gives the next tuple, of the same form, shapes and dtypes.
        carried: A tuple of trees of tensors; a number to count with is a tensor.

    Returns:
        The last tuple.

    Raises:
        StructureError: If something else than tensors is carried, the body gives another form, or the condition more than
            one element.

    Note:
        Inside `vmap` it goes on until no row has to, and rows that are through keep their values. In a trace it is
        `torch.while_loop`, which torch 2.13 traces neither inside grad nor inside vmap; gradients through the compiled
        function work.

    Example:
        >>> import torch, tdfunc
        >>> p = tdfunc.TensorDict(x=torch.tensor(1.0), n=torch.tensor(0))
        >>> (p,) = tdfunc.while_loop(lambda p: p["x"] < 10, lambda p: (p.set("x", p["x"] * 2).set("n", p["n"] + 1),), (p,))
        >>> p["x"], p["n"]
        (tensor(16.), tensor(4))
    """
    carried = tuple(carried) if isinstance(carried, list) else carried
    if not isinstance(carried, tuple) or not all(isinstance(leaf, Tensor) for leaf in flatten(carried)[0]):
        raise StructureError(
            describe(
                "while_loop: carried must be a tuple of trees of tensors",
                expected="tensors",
                got=sorted({type(leaf).__name__ for leaf in flatten(carried)[0]}) if isinstance(carried, tuple) else type(carried).__name__,
                fix="(state, torch.tensor(0))",
            )
        )
    return _while_loop(cond_fn, body_fn, carried)


def _traced_while_loop(cond_fn: Fn, body_fn: Fn, carried: tuple[Any, ...]) -> tuple[Any, ...]:
    leaves, rebuild = flatten(carried)

    def goes_on(*tensors: Tensor) -> Any:
        return cond_fn(*rebuild(list(tensors)))

    def step(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple([leaf.clone() for leaf in _next(rebuild(list(tensors)), body_fn)])

    # torch refuses leaves that share memory.
    return rebuild(list(torch.while_loop(goes_on, step, tuple([leaf.clone() for leaf in leaves]))))


@traced_as(_traced_while_loop)
def _while_loop(cond_fn: Fn, body_fn: Fn, carried: tuple[Any, ...]) -> tuple[Any, ...]:
    rebuild = flatten(carried)[1]
    while True:
        pred: Any = cond_fn(*carried)
        known = _known(pred)
        if not (known if known is not None else bool(_AnyRow.apply(pred))):
            return carried
        following = rebuild(_next(carried, body_fn))
        carried = following if known is not None else _selected(pred, following, carried)


def _next(carried: Any, body_fn: Fn) -> list[Any]:
    following = body_fn(*carried)
    return leaves_like(carried, tuple(following) if isinstance(following, list) else following, "while_loop", "result of the body", _is_tensor)


class _AnyRow(torch.autograd.Function):
    """Whether a predicate holds in any row of the vmaps around: what a loop needs to know of all rows to go on."""

    @staticmethod
    def forward(pred: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return pred.any()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        del inputs
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> None:
        del ctx, grads

    @staticmethod
    def vmap(info: Any, in_dims: Any, pred: Tensor) -> tuple[Any, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        del info, in_dims
        return _AnyRow.apply(pred), None


def _selected(pred: Any, yes: Any, no: Any) -> Any:
    """Return the one or the other, leaf by leaf, both computed."""
    mine, rebuild = flatten(yes)
    other = leaves_like(yes, no, "cond", "result of a branch", _is_tensor)
    where = pred if isinstance(pred, Tensor) else torch.tensor(bool(pred))
    where = where.reshape(()) != 0
    return rebuild([torch.where(where, a, b) if isinstance(a, Tensor) else a for a, b in zip(mine, other, strict=True)])


def _known(pred: Any) -> bool | None:
    """Return the value of a predicate; None inside vmap, where it differs from row to row."""
    if not isinstance(pred, Tensor):
        return bool(pred)
    _one_element(pred, "while_loop")
    try:
        return bool(pred)
    except RuntimeError:
        return None


def _one_element(pred: Tensor, op: str) -> None:
    if pred.numel() != 1:
        raise StructureError(describe(f"{op}: the predicate must be one bool", expected="one element", got=tuple(pred.shape), fix="pred.all()"))


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, Tensor)
