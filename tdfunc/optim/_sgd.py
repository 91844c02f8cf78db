"""Stochastic gradient descent."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tdfunc._errors import StructureError, describe
from tdfunc.core import TensorDict

from ._base import LearningRate, Optimizer, check_number, count_of, gradients_of, init_state, is_trained, next_state, rate, spread, state_leaves


def sgd(
    lr: LearningRate = 1e-3,
    *,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    maximize: bool = False,
) -> Optimizer:
    r"""Stochastic gradient descent, with momentum if asked; the rule of `torch.optim.SGD`.

    .. math::
        b_t = \mu b_{t-1} + (1 - \tau) g_t, \qquad \theta_t = \theta_{t-1} - \gamma b_t

    with `lr` :math:`\gamma`, `momentum` :math:`\mu`, `dampening` :math:`\tau`, and :math:`b_1 = g_1`. With `nesterov`,
    :math:`g_t + \mu b_t` takes the place of :math:`b_t` in the step.

    Args:
        lr: A number, a tensor of shape `()` or of the parameters' batch size, or a function of the step count.
        momentum: The share of the last step that is kept.
        dampening: How much of the gradient is left out of the momentum.
        weight_decay: The factor of an L2 penalty, added to the gradient.
        nesterov: Look ahead by the momentum; needs momentum and no dampening.
        maximize: Go uphill.

    Returns:
        An `Optimizer` whose state has `step`, and `momentum_buffer` with momentum.

    Raises:
        StructureError: If a number is out of range, or nesterov comes without momentum or with dampening.

    References:
        Sutskever, Martens, Dahl, Hinton: On the importance of initialization and momentum in deep learning. ICML 2013.

    Example:
        >>> import torch, tdfunc
        >>> opt = tdfunc.optim.sgd(0.1, momentum=0.9)
        >>> sorted(opt.init(tdfunc.TensorDict(w=torch.ones(2))))
        ['momentum_buffer', 'step']
    """
    check_number("lr", lr)
    check_number("momentum", momentum)
    check_number("dampening", dampening, low=-math.inf)
    check_number("weight_decay", weight_decay)
    if nesterov and (momentum <= 0 or dampening != 0):
        raise StructureError(describe("optim: nesterov needs momentum and no dampening", fix="sgd(lr, momentum=0.9, nesterov=True)"))

    def init(params: TensorDict) -> TensorDict:
        return init_state(params, *(["momentum_buffer"] if momentum else []))

    def step(params: TensorDict, grads: TensorDict, state: TensorDict) -> tuple[TensorDict, TensorDict]:
        count = count_of(params, grads, state)
        sizes = spread(rate(lr, count), params)
        # The first step takes the whole gradient; float64, as all factors are.
        shares = spread(1 - dampening * (count > 0).to(torch.float64) if momentum and dampening else 1.0, params)
        gradients = gradients_of(params, grads)
        old = state_leaves(params, state, "momentum_buffer")[0] if momentum else gradients
        new: list[Tensor] = []
        buffers: list[Tensor] = []
        for leaf, g, size, share, before in zip(params._leaves, gradients, sizes, shares, old, strict=True):
            if not is_trained(leaf):
                new.append(leaf)
                buffers.append(before)
                continue
            g = -g if maximize else g
            if weight_decay:
                g = g.add(leaf, alpha=weight_decay)
            if momentum:
                buffers.append(before * momentum + (g * share if dampening else g))
                g = g.add(buffers[-1], alpha=momentum) if nesterov else buffers[-1]
            new.append(leaf - size * g)
        columns = {"momentum_buffer": buffers} if momentum else {}
        return params._rebuild(tuple(new), params.structure), next_state(params, state, count + 1, columns)

    return Optimizer(init, step)
