"""RMSprop."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ._base import LearningRate, Optimizer, check_number
from ._rule import penalised, rule


def rmsprop(
    lr: LearningRate = 1e-2,
    alpha: float = 0.99,
    eps: float = 1e-8,
    *,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    centered: bool = False,
    maximize: bool = False,
) -> Optimizer:
    r"""RMSprop; the rule of `torch.optim.RMSprop`.

    .. math::
        v_t = \alpha v_{t-1} + (1 - \alpha) g_t^2, \qquad \theta_t = \theta_{t-1} - \gamma \frac{g_t}{\sqrt{v_t} + \epsilon}

    With `centered`, the square of the mean gradient is taken off :math:`v_t`; with `momentum`, a running sum of the
    quotients takes their place.

    Args:
        lr: The step size :math:`\gamma`: a number, a tensor of shape `()` or of the parameters' batch size, or a function of
            the step count.
        alpha: The decay rate of the mean square.
        eps: Added to the denominator.
        weight_decay: The factor of an L2 penalty, added to the gradient.
        momentum: The share of the last step that is kept.
        centered: Normalise by the variance.
        maximize: Go uphill.

    Returns:
        An `Optimizer` whose state has `step` and `square_avg`, `grad_avg` with `centered`, `momentum_buffer` with momentum.

    Raises:
        StructureError: If a number is out of range.

    References:
        Tieleman, Hinton: Lecture 6.5, RMSprop. Neural Networks for Machine Learning, 2012. Graves: Generating Sequences
        With Recurrent Neural Networks. 2013. https://arxiv.org/abs/1308.0850

    Example:
        >>> import torch, tdfunc
        >>> opt = tdfunc.optim.rmsprop(0.01)
        >>> params = tdfunc.TensorDict(w=torch.ones(2))
        >>> opt.step(params, params, opt.init(params))[0]["w"]
        tensor([0.9000, 0.9000])
    """
    check_number("lr", lr)
    check_number("alpha", alpha, high=1.0)
    check_number("eps", eps)
    check_number("weight_decay", weight_decay)
    check_number("momentum", momentum)
    moments = ("square_avg", *(["grad_avg"] if centered else []), *(["momentum_buffer"] if momentum else []))

    def update(leaf: Tensor, given: tuple[Tensor, ...], factors: tuple[Any, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        g, square, *rest = given
        g = penalised(leaf, g, weight_decay, maximize)
        square = (square * alpha).addcmul(g, g, value=1 - alpha)
        after = [square]
        variance = square
        if centered:
            after.append(rest.pop(0).lerp(g, 1 - alpha))
            variance = square.addcmul(after[-1], after[-1], value=-1)
        move = g / (variance.sqrt() + eps)
        if momentum:
            move = rest.pop(0) * momentum + move
            after.append(move)
        return leaf - factors[0] * move, tuple(after)

    return rule(lr, moments, lambda size, _count: (size,), update)
