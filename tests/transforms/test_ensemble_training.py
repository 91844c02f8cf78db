"""An ensemble trained as one mapped step is the members trained one by one with torch.optim: same seeds, same data order."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tdfunc import bind, buffers_of, optim, params_of, stack, value_and_grad, vmap

MEMBERS, STEPS, ROWS = 8, 50, 16
OPTIMIZERS = {
    "sgd": (lambda p: torch.optim.SGD(p, 0.05, momentum=0.9), lambda: optim.sgd(0.05, momentum=0.9)),
    "adam": (lambda p: torch.optim.Adam(p, 1e-3), lambda: optim.adam(1e-3)),
}


def make(seed, norm, dropout, dtype):  # no bias before a norm: its gradient is rounding, which Adam would make steps of
    torch.manual_seed(seed)
    parts = [
        nn.Linear(6, 12, bias=not norm),
        *([nn.BatchNorm1d(12)] if norm else []),
        nn.Tanh(),
        *([nn.Dropout(0.3)] if dropout else []),
        nn.Linear(12, 4),
    ]
    return nn.Sequential(*parts).to(dtype)


def batches(dtype):
    """Return for each step a batch for each member, in an order of its own."""
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(64, 6, generator=generator, dtype=torch.float64).to(dtype)
    y = torch.randint(0, 4, (64,), generator=generator)
    order = torch.stack([torch.randint(0, 64, (MEMBERS, ROWS), generator=generator) for _ in range(STEPS)])
    return x[order], y[order]


def one_by_one(members, make_optimizer, x, y):
    optimizers = [make_optimizer(member.parameters()) for member in members]
    for t in range(STEPS):
        for i, (member, optimizer) in enumerate(zip(members, optimizers, strict=True)):
            optimizer.zero_grad()
            cross_entropy(member(x[t, i]), y[t, i]).backward()
            optimizer.step()
    return stack([params_of(m) for m in members]), stack([buffers_of(m) for m in members])


def step_of(module, opt):
    def loss(params, buffers, x, y):
        bound = bind(module, params, buffers)
        return cross_entropy(bound(x), y), buffers_of(bound)

    def step(params, buffers, state, x, y):
        (values, buffers), grads = vmap(value_and_grad(loss, has_aux=True), randomness="different")(params, buffers, x, y)
        params, state = opt.step(params, grads, state)
        return params, buffers, state, values

    return step


def at_once(members, opt, x, y, compiled):
    step = step_of(members[0], opt)
    if compiled:
        step = torch.compile(step, fullgraph=True, backend="aot_eager")
    params, buffers = stack([params_of(m) for m in members]), stack([buffers_of(m) for m in members])
    state = opt.init(params)
    for t in range(STEPS):
        params, buffers, state, _ = step(params, buffers, state, x[t], y[t])
    return params, buffers


@pytest.mark.parametrize(
    ("dtype", "tolerance", "compiled"),
    [(torch.float32, 1e-5, False), (torch.float64, 1e-10, False), (torch.float64, 1e-10, True)],
    ids=["float32", "float64", "compiled"],
)
@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch_norm"])
@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_the_members_are_those_of_a_loop(rule, norm, dtype, tolerance, compiled):
    members = [make(i, norm, False, dtype) for i in range(MEMBERS)]
    x, y = batches(dtype)
    got = at_once(copy.deepcopy(members), OPTIMIZERS[rule][1](), x, y, compiled)
    expected = one_by_one(members, OPTIMIZERS[rule][0], x, y)
    for a, b in zip(got, expected, strict=True):
        for leaf, other in zip(a._leaves, b._leaves, strict=True):
            assert (leaf - other).abs().max() <= tolerance


def test_with_dropout_each_member_has_masks_of_its_own_and_the_mean_is_that_of_eval():
    member = nn.Sequential(nn.Dropout(0.3)).double()
    x = torch.ones(MEMBERS, 20_000, dtype=torch.float64)
    out = vmap(lambda p, x: bind(member, p)(x), in_dims=(None, 0), randomness="different")(params_of(member), x)
    kept = (out != 0).double()
    assert ((kept.mean(1) - 0.7).abs() < 0.02).all()
    assert ((out.mean(1) - 1).abs() < 0.03).all()
    together = kept @ kept.T / kept.shape[1]  # how often two members keep the same place
    assert (together[~torch.eye(MEMBERS, dtype=torch.bool)] - 0.49).abs().max() < 0.02


def test_training_with_dropout_goes_down_in_all_members():
    members = [make(i, True, True, torch.float64) for i in range(MEMBERS)]
    opt = optim.adam(1e-2)
    step, (x, y) = step_of(members[0], opt), batches(torch.float64)
    params, buffers = stack([params_of(m) for m in members]), stack([buffers_of(m) for m in members])
    state, values = opt.init(params), []
    for t in range(STEPS):
        params, buffers, state, value = step(params, buffers, state, x[t], y[t])
        values.append(value)
    values = torch.stack(values)
    assert (values[-10:].mean(0) < values[:10].mean(0)).all()
    assert buffers["1", "num_batches_tracked"].tolist() == [STEPS] * MEMBERS
