"""`ensemble`: many states at once equal each member alone; what differs from member to member is said by in_dims."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tdfunc import TensorDict, bind, buffers_of, ensemble, params_of, stack, state_of, value_and_grad, vmap
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


class Item(nn.Linear):
    def forward(self, x):
        return super().forward(x) * self.weight.sum().item()


class Branches(nn.Linear):
    def forward(self, x):
        out = super().forward(x)
        return out.sin() if out.sum() > 0 else out.cos()


class Picks(nn.Linear):
    def forward(self, x):
        out = super().forward(x)
        return out[out > 0].sum()


class Numpy(nn.Linear):
    def forward(self, x):
        return super().forward(x) + torch.from_numpy(self.bias.detach().numpy())


class Writes(nn.Linear):
    def forward(self, x):
        return torch.zeros(len(x), 2, dtype=x.dtype).add_(super().forward(x))


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Applies(nn.Linear):
    def forward(self, x):
        return Own.apply(super().forward(x))


CANNOT = [Item, Branches, Picks, Numpy, Writes, Applies]


@pytest.mark.parametrize("cls", CANNOT, ids=lambda cls: cls.__name__)
def test_what_vmap_cannot_run_is_an_error_that_names_the_argument_or_a_loop(cls):
    template, x = cls(3, 2).double(), rows()
    params = stack([params_of(cls(3, 2).double()) for _ in range(4)]).requires_grad()
    with pytest.raises(StructureError, match=r'(?s)vmap cannot run this module.*fix: .*fallback="loop"') as caught:
        ensemble(template)(params, x)
    assert isinstance(caught.value.__cause__, RuntimeError)
    out = ensemble(template, fallback="loop")(params, x)
    alone = [params[k].detach().requires_grad() for k in range(4)]
    expected = torch.stack([bind(template, state)(x) for state in alone])
    assert torch.equal(out, expected)
    got = torch.autograd.grad(out.sin().sum(), params._leaves)
    wanted = torch.autograd.grad(expected.sin().sum(), [leaf for state in alone for leaf in state._leaves])
    assert_same(list(got), [torch.stack(wanted[i :: len(got)]) for i in range(len(got))])


class Fails(nn.Linear):
    def forward(self, x):
        raise RuntimeError("on purpose")


def test_an_error_of_the_module_itself_comes_as_it_is():
    state = stack([params_of(Fails(3, 2))] * 2)
    for fallback in ("error", "loop"):
        with pytest.raises(RuntimeError, match="^on purpose$"):
            ensemble(Fails(3, 2), fallback=fallback)(state, rows())


@pytest.mark.parametrize("name", IN_DIMS)
def test_the_loop_is_what_vmap_is(name):
    in_dims, mapped, keywords = IN_DIMS[name]
    template, states = Two(), stack([params_of(Two()) for _ in range(4)])
    args = [rows(6, 4) if 0 in mapped else rows(), torch.randn(4, 2).double() if 1 in mapped else torch.randn(2).double()]
    scale = torch.randn(4).double() if "scale" in keywords else torch.tensor(2.0).double()
    call = lambda fallback: ensemble(template, in_dims=in_dims, fallback=fallback)(states, *args, scale=scale)
    assert_same(call("loop"), call("error"))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
def test_the_loop_with_buffers_and_gradients_is_what_vmap_is(training, compiled):
    template, states, x = net().train(training), stack(members(3)), rows(6, 3)

    def run(fallback):
        def loss(params, buffers, x):
            out, buffers = ensemble(template, in_dims=0, fallback=fallback, buffers=True)(params | buffers, x)
            return out.sin().sum(), buffers

        fn = value_and_grad(loss, has_aux=True)
        return torch.compile(fn, fullgraph=True, backend="eager") if compiled else fn

    params, start = states.select(*params_of(template).keys(True, True)), states.select(*buffers_of(template).keys(True, True))
    (loop, loop_buffers), loop_grads = run("loop")(params, start, x)
    (out, buffers), grads = run("error")(params, start, x)
    assert_same(loop, out)
    assert buffers.batch_size == loop_buffers.batch_size == (3,)
    assert loop_buffers.structure is buffers.structure
    assert loop_buffers.allclose(buffers, rtol=1e-12, atol=1e-12)
    assert loop_grads.allclose(grads, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("fallback", ["error", "loop"])
@pytest.mark.parametrize("given", ["params and buffers", "params"])
def test_buffers_after_the_call_are_returned_when_asked_for(fallback, given):
    template, states, x = net(), members(3), rows()
    names = set(params_of(template).keys(True, True))
    if given == "params":
        states = [state.select(*names) for state in states]
    out, after = ensemble(template, buffers=True, fallback=fallback)(stack(states), x)
    for i, state in enumerate(states):
        bound = bind(template, state)
        assert_same(out[i], bound(x))
        assert after[i].allclose(buffers_of(bound), rtol=1e-12, atol=1e-12)
        assert after[i].structure is buffers_of(bound).structure
    assert template[1].num_batches_tracked == 0


@pytest.mark.parametrize("fallback", ["error", "loop"])
@pytest.mark.parametrize("chunk_size", [None, 2])
def test_without_buffers_their_tree_is_empty_but_has_members(fallback, chunk_size):
    params = stack([params_of(nn.Linear(3, 2)) for _ in range(4)])
    out, after = ensemble(nn.Linear(3, 2), buffers=True, fallback=fallback, chunk_size=chunk_size)(params, torch.ones(5, 3))
    assert out.shape == (4, 5, 2)
    assert (after.is_empty(), after.batch_size) == (True, (4,))


@pytest.mark.parametrize("fallback", ["error", "loop"])
def test_a_module_without_parameters_has_members_too(fallback):
    out = ensemble(nn.Dropout(0.5), fallback=fallback)(TensorDict(batch_size=(3,)), torch.ones(64))
    assert out.shape == (3, 64)
    assert len({tuple(o.tolist()) for o in out}) == 3


@pytest.mark.parametrize("fallback", ["error", "loop"])
@pytest.mark.parametrize("mapped", [True, False])
def test_with_the_same_randomness_a_member_is_the_module_alone_from_the_same_seed(fallback, mapped):
    states, x = stack([params_of(DROP) for _ in range(3)]), torch.randn(3, 7, 3) if mapped else torch.randn(7, 3)
    torch.manual_seed(5)
    out = ensemble(DROP, in_dims=0 if mapped else None, randomness="same", fallback=fallback)(states, x)
    after = torch.randn(2)
    for i in range(3):
        torch.manual_seed(5)
        torch.testing.assert_close(out[i], bind(DROP, states[i])(x[i] if mapped else x))
        assert torch.equal(torch.randn(2), after)


def test_in_a_loop_a_member_draws_what_the_modules_in_a_loop_draw():
    states, x = [params_of(DROP) for _ in range(3)], torch.randn(7, 3)
    torch.manual_seed(5)
    out = ensemble(DROP, fallback="loop")(stack(states), x)
    torch.manual_seed(5)
    assert torch.equal(out, torch.stack([bind(DROP, state)(x) for state in states]))


def test_a_dict_names_positions_too():
    template, states = Two(), [params_of(Two()) for _ in range(4)]
    x, shift, scale = rows(6, 4), torch.randn(2).double(), torch.randn(4).double()
    got = ensemble(template, in_dims={0: 0, "scale": 0})(stack(states), x, shift, scale=scale)
    for i, state in enumerate(states):
        assert_same(got["y"][i], bind(template, state)(x[i], shift, scale=scale[i])["y"])


@pytest.mark.parametrize("fallback", ["error", "loop"])
def test_in_dims_may_be_other_dims_and_trees(fallback):
    class Pair(nn.Linear):
        def forward(self, pair, more):
            return super().forward(pair["x"]) * pair["scale"] + more[0]

    template, states = Pair(3, 2), [params_of(Pair(3, 2)) for _ in range(4)]
    x, scale, more = torch.randn(5, 3, 4), torch.tensor(2.0), torch.randn(2, 4)
    run = ensemble(template, in_dims=({"x": -1, "scale": None}, (1,)), fallback=fallback)
    got = run(stack(states), {"x": x, "scale": scale}, (more,))
    for i, state in enumerate(states):
        torch.testing.assert_close(got[i], bind(template, state)({"x": x[..., i], "scale": scale}, (more[:, i],)))


class Uneven(nn.Linear):
    def forward(self, x):
        out = super().forward(x)
        return out[: int(self.bias[0])]


class Mixed(nn.Linear):
    def forward(self, x):
        return (x, x) if self.bias[0] > 1 else x


class Counts(nn.Linear):
    def forward(self, x):
        return x, 3


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
    "unknown position": (
        StructureError,
        lambda: ensemble(Two(), in_dims={2: 0})(stack([params_of(Two())]), 1, 2),
        r"no position\n  expected: \[0, 1\]\n  got: \[2\]",
    ),
    "unknown randomness": (StructureError, lambda: ensemble(Two(), randomness="some"), r"unknown randomness\n  expected: 'different' or"),
    "unknown fallback": (StructureError, lambda: ensemble(Two(), fallback="vmap"), r"unknown fallback\n  expected: 'error' or 'loop'\n  got: 'vmap'"),
    "members that differ": (
        BatchSizeError,
        lambda: ensemble(Two(), in_dims=(0, None))(stack([params_of(Two())] * 3), rows(6, 4), 2),
        r"no entry for each member\n  at: argument 0\n  expected: size 3 along dim 0\n  got: shape \(4, 6, 3\)",
    ),
    "members that differ, by keyword": (
        BatchSizeError,
        lambda: ensemble(Two(), in_dims={"scale": 0}, fallback="loop")(stack([params_of(Two())] * 3), rows(), 2, scale=torch.ones(4)),
        r"at: keyword 'scale'",
    ),
    "no member dim in an argument": (
        BatchSizeError,
        lambda: ensemble(Two(), in_dims=0)(stack([params_of(Two())] * 3), rows(6, 3), 2.0),
        r"at: argument 1.*got: float",
    ),
    "randomness in a loop": (
        StructureError,
        lambda: ensemble(DROP, randomness="error", fallback="loop")(stack([params_of(DROP)] * 2), torch.ones(1, 3)),
        r'a random operation ran, which randomness="error" refuses\n  at: member 0',
    ),
    "shapes that differ": (
        StructureError,
        lambda: ensemble(Uneven(3, 2), fallback="loop")(
            stack([params_of(Uneven(3, 2)).set("bias", torch.full((2,), k)) for k in (2.0, 3.0)]), torch.ones(5, 3)
        ),
        r"different form\n  at: member 1\n  expected: as member 0: \(2, 2\), torch.float32\n  got: \(3, 2\)",
    ),
    "forms that differ": (
        StructureError,
        lambda: ensemble(Mixed(3, 2), fallback="loop")(
            stack([params_of(Mixed(3, 2)).set("bias", torch.full((2,), k)) for k in (0.0, 3.0)]), torch.ones(5, 3)
        ),
        r"different form\n  at: member 1\n  expected: as member 0: Tensor of 1 leaves\n  got: tuple of 2",
    ),
    "no tensor": (
        StructureError,
        lambda: ensemble(Counts(3, 2), fallback="loop")(stack([params_of(Counts(3, 2))] * 2), torch.ones(5, 3)),
        r"a result is no tensor\n  at: member 0.*got: int",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_a_fix(name):
    kind, call, words = REFUSED[name]
    with pytest.raises(kind, match="(?s)" + words) as caught:
        call()
    assert "fix: " in str(caught.value)
