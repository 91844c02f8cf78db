"""Schedules: torch's own, step by step; exact in float64, of any shape of step, and no recompile of a step that has one."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch.optim import lr_scheduler

from tdfunc import StructureError, TensorDict, optim, vmap
from tdfunc.optim import schedules

N = 200
AGAINST = {
    "linear": (schedules.linear(0.1, 0.01, 60), lambda o: lr_scheduler.LinearLR(o, 1.0, 0.1, 60)),
    "cosine": (schedules.cosine(0.1, N, 0.01), lambda o: lr_scheduler.CosineAnnealingLR(o, N, 0.01)),
    "exponential": (schedules.exponential(0.1, 0.97), lambda o: lr_scheduler.ExponentialLR(o, 0.97)),
    "steps": (schedules.exponential(0.1, 0.5, 30, staircase=True), lambda o: lr_scheduler.StepLR(o, 30, 0.5)),
    "piecewise": (schedules.piecewise(0.1, {20: 0.5, 90: 0.1}), None),
    "milestones": (schedules.piecewise(0.1, {20: 0.5, 90: 0.5}), lambda o: lr_scheduler.MultiStepLR(o, [20, 90], 0.5)),
    "constant": (schedules.constant(0.1), lambda o: lr_scheduler.ConstantLR(o, 1.0, 1)),
    "one_cycle": (schedules.one_cycle(0.1, N + 1), lambda o: lr_scheduler.OneCycleLR(o, 0.1, N + 1)),
    "one_cycle, linear": (
        schedules.one_cycle(0.1, N + 1, 0.25, curve="linear", three_phase=True),
        lambda o: lr_scheduler.OneCycleLR(o, 0.1, N + 1, pct_start=0.25, anneal_strategy="linear", three_phase=True),
    ),
    "join": (
        schedules.join([schedules.linear(0.01, 0.1, 20), schedules.exponential(0.1, 0.98)], [20]),
        lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.LinearLR(o, 0.1, 1.0, 20), lr_scheduler.ExponentialLR(o, 0.98)], [20]),
    ),
    "warmup": (
        schedules.warmup(0.1, 20, 0.01),
        lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.LinearLR(o, 0.1, 1.0, 20), lr_scheduler.ConstantLR(o, 1.0, 1)], [20]),
    ),
}


def torchs(make):
    """Return the rates that a scheduler of torch gives over the steps."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the optimizer did not step; SequentialLR's own
        scheduler = make(optimizer)
        rates = [scheduler.get_last_lr()[0]]
        for _ in range(N):
            scheduler.step()
            rates.append(scheduler.get_last_lr()[0])
    return torch.tensor(rates, dtype=torch.float64)


@pytest.mark.parametrize("name", [name for name, (_, make) in AGAINST.items() if make is not None])
def test_it_is_torchs_scheduler_over_the_steps(name):
    schedule, make = AGAINST[name]
    torch.testing.assert_close(schedule(torch.arange(N + 1)), torchs(make), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", AGAINST)
def test_a_step_of_any_form_gives_the_same(name):
    schedule = AGAINST[name][0]
    steps = torch.arange(N).reshape(10, -1)
    values = schedule(steps)
    assert values.dtype == torch.float64
    assert values.shape == steps.shape
    assert schedule(7) == values[0, 7]
    torch.testing.assert_close(vmap(schedule)(steps), values, rtol=0, atol=0)


@pytest.mark.parametrize("name", AGAINST)
def test_a_step_with_it_is_one_graph(name):
    schedule, graphs = AGAINST[name][0], []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    opt = optim.adamw(schedule)
    params, grads = TensorDict(w=torch.ones(3, dtype=torch.float64)), TensorDict(w=torch.rand(3, dtype=torch.float64))
    compiled = torch.compile(opt.step, fullgraph=True, backend=backend)
    mine, state = params, opt.init(params)
    theirs, other = params, opt.init(params)
    for _ in range(20):
        mine, state = compiled(mine, grads, state)
        theirs, other = opt.step(theirs, grads, other)
    assert len(graphs) == 1
    torch.testing.assert_close(mine.to_flat(), theirs.to_flat(), rtol=1e-12, atol=0)


def test_curves_have_their_closed_forms():
    t = torch.arange(31.0, dtype=torch.float64)
    torch.testing.assert_close(schedules.cosine(2.0, 30, 1.0)(t.long()), 1.5 + 0.5 * torch.cos(math.pi * t / 30))
    assert schedules.cosine(2.0, 30, 1.0)(99) == 1.0
    assert schedules.piecewise(1.0, {2: 0.5, 4: 0.0})(torch.arange(6)).tolist() == [1, 1, 0.5, 0.5, 0, 0]


BAD = {
    "steps": (lambda: schedules.linear(1.0, 0.0, 0), "steps is out of range"),
    "nan": (lambda: schedules.cosine(math.nan, 10), "start is no finite number"),
    "a string": (lambda: schedules.constant("0.1"), "value is no finite number"),
    "boundaries": (lambda: schedules.join([0.1, 0.2], [5, 9]), "boundaries do not fit"),
    "order": (lambda: schedules.join([0.1, 0.2, 0.3], [9, 5]), "boundaries do not fit"),
    "factor": (lambda: schedules.exponential(1.0, -0.5), "factor is out of range"),
    "curve": (lambda: schedules.one_cycle(1.0, 10, curve="sin"), "not a curve"),
    "no phase": (lambda: schedules.one_cycle(1.0, 10, 1.0), "a phase of the cycle has no steps"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_named(name):
    call, text = BAD[name]
    with pytest.raises(StructureError, match=text):
        call()
