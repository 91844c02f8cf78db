"""A bound module computes what a module with those values computes, in eager; and nothing else in the world changes."""

from __future__ import annotations

import contextlib
import copy
import pickle
import threading

import pytest
import torch
from torch.utils import _pytree

from tdfunc import bind, buffers_of, params_of, state_of

tree_leaves = _pytree.tree_leaves


def run(module, x):
    torch.manual_seed(3)
    return module(*x)


def assert_same(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


def loss(out):
    return sum([(leaf.abs() * torch.arange(leaf.numel()).reshape(leaf.shape).sin()).sum() for leaf in tree_leaves(out)])


def moved(state):
    torch.manual_seed(4)
    return state.map(lambda t: t + 0.1 * torch.randn_like(t).abs() if t.is_floating_point() or t.is_complex() else t.flip(0) if t.dim() else t + 1)


def test_binding_its_own_state_changes_nothing(case):
    module, x = case.make(), case.x()
    assert_same(run(bind(module, params_of(module), buffers_of(module)), x), run(case.make(), x))


def test_other_values_count_wherever_the_module_keeps_its_tensors(case, twin_with):
    module, x = case.make(), case.x()
    params, buffers = moved(params_of(module)), moved(buffers_of(module))
    twin = twin_with(case, params, buffers)
    expected = run(twin, x)
    bound = bind(module, params, buffers)
    assert_same(run(bound, x), expected)
    assert not all(torch.equal(a, b) for a, b in zip(tree_leaves(expected), tree_leaves(run(case.make(), x)), strict=True)), (
        "the values moved nothing"
    )
    assert_same(buffers_of(bound).to_flat(), buffers_of(twin).to_flat())
    assert_same(run(bound, x), run(twin, x))  # and again: what the first call left behind is the same


def test_gradients_are_those_of_the_module(case, twin_with):
    module, x = case.make(), case.x()
    params = moved(params_of(module)).requires_grad()
    twin = twin_with(case, params)
    leaves = [leaf for leaf in params._leaves if leaf.requires_grad]
    theirs = [p for p, leaf in zip(params_of(twin, detach=False)._leaves, params._leaves, strict=True) if leaf.requires_grad]
    wanted = [i for i, p in enumerate(theirs) if p.requires_grad]
    assert wanted
    got = torch.autograd.grad(loss(run(bind(module, params), x)), leaves, allow_unused=True)
    expected = torch.autograd.grad(loss(run(twin, x)), [theirs[i] for i in wanted], allow_unused=True)
    assert_same([got[i] for i in wanted], list(expected))
    assert any(grad is not None and grad.abs().sum() > 0 for grad in expected)
    assert all(p.grad is None for p in module.parameters())


@pytest.mark.parametrize("fails", [False, True], ids=["returns", "raises"])
def test_the_module_and_the_state_stay_as_they_are(case, fails, snapshot):
    module, x = case.make(), case.x()
    state = state_of(module).clone()
    before, kept = snapshot(module), state.clone()
    bound = bind(module, state)
    with pytest.raises((RuntimeError, IndexError, ValueError, TypeError, AssertionError)) if fails else contextlib.nullcontext():
        bound(torch.ones(1, 1, 1, 99, 99, dtype=torch.float64)) if fails else run(bound, x)
    assert snapshot(module) == before
    assert state.equal(kept)


def test_the_buffers_that_came_out_go_in_again(case):
    if case.no_carry:
        pytest.skip(case.no_carry)
    module, x = case.make(), case.x()
    params = moved(params_of(module))
    bound = bind(module, params)
    run(bound, x)
    again = bind(module, params, buffers_of(bound))
    assert_same(run(again, x), run(bound, x))
    assert_same(buffers_of(again).to_flat(), buffers_of(bound).to_flat())


class Stop(Exception):
    pass


def test_an_exception_in_the_middle_of_forward_leaves_nothing_behind(case, snapshot):
    module, x, called, other = case.make(), case.x(), [], case.make()
    watched = bind(other, state_of(other))
    for name, part in watched.named_modules():
        part.register_forward_hook(lambda module, args, out, name=name: called.append(name))
    run(watched, x)
    last = module.get_submodule(called[max(len(called) - 2, 0)])  # the last one to return before the whole does

    def stop(module, args, out):
        raise Stop

    last.register_forward_hook(stop)
    state = moved(state_of(module))
    before, kept = snapshot(module), state.clone()
    bound = bind(module, state)
    for _ in range(2):
        with pytest.raises(Stop):
            run(bound, x)
    assert snapshot(module) == before
    assert state.equal(kept)
    assert_same(run(bind(case.make(), state), x), run(bind(case.make(), kept), x))


def test_eight_threads_see_their_own_values(case):
    if case.no_threads:
        pytest.skip(case.no_threads)
    module, x = case.make(), case.x()
    states = [state_of(module).map(lambda t, i=i: t + 0.05 * i * t.abs() if t.is_floating_point() or t.is_complex() else t.clone()) for i in range(8)]
    expected = [module(*x) for module in (bind(case.make(), state.clone()) for state in states)]
    start, got = threading.Barrier(8), {}

    def work(i):
        start.wait()
        got[i] = [bind(module, states[i])(*x) for _ in range(4)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, out in enumerate(expected):
        assert_same(got[i], [out] * 4)


def test_the_class_stays(case):
    module = case.make()
    bound = bind(module, params_of(module))
    assert type(bound) is type(module)
    inner = [getattr(part, "_orig_mod", part) for part in module.children()]
    assert [type(part) for part in bound.children()] == [type(part) for part in inner]
    assert not {id(part) for part in bound.modules()} & {id(part) for part in module.modules()}


def test_what_went_in_comes_out(case):
    module = case.make()
    params, buffers = moved(params_of(module)), moved(buffers_of(module))
    bound = bind(module, params, buffers)
    assert params_of(bound).equal(params)
    assert params_of(bound).structure is params.structure
    assert case.copied or all(a is b for a, b in zip(params_of(bound, detach=False)._leaves, params._leaves, strict=True))
    assert buffers_of(bound).equal(buffers)
    assert buffers_of(bound).structure is buffers.structure


OPS = {
    "float": lambda m: m.float(),
    "to": lambda m: m.to(torch.float32),
    "eval": lambda m: m.eval() if m.training else m.train(),
    "hook": lambda m: m.register_forward_hook(lambda module, args, out: None),
    "child_hook": lambda m: [part.register_forward_pre_hook(lambda module, args: None) for part in m.modules()],
    "buffer": lambda m: m.register_buffer("another_one", torch.zeros(1)),
    "module": lambda m: m.add_module("another_one", torch.nn.Linear(1, 1)),
    "attribute": lambda m: setattr(m, "another_one", 1),
}


@pytest.mark.parametrize("op", OPS)
def test_what_is_done_to_the_bound_one_reaches_neither_module_nor_state(case, op, snapshot):
    if op == "to" and case.no_float:
        pytest.skip(case.no_float)
    module = case.make()
    state = state_of(module).clone().requires_grad()
    facts = lambda: [(id(t), t._version, t.dtype, t.requires_grad, t.tolist()) for t in state._leaves]
    before, leaves = snapshot(module), facts()
    OPS[op](bind(module, state))
    assert snapshot(module) == before
    assert facts() == leaves


def test_a_cast_bound_module_computes_as_a_cast_module(case, twin_with):
    if case.no_float:
        pytest.skip(case.no_float)
    module = case.make()
    params = moved(params_of(module))
    x = tuple([x.float() if x.is_floating_point() else x for x in case.x()])
    got, expected = run(bind(module, params).float(), x), run(twin_with(case, params).float(), x)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_copies_of_a_bound_module_compute_the_same_on_their_own(case, way):
    reason = case.no_pickle if way == "pickle" else case.no_deepcopy
    if reason:
        pytest.skip(reason)
    module, x = case.make(), case.x()
    params = moved(params_of(module))
    bound = bind(module, params)
    if way == "deepcopy":
        made = copy.deepcopy(bound)
    else:
        made = pickle.loads(pickle.dumps(bound))  # noqa: S301
    assert type(made) is type(bound)
    assert params_of(made).equal(params)
    assert params_of(made).structure is params.structure
    assert not {p.data_ptr() for p in params_of(made)._leaves} & {p.data_ptr() for p in params._leaves}
    assert_same(run(made, x), run(bind(module, params), x))
