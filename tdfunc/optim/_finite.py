"""Steps that are skipped: where gradients are not finite, and with a loss scale that learns from it."""

from __future__ import annotations

import torch
from torch import Tensor

from tdfunc.core import TensorDict

from ._base import Optimizer, check_number, count_of, init_state, is_trained
from ._members import check_count, either, finite, like_params, single, wide


def apply_if_finite(opt: Optimizer) -> Optimizer:
    """Skip a step whose gradients are not all finite: parameters and state stay as they are.

    Args:
        opt: The optimizer.

    Returns:
        An `Optimizer` whose state has `step`, the number of calls, `skipped`, the number of those that were skipped, and
        `opt`'s state under `inner`.

    Shapes:
        Of parameters with a batch size, as an ensemble has, each member is judged by itself.

    Example:
        >>> import torch, tdfunc
        >>> opt = tdfunc.optim.apply_if_finite(tdfunc.optim.sgd(1.0))
        >>> params = tdfunc.TensorDict(w=torch.ones(1))
        >>> params, state = opt.step(params, params / 0, opt.init(params))
        >>> params["w"], state["skipped"]
        (tensor([1.]), tensor(1))
    """

    def init(params: TensorDict) -> TensorDict:
        state = init_state(params)
        return state.set("skipped", torch.zeros_like(state["step"])).set("inner", opt.init(params))

    def step(params: TensorDict, grads: TensorDict, state: TensorDict) -> tuple[TensorDict, TensorDict]:
        count = count_of(params, grads, state)
        grads = like_params(params, grads)
        good = finite(params, grads)
        after, inner = opt.step(params, grads, state["inner"])
        inner = either(good, inner, state["inner"])
        skipped = state["skipped"] + good.logical_not()
        return either(good, after, params), state.set("step", count + 1).set("skipped", skipped).set("inner", inner)

    return Optimizer(init, step)


def loss_scale(
    opt: Optimizer, initial: float = 2.0**16, *, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000
) -> Optimizer:
    """Take gradients of a scaled loss, for float16: unscale them, skip what overflowed, and move the scale.

    The rule is that of `torch.amp.GradScaler`: a step with a gradient that is not finite is skipped and the scale
    multiplied by `backoff_factor`; after `growth_interval` good steps in a row it is multiplied by `growth_factor`.

    Args:
        opt: The optimizer. Clipping goes inside, where gradients are unscaled: `loss_scale(chain(clip, adamw()))`.
        initial: The scale at the start.
        growth_factor: Greater than 1.
        backoff_factor: Between 0 and 1.
        growth_interval: How many good steps in a row let the scale grow.

    Returns:
        An `Optimizer` whose state has `step`, the number of calls, `scale`, a float32, `good`, the good steps since the
        scale moved, and `opt`'s state under `inner`. The gradients are to be those of `loss * state["scale"]`.

    Raises:
        StructureError: If a number is out of range.

    Shapes:
        Of parameters with a batch size, as an ensemble has, each member has a scale of its own.

    Note:
        Keep the parameters in float32 and cast inside the loss, `bind(model, params.half())`: the gradients are float32
        then. Unscaled gradients of float16 parameters are float16 again, and may underflow.

    Example:
        >>> import torch, tdfunc
        >>> opt = tdfunc.optim.loss_scale(tdfunc.optim.sgd(0.1), 1024.0)
        >>> params = tdfunc.TensorDict(w=torch.ones(2))
        >>> state = opt.init(params)
        >>> grads = tdfunc.grad(lambda p: p["w"].half().sum() * state["scale"])(params)
        >>> opt.step(params, grads, state)[0]["w"]
        tensor([0.9000, 0.9000])
    """
    check_number("initial", initial)
    check_number("growth_factor", growth_factor, low=1.0)
    check_number("backoff_factor", backoff_factor, high=1.0)
    check_count("growth_interval", growth_interval)

    def init(params: TensorDict) -> TensorDict:
        state = init_state(params)
        count = state["step"]
        state = state.set("scale", torch.full_like(count, initial, dtype=torch.float32)).set("good", torch.zeros_like(count))
        return state.set("inner", opt.init(params))

    def moved(scale: Tensor, good: Tensor, fine: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next scale and the next number of good steps."""
        good = torch.where(fine, good + 1, 0)
        grows = good == growth_interval
        grown = scale * growth_factor
        scale = torch.where(fine, torch.where(grows & grown.isfinite(), grown, scale), scale * backoff_factor)
        return scale, torch.where(grows, 0, good)

    def step(params: TensorDict, grads: TensorDict, state: TensorDict) -> tuple[TensorDict, TensorDict]:
        count, scale = count_of(params, grads, state), state["scale"]
        grads = like_params(params, grads)
        fine = finite(params, grads)
        after, inner = opt.step(params, _unscaled(grads, scale), state["inner"])
        inner = either(fine, inner, state["inner"])
        scale, good = moved(scale, state["good"], fine)
        state = state.set("step", count + 1).set("scale", scale).set("good", good).set("inner", inner)
        return either(fine, after, params), state

    return Optimizer(init, step)


def _unscaled(grads: TensorDict, scale: Tensor) -> TensorDict:
    """Return the gradients divided by the scale, in no less than float32: the reciprocal of a scale may underflow in float16."""
    factor = scale.to(torch.float64).reciprocal().to(torch.float32)
    leaves = [(single(g) * wide(factor, g)).to(g.dtype) if is_trained(g) else g for g in grads._leaves]
    return grads._rebuild(tuple(leaves), grads._structure)
