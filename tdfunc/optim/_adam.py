"""Adam and AdamW."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tdfunc.core import TensorDict

from ._base import LearningRate, Optimizer, Spread, check_number, init_state, is_trained, leaves_of, rate


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
        count = state["step"] + 1
        exact = count.to(torch.float64)
        size: Any = rate(lr, state["step"])
        step_size = Spread(size / (1 - beta1**exact))
        root = Spread((1 - beta2**exact).sqrt())
        keep = Spread(1 - size * weight_decay)
        columns = [leaves_of(params, state[name], "the state") for name in moments]
        gradients = leaves_of(params, grads, "the gradients")
        new: list[Tensor] = []
        moved: list[list[Tensor]] = [[] for _ in moments]
        for leaf, g, rank, *old in zip(params._leaves, gradients, params.structure.ranks(), *columns, strict=True):
            if not is_trained(leaf):
                new.append(leaf)
                now = old
            else:
                if maximize:
                    g = -g
                if weight_decay and decoupled:
                    leaf = leaf * keep.at(leaf, rank)
                elif weight_decay:
                    g = g.add(leaf, alpha=weight_decay)
                mean = old[0].lerp(g, 1 - beta1)
                square = (old[1] * beta2).addcmul(g, g.conj(), value=1 - beta2)
                now = [mean, square]
                if amsgrad:
                    square = torch.maximum(old[2], square)
                    now.append(square)
                denominator = square.sqrt() / root.at(leaf, rank) + eps
                new.append(leaf - step_size.at(leaf, rank) * (mean / denominator))
            for column, value in zip(moved, now, strict=True):
                column.append(value)
        stepped = state.set("step", count)
        for name, column in zip(moments, moved, strict=True):
            stepped = stepped.set(name, params._rebuild(tuple(column), params.structure))
        return params._rebuild(tuple(new), params.structure), stepped

    return Optimizer(init, step)
