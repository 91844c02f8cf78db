"""Transforms of gradients, and what comes of several of them before an optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, overload

from tdfunc._errors import StructureError, describe
from tdfunc.core import TensorDict

from ._base import Optimizer, count_of, init_state


class GradientTransform(NamedTuple):
    """A pair of pure functions that change gradients before an optimizer sees them.

    `init(params)` gives a state, a TensorDict, or is None for a transform that needs none; `update(grads, state, params)`
    gives the new gradients and the new state. The form is that of optax.

    Example:
        >>> import torch, tdfunc
        >>> sign = tdfunc.optim.GradientTransform(None, lambda grads, state, params: (grads.sign(), state))
        >>> opt = tdfunc.optim.chain(sign, tdfunc.optim.sgd(0.5))
        >>> params = tdfunc.TensorDict(w=torch.ones(2))
        >>> opt.step(params, params * 7, opt.init(params))[0]["w"]
        tensor([0.5000, 0.5000])
    """

    init: Callable[[TensorDict], TensorDict] | None
    update: Callable[[TensorDict, TensorDict, TensorDict], tuple[TensorDict, TensorDict]]


def stateless(fn: Callable[[TensorDict, TensorDict], TensorDict]) -> GradientTransform:
    """Return the transform that gives `fn(grads, params)`.

    Args:
        fn: A pure function of gradients and parameters.

    Returns:
        A `GradientTransform` without a state.

    Example:
        >>> import torch, tdfunc
        >>> opt = tdfunc.optim.chain(tdfunc.optim.stateless(lambda grads, params: grads.sign()), tdfunc.optim.sgd(0.5))
        >>> params = tdfunc.TensorDict(w=torch.ones(2))
        >>> opt.step(params, params * 7, opt.init(params))[0]["w"]
        tensor([0.5000, 0.5000])
    """
    return GradientTransform(None, lambda grads, state, params: (fn(grads, params), state))


@overload
def chain(*parts: GradientTransform) -> GradientTransform: ...  # pyright: ignore[reportOverlappingOverload] - of no part, a transform
@overload
def chain(*parts: GradientTransform | Optimizer) -> Optimizer: ...
def chain(*parts: Any) -> Any:
    """Put gradient transforms before an optimizer, in this order.

    Args:
        *parts: Gradient transforms, then one optimizer. Without the optimizer the chain is a transform itself.

    Returns:
        An `Optimizer`. Where no transform has a state, its state is that of the optimizer. Else the state has `step`,
        `transforms` with the states by position, and the optimizer's under `inner`.

    Raises:
        StructureError: If a part is neither, or an optimizer does not come last.

    Example:
        >>> import torch, tdfunc
        >>> from tdfunc import optim
        >>> opt = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(optim.schedules.cosine(1e-3, 100)))
        >>> sorted(opt.init(tdfunc.TensorDict(w=torch.ones(2))))
        ['exp_avg', 'exp_avg_sq', 'step']
    """
    for i, part in enumerate(parts):
        if not isinstance(part, GradientTransform) and not (isinstance(part, Optimizer) and i == len(parts) - 1):
            raise _no_part(part, i, len(parts))
    if parts and isinstance(parts[-1], Optimizer):
        return _before(_all(parts[:-1]), parts[-1])
    return _all(parts)


def _no_part(part: Any, at: int, count: int) -> StructureError:
    return StructureError(
        describe(
            "chain: an optimizer comes last" if isinstance(part, Optimizer) else "chain: a part is no gradient transform",
            at=f"part {at} of {count}",
            expected="gradient transforms, then one optimizer",
            got=type(part).__name__,
            fix="chain(clip_by_global_norm(1.0), adamw(1e-3))",
        )
    )


def _all(transforms: tuple[GradientTransform, ...]) -> GradientTransform:
    """Return several transforms as one."""

    def init(params: TensorDict) -> TensorDict:
        states = {str(i): transform.init(params) for i, transform in enumerate(transforms) if transform.init is not None}
        return TensorDict(states, batch_size=tuple(params.batch_size))

    def update(grads: TensorDict, state: TensorDict, params: TensorDict) -> tuple[TensorDict, TensorDict]:
        for i, transform in enumerate(transforms):
            if transform.init is None:
                grads, _ = transform.update(grads, _NONE, params)
            else:
                grads, after = transform.update(grads, state[str(i)], params)
                state = state.set(str(i), after)
        return grads, state

    return GradientTransform(init if any(transform.init is not None for transform in transforms) else None, update)


_NONE = TensorDict()


def _before(transform: GradientTransform, opt: Optimizer) -> Optimizer:
    """Return an optimizer that takes the gradients that a transform gives."""
    start = transform.init

    def plain(params: TensorDict, grads: TensorDict, state: TensorDict) -> tuple[TensorDict, TensorDict]:
        count_of(params, grads, state)
        return opt.step(params, transform.update(grads, _NONE, params)[0], state)

    if start is None:
        return Optimizer(opt.init, plain)

    def init(params: TensorDict) -> TensorDict:
        return init_state(params).set("transforms", start(params)).set("inner", opt.init(params))

    def step(params: TensorDict, grads: TensorDict, state: TensorDict) -> tuple[TensorDict, TensorDict]:
        count = count_of(params, grads, state)
        grads, after = transform.update(grads, state["transforms"], params)
        params, inner = opt.step(params, grads, state["inner"])
        return params, state.set("step", count + 1).set("transforms", after).set("inner", inner)

    return Optimizer(init, step)
