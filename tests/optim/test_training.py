"""The whole way: an ensemble with BatchNorm, trained at once, equals torch modules trained one by one in a loop."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tdfunc import bind, buffers_of, init_ensemble, load_into, optim, params_of, value_and_grad, vmap

MEMBERS, STEPS = 3, 20


def net():  # no bias before the BatchNorm: its gradient is rounding, which Adam would blow up
    return nn.Sequential(nn.Linear(4, 16, bias=False), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 1)).double()


def data():
    torch.manual_seed(9)
    return [(torch.randn(8, 4).double(), torch.randn(8, 1).double()) for _ in range(STEPS)]


def rate(step):
    return 0.05 * torch.tensor(0.95, dtype=torch.float64) ** step  # 0.95**step of an integer tensor would be a float32


def by_torch(kind, params, buffers):
    """Train each member by torch's own optimizer, in a loop."""
    made = []
    for i in range(MEMBERS):
        module = net()
        module.load_state_dict({**params[i].to_flat(), **buffers[i].to_flat()})
        opt = kind(module.parameters(), lr=1.0, **({"momentum": 0.9} if kind is torch.optim.SGD else {}))
        for step, (x, y) in enumerate(data()):
            opt.param_groups[0]["lr"] = 0.05 * 0.95**step
            opt.zero_grad()
            (module(x) - y).pow(2).mean().backward()
            opt.step()
        made.append(module)
    return made


OPTS = {
    "adam": (optim.adam, torch.optim.Adam, {}),
    "adamw": (optim.adamw, torch.optim.AdamW, {}),
    "sgd": (optim.sgd, torch.optim.SGD, {"momentum": 0.9}),
}


@pytest.mark.parametrize("way", ["eager", "compiled"])
@pytest.mark.parametrize("name", OPTS)
def test_an_ensemble_trains_as_its_members_do_alone(name, way):
    make, kind, options = OPTS[name]
    skeleton, params, buffers = init_ensemble(net, MEMBERS, seed=0)
    opt, traces = make(rate, **options), []

    def loss(params, buffers, x, y):
        bound = bind(skeleton, params, buffers)
        return (bound(x) - y).pow(2).mean(), buffers_of(bound)

    def train(params, buffers, state, x, y):
        (value, buffers), grads = vmap(value_and_grad(loss, has_aux=True), (0, 0, None, None))(params, buffers, x, y)
        params, state = opt.step(params, grads, state)
        return params, buffers, state, value

    step = torch.compile(train, fullgraph=True, backend=lambda graph, inputs: traces.append(1) or graph.forward) if way == "compiled" else train
    expected = by_torch(kind, params, buffers)
    state = opt.init(params)
    for x, y in data():
        params, buffers, state, value = step(params, buffers, state, x, y)
    assert len(traces) == (way == "compiled")
    assert value.shape == (MEMBERS,)
    assert state["step"].tolist() == [STEPS] * MEMBERS
    for i, module in enumerate(expected):
        assert params[i].allclose(params_of(module), rtol=0, atol=1e-10)
        assert buffers[i].allclose(buffers_of(module), rtol=0, atol=1e-10)
        mine = net()
        load_into(mine, params[i] | buffers[i])
        x = data()[0][0]
        torch.testing.assert_close(mine.eval()(x), module.eval()(x), rtol=0, atol=1e-9)
