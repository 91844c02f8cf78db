"""Weight decay as a part of the gradient."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tdfunc import ops
from tdfunc.core import TensorDict

from ._base import is_trained, spread
from ._members import check_factor, like_params
from ._transform import GradientTransform, stateless


def add_decayed_weights(weight_decay: float | Tensor, where: Any = None) -> GradientTransform:
    r"""Add :math:`\lambda \theta` to the gradients: an L2 penalty, as `weight_decay` of `torch.optim.SGD`.

    Args:
        weight_decay: The factor :math:`\lambda`: a number, or a tensor of shape `()` or of the parameters' batch size.
        where: Which leaves decay: a key, a pattern, several of them, or a predicate of `(path, leaf)`; None for all.

    Returns:
        A `GradientTransform` without a state.

    Raises:
        StructureError: If the number is out of range.
        KeyPathError: In a step, if a pattern names nothing.

    Example:
        >>> import torch, tdfunc
        >>> decay = tdfunc.optim.add_decayed_weights(0.1, where=("**", "weight"))
        >>> params = tdfunc.TensorDict({"net": {"weight": torch.ones(1), "bias": torch.ones(1)}})
        >>> decay.update(params * 0, tdfunc.TensorDict(), params)[0]["net"].to_dict()
        {'weight': tensor([0.1000]), 'bias': tensor([0.])}
    """
    check_factor("weight_decay", weight_decay)

    def decay(grads: TensorDict, params: TensorDict) -> TensorDict:
        grads = like_params(params, grads)
        hits = ops.chosen(params, where, "add_decayed_weights") if where is not None else (True,) * len(params._leaves)
        columns = zip(grads._leaves, params._leaves, spread(weight_decay, params), hits, strict=True)
        return grads._rebuild(tuple([g + factor * p if hit and is_trained(p) else g for g, p, factor, hit in columns]), grads._structure)

    return stateless(decay)
