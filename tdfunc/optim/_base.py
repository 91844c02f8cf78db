"""What all optimizers share: a pair of pure functions, and how a step is spread over the leaves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from tdfunc import ops
from tdfunc._errors import StructureError, describe, show_path
from tdfunc.core import TensorDict
from tdfunc.structure import empty

LearningRate: TypeAlias = "float | Tensor | Callable[[Tensor], Tensor | float]"
"""A number; a tensor, of shape `()` or the batch size of the parameters; or a function of the step count, an int64 tensor.

A power of an int64 tensor is a float32: for float64 parameters, `lambda step: 0.1 * 0.97 ** step.double()`.
"""


class Optimizer(NamedTuple):
    """A pair of pure functions.

    `init(params)` gives the state, a TensorDict of its own; `step(params, grads, state)` gives new parameters and a new
    state. Nothing is changed in place: keep the old ones, and a step never happened.

    Example:
        >>> import torch, tdfunc
        >>> opt = tdfunc.optim.sgd(0.5)
        >>> params = tdfunc.TensorDict(w=torch.ones(2))
        >>> params, state = opt.step(params, params, opt.init(params))
        >>> params["w"]
        tensor([0.5000, 0.5000])
    """

    init: Callable[[TensorDict], TensorDict]
    step: Callable[[TensorDict, TensorDict, TensorDict], tuple[TensorDict, TensorDict]]


def check_number(name: str, value: Any, *, low: float = 0.0, high: float = math.inf) -> None:
    """Raise if a hyper-parameter is no number, or one out of range; tensors and functions are not looked into."""
    if not (isinstance(value, int | float | Tensor) or callable(value) or hasattr(value, "__float__")):
        raise StructureError(
            describe(
                f"optim: {name} is no number", expected="a number or a tensor", got=f"{value!r} of type {type(value).__name__}", fix=f"{name}=0.1"
            )
        )
    if isinstance(value, int | float) and not low <= value < high:
        raise StructureError(
            describe(
                f"optim: {name} is out of range",
                expected=f"{low} <= {name}" + (f" < {high}" if high < math.inf else ""),
                got=value,
                fix=f"{name}=...",
            )
        )


def init_state(params: TensorDict, *names: str) -> TensorDict:
    """Return the state of an optimizer: a step count and trees of zeros like the parameters.

    Each tree is of its own: two trees that are one object would be a guard of the compiled step. The count is an int64
    of the batch size, so that stacked parameters have a stacked state.
    """
    if getattr(params, "_structure", None) is None:
        raise StructureError(describe("optim: init takes a TensorDict of parameters", got=type(params).__name__, fix="opt.init(params_of(model))"))
    size = tuple(params.batch_size)
    state = TensorDict({"step": torch.zeros(size, dtype=torch.int64, device=params.device)}, batch_size=size)
    for name in names:
        state = state.set(name, params.zeros_like())
    return state


def count_of(params: Any, grads: Any, state: Any) -> Tensor:
    """Return the step count of a state; raise if the arguments of a step are not the three trees it takes, in their order."""
    if not (isinstance(params, TensorDict) and isinstance(grads, TensorDict) and isinstance(state, TensorDict)) or "step" not in state:
        raise _wrong_step(params, grads, state)
    return state["step"]


def _wrong_step(*given: Any) -> StructureError:
    """Return the error for arguments of a step that are no trees, or whose last one is no state."""
    trees = all(isinstance(tree, TensorDict) for tree in given)
    return StructureError(
        describe(
            "optim: the state has no step count" if trees else "optim: step takes three TensorDicts",
            expected="step(params, grads, state), with what opt.init(params) gave as state",
            got=f"a state with the keys {list(given[2])}" if trees else ", ".join(type(tree).__name__ for tree in given),
            fix="step(params, grads, state), in this order" if trees else "params_of(model), grad(loss)(params), opt.init(params)",
        )
    )


def rate(lr: LearningRate, step: Tensor) -> float | Tensor:
    """Return the learning rate at a step."""
    return lr(step) if callable(lr) else lr


def spread(value: float | Tensor, params: TensorDict) -> list[Any]:
    """Return, for each leaf of the parameters, a value per batch element in the shape and dtype in which the leaf takes it.

    A float stays one. A tensor of the batch shape gets a dim of 1 per event dim of the leaf, and the leaf's dtype:
    float64 factors of a bias correction must not promote float32 parameters.
    """
    if not isinstance(value, Tensor):
        return [value] * len(params._leaves)
    made: dict[Any, Tensor] = {}
    values: list[Tensor] = []
    for leaf, rank in zip(params._leaves, params._structure.ranks(), strict=True):
        dims = rank if value.dim() else 0
        if (dims, leaf.dtype) not in made:
            made[dims, leaf.dtype] = value.to((leaf.real if leaf.is_complex() else leaf).dtype)[(..., *[None] * dims)]
        values.append(made[dims, leaf.dtype])
    return values


def gradients_of(params: TensorDict, grads: Any) -> tuple[Tensor, ...]:
    """Return the leaves of the gradients in the order of the parameters; their shapes must agree, or they would broadcast."""
    leaves = ops.aligned(params, grads, "optim: the gradients")
    for leaf, param in zip(leaves, params._leaves, strict=True):
        if leaf.shape != param.shape:
            raise _wrong_shapes(params, leaves)
    return leaves


def _wrong_shapes(params: TensorDict, leaves: tuple[Tensor, ...]) -> StructureError:
    wrong = [
        f"{show_path(path)}: {tuple(leaf.shape)} for {tuple(param.shape)}"
        for path, leaf, param in zip(params._structure.paths(), leaves, params._leaves, strict=True)
        if leaf.shape != param.shape
    ]
    return StructureError(
        describe(
            "optim: the gradients have other shapes than the parameters", at="; ".join(wrong), expected="the same shapes", fix="grad(loss)(params)"
        )
    )


def state_leaves(params: TensorDict, state: TensorDict, *names: str) -> list[tuple[Tensor, ...]]:
    """Return the leaves of the trees in a state, in the order of the parameters."""
    if _state_structure(params, names) is state._structure:
        n, leaves = len(params._leaves), state._leaves
        return [leaves[1 + k * n : 1 + (k + 1) * n] for k in range(len(names))]
    return [ops.aligned(params, state[name], "optim: the state") for name in names]


def _state_structure(params: TensorDict, names: tuple[str, ...]) -> Any:
    """Return the structure that `init_state` gives."""
    return empty().compose(("step", *names), (0, *[(params._structure, 0)] * len(names)))


Update: TypeAlias = Callable[[Tensor, "tuple[Tensor, ...]", "tuple[Any, ...]"], "tuple[Tensor, tuple[Tensor, ...]]"]


def componentwise(update: Update, leaf: Tensor, given: tuple[Tensor, ...], factors: tuple[Any, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return an update of a leaf, a complex one taken for the pair of its real components, as torch.optim does.

    Args:
        update: Gives a new leaf and new moments of a leaf, its gradient and moments, and factors.
        leaf: The parameter.
        given: Its gradient and moments.
        factors: Numbers, or tensors over the batch shape.
    """
    if not leaf.is_complex():
        return update(leaf, given, factors)
    real = torch.view_as_real
    wide = tuple([factor[..., None] if isinstance(factor, Tensor) and factor.dim() else factor for factor in factors])
    new, after = update(real(leaf), tuple([real(tensor) for tensor in given]), wide)
    return torch.view_as_complex(new), tuple([torch.view_as_complex(moment) for moment in after])


def is_trained(leaf: Tensor) -> bool:
    """Say whether a leaf takes steps: integer and bool leaves pass through."""
    return leaf.is_floating_point() or leaf.is_complex()


def next_state(params: TensorDict, state: TensorDict, count: Tensor, columns: dict[str, list[Tensor]]) -> TensorDict:
    """Return the state with a new step count and new trees, given as their leaves in the order of the parameters."""
    if _state_structure(params, tuple(columns)) is state._structure:
        return state._rebuild((count, *[leaf for column in columns.values() for leaf in column]), state._structure)
    state = state.set("step", count)
    for name, column in columns.items():
        state = state.set(name, params._rebuild(tuple(column), params._structure))
    return state
