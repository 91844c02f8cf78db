"""Adagrad and Adadelta."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._base import LearningRate, Optimizer, check_number
from ._rule import penalised, rule


def adagrad(
    lr: LearningRate = 1e-2,
    *,
    lr_decay: float = 0.0,
    weight_decay: float = 0.0,
    initial_accumulator_value: float = 0.0,
    eps: float = 1e-10,
    maximize: bool = False,
) -> Optimizer:
    r"""Adagrad; the rule of `torch.optim.Adagrad`.

    .. math::
        s_t = s_{t-1} + g_t^2, \qquad \theta_t = \theta_{t-1} - \frac{\gamma}{1 + (t - 1) \eta} \frac{g_t}{\sqrt{s_t} + \epsilon}

    Args:
        lr: The step size :math:`\gamma`: a number, a tensor of shape `()` or of the parameters' batch size, or a function of
            the step count.
        lr_decay: The decay :math:`\eta` of the step size.
        weight_decay: The factor of an L2 penalty, added to the gradient.
        initial_accumulator_value: The first :math:`s`.
        eps: Added to the denominator.
        maximize: Go uphill.

    Returns:
        An `Optimizer` whose state has `step` and `sum`.

    Raises:
        StructureError: If a number is out of range.

    References:
        Duchi, Hazan, Singer: Adaptive Subgradient Methods for Online Learning and Stochastic Optimization. JMLR 2011.

    Example:
        >>> import torch, tdfunc
        >>> opt = tdfunc.optim.adagrad(0.1)
        >>> params = tdfunc.TensorDict(w=torch.ones(2))
        >>> opt.step(params, params, opt.init(params))[0]["w"]
        tensor([0.9000, 0.9000])
    """
    names = ("lr_decay", "weight_decay", "initial_accumulator_value", "eps")
    check_number("lr", lr)
    for name, value in zip(names, (lr_decay, weight_decay, initial_accumulator_value, eps), strict=True):
        check_number(name, value)

    def update(leaf: Tensor, given: tuple[Tensor, ...], factors: tuple[Any, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        g, total = given
        g = penalised(leaf, g, weight_decay, maximize)
        total = total.addcmul(g, g)
        return leaf - factors[0] * (g / (total.sqrt() + eps)), (total,)

    def factors(size: Any, count: Tensor) -> tuple[Any, ...]:
        return (size / (1 + (count - 1).to(torch.float64) * lr_decay) if lr_decay else size,)

    return rule(lr, ("sum",), factors, update, starts=initial_accumulator_value)


def adadelta(lr: LearningRate = 1.0, rho: float = 0.9, eps: float = 1e-6, *, weight_decay: float = 0.0, maximize: bool = False) -> Optimizer:
    r"""Adadelta; the rule of `torch.optim.Adadelta`.

    .. math::
        v_t = \rho v_{t-1} + (1 - \rho) g_t^2, \qquad \Delta_t = \sqrt{\frac{u_{t-1} + \epsilon}{v_t + \epsilon}} g_t, \qquad
        u_t = \rho u_{t-1} + (1 - \rho) \Delta_t^2, \qquad \theta_t = \theta_{t-1} - \gamma \Delta_t

    Args:
        lr: The step size :math:`\gamma`: a number, a tensor of shape `()` or of the parameters' batch size, or a function of
            the step count.
        rho: The decay rate of both mean squares.
        eps: Added to both.
        weight_decay: The factor of an L2 penalty, added to the gradient.
        maximize: Go uphill.

    Returns:
        An `Optimizer` whose state has `step`, `square_avg` and `acc_delta`.

    Raises:
        StructureError: If a number is out of range.

    References:
        Zeiler: ADADELTA: An Adaptive Learning Rate Method. 2012. https://arxiv.org/abs/1212.5701

    Example:
        >>> import tdfunc
        >>> sorted(tdfunc.optim.adadelta().init(tdfunc.TensorDict(w=1.0)))
        ['acc_delta', 'square_avg', 'step']
    """
    check_number("lr", lr)
    check_number("rho", rho, high=1.0)
    check_number("eps", eps)
    check_number("weight_decay", weight_decay)

    def update(leaf: Tensor, given: tuple[Tensor, ...], factors: tuple[Any, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        g, square, moved = given
        g = penalised(leaf, g, weight_decay, maximize)
        square = (square * rho).addcmul(g, g, value=1 - rho)
        delta = (moved + eps).sqrt() / (square + eps).sqrt() * g
        return leaf - factors[0] * delta, (square, (moved * rho).addcmul(delta, delta, value=1 - rho))

    return rule(lr, ("square_avg", "acc_delta"), lambda size, _count: (size,), update)
