"""All rules: one graph over a moving schedule, equal in eager, members as alone, complex and integer leaves, files; lion by its formula."""

from __future__ import annotations

import io

import pytest
import torch

from tdfunc import StructureError, TensorDict, optim, stack, vmap
from tdfunc.optim import schedules

RULES = {
    "sgd": lambda lr: optim.sgd(lr, momentum=0.9, nesterov=True),
    "adam": optim.adam,
    "adamw": optim.adamw,
    "rmsprop": lambda lr: optim.rmsprop(lr, momentum=0.9, centered=True),
    "adagrad": lambda lr: optim.adagrad(lr, lr_decay=0.1, initial_accumulator_value=0.1),
    "adadelta": optim.adadelta,
    "adamax": optim.adamax,
    "radam": optim.radam,
    "lion": lambda lr: optim.lion(lr, weight_decay=0.1),
}
TORCH = {
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.05, momentum=0.9, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.05, lr_decay=0.1, initial_accumulator_value=0.1),
    "adadelta": lambda p: torch.optim.Adadelta(p, 0.05),
    "radam": lambda p: torch.optim.RAdam(p, 0.05),
}


@pytest.fixture(params=RULES)
def name(request):
    return request.param


def tree(i=0):
    torch.manual_seed(i)
    td = TensorDict(
        {"w": torch.randn(3, 2).double(), "deep": {"s": torch.randn(()).double(), "none": torch.zeros(0, 2).double()}, "n": torch.tensor(3)}
    )
    return td.set("again", td["w"]).tie("w", "again")


def gradient(params, t):
    return params.map(lambda p: (3 * p + 0.7 * t).sin() if p.is_floating_point() or p.is_complex() else p)


def run(opt, params, steps, start=0, state=None):
    state, first = opt.init(params) if state is None else state, tree() if params.batch_dims == 0 else params
    for t in range(start, start + steps):
        params, state = opt.step(params, gradient(first, t), state)
    return params, state


def assert_same(a, b, rtol=1e-10, atol=1e-12):
    assert a.structure is b.structure
    torch.testing.assert_close(a.to_flat(), b.to_flat(), rtol=rtol, atol=atol)


def test_one_graph_over_a_moving_schedule_equal_in_eager(name):
    opt, graphs = RULES[name](schedules.warmup(schedules.cosine(0.1, 15), 5)), []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(opt.step, fullgraph=True, backend=backend)
    params = tree().clone()
    mine, state = params, opt.init(params)
    for t in range(20):
        mine, state = compiled(mine, gradient(params, t), state)
    expected, after = run(opt, params, 20)
    assert_same(mine, expected)
    assert_same(state, after)
    assert len(graphs) == 1


def test_members_with_rates_of_their_own_step_as_they_do_alone(name):
    rates = torch.tensor([0.1, 0.01, 0.3], dtype=torch.float64)
    members = [tree(i).exclude("n") for i in range(3)]
    opt, params = RULES[name](rates), stack(members)
    state = opt.init(params)
    mapped, mapped_state = params, vmap(RULES[name](0.1).init)(params)
    for t in range(6):
        grads = gradient(params, t)
        params, state = opt.step(params, grads, state)
        mapped, mapped_state = vmap(lambda lr, p, g, s: RULES[name](lr).step(p, g, s))(rates, mapped, grads, mapped_state)
    assert_same(mapped, params)
    assert state["step"].tolist() == [6, 6, 6]
    for i, member in enumerate(members):
        alone, its = member, RULES[name](float(rates[i]))
        kept = its.init(alone)
        stacked, held = stack(members), opt.init(stack(members))
        for t in range(6):
            grads = gradient(stacked, t)
            stacked, held = opt.step(stacked, grads, held)
            alone, kept = its.step(alone, grads[i], kept)
        assert_same(params[i], alone)


@pytest.mark.parametrize("kind", TORCH)
def test_complex_leaves_are_pairs_of_reals_as_in_torch(kind):
    start = torch.randn(4, dtype=torch.complex128)
    weight = start.clone().requires_grad_()
    optimizer, opt = TORCH[kind]([weight]), RULES[kind](0.05)
    params = TensorDict(w=start)
    state = opt.init(params)
    for t in range(20):
        weight.grad = (start * 3 + t).sin()
        optimizer.step()
        params, state = opt.step(params, TensorDict(w=(start * 3 + t).sin()), state)
    torch.testing.assert_close(params["w"], weight.detach(), rtol=1e-9, atol=1e-10)


def test_lion_is_the_two_lines_of_the_paper():
    opt, w = optim.lion(0.01, (0.8, 0.9), weight_decay=0.1), torch.randn(5).double()
    params, m, p = TensorDict(w=w), torch.zeros(5).double(), w
    state = opt.init(params)
    for t in range(200):
        g = (3 * w + t).sin()
        params, state = opt.step(params, TensorDict(w=g), state)
        p = p * (1 - 0.01 * 0.1) - 0.01 * (0.8 * m + 0.2 * g).sign()
        m = 0.9 * m + 0.1 * g
    torch.testing.assert_close(params["w"], p, rtol=1e-9, atol=1e-9)


def test_integers_pass_through_and_ties_stay(name):
    got, state = run(RULES[name](0.1), tree(), 3)
    assert got["n"] == 3
    assert got["again"] is got["w"]
    assert got["deep", "none"].shape == (0, 2)
    assert all(state[key].structure is got.structure for key in state if key != "step")


def test_a_run_goes_on_from_a_file(name):
    opt = RULES[name](0.1)
    params, state = run(opt, tree(), 7)
    file = io.BytesIO()
    torch.save((params, state), file)
    file.seek(0)
    params, state = torch.load(file, weights_only=True)
    assert_same(run(opt, params, 7, 7, state)[0], run(opt, tree(), 14)[0], rtol=0, atol=0)


@pytest.mark.parametrize("lr", [-0.1, float("nan"), "0.1", None])
def test_a_rate_that_is_none_is_refused_by_name(name, lr):
    with pytest.raises(StructureError, match="lr is"):
        RULES[name](lr)
