"""`ensemble`: many states at once equal each member alone; what differs from member to member is said by in_dims."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tdfunc import TensorDict, bind, buffers_of, ensemble, params_of, stack, state_of, vmap
from tdfunc._errors import BatchSizeError, StructureError


def net():
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2)).double()


def members(n=4):
    return [state_of(net()).map(lambda t: t + 0.3 * torch.randn_like(t).abs() if t.is_floating_point() else t.clone()) for _ in range(n)]


def rows(n=6, *lead):
    return torch.randn(*lead, n, 3, dtype=torch.float64)


def assert_same(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_it_equals_each_member_alone(training):
    template, states, x = net().train(training), members(), rows()
    assert_same(ensemble(template)(stack(states), x), torch.stack([bind(template, state)(x) for state in states]))


def test_params_and_buffers_may_be_joined_by_or():
    template, x = net(), rows()
    params, buffers = stack([params_of(net()) for _ in range(3)]), stack([buffers_of(net()) for _ in range(3)])
    assert_same(ensemble(template)(params | buffers, x), torch.stack([bind(template, params[i], buffers[i])(x) for i in range(3)]))


@pytest.mark.parametrize("training", [True, False])
def test_params_alone_take_the_buffers_of_the_template(training):
    template, x = net().train(training), rows()
    template[1].running_mean.fill_(3.0)
    params = stack([params_of(net()) for _ in range(3)])
    assert_same(ensemble(template)(params, x), torch.stack([bind(template, params[i])(x) for i in range(3)]))


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 2).double()

    def forward(self, x, shift, *, scale=1.0, name="a"):
        return {"y": self.lin(x) * scale + shift, "name": torch.tensor(len(name))}


IN_DIMS = {
    "None": (None, (), {}),
    "0": (0, (0, 1), {}),
    "(0, None)": ((0, None), (0,), {}),
    "(None, 0)": ((None, 0), (1,), {}),
    "[None, 0]": ([None, 0], (1,), {}),
    "dict": ({"scale": 0}, (), {"scale"}),
}


@pytest.mark.parametrize("name", IN_DIMS)
def test_in_dims_say_which_arguments_differ(name):
    in_dims, mapped, keywords = IN_DIMS[name]
    template, states = Two(), [params_of(Two()) for _ in range(4)]
    args = [rows(6, 4) if 0 in mapped else rows(), torch.randn(4, 2).double() if 1 in mapped else torch.randn(2).double()]
    scale = torch.randn(4).double() if "scale" in keywords else torch.tensor(2.0).double()
    got = ensemble(template, in_dims=in_dims)(stack(states), *args, scale=scale, name="abc")
    for i, state in enumerate(states):
        mine = [arg[i] if k in mapped else arg for k, arg in enumerate(args)]
        expected = bind(template, state)(*mine, scale=scale[i] if keywords else scale, name="abc")
        assert_same({key: value[i] for key, value in got.items()}, expected)


def test_an_argument_may_be_a_tree():
    class Reads(nn.Linear):
        def forward(self, td):
            return td.set("y", super().forward(td["x"]))

    template, data = Reads(3, 2), TensorDict({"x": torch.randn(5, 3)}, batch_size=5)
    params = stack([params_of(Reads(3, 2)) for _ in range(4)])
    out = ensemble(template)(params, data)
    assert out.batch_size == (4, 5)
    torch.testing.assert_close(out["y"], torch.stack([bind(template, params[i])(data)["y"] for i in range(4)]))
    many = data.map(lambda t: torch.stack([t + i for i in range(4)])).with_batch_size((4, 5))
    out = ensemble(template, in_dims=0)(params, many)
    torch.testing.assert_close(out["y"], torch.stack([bind(template, params[i])(many[i])["y"] for i in range(4)]))


DROP = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))


@pytest.mark.parametrize(("randomness", "count"), [(None, 4), ("different", 4), ("same", 1)])
def test_dropout_masks_are_each_members_own_unless_told(randomness, count):
    state = stack([params_of(DROP)] * 4)
    run = ensemble(DROP) if randomness is None else ensemble(DROP, randomness=randomness)
    out = run(state, torch.ones(64, 3))
    assert len({tuple((o == 0).flatten().tolist()) for o in out}) == count
    assert 0 < (out == 0).double().mean() < 1


def test_randomness_error_refuses():
    with pytest.raises(RuntimeError, match="randomness"):
        ensemble(DROP, randomness="error")(stack([params_of(DROP)] * 2), torch.ones(1, 3))


@pytest.mark.parametrize("chunk_size", [1, 3, 4, 8])
def test_chunks_do_not_show(chunk_size):
    template, state, x = net(), stack(members(4)), rows()
    assert_same(ensemble(template, chunk_size=chunk_size)(state, x), ensemble(template)(state, x))


def test_nothing_is_written_to_template_or_state():
    template, state = net(), stack(members())
    kept, before = state.clone(), {name: value.clone() for name, value in template.state_dict().items()}
    ensemble(template)(state, rows())
    assert state.equal(kept)
    assert all(torch.equal(value, before[name]) for name, value in template.state_dict().items())


def test_the_way_to_keep_buffers_that_the_doc_gives_is_right():
    template, states, x = net(), members(), rows()
    out, after = vmap(lambda s, x: ((m := bind(template, s))(x), buffers_of(m)), in_dims=(0, None))(stack(states), x)
    for i, state in enumerate(states):
        bound = bind(template, state)
        assert_same(out[i], bound(x))
        assert after[i].allclose(buffers_of(bound), rtol=1e-12, atol=1e-12)


def test_gradients_reach_each_member_as_if_alone():
    template, x = net().eval(), rows()
    params = stack([params_of(net()) for _ in range(3)]).requires_grad()
    got = torch.autograd.grad(ensemble(template)(params, x).sin().sum(), params._leaves)
    for k in range(3):
        alone = params[k].requires_grad()
        expected = torch.autograd.grad(bind(template, alone)(x).sin().sum(), alone._leaves)
        assert_same([g[k] for g in got], list(expected))


def test_stacked_leaves_are_what_torch_optim_trains():
    template, x, y = nn.Linear(3, 1), torch.randn(32, 3), torch.randn(32, 1)
    params = stack([params_of(nn.Linear(3, 1)) for _ in range(3)]).requires_grad()
    opt = torch.optim.Adam(list(params._leaves), 0.05)
    loss = lambda: (ensemble(template)(params, x) - y).pow(2).mean((1, 2))
    first = loss()
    for _ in range(50):
        opt.zero_grad()
        loss().sum().backward()
        opt.step()
    assert (loss() < first).all()


def test_compiled_it_is_the_same_in_one_trace():
    template, traces = net(), []
    compiled = torch.compile(ensemble(template), fullgraph=True, backend=lambda graph, inputs: traces.append(1) or graph.forward)
    for _ in range(3):
        state, x = stack(members()), rows()
        assert_same(compiled(state, x), ensemble(template)(state, x))
    assert len(traces) == 1


def test_a_meta_template_is_enough():
    template, state, x = net(), stack(members()), rows()
    expected = ensemble(template)(state, x)
    assert_same(ensemble(template.to("meta"))(state, x), expected)


REFUSED = {
    "no member dim": (
        BatchSizeError,
        lambda: ensemble(net())(state_of(net()), rows()),
        r"the state has no member dim\n  expected: batch size \(members,\)\n  got: \(\)",
    ),
    "too few in_dims": (
        StructureError,
        lambda: ensemble(Two(), in_dims=(0,))(stack([params_of(Two())]), 1, 2),
        r"in_dims does not match.*expected: 2 entries",
    ),
    "unknown keyword": (
        StructureError,
        lambda: ensemble(Two(), in_dims={"skale": 0})(stack([params_of(Two())]), 1, 2, scale=3),
        r"no keyword argument.*got: \['skale'\]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_a_fix(name):
    kind, call, words = REFUSED[name]
    with pytest.raises(kind, match="(?s)" + words) as caught:
        call()
    assert "fix: " in str(caught.value)
