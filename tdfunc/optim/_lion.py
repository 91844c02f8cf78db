"""Lion."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ._base import LearningRate, Optimizer, check_number
from ._rule import rule


def lion(lr: LearningRate = 1e-4, betas: tuple[float, float] = (0.9, 0.99), *, weight_decay: float = 0.0, maximize: bool = False) -> Optimizer:
    r"""Lion: steps of one size, in the direction of the sign of a momentum.

    .. math::
        \theta_t = (1 - \gamma \lambda) \theta_{t-1} - \gamma \operatorname{sign}(\beta_1 m_{t-1} + (1 - \beta_1) g_t), \qquad
        m_t = \beta_2 m_{t-1} + (1 - \beta_2) g_t

    Args:
        lr: The step size :math:`\gamma`: a number, a tensor of shape `()` or of the parameters' batch size, or a function of
            the step count. The paper takes a third to a tenth of what AdamW would.
        betas: How much of the momentum is in a step, and how much of it is kept.
        weight_decay: The decay :math:`\lambda`.
        maximize: Go uphill.

    Returns:
        An `Optimizer` whose state has `step` and `exp_avg`.

    Raises:
        StructureError: If a number is out of range.

    References:
        Chen, Liang, Huang, Real, Wang et al.: Symbolic Discovery of Optimization Algorithms. NeurIPS 2023.
        https://arxiv.org/abs/2302.06675

    Example:
        >>> import torch, tdfunc
        >>> opt = tdfunc.optim.lion(0.1)
        >>> params = tdfunc.TensorDict(w=torch.tensor([1.0, -2.0]))
        >>> opt.step(params, params, opt.init(params))[0]["w"]
        tensor([ 0.9000, -1.9000])
    """
    check_number("lr", lr)
    check_number("betas[0]", betas[0], high=1.0)
    check_number("betas[1]", betas[1], high=1.0)
    check_number("weight_decay", weight_decay)
    beta1, beta2 = betas

    def update(leaf: Tensor, given: tuple[Tensor, ...], factors: tuple[Any, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        g, mean = given
        size, keep = factors
        g = -g if maximize else g
        start = leaf * keep if weight_decay else leaf
        return start - size * mean.lerp(g, 1 - beta1).sign(), (mean.lerp(g, 1 - beta2),)

    return rule(lr, ("exp_avg",), lambda size, _count: (size, 1 - size * weight_decay), update)
