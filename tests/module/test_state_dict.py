"""use_state_dict: the names and values of `state_dict()` with all its hooks, and the way back through the load hooks."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import tdfunc
from tdfunc import BindError, KeyPathError, TensorDict, bind, buffers_of, load_into, params_of, state_of


def rename(sd, prefix, old, new):
    if prefix + old in sd:
        sd[prefix + new] = sd.pop(prefix + old)


class Overrides(nn.Linear):
    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "kernel"] = destination.pop(prefix + "weight").T

    def _load_from_state_dict(self, state_dict, prefix, *args):
        if prefix + "kernel" in state_dict:
            state_dict[prefix + "weight"] = state_dict.pop(prefix + "kernel").T
        super()._load_from_state_dict(state_dict, prefix, *args)


class Noted(nn.Linear):
    note = "a"

    def get_extra_state(self):
        return {"note": self.note, "count": 3, "scale": torch.ones(2)}

    def set_extra_state(self, state):
        self.note, self.state = state["note"], state


class Root(nn.Module):  # its hooks are its own methods, put on a child
    def __init__(self):
        super().__init__()
        self.lin, self.calls = nn.Linear(4, 4), 0
        self.lin._register_state_dict_hook(self.out)
        self.lin._register_load_state_dict_pre_hook(self.back)

    def out(self, module, sd, prefix, meta):
        rename(sd, prefix, "weight", "w")

    def back(self, sd, prefix, *args):
        self.calls = self.calls + 1
        rename(sd, prefix, "w", "weight")

    def forward(self, x):
        return self.lin(x)


SAVED = []


def hooked():
    net = nn.Linear(4, 4)
    net.register_state_dict_pre_hook(lambda module, prefix, keep_vars: SAVED.append(prefix))
    net.register_state_dict_post_hook(lambda module, sd, prefix, meta: rename(sd, prefix, "weight", "w"))

    def back(module, sd, prefix, *args):
        module.loading = prefix
        rename(sd, prefix, "w", "weight")

    net.register_load_state_dict_pre_hook(back)
    return net


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("kept", torch.arange(4.0))
        self.register_buffer("scratch", torch.ones(4), persistent=False)

    def forward(self, x):
        return self.norm(self.lin(x)) + self.kept * self.scratch


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = hooked(), nn.Linear(4, 4)
        self.two.weight, self.again = self.one.weight, self.one

    def forward(self, x):
        return self.two(self.again(self.one(x)))


@dataclasses.dataclass(frozen=True)
class Case:
    build: Callable[[], nn.Module]

    def make(self):
        torch.manual_seed(1)
        return self.build()


CASES = {
    "plain": lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)),
    "hooked": lambda: nn.Sequential(hooked(), nn.Sequential(hooked())),
    "overrides": lambda: nn.Sequential(Overrides(4, 4), nn.Tanh()),
    "extra": lambda: nn.Sequential(Noted(4, 4)),
    "methods": Root,
    "buffers": Buffers,
    "tied": Tied,
}
X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=CASES)
def case(request):
    return Case(CASES[request.param])


def flat(state):
    """Give a tree as torch would have it: dotted names, extra states as they are."""
    return {".".join(path): state[path] for path, _ in state.structure.slots()}


def test_keys_and_values_are_those_of_state_dict(case):
    module = case.make()
    expected = {k: v for k, v in module.state_dict().items() if not k.endswith("_extra_state")}
    got = flat(state_of(module, use_state_dict=True))
    assert {k for k in got if "_extra_state" not in k} == set(expected)
    for key, value in expected.items():
        assert torch.equal(got[key], value)
        assert not got[key].requires_grad


def test_the_hook_before_saving_runs_for_each_module():
    module = CASES["hooked"]()
    SAVED.clear()
    params_of(module, use_state_dict=True)
    assert SAVED == ["0.", "1.0."]


def test_parameters_and_buffers_together_are_the_state(case):
    module = case.make()
    both = params_of(module, use_state_dict=True) | buffers_of(module, use_state_dict=True)
    assert both.equal(state_of(module, use_state_dict=True))
    buffers = {key for key in flat(buffers_of(module, use_state_dict=True)) if "_extra_state" not in key}
    assert buffers == {key for key, _ in module.named_buffers() if key in module.state_dict()}


@pytest.mark.parametrize("form", ["tree", "dict", "two trees"])
def test_the_way_back_computes_what_load_state_dict_computes(case, form, snapshot):
    module = case.make()
    other = case.make()
    with torch.no_grad():
        for tensor in other.state_dict().values():
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                tensor.mul_(1.5).add_(0.1)
    twin = copy.deepcopy(case.make())
    twin.load_state_dict(other.state_dict())
    states = {
        "tree": (state_of(other, use_state_dict=True),),
        "dict": (dict(other.state_dict()),),
        "two trees": (params_of(other, use_state_dict=True), buffers_of(other, use_state_dict=True)),
    }[form]
    before = snapshot(module)
    bound = bind(module, *states, use_state_dict=True)
    assert type(bound) is type(module)
    torch.testing.assert_close(bound(X), twin(X))
    assert snapshot(module) == before


def test_gradients_flow_through_the_hooks(case):
    module = case.make()
    params = params_of(module, use_state_dict=True).requires_grad()
    bind(module, params, use_state_dict=True)(X).square().sum().backward()
    twin = case.make()
    twin(X).square().sum().backward()
    saved = twin.state_dict(keep_vars=True)
    expected = {key: value.grad for key, value in saved.items() if isinstance(value, nn.Parameter)}
    expected |= {key: twin[0].weight.grad.T for key in saved if "kernel" in key}
    got = flat(params.grads())
    for key, grad in expected.items():
        torch.testing.assert_close(got[key], grad)
    assert got


def test_ties_are_one_leaf_and_one_path_is_enough():
    module = Tied()
    params = params_of(module, use_state_dict=True)
    (group,) = [set(group) for group in params.ties if ("one", "w") in group]
    assert group == {("one", "w"), ("again", "w"), ("two", "weight")}
    bound = bind(module, {"two.weight": torch.zeros(4, 4), "two.bias": torch.ones(4), "one.bias": torch.ones(4)}, use_state_dict=True)
    assert bound.one.weight is bound.two.weight
    assert bound.one is bound.again
    assert torch.equal(bound(X), torch.ones(6, 4))


def test_the_extra_state_is_the_clones_own():
    module = nn.Sequential(Noted(4, 4))
    state = state_of(module, use_state_dict=True)
    assert state["0", "_extra_state", "note"] == "a"
    assert state["0", "_extra_state", "count"] == 3
    bound = bind(module, state.set(("0", "_extra_state", "note"), "b"), use_state_dict=True)
    assert (bound[0].note, module[0].note, hasattr(module[0], "state")) == ("b", "a", False)
    assert bound[0].state["count"] == 3
    assert torch.equal(bound[0].state["scale"], torch.ones(2))


def test_what_hooks_note_stays_with_the_clone():
    module = nn.Sequential(hooked())
    bound = bind(module, params_of(module, use_state_dict=True), use_state_dict=True)
    assert bound[0].loading == "0."
    assert not hasattr(module[0], "loading")
    root = Root()
    assert bind(root, params_of(root, use_state_dict=True), use_state_dict=True).calls == 1
    assert root.calls == 0


def test_hooks_that_run_after_loading_may_forgive_keys():
    module = nn.Linear(2, 2)
    module.register_load_state_dict_post_hook(lambda module, keys: keys.unexpected_keys.clear())
    bound = bind(module, {**module.state_dict(), "old": torch.ones(1)}, use_state_dict=True)
    assert torch.equal(bound.weight, module.weight)


def test_buffers_that_are_not_persistent_come_from_the_module_and_are_refused():
    module = Buffers()
    assert "scratch" not in state_of(module, use_state_dict=True)
    with pytest.raises(KeyPathError, match="has no 'scratch'"):
        bind(module, {**module.state_dict(), "scratch": torch.zeros(4)}, use_state_dict=True)


def test_a_given_buffer_is_written_in_the_clone_only():
    module = Buffers()
    state = state_of(module, use_state_dict=True)
    before = state.clone()
    bound = bind(module, state, use_state_dict=True)
    bound(X)
    assert state.equal(before)
    assert buffers_of(bound)["norm", "num_batches_tracked"] == 1


BAD = {
    "an unknown key": ({"lin.wieght": torch.ones(4, 4)}, KeyPathError, r"no 'lin.wieght' \(did you mean 'lin.weight'"),
    "a wrong shape": ({"lin.weight": torch.ones(5, 4)}, BindError, r"wrong shape\n  at: 'lin', 'weight'\n  expected: \(4, 4\)\n  got: \(5, 4\)"),
    "no tensor": ({"lin.weight": "x"}, BindError, "expected torch.Tensor or Tensor-like"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("op", ["bind", "load_into"])
def test_bad_states_are_refused_and_nothing_is_written(name, op, snapshot):
    more, error, text = BAD[name]
    module = Buffers()
    before = snapshot(module)
    with pytest.raises(error, match=text) as caught:
        {"bind": bind, "load_into": load_into}[op](module, {**module.state_dict(), **more}, use_state_dict=True)
    assert str(caught.value).startswith(op)
    assert snapshot(module) == before


def test_all_problems_are_told_at_once():
    module = Buffers()
    state = {k: v for k, v in module.state_dict().items() if k != "lin.bias"} | {"nope": torch.ones(1), "norm.weight": torch.ones(9)}
    with pytest.raises(KeyPathError, match=r"3 problems[\s\S]*'nope'[\s\S]*'norm', 'weight'[\s\S]*missing parameter\n  at: 'lin', 'bias'"):
        bind(module, state, use_state_dict=True)
    state = {k: v for k, v in module.state_dict().items() if k != "lin.bias"}
    assert bind(module, state, strict=False, use_state_dict=True).lin.bias is module.lin.bias


def test_an_entry_that_fits_no_tree_is_named():
    class Odd(nn.Linear):
        def get_extra_state(self):
            return {"queue": [1, 2]}

    with pytest.raises(BindError, match=r"at: '0', '_extra_state', 'queue'[\s\S]*got: list"):
        state_of(nn.Sequential(Odd(1, 1)), use_state_dict=True)


def test_an_array_of_a_save_override_becomes_a_tensor():
    class Arrays(nn.Linear):
        def _save_to_state_dict(self, destination, prefix, keep_vars):
            destination[prefix + "weight"] = self.weight.detach().numpy()

    module = Arrays(2, 2)
    assert isinstance(module.state_dict()["weight"], np.ndarray)
    assert torch.equal(params_of(module, use_state_dict=True)["weight"], module.weight)


def test_load_into_runs_the_hooks_and_keeps_the_objects(case):
    module, other = case.make(), case.make()
    with torch.no_grad():
        for param in other.parameters():
            param.add_(1)
    objects = [id(p) for p in module.parameters()]
    for _ in range(2):
        load_into(module, state_of(other, use_state_dict=True), use_state_dict=True)
    assert [id(p) for p in module.parameters()] == objects
    assert all(p.requires_grad for p in module.parameters())
    torch.testing.assert_close(module(X), other(X))


def test_a_state_over_the_modules_own_storage_may_be_loaded():
    module = nn.Linear(3, 3, bias=False)
    expected = module.weight.detach().T.clone()
    load_into(module, TensorDict(weight=module.weight.detach().T), use_state_dict=True)
    assert torch.equal(module.weight, expected)


def test_a_compiled_module_has_the_plain_names():
    net = nn.Sequential(torch.compile(hooked(), backend="eager"), nn.Linear(4, 4))
    whole = torch.compile(net, backend="eager")
    names = {("0", "w"), ("0", "bias"), ("1", "weight"), ("1", "bias")}
    assert set(params_of(net, use_state_dict=True).keys(True, True)) == names
    assert set(params_of(whole, use_state_dict=True).keys(True, True)) == names
    prefixed = {f"_orig_mod.{key}": value * 0 for key, value in net.state_dict().items()}
    assert "_orig_mod.0._orig_mod.w" in prefixed
    assert torch.equal(bind(whole, prefixed, use_state_dict=True)(X), torch.zeros(6, 4))


def test_vmap_over_states_equals_a_loop(case):
    module = case.make().eval()
    states = [params_of(module, use_state_dict=True).map(lambda t, i=i: t + i) for i in range(3)]
    run = lambda params: bind(module, params, use_state_dict=True)(X)
    torch.testing.assert_close(tdfunc.vmap(run)(tdfunc.stack(states)), torch.stack([run(state) for state in states]))


def test_reading_traces_and_binding_says_what_to_do_instead(case):
    module = case.make().eval()
    read = lambda x: params_of(module, use_state_dict=True).map(lambda t: t * x)
    torch.testing.assert_close(torch.compile(read, fullgraph=True, backend="eager")(torch.ones(())).to_flat(), read(torch.ones(())).to_flat())
    state = state_of(module, use_state_dict=True)
    with pytest.raises(Exception, match="does not trace[\\s\\S]*params_of\\(bind"):
        torch.compile(lambda x: bind(module, state, use_state_dict=True)(x), fullgraph=True, backend="eager")(X)
    params = params_of(bind(module, state, use_state_dict=True))
    torch.testing.assert_close(torch.compile(lambda p, x: bind(module, p)(x), fullgraph=True, backend="eager")(params, X), module(X))
