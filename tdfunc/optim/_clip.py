"""Gradients kept small."""

from __future__ import annotations

import torch
from torch import Tensor

from tdfunc.core import TensorDict

from ._base import is_trained
from ._members import check_factor, like_params, norm, wide
from ._transform import GradientTransform, stateless


def clip_by_global_norm(max_norm: float | Tensor) -> GradientTransform:
    r"""Scale the gradients down so that their norm is at most `max_norm`; the rule of `torch.nn.utils.clip_grad_norm_`.

    .. math::
        g \min\left(1, \frac{c}{\lVert g \rVert_2 + 10^{-6}}\right)

    with `max_norm` :math:`c` and the norm over all leaves as one vector, a tied leaf counted once.

    Args:
        max_norm: A number, or a tensor of shape `()` or of the parameters' batch size.

    Returns:
        A `GradientTransform` without a state.

    Raises:
        StructureError: If the number is out of range.

    Shapes:
        Of parameters with a batch size, as an ensemble has, each member has a norm of its own.

    Note:
        A norm that is infinite or NaN leaves zeros and NaN, as torch's does: `apply_if_finite` around the chain skips such a step.

    Example:
        >>> import torch, tdfunc
        >>> opt = tdfunc.optim.chain(tdfunc.optim.clip_by_global_norm(5.0), tdfunc.optim.sgd(1.0))
        >>> params, grads = tdfunc.TensorDict(a=0.0, b=0.0), tdfunc.TensorDict(a=30.0, b=40.0)
        >>> opt.step(params, grads, opt.init(params))[0]["b"]
        tensor(-4.0000)
    """
    check_factor("max_norm", max_norm)

    def clip(grads: TensorDict, params: TensorDict) -> TensorDict:
        grads = like_params(params, grads)
        factor = (max_norm / (norm(params, grads) + 1e-6)).clamp(max=1.0)
        leaves = [g * wide(factor, g).to(g.real.dtype if g.is_complex() else g.dtype) if is_trained(g) else g for g in grads._leaves]
        return grads._rebuild(tuple(leaves), grads._structure)

    return stateless(clip)


def clip_by_value(limit: float | Tensor) -> GradientTransform:
    """Clip each element of the gradients to `[-limit, limit]`; the rule of `torch.nn.utils.clip_grad_value_`.

    Args:
        limit: A number, or a tensor of shape `()` or of the parameters' batch size.

    Returns:
        A `GradientTransform` without a state. Of complex gradients, the real and imaginary parts are clipped.

    Raises:
        StructureError: If the number is out of range.

    Example:
        >>> import torch, tdfunc
        >>> clip = tdfunc.optim.clip_by_value(0.5)
        >>> grads = tdfunc.TensorDict(w=torch.tensor([-3.0, 0.2]))
        >>> clip.update(grads, tdfunc.TensorDict(), grads)[0]["w"]
        tensor([-0.5000,  0.2000])
    """
    check_factor("limit", limit)

    def clip(grads: TensorDict, params: TensorDict) -> TensorDict:
        grads = like_params(params, grads)
        return grads._rebuild(tuple([_clamped(g, limit) if is_trained(g) else g for g in grads._leaves]), grads._structure)

    return stateless(clip)


def _clamped(g: Tensor, limit: float | Tensor) -> Tensor:
    if g.is_complex():
        return torch.complex(_clamped(g.real, limit), _clamped(g.imag, limit))
    if not isinstance(limit, Tensor):
        return g.clamp(-limit, limit)
    bound = wide(limit, g).to(g.dtype)
    return g.clamp(-bound, bound)
