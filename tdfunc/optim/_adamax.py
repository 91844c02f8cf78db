"""Adamax and RAdam."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._base import LearningRate, Optimizer, check_number
from ._rule import penalised, power, rule


def adamax(
    lr: LearningRate = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, *, weight_decay: float = 0.0, maximize: bool = False
) -> Optimizer:
    r"""Adamax, Adam with the maximum norm; the rule of `torch.optim.Adamax`.

    .. math::
        m_t = \beta_1 m_{t-1} + (1 - \beta_1) g_t, \qquad u_t = \max(\beta_2 u_{t-1}, |g_t| + \epsilon), \qquad
        \theta_t = \theta_{t-1} - \frac{\gamma}{1 - \beta_1^t} \frac{m_t}{u_t}

    Args:
        lr: The step size :math:`\gamma`: a number, a tensor of shape `()` or of the parameters' batch size, or a function of
            the step count.
        betas: The decay rates of the mean and of the norm.
        eps: Added to the norm.
        weight_decay: The factor of an L2 penalty, added to the gradient.
        maximize: Go uphill.

    Returns:
        An `Optimizer` whose state has `step`, `exp_avg` and `exp_inf`.

    Raises:
        StructureError: If a number is out of range.

    References:
        Kingma, Ba: Adam: A Method for Stochastic Optimization. ICLR 2015. https://arxiv.org/abs/1412.6980

    Example:
        >>> import torch, tdfunc
        >>> opt = tdfunc.optim.adamax(0.1)
        >>> params = tdfunc.TensorDict(w=torch.ones(2))
        >>> opt.step(params, params, opt.init(params))[0]["w"]
        tensor([0.9000, 0.9000])
    """
    beta1, beta2 = _checked(lr, betas, eps, weight_decay)

    def update(leaf: Tensor, given: tuple[Tensor, ...], factors: tuple[Any, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        g, mean, norm = given
        g = penalised(leaf, g, weight_decay, maximize)
        mean, norm = mean.lerp(g, 1 - beta1), torch.maximum(norm * beta2, g.abs() + eps)
        return leaf - factors[0] * (mean / norm), (mean, norm)

    return rule(lr, ("exp_avg", "exp_inf"), lambda size, count: (size / (1 - power(beta1, count)),), update)


def radam(
    lr: LearningRate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    *,
    weight_decay: float = 0.0,
    decoupled_weight_decay: bool = False,
    maximize: bool = False,
) -> Optimizer:
    r"""Rectified Adam; the rule of `torch.optim.RAdam`.

    As `adam`, but the variance is used from where its estimate has one: with
    :math:`\rho_\infty = 2 / (1 - \beta_2) - 1` and :math:`\rho_t = \rho_\infty - 2 t \beta_2^t / (1 - \beta_2^t)`,

    .. math::
        \theta_t = \theta_{t-1} - \gamma \hat m_t r_t \frac{\sqrt{1 - \beta_2^t}}{\sqrt{v_t} + \epsilon}
        \text{ if } \rho_t > 5 \text{, else } \theta_{t-1} - \gamma \hat m_t, \qquad
        r_t = \sqrt{\frac{(\rho_t - 4)(\rho_t - 2) \rho_\infty}{(\rho_\infty - 4)(\rho_\infty - 2) \rho_t}}

    Args:
        lr: The step size :math:`\gamma`: a number, a tensor of shape `()` or of the parameters' batch size, or a function of
            the step count.
        betas: The decay rates of the two moments.
        eps: Added to the denominator.
        weight_decay: The factor of an L2 penalty, added to the gradient; with `decoupled_weight_decay` that of AdamW.
        decoupled_weight_decay: Shrink the parameters instead.
        maximize: Go uphill.

    Returns:
        An `Optimizer` with the state of `adam`.

    Raises:
        StructureError: If a number is out of range.

    References:
        Liu, Jiang, He, Chen, Liu, Gao, Han: On the Variance of the Adaptive Learning Rate and Beyond. ICLR 2020.
        https://arxiv.org/abs/1908.03265

    Example:
        >>> import torch, tdfunc
        >>> opt = tdfunc.optim.radam(0.1)
        >>> params = tdfunc.TensorDict(w=torch.ones(2))
        >>> opt.step(params, params, opt.init(params))[0]["w"]
        tensor([0.9000, 0.9000])
    """
    beta1, beta2 = _checked(lr, betas, eps, weight_decay)
    longest = 2 / (1 - beta2) - 1

    def factors(size: Any, count: Tensor) -> tuple[Any, ...]:
        squared = power(beta2, count)
        length = longest - 2 * count * squared / (1 - squared)
        rectified = length > 5
        seen = torch.where(rectified, length, torch.full_like(length, 6.0))  # no root of a negative number where none is taken
        scale = ((seen - 4) * (seen - 2) * longest / ((longest - 4) * (longest - 2) * seen)).sqrt() * (1 - squared).sqrt()
        return size / (1 - power(beta1, count)), rectified.to(torch.float64), scale, 1 - size * weight_decay

    def update(leaf: Tensor, given: tuple[Tensor, ...], factors: tuple[Any, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        g, mean, square = given
        step_size, rectified, scale, keep = factors
        g = penalised(leaf, g, 0.0 if decoupled_weight_decay else weight_decay, maximize)
        mean, square = mean.lerp(g, 1 - beta1), (square * beta2).addcmul(g, g, value=1 - beta2)
        adapted = torch.where(rectified > 0, scale / (square.sqrt() + eps), torch.ones_like(square))
        start = leaf * keep if weight_decay and decoupled_weight_decay else leaf
        return start - step_size * (mean * adapted), (mean, square)

    return rule(lr, ("exp_avg", "exp_avg_sq"), factors, update)


def _checked(lr: LearningRate, betas: tuple[float, float], eps: float, weight_decay: float) -> tuple[float, float]:
    check_number("lr", lr)
    check_number("betas[0]", betas[0], high=1.0)
    check_number("betas[1]", betas[1], high=1.0)
    check_number("eps", eps)
    check_number("weight_decay", weight_decay)
    return betas
