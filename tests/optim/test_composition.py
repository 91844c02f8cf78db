"""What stands around an optimizer: clipping, groups, accumulation, skipped steps, averages; against torch's own or a plain loop."""

from __future__ import annotations

import io
import math

import pytest
import torch
from torch import nn

from tdfunc import KeyPathError, StructureError, TensorDict, optim, params_of, stack, value_and_grad, vmap
from tdfunc.optim import schedules

STEPS = 20


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()


def gradients(n=STEPS, size=1.0):
    torch.manual_seed(1)
    params = params_of(net())
    return [params.map(lambda t: torch.randn_like(t) * size) for _ in range(n)]


def run(opt, params, grads):
    state = opt.init(params)
    for g in grads:
        params, state = opt.step(params, g, state)
    return params, state


def torchs(make, grads, before=lambda parameters: None):
    """Return the parameters after torch's optimizer took the gradients, and something was done before each step."""
    model = net()
    optimizer = make(model.parameters())
    for g in grads:
        for param, leaf in zip(model.parameters(), g._leaves, strict=True):
            param.grad = leaf.clone()
        before(list(model.parameters()))
        optimizer.step()
    return params_of(model)


def assert_same(a, b, **kwargs):
    torch.testing.assert_close(a.to_flat(), b.to_flat(), **({"rtol": 1e-10, "atol": 1e-10} | kwargs))


@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_clipping_by_norm_is_torchs(size):
    opt = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(1e-2))
    expected = torchs(lambda p: torch.optim.AdamW(p, 1e-2), gradients(size=size), lambda p: nn.utils.clip_grad_norm_(p, 1.0))
    assert_same(run(opt, params_of(net()), gradients(size=size))[0], expected)


def test_clipping_by_value_and_added_decay_are_torchs():
    opt = optim.chain(optim.clip_by_value(0.3), optim.add_decayed_weights(0.1), optim.sgd(0.1, momentum=0.9))
    expected = torchs(lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.1), gradients(), lambda p: nn.utils.clip_grad_value_(p, 0.3))
    assert_same(run(opt, params_of(net()), gradients())[0], expected)


def test_members_of_stacked_parameters_are_clipped_each_by_its_norm():
    members = [params_of(net()) * (1 + i) for i in range(3)]
    grads = [g * 10.0**i for i, g in enumerate(gradients(3))]
    opt = optim.chain(optim.clip_by_global_norm(torch.tensor([0.5, 1.0, 2.0])), optim.sgd(0.1))
    got, _ = run(opt, stack(members), [stack(grads)])
    for i, limit in enumerate((0.5, 1.0, 2.0)):
        alone = optim.chain(optim.clip_by_global_norm(limit), optim.sgd(0.1))
        assert_same(got[i], run(alone, members[i], [grads[i]])[0])


@pytest.mark.parametrize("where", ["2", ("2", "*"), lambda path, leaf: path[0] == "2"], ids=["key", "pattern", "predicate"])
def test_masked_leaves_stay_bit_for_bit_and_have_no_state(where):
    params = params_of(net())
    opt = optim.masked(optim.adam(0.1), where)
    got, state = run(opt, params, [g.select("2") for g in gradients()])
    assert all(a is b for a, b in zip(got["0"]._leaves, params["0"]._leaves, strict=True))
    assert set(state["exp_avg"]) == {"2"}
    expected = torchs(lambda p: torch.optim.Adam(list(p)[2:], 0.1), gradients())
    assert_same(got["2"], expected["2"])
    assert_same(run(opt, params, gradients())[0], got)  # gradients of all leaves will do too


def test_groups_step_each_with_its_optimizer():
    params = params_of(net())
    opt = optim.labelled({"a": optim.sgd(0.1), "b": optim.adamw(0.01), "still": None}, {"still": ("0", "bias"), "a": ("**", "weight"), "b": "**"})
    got, state = run(opt, params, gradients())
    assert got["0", "bias"] is params["0", "bias"]
    assert_same(got.select(("0", "weight"), ("2", "weight")), run(optim.sgd(0.1), params, gradients())[0].select(("0", "weight"), ("2", "weight")))
    assert_same(got.select(("2", "bias")), run(optim.adamw(0.01), params, gradients())[0].select(("2", "bias")))
    assert state["step"] == STEPS


def test_accumulated_micro_batches_are_a_step_of_their_mean():
    grads = gradients(STEPS)
    means = [(a + b) / 2 for a, b in zip(grads[::2], grads[1::2], strict=True)]
    opt = optim.adam(schedules.linear(0.1, 0.0, 10))
    got, state = run(optim.accumulate(opt, 2), params_of(net()), grads)
    assert_same(got, run(opt, params_of(net()), means)[0])
    assert state["step"] == STEPS
    half, _ = run(optim.accumulate(opt, 2), params_of(net()), grads[:1])
    assert half.equal(params_of(net()))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_steps_that_are_not_finite_are_skipped(bad):
    grads = gradients()
    broken = [g if i % 3 else g.map_with_path(lambda path, t: t * bad if path[0] == "0" else t) for i, g in enumerate(grads)]
    got, state = run(optim.apply_if_finite(optim.adam(0.1)), params_of(net()), broken)
    assert_same(got, run(optim.adam(0.1), params_of(net()), [g for i, g in enumerate(grads) if i % 3])[0])
    assert state["skipped"] == 7


def test_the_loss_scale_moves_as_torchs_scaler_does():
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    opt = optim.loss_scale(optim.sgd(0.1), 8.0, growth_interval=3)
    params = TensorDict(w=torch.ones(2))
    state, weight = opt.init(params), nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], 0.1)
    for i in range(STEPS):
        factor = math.inf if i in (4, 5, 13) else 1.0 + i
        _, grads = value_and_grad(lambda p: (p["w"] * factor).sum() * state["scale"])(params)  # noqa: B023
        params, state = opt.step(params, grads, state)
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert state["scale"] == scaler.get_scale()
        torch.testing.assert_close(params["w"], weight.detach())


def test_averages_are_torchs():
    model = net()
    ema, swa = optim.ema(0.9), optim.swa()
    averaged = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    mean = torch.optim.swa_utils.AveragedModel(model)
    params = params_of(model)
    states = ema.init(params), swa.init(params)
    for g in gradients():
        params = params - g * 0.1
        with torch.no_grad():
            for param, leaf in zip(model.parameters(), params._leaves, strict=True):
                param.copy_(leaf)
        averaged.update_parameters(model)
        mean.update_parameters(model)
        states = ema.update(params, states[0]), swa.update(params, states[1])
    assert_same(states[0]["average"], params_of(averaged.module))
    assert_same(states[1]["average"], params_of(mean.module))


def test_a_debiased_average_weighs_what_it_saw():
    ema = optim.ema(0.9, debias=True)
    state = ema.init(TensorDict(w=torch.tensor(100.0, dtype=torch.float64)))
    values = torch.arange(1.0, 11.0, dtype=torch.float64)
    for value in values:
        state = ema.update(TensorDict(w=value), state)
    weights = 0.9 ** torch.arange(9, -1, -1, dtype=torch.float64)
    torch.testing.assert_close(state["average", "w"], (weights * values).sum() / weights.sum())


def test_lookahead_is_the_two_lines_of_the_paper():
    got, _ = run(optim.lookahead(optim.sgd(0.1), 5, 0.3), params_of(net()), gradients())
    slow = fast = params_of(net())
    for i, g in enumerate(gradients(), 1):
        fast = fast - g * 0.1
        if i % 5 == 0:
            slow = fast = slow + (fast - slow) * 0.3
    assert_same(got, fast)


FORMS = {
    "chain": lambda: optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(schedules.cosine(0.1, 30))),
    "masked": lambda: optim.masked(optim.adam(0.1), "2"),
    "labelled": lambda: optim.labelled({"a": optim.sgd(0.1), "b": optim.adam(0.1)}, {"a": ("**", "weight"), "b": "**"}),
    "accumulate": lambda: optim.accumulate(optim.adam(0.1), 3),
    "apply_if_finite": lambda: optim.apply_if_finite(optim.adam(0.1)),
    "loss_scale": lambda: optim.loss_scale(optim.adam(0.1), 4.0, growth_interval=5),
    "lookahead": lambda: optim.lookahead(optim.sgd(0.1, momentum=0.9), 4),
    "all": lambda: optim.accumulate(optim.apply_if_finite(optim.masked(optim.chain(optim.clip_by_value(0.5), optim.adam(0.1)), "2")), 2),
}


@pytest.mark.parametrize("form", FORMS)
def test_compiled_it_is_one_graph_and_equal_to_eager(form):
    opt, graphs = FORMS[form](), []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(opt.step, fullgraph=True, backend=backend)
    params = params_of(net()).clone()
    mine, state = params, opt.init(params)
    for g in gradients():
        mine, state = compiled(mine, g, state)
    assert_same(mine, run(opt, params, gradients())[0])
    assert len(graphs) == 1


@pytest.mark.parametrize("form", FORMS)
def test_stacked_members_step_as_they_do_alone(form):
    opt = FORMS[form]()
    members, grads = [params_of(net()) * (1 + 0.1 * i) for i in range(3)], gradients(9)
    state = vmap(opt.init)(stack(members))
    params = stack(members)
    for i in range(3):
        params, state = vmap(opt.step)(params, stack(grads[3 * i : 3 * i + 3]), state)
    for i, member in enumerate(members):
        assert_same(params[i], run(opt, member, grads[i::3])[0])


@pytest.mark.parametrize("form", FORMS)
def test_a_run_goes_on_from_a_file(form):
    opt, grads = FORMS[form](), gradients()
    params, state = run(opt, params_of(net()), grads[:7])
    file = io.BytesIO()
    torch.save((params, state), file)
    file.seek(0)
    params, state = torch.load(file, weights_only=True)
    for g in grads[7:]:
        params, state = opt.step(params, g, state)
    assert_same(params, run(opt, params_of(net()), grads)[0], rtol=0, atol=0)


BAD = {
    "an optimizer first": (lambda: optim.chain(optim.sgd(0.1), optim.clip_by_value(1.0)), StructureError, r"an optimizer comes last\n  at: part 0"),
    "no transform": (lambda: optim.chain(torch.sign, optim.sgd(0.1)), StructureError, "a part is no gradient transform"),
    "a negative norm": (lambda: optim.clip_by_global_norm(-1.0), StructureError, "max_norm is out of range"),
    "no count": (lambda: optim.accumulate(optim.sgd(0.1), 0), StructureError, "every is no count"),
    "a label without an optimizer": (lambda: optim.labelled({"a": None}, {"b": "**"}), StructureError, "a label has no optimizer"),
    "a leaf without a label": (
        lambda: optim.labelled({"a": optim.sgd(0.1)}, {"a": "0"}).init(params_of(net())),
        StructureError,
        "a leaf has no label\n  at: '2', 'weight'; '2', 'bias'",
    ),
    "a pattern that names nothing": (lambda: optim.masked(optim.sgd(0.1), "haed").init(params_of(net())), KeyPathError, "haed"),
    "an average without a state": (lambda: optim.ema().update(params_of(net()), params_of(net())), StructureError, "updated with parameters"),
    "a decay of one": (lambda: optim.ema(1.0), StructureError, "decay is out of range"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_named(name):
    call, error, text = BAD[name]
    with pytest.raises(error, match=text):
        call()
