"""Adam and AdamW."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tdfunc.core import TensorDict

from ._base import (
    LearningRate,
    Optimizer,
    check_number,
    componentwise,
    count_of,
    gradients_of,
    init_state,
    is_trained,
    next_state,
    rate,
    spread,
    state_leaves,
)


def adam(
    lr: LearningRate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    *,
    weight_decay: float = 0.0,
    amsgrad: bool = False,
    maximize: bool = False,
) -> Optimizer:
    r"""Adam; the rule of `torch.optim.Adam`.

    .. math::
        m_t = \beta_1 m_{t-1} + (1 - \beta_1) g_t, \qquad v_t = \beta_2 v_{t-1} + (1 - \beta_2) g_t^2, \qquad
        \theta_t = \theta_{t-1} - \gamma \frac{m_t / (1 - \beta_1^t)}{\sqrt{v_t / (1 - \beta_2^t)} + \epsilon}

    Args:
        lr: The step size :math:`\gamma`: a number, a tensor of shape `()` or of the parameters' batch size (a rate per
            member), or a function of the step count. A tensor or a function never recompiles a step.
        betas: The decay rates :math:`\beta_1, \beta_2` of the two moments.
        eps: Added to the denominator.
        weight_decay: The factor of an L2 penalty, added to the gradient.
        amsgrad: Use the largest second moment so far.
        maximize: Go uphill.

    Returns:
        An `Optimizer` whose state has `step`, `exp_avg` and `exp_avg_sq`, and `max_exp_avg_sq` with amsgrad.

    Raises:
        StructureError: If a number is out of range.

    Note:
        The step count is an int64 and the bias corrections are float64, whatever the parameters' dtype: a float32 count
        would cost the exactness that float64 parameters are used for.

    References:
        Kingma, Ba: Adam: A Method for Stochastic Optimization. ICLR 2015. https://arxiv.org/abs/1412.6980
        Reddi, Kale, Kumar: On the Convergence of Adam and Beyond. ICLR 2018. https://arxiv.org/abs/1904.09237

    Example:
        >>> import torch, tdfunc
        >>> opt = tdfunc.optim.adam(0.1)
        >>> params = tdfunc.TensorDict(w=torch.ones(2))
        >>> params, state = opt.step(params, params, opt.init(params))
        >>> params["w"], state["step"]
        (tensor([0.9000, 0.9000]), tensor(1))
    """
    return _adam(lr, betas, eps, weight_decay, False, amsgrad, maximize)


def adamw(
    lr: LearningRate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    *,
    weight_decay: float = 1e-2,
    amsgrad: bool = False,
    maximize: bool = False,
) -> Optimizer:
    r"""Adam with decoupled weight decay; the rule of `torch.optim.AdamW`.

    As `adam`, but the decay is no part of the gradient: before the step, :math:`\theta` is multiplied by
    :math:`1 - \gamma \lambda`.

    Args:
        lr: As in `adam`.
        betas: As in `adam`.
        eps: As in `adam`.
        weight_decay: The decay :math:`\lambda`.
        amsgrad: As in `adam`.
        maximize: As in `adam`.

    Returns:
        An `Optimizer` with the state of `adam`.

    Raises:
        StructureError: If a number is out of range.

    References:
        Loshchilov, Hutter: Decoupled Weight Decay Regularization. ICLR 2019. https://arxiv.org/abs/1711.05101

    Example:
        >>> import torch, tdfunc
        >>> opt = tdfunc.optim.adamw(0.1, weight_decay=0.5)
        >>> params = tdfunc.TensorDict(w=torch.ones(2))
        >>> opt.step(params, params.zeros_like(), opt.init(params))[0]["w"]
        tensor([0.9500, 0.9500])
    """
    return _adam(lr, betas, eps, weight_decay, True, amsgrad, maximize)


def _adam(
    lr: LearningRate,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    decoupled: bool,
    amsgrad: bool,
    maximize: bool,
) -> Optimizer:
    check_number("lr", lr)
    check_number("betas[0]", betas[0], high=1.0)
    check_number("betas[1]", betas[1], high=1.0)
    check_number("eps", eps)
    check_number("weight_decay", weight_decay)
    beta1, beta2 = betas
    moments = ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if amsgrad else []))

    def init(params: TensorDict) -> TensorDict:
        return init_state(params, *moments)

    def step(params: TensorDict, grads: TensorDict, state: TensorDict) -> tuple[TensorDict, TensorDict]:
        before = count_of(params, grads, state)
        count, size = before + 1, rate(lr, before)
        sizes = spread(size / _correction(beta1, count), params)
        roots = spread(_correction(beta2, count).sqrt(), params)
        keeps = spread(1 - size * weight_decay, params) if decoupled else sizes
        old = zip(*state_leaves(params, state, *moments), strict=True)
        gradients = gradients_of(params, grads)
        new: list[Tensor] = []
        columns: dict[str, list[Tensor]] = {name: [] for name in moments}
        for leaf, g, factors, before in zip(params._leaves, gradients, zip(sizes, roots, keeps, strict=True), old, strict=True):
            if is_trained(leaf):
                moved, after = componentwise(update, leaf, (g, *before), factors)
            else:
                moved, after = leaf, before
            new.append(moved)
            for column, moment in zip(columns.values(), after, strict=True):
                column.append(moment)
        return params._rebuild(tuple(new), params.structure), next_state(params, state, count, columns)

    def update(leaf: Tensor, given: tuple[Tensor, ...], factors: tuple[Any, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return a leaf and its moments after a gradient."""
        g, mean, square, *largest = given
        step_size, root, keep = factors
        g = -g if maximize else g
        if weight_decay and not decoupled:
            g = g.add(leaf, alpha=weight_decay)
        mean = mean.lerp(g, 1 - beta1)
        square = (square * beta2).addcmul(g, g, value=1 - beta2)
        after = (mean, square, torch.maximum(largest[0], square)) if largest else (mean, square)
        denominator = after[-1].sqrt() / root + eps
        start = leaf * keep if weight_decay and decoupled else leaf
        return start - step_size * (mean / denominator), after

    return Optimizer(init, step)


def _correction(beta: float, count: Tensor) -> Tensor:
    r"""Return :math:`1 - \beta^t` in float64.

    By `exp` rather than `pow`: inductor makes a small tensor of its own of an `exp` that several kernels need, where it
    would compute a `pow` again for every element of every parameter.
    """
    if beta == 0.0:
        return torch.ones_like(count, dtype=torch.float64)
    return 1 - torch.exp(count.to(torch.float64) * math.log(beta))
