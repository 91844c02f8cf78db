"""Nothing is swapped in, so there is nothing to restore: checkpointing, threads, exceptions, nesting and re-entrance are right."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tdfunc import bind, buffers_of, params_of, state_of


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        self.reentrant = reentrant

    def forward(self, x):
        return self.body(x) if self.reentrant is None else checkpoint(self.body, x, use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradients_through_activation_checkpointing_are_exact(reentrant):
    on, off = Checkpointed(reentrant).double(), Checkpointed(None).double()
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    params = params_of(on).map(torch.randn_like)
    got, expected = params.requires_grad(), params.requires_grad()
    bind(on, got)(x).pow(3).sum().backward()
    bind(off, expected)(x).pow(3).sum().backward()
    for a, b in zip(got._leaves, expected._leaves, strict=True):
        assert torch.equal(a.grad, b.grad)
        assert b.grad.abs().sum() > 0


def test_threads_with_parameters_of_their_own_never_see_those_of_another():
    module, x = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)), torch.randn(4, 8)
    states = [state_of(module).map(lambda t, i=i: t * 0 + i if t.is_floating_point() else t.clone()) for i in range(1, 9)]
    expected = [bind(module, state)(x) for state in states]
    assert len({out.sum().item() for out in expected}) == 8
    wrong, done = [], []

    def work(i):
        for _ in range(250):
            done.append(i)
            if not torch.equal(bind(module, states[i])(x), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 2000
    assert wrong == []


class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.seen = nn.Linear(2, 2), 0
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        self.seen += 1
        raise RuntimeError("on purpose")


def test_an_exception_leaves_module_and_state_alone(snapshot):
    module = Fails()
    before, state = snapshot(module), state_of(module).clone()
    kept = state.clone()
    bound = bind(module, state)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="on purpose"):
            bound(torch.ones(1, 2))
    assert snapshot(module) == before
    assert state.equal(kept)
    assert bound.seen == 2
    assert buffers_of(bound)["count"] == 2


class Recursive(nn.Module):
    """Binds itself to half of its own values, and calls that."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(8.0))

    def forward(self, depth):
        return self.w if depth == 0 else self.w + bind(self, params_of(self, detach=False).map(lambda t: t / 2))(depth - 1)


def test_a_bound_module_can_be_bound_inside_its_own_call():
    params = params_of(Recursive()).requires_grad()
    out = bind(Recursive(), params)(3)
    assert out == 8 + 4 + 2 + 1
    assert torch.autograd.grad(out, params._leaves) == (torch.tensor(1 + 0.5 + 0.25 + 0.125),)


def test_binding_a_bound_module_counts_the_last_values_only():
    module, x = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), torch.randn(4, 3)
    first, second = [params_of(module).map(torch.randn_like) for _ in range(2)]
    once = bind(module, first)
    twice = bind(once, second)
    assert torch.equal(twice(x), bind(module, second)(x))
    assert torch.equal(once(x), bind(module, first)(x))
    assert params_of(once).equal(first)


def test_any_method_and_any_submodule_can_be_called():
    module = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), 2, enable_nested_tensor=False)
    params, x = params_of(module).map(torch.randn_like), torch.randn(2, 3, 4)
    bound = bind(module, params)
    alone = nn.Linear(4, 8)
    alone.load_state_dict(params["layers", "1", "linear1"].to_flat())
    assert torch.equal(bound.layers[1].linear1(x), alone(x))
    assert torch.equal(bound.get_submodule("layers.1.linear1")(x), bound.layers[1].linear1(x))
    assert bound.layers[1]._ff_block(x).shape == x.shape


def test_arguments_by_keyword_need_no_empty_tuple():
    class Keywords(nn.Linear):
        def forward(self, *, input, scale=1.0):
            return super().forward(input) * scale

    module = Keywords(2, 2)
    zeros = params_of(module).map(torch.ones_like)
    assert torch.equal(bind(module, zeros)(input=torch.ones(1, 2), scale=2.0), torch.full((1, 2), 6.0))


def test_lstm_gradients_reach_all_leaves_and_the_module_keeps_its_own_weights():
    module, x = nn.LSTM(2, 3, batch_first=True), torch.randn(1, 4, 2)
    params = params_of(module).map(torch.randn_like).requires_grad()
    plain = module(x)[0]
    grads = torch.autograd.grad(bind(module, params)(x)[0].sum(), params._leaves)
    assert all(grad.abs().sum() > 0 for grad in grads)
    assert all(any(weight is p for p in module.parameters()) for weight in module._flat_weights)
    assert torch.equal(module(x)[0], plain)


@pytest.mark.parametrize("wrap", ["whole", "inner", "in place"])
def test_a_compiled_module_runs_the_values_given(wrap):
    module = nn.Sequential(nn.Linear(1, 3))
    params = params_of(module).map(torch.zeros_like)
    if wrap == "in place":
        module.compile(backend="eager")
        made = module
    elif wrap == "inner":
        made = nn.Sequential(torch.compile(module[0], backend="eager"))
    else:
        made = torch.compile(module, backend="eager")
    assert params_of(made).structure is params.structure
    assert torch.equal(bind(made, params)(torch.ones(2, 1)), torch.zeros(2, 3))


WRITES = {
    "requires_grad_": lambda m: m.requires_grad_(False),
    "load_state_dict": lambda m: m.load_state_dict({name: value + 1 for name, value in m.state_dict().items()}),
}


@pytest.mark.parametrize("op", WRITES)
def test_torch_methods_that_write_change_the_bound_one_at_most(op, snapshot):
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    state = state_of(module).requires_grad()
    facts = lambda: [(t.requires_grad, t.detach().tolist()) for t in state._leaves]
    before, leaves = snapshot(module), facts()
    WRITES[op](bind(module, state))
    assert facts() == leaves
    assert snapshot(module) == before


def test_the_modules_own_parameters_may_be_given_in_part():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    own = params_of(module, detach=False)
    bound = bind(module, own.exclude(("1", "bias")), strict=False)
    assert all(ours is theirs for ours, theirs in zip(bound._modules["0"]._parameters.values(), module[0].parameters(), strict=True))
    with pytest.raises(KeyError, match=r"missing parameter\n  at: '1', 'bias'") as caught:
        bind(module, own.exclude(("1", "bias")))
    assert "problems" not in str(caught.value)
