"""What does not fit is refused before anything runs, in words that name the place, what was expected, what came, and a way out."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from tdfunc import TensorDict, bind, buffers_of, load_into, params_of, stack, state_of
from tdfunc._errors import BindError, KeyPathError, TdfuncError


def net():
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))


class Tied(nn.Module):
    def __init__(self, level):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
        if level == "module":
            self.b = self.a
        elif level == "parameter":
            self.b.weight = self.a.weight
        else:
            self.register_buffer("x", torch.zeros(2))
            self.register_buffer("y", self.x)


def good():
    return params_of(net())


REFUSED = {
    "misspelled": (
        KeyPathError,
        lambda: bind(nn.Linear(2, 2), {"wieght": torch.zeros(2, 2), "bias": torch.zeros(2)}),
        r"'wieght'.*did you mean 'weight'",
    ),
    "misspelled, not strict": (KeyPathError, lambda: bind(nn.Linear(2, 2), {"wieght": torch.zeros(2, 2)}, strict=False), r"did you mean 'weight'"),
    "misspelled, nested": (KeyPathError, lambda: bind(net(), good().rename_key(("0", "bias"), ("0", "bais"))), r"'0', 'bais'.*did you mean 'bias'"),
    "missing": (KeyPathError, lambda: bind(net(), good().exclude(("2", "bias"))), r"missing parameter\n  at: '2', 'bias'\n  expected: .*\(1,\)"),
    "nothing at all": (KeyPathError, lambda: bind(nn.Linear(2, 2)), r"2 problems\n- bind: missing parameter"),
    "wrong shape": (
        BindError,
        lambda: bind(nn.Linear(2, 3), {"weight": torch.zeros(5, 2), "bias": torch.zeros(3)}),
        r"wrong shape\n  at: 'weight'\n  expected: \(3, 2\)\n  got: \(5, 2\)",
    ),
    "broadcastable shape": (
        BindError,
        lambda: bind(nn.Linear(2, 3), {"weight": torch.zeros(1, 2), "bias": torch.zeros(3)}),
        r"wrong shape\n  at: 'weight'",
    ),
    "wrong buffer shape": (
        BindError,
        lambda: bind(net(), good().set(("1", "running_mean"), torch.zeros(4))),
        r"wrong shape\n  at: '1', 'running_mean'",
    ),
    "stacked": (BindError, lambda: bind(net(), stack([good(), good()])), r"fix: a stacked state goes through ensemble\(module\)"),
    "module as state": (BindError, lambda: bind(net(), net()), r"got a module where a state is meant"),
    "list as state": (BindError, lambda: bind(net(), [torch.zeros(1)]), r"a state is a TensorDict or a mapping\n  got: list"),
    "tensor as state": (BindError, lambda: bind(net(), torch.zeros(1)), r"got: Tensor"),
    "none as state": (BindError, lambda: bind(net(), None), r"got: NoneType"),
    "swapped": (BindError, lambda: bind(good(), net()), r"expected a module first\n  got: TensorDict\n  fix: bind\(model, params\)"),
    "unknown sub-module": (KeyPathError, lambda: bind(net(), good().set(("layer", "weight"), torch.zeros(1))), r"no 'layer' that takes a subtree"),
    "subtree for a leaf": (
        KeyPathError,
        lambda: bind(nn.Linear(2, 2), {"weight": {"x": torch.zeros(1)}, "bias": torch.zeros(2)}),
        r"'weight' that takes a subtree",
    ),
    "leaf for a subtree": (KeyPathError, lambda: bind(net(), good().set("0", torch.zeros(1))), r"'0' that takes a tensor"),
    "static": (KeyPathError, lambda: bind(nn.Linear(2, 2), params_of(nn.Linear(2, 2)).set("name", "x")), r"'name' that takes a static value"),
    "torn parameter": (BindError, lambda: bind(Tied("parameter"), params_of(Tied("no"))), r"one tied parameter\n  at: .*a.*weight.* and .*b.*weight"),
    "torn module": (
        BindError,
        lambda: bind(Tied("module"), params_of(Tied("no"))),
        r"2 problems\n- bind: several tensors given for one tied parameter",
    ),
    "torn buffer": (
        BindError,
        lambda: bind(Tied("buffer"), params_of(Tied("no")), {"x": torch.zeros(2), "y": torch.ones(2)}),
        r"at: '?x'? and '?y'?",
    ),
    "params_of no module": (BindError, lambda: params_of({}), r"params_of: expected a module\n  got: dict"),
    "buffers_of no module": (BindError, lambda: buffers_of(torch.zeros(1)), r"buffers_of: expected a module\n  got: Tensor"),
    "state_of no module": (BindError, lambda: state_of(nn.Linear), r"state_of: expected a module\n  got: type"),
    "load: swapped": (BindError, lambda: load_into(good(), net()), r"load_into: expected a module first"),
    "load: a module": (BindError, lambda: load_into(net(), net()), r"load_into: got a module where a state is meant"),
    "load: misspelled": (KeyPathError, lambda: load_into(nn.Linear(2, 2), {"wieght": torch.zeros(2, 2)}), r"no 'wieght'.*did you mean 'weight'"),
    "load: missing": (KeyPathError, lambda: load_into(net(), good().exclude(("0", "bias"))), r"missing parameter\n  at: '0', 'bias'"),
    "load: shape": (
        BindError,
        lambda: load_into(net(), good().set(("0", "bias"), torch.zeros(5))),
        r"wrong shape\n  at: '0', 'bias'\n  expected: \(3,\)\n  got: \(5,\)",
    ),
    "load: torn": (
        BindError,
        lambda: load_into(Tied("parameter"), params_of(Tied("no"))),
        r"tensors given for one tied parameter\n  at: .*a.*weight.* and .*b.*weight",
    ),
    "load: static": (
        KeyPathError,
        lambda: load_into(nn.Linear(2, 2), params_of(nn.Linear(2, 2)).set("name", "x")),
        r"'name' that takes a static value",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name_with_a_fix(name):
    kind, call, words = REFUSED[name]
    with pytest.raises(kind, match=re.compile(words, re.DOTALL)) as caught:
        call()
    assert isinstance(caught.value, TdfuncError)
    assert "fix: " in str(caught.value)


@pytest.mark.parametrize("kind", [KeyError, TdfuncError])
def test_a_missing_key_is_caught_as_python_and_as_tdfunc_calls_it(kind):
    with pytest.raises(kind, match="missing parameter"):
        bind(nn.Linear(1, 1), {"weight": torch.zeros(1, 1)})


@pytest.mark.parametrize("op", [bind, load_into])
def test_all_problems_are_told_at_once_and_nothing_is_written(op, snapshot):
    module = net()
    before = snapshot(module)
    state = good().set(("0", "weight"), torch.zeros(9)).exclude(("2", "bias")).set(("2", "bais"), torch.zeros(1)).set(("1", "weight"), torch.ones(3))
    with pytest.raises((BindError, KeyPathError), match="3 problems") as caught:
        op(module, state)
    for words in ("wrong shape", "missing parameter", "did you mean"):
        assert words in str(caught.value)
    assert snapshot(module) == before


@pytest.mark.parametrize("form", ["nested dict", "dotted", "mixed", "state_dict", "two trees", "TensorDict"])
def test_a_state_may_be_any_mapping(form):
    module, other = net(), net()
    flat = {**dict(other.named_parameters()), **dict(other.named_buffers())}
    params = params_of(other)
    forms = {
        "nested dict": ({name: dict(part) for name, part in params.items()},),
        "dotted": (dict(other.named_parameters()),),
        "mixed": (
            {
                "0.weight": params["0", "weight"],
                "0": {"bias": params["0", "bias"]},
                "1": params["1"],
                ("2", "weight"): params["2", "weight"],
                "2.bias": params["2", "bias"],
            },
        ),
        "state_dict": (other.state_dict(),),
        "two trees": (params, buffers_of(other)),
        "TensorDict": (TensorDict({tuple(name.split(".")): value for name, value in flat.items()}),),
    }
    x = torch.randn(4, 2)
    assert torch.equal(bind(module, *forms[form])(x), other(x))


def test_of_two_states_the_later_one_counts():
    module = nn.Linear(1, 1)
    ones, twos = params_of(module).map(torch.ones_like), params_of(module).map(lambda t: torch.full_like(t, 2.0))
    assert params_of(bind(module, ones, twos)).equal(twos)
    assert bind(module, ones, {"bias": torch.full((1,), 5.0)})(torch.ones(1, 1)).item() == 6


def test_a_plain_number_is_no_tensor_of_the_wrong_shape():
    with pytest.raises(BindError, match=r"wrong shape\n  at: 'weight'\n  expected: \(1, 2\)\n  got: \(\)"):
        bind(nn.Linear(2, 1), {"weight": 1.0, "bias": torch.zeros(1)})


def test_not_strict_takes_the_rest_from_the_module_with_gradients_to_it():
    module = nn.Linear(2, 1)
    bound = bind(module, {"bias": torch.full((1,), 7.0)}, strict=False)
    assert bound.weight is module.weight
    assert torch.equal(bound(torch.zeros(1, 2)), torch.full((1, 1), 7.0))


def test_wrong_arguments_of_the_call_itself_are_torchs_to_refuse():
    with pytest.raises(TypeError, match="strikt"):
        bind(nn.Linear(1, 1), {}, strikt=True)
