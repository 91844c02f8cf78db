"""States between torch.optim and here: a run that changes over is equal to one that does not, both ways."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tdfunc import StructureError, load_into, optim, params_of, stack

KINDS = {
    "sgd": (torch.optim.SGD, optim.sgd, {"momentum": 0.9, "dampening": 0.3}),
    "plain sgd": (torch.optim.SGD, optim.sgd, {}),
    "adam": (torch.optim.Adam, optim.adam, {"amsgrad": True}),
    "adamw": (torch.optim.AdamW, optim.adamw, {}),
    "radam": (torch.optim.RAdam, optim.radam, {}),
    "adamax": (torch.optim.Adamax, optim.adamax, {}),
    "rmsprop": (torch.optim.RMSprop, optim.rmsprop, {"momentum": 0.9, "centered": True}),
    "adagrad": (torch.optim.Adagrad, optim.adagrad, {"initial_accumulator_value": 0.1}),
    "adadelta": (torch.optim.Adadelta, optim.adadelta, {}),
}


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(3, 3).double(), nn.Linear(3, 3).double()
        self.two.weight = self.one.weight


def grad_of(tensor, t):
    return (3 * tensor.detach() + t).sin()


def torch_steps(model, optimizer, steps, start=0):
    for t in range(start, start + steps):
        for param in model.parameters():
            param.grad = grad_of(param, t)
        optimizer.step()


def our_steps(params, opt, state, steps, start=0):
    for t in range(start, start + steps):
        params, state = opt.step(params, params.map(lambda p: grad_of(p, t)), state)  # noqa: B023
    return params, state


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.fixture(params=["names", "module", "another order"])
def build(request, kind):
    cls, _, options = kind

    def make(model):
        if request.param == "names":
            return cls(model.named_parameters(), lr=0.05, **options), None
        parameters = list(model.parameters())
        return cls(parameters[::-1] if request.param == "another order" else parameters, lr=0.05, **options), model

    return make


def same(a, b):
    torch.testing.assert_close(a.to_flat(), b.to_flat(), rtol=1e-9, atol=1e-10)


def test_a_run_goes_on_here(kind, build):
    model = Tied()
    optimizer, module = build(model)
    torch_steps(model, optimizer, 5)
    opt = kind[1](0.05, **kind[2])
    params = params_of(model).clone()
    state = optim.from_torch(optimizer, params, module)
    assert state.structure is opt.init(params).structure
    got, _ = our_steps(params, opt, state, 5, 5)
    torch_steps(model, optimizer, 5, 5)
    same(got, params_of(model))


def test_a_run_goes_on_in_torch(kind, build):
    model = Tied()
    opt = kind[1](0.05, **kind[2])
    params, state = our_steps(params_of(model), opt, opt.init(params_of(model)), 5)
    expected, _ = our_steps(params, opt, state, 5, 5)
    load_into(model, params)
    optimizer, module = build(model)
    kept = state.clone()
    optimizer.load_state_dict(optim.to_torch(state, optimizer, module))
    torch_steps(model, optimizer, 5, 5)
    same(params_of(model), expected)
    assert state.equal(kept)  # torch stepped in tensors of its own


def test_there_and_back_is_the_same_state(kind, build):
    model = Tied()
    optimizer, module = build(model)
    torch_steps(model, optimizer, 3)
    state = optim.from_torch(optimizer, params_of(model), module, step=3)
    optimizer.load_state_dict(optim.to_torch(state, optimizer, module))
    assert optim.from_torch(optimizer, params_of(model), module, step=3).equal(state)


def test_an_optimizer_that_took_no_step_gives_the_first_state(kind, build):
    model = Tied()
    optimizer, module = build(model)
    state = optim.from_torch(optimizer, params_of(model), module)
    assert state["step"] == 0
    if kind[0] is not torch.optim.Adagrad:  # which fills its sums when it is made
        assert state.equal(kind[1](0.05, **kind[2]).init(params_of(model)))


def frozen():
    model = Tied()
    return optim.from_torch(torch.optim.Adam([("one.weight", model.one.weight)]), params_of(model))


def apart():
    model = Tied()
    optimizer = torch.optim.Adam(model.named_parameters())
    torch_steps(model, optimizer, 1)
    optimizer.state[model.one.bias]["step"] += 1
    return optim.from_torch(optimizer, params_of(model))


BAD = {
    "no names": (lambda: optim.from_torch(torch.optim.Adam(Tied().parameters()), params_of(Tied())), "does not know the names"),
    "another module": (
        lambda: optim.from_torch(torch.optim.Adam(Tied().parameters()), params_of(Tied()), Tied()),
        "not in the module\n  got: 3 of 3",
    ),
    "another kind": (lambda: optim.from_torch(torch.optim.ASGD(Tied().named_parameters()), params_of(Tied())), "of another kind"),
    "some parameters": (frozen, "'one', 'bias': not in the optimizer; 'two', 'bias': not in the optimizer"),
    "stacked": (lambda: optim.from_torch(torch.optim.Adam(Tied().named_parameters()), stack([params_of(Tied())] * 2)), r"\(2, 3, 3\) for \(3, 3\)"),
    "steps apart": (apart, "different numbers of steps"),
    "another state": (
        lambda: optim.to_torch(optim.sgd(0.1).init(params_of(Tied())), torch.optim.Adam(Tied().named_parameters())),
        "not one of this optimizer",
    ),
    "groups": (
        lambda: optim.from_torch(
            torch.optim.SGD([{"params": [("a", torch.ones(1))], "momentum": 0.9}, {"params": [("b", torch.ones(1))]}], 0.1), params_of(Tied())
        ),
        "groups whose options",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_match_is_refused_by_name(name):
    call, text = BAD[name]
    with pytest.raises(StructureError, match=text):
        call()
