"""The rules that torch.optim has take its steps, to the last digits of float64, whatever the options."""

from __future__ import annotations

import itertools

import pytest
import torch

from tdfunc import TensorDict, optim, stack

STEPS = 200


def grid(**options):
    """Return every combination of the options, the off value of each left out."""
    return [dict(pairs) for pairs in itertools.product(*[[(name, value) for value in values] for name, values in options.items()])]


SGD = [
    o
    for o in grid(momentum=(0.0, 0.9), dampening=(0.0, 0.3), nesterov=(False, True), weight_decay=(0.0, 0.1), maximize=(False, True))
    if not (o["nesterov"] and (o["momentum"] == 0 or o["dampening"]))
]
ADAM = grid(weight_decay=(0.0, 0.1), amsgrad=(False, True), maximize=(False, True), betas=((0.9, 0.999), (0.0, 0.5), (0.8, 0.5)), eps=(1e-8, 1e-2))
BOTH = {"weight_decay": (0.0, 0.1), "maximize": (False, True)}
BETAS = {"betas": ((0.9, 0.999), (0.8, 0.5)), "eps": (1e-8, 1e-2)}
OPTIONS = {
    "sgd": SGD,
    "adam": ADAM,
    "adamw": ADAM,
    "rmsprop": grid(alpha=(0.99, 0.5), momentum=(0.0, 0.9), centered=(False, True), **BOTH),
    "adagrad": grid(lr_decay=(0.0, 0.1), initial_accumulator_value=(0.0, 0.5), eps=(1e-10, 1e-2), **BOTH),
    "adadelta": grid(rho=(0.9, 0.5), eps=(1e-6, 1e-2), **BOTH),
    "adamax": grid(**BETAS, **BOTH),
    "radam": grid(decoupled_weight_decay=(False, True), **BETAS, **BOTH),
}
CASES = [(kind, o) for kind, options in OPTIONS.items() for o in options]
NAMES = {"sgd": "SGD", "adamw": "AdamW", "rmsprop": "RMSprop", "radam": "RAdam"}
TORCH = {kind: getattr(torch.optim, NAMES.get(kind, kind.title())) for kind in OPTIONS}


def tree(dtype=torch.float64):
    torch.manual_seed(0)
    return TensorDict({"w": torch.randn(3, 2, dtype=dtype), "deep": {"b": torch.randn(4, dtype=dtype), "s": torch.randn((), dtype=dtype)}})


def gradients(start, t):
    """A gradient that depends on the step alone (one that follows the parameters would blow up rounding), zero at some places."""
    return start.map(lambda p: (3 * p + 0.7 * t).sin() * (p.abs() > 0.3))


def run_torch(kind, params, steps=STEPS, lr=0.05, rate=None, **options):
    """Return the parameters after every step of the torch optimizer."""
    leaves = params.map(lambda p: p.clone()).requires_grad()
    opt = TORCH[kind](leaves._leaves, lr=lr, **options)
    for t in range(steps):
        if rate is not None:
            opt.param_groups[0]["lr"] = rate(t)
        for leaf, g in zip(leaves._leaves, gradients(params, t)._leaves, strict=True):
            leaf.grad = g
        opt.step()
    return leaves.detach()


def run(kind, params, steps=STEPS, lr=0.05, **options):
    opt, start = getattr(optim, kind)(lr, **options), params
    state = opt.init(params)
    for t in range(steps):
        params, state = opt.step(params, gradients(start, t), state)
    assert (state["step"] == steps).all()
    return params


def assert_near(got, expected, tolerance=1e-9):
    assert got.structure is expected.structure
    for a, b in zip(got._leaves, expected._leaves, strict=True):
        assert a.dtype is b.dtype
        assert (a - b).abs().max() <= tolerance


@pytest.mark.parametrize(("kind", "options"), CASES, ids=[f"{kind}-{'-'.join(map(str, o.values()))}" for kind, o in CASES])
def test_two_hundred_steps_are_torchs(kind, options):
    params = tree()
    got = run(kind, params, **options)
    assert_near(got, run_torch(kind, params, **options))
    assert not got.allclose(params)


def rate(t):
    return 0.1 * 0.97**t


LRS = {
    "float": (0.05, None),
    "integer": (1, lambda t: 1.0),
    "zero": (0.0, lambda t: 0.0),
    "tensor": (torch.tensor(0.05, dtype=torch.float64), None),
    "function": (lambda step: 0.1 * torch.pow(torch.tensor(0.97, dtype=torch.float64), step), rate),
    "function of floats": (lambda step: rate(step.item()), rate),
    "table": (lambda step: torch.tensor([rate(t) for t in range(STEPS)], dtype=torch.float64)[step], rate),
}


@pytest.mark.parametrize("name", LRS)
@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
def test_the_learning_rate_may_be_a_number_a_tensor_or_a_function_of_the_step(kind, name):
    lr, torchs = LRS[name]
    params = tree()
    assert_near(run(kind, params, lr=lr), run_torch(kind, params, rate=torchs))


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
def test_defaults_are_torchs(kind):
    params = start = tree()
    opt, leaves = getattr(optim, kind)(), params.map(lambda p: p.clone()).requires_grad()
    theirs = TORCH[kind](leaves._leaves)
    state = opt.init(params)
    for t in range(5):
        grads = gradients(start, t)
        for leaf, g in zip(leaves._leaves, grads._leaves, strict=True):
            leaf.grad = g
        theirs.step()
        params, state = opt.step(params, grads, state)
    assert_near(params, leaves.detach())


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "maximize": True}])
def test_complex_parameters_step_as_torchs(kind, options):
    params = TensorDict({"z": torch.randn(3, dtype=torch.complex128), "w": torch.randn(2, dtype=torch.float64)})
    if kind == "sgd":
        options = {**options, "momentum": 0.9}
    assert_near(run(kind, params, steps=20, **options), run_torch(kind, params, steps=20, **options))


def test_complex_parameters_step_as_torchs_with_amsgrad():
    params = TensorDict({"z": torch.randn(3, dtype=torch.complex128)})
    assert_near(run("adam", params, steps=20, amsgrad=True), run_torch("adam", params, steps=20, amsgrad=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("lr", [0.05, torch.tensor(0.05, dtype=torch.float64), lambda t: 0.05 * 0.99**t], ids=["float", "tensor", "function"])
@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
def test_the_dtype_stays_with_parameters_and_state(kind, lr, dtype):
    params = tree(dtype)
    opt = optim.sgd(lr, momentum=0.9, dampening=0.1, weight_decay=0.1) if kind == "sgd" else getattr(optim, kind)(lr, weight_decay=0.1)
    state = opt.init(params)
    structure = state.structure
    for t in range(3):
        params, state = opt.step(params, gradients(params, t), state)
    assert {leaf.dtype for leaf in params._leaves} == {dtype}
    assert {leaf.dtype for name in state if name != "step" for leaf in state[name]._leaves} == {dtype}
    assert state["step"].dtype is torch.int64
    assert state.structure is structure


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
def test_float32_steps_are_torchs_to_float32_rounding(kind):
    params = tree(torch.float32)
    assert_near(run(kind, params), run_torch(kind, params), 2e-5)


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
def test_a_rate_per_member_equals_separate_runs(kind):
    members = [tree().map(lambda t, i=i: t + i) for i in range(4)]
    rates = torch.tensor([1e-1, 1e-2, 1e-3, 0.0], dtype=torch.float64)
    got = run(kind, stack(members), lr=rates, weight_decay=0.1)
    for i, member in enumerate(members):
        assert_near(got[i], run(kind, member, lr=rates[i].item(), weight_decay=0.1), 1e-12)


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
def test_a_schedule_of_rates_per_member_equals_separate_runs(kind):
    members = [tree().map(lambda t, i=i: t + i) for i in range(3)]
    rates = torch.tensor([1e-1, 1e-2, 1e-3], dtype=torch.float64)
    got = run(kind, stack(members), lr=lambda step: rates * torch.tensor(0.9, dtype=torch.float64) ** step)
    for i, member in enumerate(members):
        assert_near(got[i], run(kind, member, lr=lambda step, i=i: rates[i].item() * 0.9 ** step.item()), 1e-12)


def test_two_batch_dims_take_a_rate_each():
    members = [[tree().map(lambda t, i=i, j=j: t + i - j) for j in range(2)] for i in range(3)]
    rates = torch.rand(3, 2, dtype=torch.float64) * 0.1
    got = run("adam", stack([stack(row) for row in members]), steps=10, lr=rates)
    assert_near(got[2, 1], run("adam", members[2][1], steps=10, lr=rates[2, 1].item()), 1e-12)
