"""Lookahead: slow weights behind fast ones."""

from __future__ import annotations

from tdfunc.core import TensorDict

from ._base import Optimizer, check_number, count_of, init_state, is_trained
from ._members import check_count, either


def lookahead(opt: Optimizer, every: int = 6, rate: float = 0.5) -> Optimizer:
    r"""Go back, after some steps of an optimizer, part of the way to where they began.

    .. math::
        \phi \leftarrow \phi + \alpha (\theta - \phi), \qquad \theta \leftarrow \phi

    after each `every` steps of `opt` on the fast weights :math:`\theta`, with `rate` :math:`\alpha`.

    Args:
        opt: The optimizer of the fast weights.
        every: How many steps it takes in between.
        rate: How far the slow weights go, from 0 to 1.

    Returns:
        An `Optimizer` whose state has `step`, the slow weights under `slow`, and `opt`'s state, which goes on, under `inner`.

    Raises:
        StructureError: If a number is out of range.

    References:
        Zhang, Lucas, Hinton, Ba: Lookahead Optimizer: k steps forward, 1 step back. NeurIPS 2019.
        https://arxiv.org/abs/1907.08610

    Example:
        >>> import torch, tdfunc
        >>> opt = tdfunc.optim.lookahead(tdfunc.optim.sgd(1.0), every=2)
        >>> params = tdfunc.TensorDict(w=torch.zeros(1))
        >>> state, grads = opt.init(params), tdfunc.TensorDict(w=torch.ones(1))
        >>> for _ in range(2):
        ...     params, state = opt.step(params, grads, state)
        >>> params["w"]
        tensor([-1.])
    """
    check_count("every", every)
    check_number("rate", rate, high=1.0 + 1e-12)

    def init(params: TensorDict) -> TensorDict:
        return init_state(params).set("slow", params.clone()).set("inner", opt.init(params))

    def step(params: TensorDict, grads: TensorDict, state: TensorDict) -> tuple[TensorDict, TensorDict]:
        count, slow = count_of(params, grads, state) + 1, state["slow"]
        due = count % every == 0
        fast, inner = opt.step(params, grads, state["inner"])
        pairs = zip(slow._leaves, fast._leaves, strict=True)
        back = slow._rebuild(tuple([a + rate * (b - a) if is_trained(a) else a for a, b in pairs]), slow._structure)
        at = fast._rebuild(tuple([a if is_trained(a) else b for a, b in zip(back._leaves, fast._leaves, strict=True)]), fast._structure)
        return either(due, at, fast), state.set("step", count).set("slow", either(due, back, slow)).set("inner", inner)

    return Optimizer(init, step)
