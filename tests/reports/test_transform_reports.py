"""What users of torch.func reported of BatchNorm, dropout and ensembles under transforms: each situation, and the whole kind of it."""

from __future__ import annotations

import copy
import gc

import pytest
import torch
from torch import nn

from tdfunc import bind, buffers_of, ensemble, grad, init_ensemble, params_of, stack, state_of, value_and_grad, vmap

# --- R12: BatchNorm ---------------------------------------------------------------------------------------------

NORMS = {
    "batch": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 5)),
    "no affine": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 5)),
    "no statistics": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 5)),
    "instance": lambda: nn.Sequential(
        nn.Unflatten(1, (3, 1)), nn.Conv1d(3, 4, 1), nn.Upsample(scale_factor=3), nn.InstanceNorm1d(4, track_running_stats=True), nn.Flatten()
    ),
    "nested": lambda: nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.BatchNorm1d(4), nn.Tanh(), nn.Sequential(nn.BatchNorm1d(4))), nn.Linear(4, 5)),
}
norms = pytest.mark.parametrize("name", NORMS)


def run(module, state, x):
    bound = bind(module, state)
    return bound(x), buffers_of(bound)


def alone(module, state, x):
    """Return what a copy of a module gives and has afterwards, by torch's own means."""
    twin = copy.deepcopy(module)
    twin.load_state_dict(state.to_flat())
    return twin(x), dict(twin.named_buffers())


def assert_buffers(got, expected):
    assert set(got.to_flat()) == set(expected)
    for path, leaf in got.to_flat().items():
        torch.testing.assert_close(leaf, expected[path])


MODES = [(name, mode) for name in NORMS for mode in (True, False)]


@pytest.mark.parametrize(("name", "mode"), MODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_r012_batched_input_with_shared_statistics_gives_each_lane_its_own(name, mode, dtype):
    """BatchNorm in vmap, the input batched and the statistics not: each lane returns its own new ones, the shared stay."""
    module, x = NORMS[name]().to(dtype).train(mode), torch.randn(3, 8, 3, dtype=dtype)
    state = state_of(module)
    kept = state.clone()
    out, buffers = vmap(lambda x: run(module, state, x))(x)
    assert state.equal(kept)
    assert state_of(module).equal(kept)
    for i in range(3):
        expected, after = alone(module, state, x[i])
        torch.testing.assert_close(out[i], expected.detach())
        if after:
            assert_buffers(buffers[i], after)


@norms
@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
def test_r012_stacked_statistics_are_handed_on_and_never_written(name, mode, counted):
    """BatchNorm in vmap with stacked statistics, several steps, compiled too: as member by member, the given ones unchanged."""
    module = NORMS[name]().double().train(mode)
    states = stack([state_of(NORMS[name]().double()) for _ in range(3)])
    compiled, graphs = counted(lambda states, x: vmap(lambda s, x: run(module, s, x))(states, x))
    for step in (lambda states, x: vmap(lambda s, x: run(module, s, x))(states, x), compiled):
        mine, singles = states, list(states.unbind())
        for _ in range(3):
            x, kept = torch.randn(3, 8, 3).double(), mine.clone()
            out, buffers = step(mine, x)
            assert mine.equal(kept)
            mine = mine if buffers.is_empty() else mine | buffers
            for i in range(3):
                expected, after = alone(module, singles[i], x[i])
                torch.testing.assert_close(out[i], expected)
                if after:
                    assert_buffers(buffers[i], after)
                singles[i] = mine[i]
    assert len(graphs) == 1


@norms
@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
def test_r012_a_jacobian_over_one_weight_is_autograds(name, mode):
    """The Jacobian over one weight of a net with BatchNorm, input [32, 3]: row by row that of autograd, by both modes."""
    module, x = NORMS[name]().double().train(mode), torch.randn(32, 3).double()
    state = state_of(module)
    path = next(path for path in params_of(module).structure.paths() if path[-1] == "weight")
    fn = lambda weight: bind(module, state.set(path, weight))(x)[:2].flatten()
    out, _ = alone(module, state, x)
    twin = copy.deepcopy(module)
    outs = twin(x)[:2].flatten()
    rows = torch.stack([torch.autograd.grad(o, twin.get_parameter(".".join(path)), retain_graph=True)[0] for o in outs])
    torch.testing.assert_close(torch.func.jacrev(fn)(state[path]), rows)
    torch.testing.assert_close(torch.func.jacfwd(fn)(state[path]), rows)
    torch.testing.assert_close(fn(state[path]), out[:2].flatten())


@norms
@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
def test_r012_gradients_and_new_statistics_come_together(name, mode, counted):
    """The gradient through BatchNorm with the statistics beside it: both those of the module trained in place; compiled too."""
    module, x = NORMS[name]().double().train(mode), torch.randn(8, 3).double()
    params, buffers = params_of(module), buffers_of(module)

    def loss(params, buffers, x):
        out, buffers = run(module, params | buffers, x)
        return out.sin().sum(), buffers

    step = lambda p, b, x: value_and_grad(loss, has_aux=True)(p, b, x)
    twin = copy.deepcopy(module)
    value = twin(x).sin().sum()
    value.backward()
    for call in (step, counted(step)[0]):
        (got, after), grads = call(params, buffers, x)
        torch.testing.assert_close(got, value.detach())
        assert_buffers(after, dict(twin.named_buffers()))
        for key, param in twin.named_parameters():
            torch.testing.assert_close(grads[tuple(key.split("."))], param.grad, atol=1e-10, rtol=1e-6)


@norms
def test_r012_a_row_at_a_time_in_eval_is_the_batch_at_once(name):
    """Per-sample calls of a net with BatchNorm in eval, the batch dim put back: the rows of the whole batch."""
    module, x = NORMS[name]().double(), torch.randn(8, 3).double()
    if name not in ("no statistics",):
        module(torch.randn(16, 3).double())
    module.eval()
    if name == "no statistics":  # it takes those of the batch even in eval
        module[1] = nn.BatchNorm1d(4).double().eval()
    state = state_of(module)
    torch.testing.assert_close(vmap(lambda row: bind(module, state)(row[None])[0])(x), module(x).detach())
    grads = vmap(grad(lambda p, row: bind(module, p)(row[None]).sin().sum()), (None, 0))(params_of(module), x)
    module(x).sin().sum().backward()
    for key, param in module.named_parameters():
        torch.testing.assert_close(grads[tuple(key.split("."))].sum(0), param.grad)


# --- R27: dropout in ensembles ----------------------------------------------------------------------------------

RANDOM = {
    "dropout": lambda: nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5)),
    "alpha": lambda: nn.Sequential(nn.Linear(4, 64), nn.AlphaDropout(0.5)),
    "channels": lambda: nn.Sequential(nn.Linear(4, 64), nn.Unflatten(1, (16, 4)), nn.Dropout1d(0.5), nn.Flatten()),
    "noise": lambda: nn.Sequential(nn.Linear(4, 64), Noise()),
    "nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 64), nn.Tanh()), nn.ModuleDict({"d": nn.Dropout(0.5)})["d"]),
}


class Noise(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x) if self.training else x


randoms = pytest.mark.parametrize("name", RANDOM)
PER_MODE = {"different": 3, "same": 1}


def alike(out):
    """Return how many of the members differ; all have the same parameters and input."""
    return len({tuple(member.flatten().tolist()) for member in out})


@randoms
@pytest.mark.parametrize("way", ["eager", "compile", "chunks"])
def test_r027_members_draw_for_themselves_by_default(name, way):
    """An ensemble of nets with dropout in training: it runs as it is, and each member draws its own mask."""
    module = RANDOM[name]()
    state, x = stack([state_of(module)] * 3), torch.randn(8, 4)
    fn = ensemble(module, chunk_size=2 if way == "chunks" else None)
    fn = torch.compile(fn, fullgraph=True, backend="eager") if way == "compile" else fn
    out = fn(state, x)
    assert out.shape == (3, 8, 64)
    assert alike(out) == 3
    assert not torch.equal(out, fn(state, x))  # and anew at each call


@randoms
@pytest.mark.parametrize("randomness", PER_MODE)
def test_r027_randomness_says_whether_they_share(name, randomness):
    """`randomness`: "different" or "same" masks, as asked, for shared and for mapped inputs."""
    module = RANDOM[name]()
    state, x = stack([state_of(module)] * 3), torch.randn(8, 4)
    assert alike(ensemble(module, randomness=randomness)(state, x)) == PER_MODE[randomness]
    assert alike(ensemble(module, randomness=randomness, in_dims=0)(state, x.expand(3, 8, 4))) == PER_MODE[randomness]


@randoms
def test_r027_vmap_alone_says_how_to_change_it(name):
    """Dropout under vmap without a choice: an error that says which values there are; with one, it runs."""
    module = RANDOM[name]()
    state, x = stack([state_of(module)] * 3), torch.randn(8, 4)
    fn = lambda s: bind(module, s)(x)
    with pytest.raises(RuntimeError, match="(?s)randomness.*(different.*same|same.*different)"):
        vmap(fn)(state)
    for randomness, count in PER_MODE.items():
        assert alike(vmap(fn, randomness=randomness)(state)) == count


@randoms
def test_r027_a_seed_makes_it_the_same_again_and_eval_needs_none(name):
    """An ensemble with dropout after one seed twice: equal; in eval: the members one by one."""
    module = RANDOM[name]()
    states, x = stack([state_of(RANDOM[name]()) for _ in range(3)]), torch.randn(8, 4)
    outs = []
    for _ in range(2):
        torch.manual_seed(7)
        outs.append(ensemble(module)(states, x))
    assert torch.equal(*outs)
    module.eval()
    expected = torch.stack([bind(module, states[i])(x) for i in range(3)])
    torch.testing.assert_close(ensemble(module, randomness="error")(states, x), expected)


def test_r027_masks_have_the_right_rate_and_scale_and_gradients_fit_them():
    """Dropout(0.1) in two members: about a tenth dropped, the rest scaled, and gradients zero where it dropped."""
    module = nn.Dropout(0.1)
    net = nn.Sequential(nn.Identity(), module)

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.net = nn.Parameter(torch.ones(20000)), net

        def forward(self):
            return self.net(self.w)

    template = Scaled()
    params = stack([params_of(template)] * 2).requires_grad()
    out = ensemble(template)(params)
    dropped = out == 0
    for rate in dropped.double().mean(1):
        assert abs(rate - 0.1) < 0.015  # seven deviations
    torch.testing.assert_close(out[~dropped], torch.full_like(out[~dropped], 1 / 0.9))
    (found,) = torch.autograd.grad(out.sum(), params._leaves)
    assert torch.equal(found == 0, dropped)


# --- R45: many members at once ----------------------------------------------------------------------------------

FACTORIES = {
    "mlp": lambda: nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)),
    "norm": lambda: nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)),
    "conv": lambda: nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 4, 2), nn.Flatten()),
    "tied": lambda: tied(),
    "double": lambda: nn.Linear(3, 2, dtype=torch.float64),
    "orthogonal": lambda: initialised(),
}


def tied():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    net[2].weight = net[0].weight
    return net


def initialised():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    nn.init.orthogonal_(net[0].weight)
    nn.init.constant_(net[1].bias, 0.5)
    return net


factories = pytest.mark.parametrize("name", FACTORIES)


@factories
def test_r045_each_member_is_what_the_factory_makes_and_no_two_are_alike(name):
    """An ensemble by factory: the members' trees stacked, run as one by one, all different, the global generator untouched."""
    make = FACTORIES[name]
    before = torch.get_rng_state()
    skeleton, params, buffers = init_ensemble(make, 5, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert params.batch_size == buffers.batch_size == (5,)
    assert params.ties == params_of(make()).ties
    assert params[0].structure is params_of(make()).structure
    first = params._leaves[0]
    assert alike(first) == 5
    assert first.dtype == params_of(make())._leaves[0].dtype
    x = torch.randn(6, 3, dtype=first.dtype)
    out = ensemble(skeleton)(params | buffers, x)
    for i in range(5):
        twin = make()
        twin.load_state_dict({**params[i].to_flat(), **buffers[i].to_flat()})
        torch.testing.assert_close(out[i], twin(x))


@factories
def test_r045_a_seed_gives_the_same_and_member_i_depends_on_it_alone(name):
    """The same seed: the same members, however many; another seed: others."""
    make = FACTORIES[name]
    _, params, buffers = init_ensemble(make, 6, seed=3)
    torch.randn(5)
    _, fewer, fewer_buffers = init_ensemble(make, 4, seed=3)
    assert params[:4].equal(fewer)
    assert buffers[:4].equal(fewer_buffers)
    assert not init_ensemble(make, 4, seed=4)[1].equal(fewer)


def test_r045_special_initialisations_hold_in_every_member():
    """A factory with initialisations of its own: each member has them."""
    _, params, _ = init_ensemble(initialised, 4, seed=0)
    for i in range(4):
        w = params[i]["0", "weight"]
        torch.testing.assert_close(w @ w.T, torch.eye(3))
        assert (params[i]["1", "bias"] == 0.5).all()


def test_r045_350_members_need_two_modules_at_a_time():
    """350 members: no more than two modules live at once beside what is returned, and none afterwards."""
    live, most = 0, 0

    class Counted(nn.Linear):
        def __init__(self):
            nonlocal live, most
            super().__init__(3, 2)
            live += 1
            most = max(most, live)

        def __del__(self):
            nonlocal live
            live -= 1

    skeleton, params, _ = init_ensemble(Counted, 350, seed=0)
    assert most <= 3  # the first, the last, and the next
    assert params["weight"].shape == (350, 2, 3)
    assert alike(params["weight"]) == 350
    assert {p.device.type for p in skeleton.parameters()} == {"meta"}
    gc.collect()
    x = torch.randn(4, 3)
    expected = torch.stack([x @ params["weight"][i].T + params["bias"][i] for i in range(350)])
    torch.testing.assert_close(ensemble(skeleton)(params, x), expected)
