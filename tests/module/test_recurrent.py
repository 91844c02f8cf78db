"""Bound recurrent modules inside transforms: equal to torch's kernels in a loop, values and gradients."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import tdfunc
from tdfunc import BindError, bind, params_of, stack

X, ALONE = torch.randn(3, 5, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
MODULES = {
    "lstm": lambda: nn.LSTM(4, 3, batch_first=True),
    "lstm, time first": lambda: nn.LSTM(4, 3),
    "lstm, deep, both ways": lambda: nn.LSTM(4, 3, 2, bidirectional=True, batch_first=True),
    "lstm, projected": lambda: nn.LSTM(4, 3, 2, proj_size=2, bidirectional=True),
    "lstm, no bias": lambda: nn.LSTM(4, 3, bias=False),
    "lstm, dropout in eval": lambda: nn.LSTM(4, 3, 2, dropout=0.5).eval(),
    "gru": lambda: nn.GRU(4, 3),
    "gru, deep, both ways": lambda: nn.GRU(4, 3, 3, bidirectional=True, batch_first=True),
    "rnn": lambda: nn.RNN(4, 3, 2, bidirectional=True),
    "rnn, relu": lambda: nn.RNN(4, 3, nonlinearity="relu", batch_first=True),
    "lstm cell": lambda: nn.LSTMCell(4, 3),
    "gru cell": lambda: nn.GRUCell(4, 3, bias=False),
    "rnn cell": lambda: nn.RNNCell(4, 3),
    "rnn cell, relu": lambda: nn.RNNCell(4, 3, nonlinearity="relu"),
}


@pytest.fixture(params=MODULES)
def module(request):
    torch.manual_seed(0)
    return MODULES[request.param]().double()


def inputs(module, state, batched):
    if isinstance(module, nn.RNNCellBase):
        x = X[:, 0] if batched else ALONE[0]
        hx = torch.randn(*x.shape[:-1], 3, dtype=torch.float64)
        return (x, (hx, hx * 2) if isinstance(module, nn.LSTMCell) else hx)[: 1 + state]
    x = X if batched else ALONE
    count = module.num_layers * (1 + module.bidirectional)
    n = () if not batched else (x.shape[0 if module.batch_first else 1],)
    hx = torch.randn(count, *n, module.proj_size or 3, dtype=torch.float64)
    cx = torch.randn(count, *n, 3, dtype=torch.float64)
    return (x, (hx, cx) if isinstance(module, nn.LSTM) else hx)[: 1 + state]


def flat(out):
    return torch.cat([part.reshape(-1) for part in (out[0], *(out[1] if isinstance(out[1], tuple) else out[1:]))]) if isinstance(out, tuple) else out


@pytest.mark.parametrize("state", [False, True], ids=["zeros", "a state"])
@pytest.mark.parametrize("batched", [True, False], ids=["batched", "alone"])
def test_members_under_vmap_equal_torchs_kernel_in_a_loop(module, state, batched):
    args = inputs(module, state, batched)
    members = [params_of(module).map(lambda t, i=i: t * (1 + 0.3 * i)) for i in range(3)]
    out = tdfunc.vmap(lambda p: bind(module, p)(*args))(stack(members))
    for i, member in enumerate(members):
        expected = bind(module, member)(*args)
        got = torch.utils._pytree.tree_map(lambda t: t[i], out)  # noqa: B023
        torch.testing.assert_close(got, expected)


def test_gradients_inside_and_outside_agree(module):
    args = inputs(module, True, True)
    params = params_of(module)
    loss = lambda p: flat(bind(module, p)(*args)).sin().sum()
    leaves = params.requires_grad()
    expected = torch.autograd.grad(loss(leaves), leaves._leaves)
    torch.testing.assert_close(tdfunc.grad(loss)(params)._leaves, expected)
    per_member = tdfunc.vmap(tdfunc.grad(loss))(stack([params, params * 2]))
    torch.testing.assert_close(per_member[0]._leaves, expected)
    torch.testing.assert_close(per_member[1].to_flat(), tdfunc.grad(loss)(params * 2).to_flat())


def test_inputs_are_mapped_too(module):
    (x,) = inputs(module, False, True)
    rows = torch.stack([x, x * 2])
    out = tdfunc.vmap(lambda x: bind(module, params_of(module))(x))(rows)
    torch.testing.assert_close(torch.utils._pytree.tree_map(lambda t: t[1], out), module(rows[1]))


def test_outside_of_transforms_it_is_torchs_kernel(module, monkeypatch):
    args = inputs(module, False, True)
    calls = []
    monkeypatch.setattr("tdfunc.module.clone._recurrent.linear", lambda *args: calls.append(args))
    torch.testing.assert_close(bind(module, params_of(module))(*args), module(*args))
    assert not calls


def test_second_derivatives_exist_inside():
    module = nn.LSTM(2, 2).double()
    params, x = params_of(module), torch.randn(3, 1, 2, dtype=torch.float64)
    loss = lambda x: bind(module, params)(x)[0].sum()
    hessian = torch.func.hessian(loss)(x)
    torch.testing.assert_close(hessian, torch.autograd.functional.hessian(lambda x: module(x)[0].sum(), x))


def test_dropout_between_layers_is_drawn_for_each_member():
    module = nn.GRU(4, 8, 2, dropout=0.5).double()
    params = params_of(module)
    out, _ = tdfunc.vmap(lambda p: bind(module, p)(X), randomness="different")(stack([params] * 2))
    assert not torch.equal(out[0], out[1])
    same, _ = tdfunc.vmap(lambda p: bind(module, p)(X), randomness="same")(stack([params] * 2))
    assert torch.equal(same[0], same[1])


def test_a_wrong_width_is_told_as_torch_tells_it(module):
    x = X[..., :2] if not isinstance(module, nn.RNNCellBase) else X[:, 0, :2]
    with pytest.raises((RuntimeError, ValueError)):
        tdfunc.vmap(lambda p: bind(module, p)(x))(stack([params_of(module)] * 2))


def test_a_packed_sequence_is_refused_inside_and_taken_outside():
    module = nn.LSTM(4, 3, batch_first=True).double()
    packed = nn.utils.rnn.pack_padded_sequence(X, [5, 3, 1], batch_first=True)
    torch.testing.assert_close(bind(module, params_of(module))(packed)[0].data, module(packed)[0].data)
    with pytest.raises(BindError, match="no packed sequence"):
        tdfunc.vmap(lambda p: bind(module, p)(packed)[1][0])(stack([params_of(module)] * 2))


def test_a_forward_of_its_own_stays():
    class Scaled(nn.LSTM):
        def forward(self, x):
            return super().forward(x)[0] * 2

    module = Scaled(4, 3).double()
    torch.testing.assert_close(bind(module, params_of(module))(X), module(X))
    patched = nn.LSTM(4, 3).double()
    patched.forward = lambda x: x + 1
    torch.testing.assert_close(bind(patched, params_of(patched))(X), X + 1)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), lambda m: bind(m, params_of(m))])
def test_copies_of_a_bound_one_run_on_their_own(again):
    module = nn.LSTM(4, 3).double()
    made = again(bind(module, params_of(module) * 2))
    twin = copy.deepcopy(module)
    tdfunc.load_into(twin, params_of(module) * 2)
    torch.testing.assert_close(made(X), twin(X))
    torch.testing.assert_close(tdfunc.vmap(lambda x: made(x)[0])(torch.stack([X, X]))[1], twin(X)[0])


def test_a_normalisation_bound_inside_and_again_outside_is_torchs_own():
    module = nn.BatchNorm1d(3)
    inside = []

    def run(x):
        inside.append(bind(module, tdfunc.state_of(module)))
        return inside[-1](x)

    tdfunc.vmap(run)(torch.randn(2, 4, 3))
    again = bind(inside[0], params_of(module), tdfunc.buffers_of(module))
    assert "forward" not in again.__dict__
    torch.testing.assert_close(again(X[..., :3].reshape(-1, 3).float()), module(X[..., :3].reshape(-1, 3).float()))
