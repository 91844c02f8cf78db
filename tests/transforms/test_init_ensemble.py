"""`init_ensemble`: reproducible by seed and member number alone, without a trace in the global generators."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn

from tdfunc import bind, buffers_of, ensemble, init_ensemble, params_of
from tdfunc._errors import BatchSizeError, StructureError, TdfuncError


def net():
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


def test_a_seed_makes_it_reproducible_whatever_ran_before():
    _, params, buffers = init_ensemble(net, 3, seed=7)
    torch.randn(17)
    _, again, buffers_again = init_ensemble(net, 3, seed=7)
    assert params.equal(again)
    assert buffers.equal(buffers_again)
    assert not params.equal(init_ensemble(net, 3, seed=8)[1])


def test_without_a_seed_each_call_gives_another():
    assert not init_ensemble(net, 2)[1].equal(init_ensemble(net, 2)[1])


def test_no_two_members_are_alike():
    _, params, _ = init_ensemble(net, 6, seed=0)
    assert len({tuple(w.flatten().tolist()) for w in params["0", "weight"]}) == 6


@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_smaller_ensemble_is_the_start_of_a_larger_one(n):
    _, few, few_buffers = init_ensemble(net, n, seed=3)
    _, many, many_buffers = init_ensemble(net, 5, seed=3)
    assert few.equal(many[:n])
    assert few_buffers.equal(many_buffers[:n])


def test_a_member_does_not_depend_on_how_much_the_others_drew():
    calls = []

    def greedy():
        calls.append(1)
        made = net()
        torch.randn(len(calls) * 13)
        return made

    assert init_ensemble(greedy, 4, seed=3)[1].equal(init_ensemble(net, 4, seed=3)[1])


def test_a_member_is_what_the_factory_makes_of_some_seed():
    """Each member is initialised as torch does it: bounds and spread of nn.Linear."""
    _, params, _ = init_ensemble(lambda: nn.Linear(100, 50), 4, seed=0)
    for w in params["weight"]:
        assert w.abs().max() <= 0.1
        assert abs(w.std() - 0.1 / 3**0.5) < 0.003


@pytest.mark.parametrize("raises", [False, True])
def test_the_global_generators_are_left_as_they_were(raises):
    torch.manual_seed(11)
    expected = torch.randn(3), random.Random(0).random()
    torch.manual_seed(11)
    state = torch.get_rng_state()

    def factory():
        made = net()
        if raises:
            raise RuntimeError("on purpose")
        return made

    if raises:
        with pytest.raises(RuntimeError, match="on purpose"):
            init_ensemble(factory, 3, seed=5)
    else:
        init_ensemble(factory, 3, seed=5)
        init_ensemble(factory, 3)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(torch.randn(3), expected[0])


def test_the_skeleton_is_on_meta_and_a_template():
    skeleton, params, buffers = init_ensemble(net, 3, seed=0)
    assert type(skeleton) is nn.Sequential
    assert {t.device.type for t in [*skeleton.parameters(), *skeleton.buffers()]} == {"meta"}
    assert {t.device.type for t in [*params._leaves, *buffers._leaves]} == {"cpu"}
    x = torch.randn(5, 3)
    out = ensemble(skeleton)(params | buffers, x)
    for i in range(3):
        twin = net()
        twin.load_state_dict({**params[i].to_flat(), **buffers[i].to_flat()})
        torch.testing.assert_close(out[i], twin(x))
        torch.testing.assert_close(bind(skeleton, params[i], buffers[i])(x), out[i])


def test_both_trees_have_the_members_first():
    _, params, buffers = init_ensemble(net, 3, seed=0)
    assert params.batch_size == buffers.batch_size == (3,)
    assert params["0", "weight"].shape == (3, 8, 3)
    assert buffers["1", "num_batches_tracked"].shape == (3,)
    assert (buffers["1", "running_var"] == 1).all()
    assert params[0].structure is params_of(net()).structure
    assert buffers[0].structure is buffers_of(net()).structure


@pytest.mark.parametrize("factory", [lambda: nn.Linear(2, 2), nn.ReLU], ids=["no buffers", "nothing at all"])
def test_modules_without_buffers_have_an_empty_tree_of_members(factory):
    _, params, buffers = init_ensemble(factory, 3, seed=0)
    assert buffers.is_empty()
    assert buffers.batch_size == (3,)
    assert params.batch_size == (3,)
    assert (params | buffers).batch_size == (3,)
    assert buffers[0].batch_size == ()


def test_leaves_are_out_of_any_graph_and_do_not_share_storage():
    _, params, _ = init_ensemble(net, 2, seed=0)
    assert all(not leaf.requires_grad and leaf.grad_fn is None and type(leaf) is torch.Tensor for leaf in params._leaves)
    assert len({leaf.untyped_storage().data_ptr() for leaf in params._leaves}) == len(params._leaves)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
        self.b.weight = self.a.weight


def test_ties_and_dtypes_are_those_of_a_member():
    _, params, _ = init_ensemble(lambda: Tied().to(torch.bfloat16), 3, seed=0)
    assert params.ties == params_of(Tied()).ties
    assert params.dtype is torch.bfloat16
    assert params["a", "weight"] is params["b", "weight"]


def changing(*makers):
    rest = iter(makers)

    def factory():
        return next(rest)()

    return factory


REFUSED = {
    "no member": (StructureError, lambda: init_ensemble(net, 0), r"an ensemble has members\n  expected: n >= 1\n  got: 0"),
    "negative": (StructureError, lambda: init_ensemble(net, -2), r"got: -2"),
    "no module": (StructureError, lambda: init_ensemble(lambda: 3, 2), r"the factory must return a module\n  got: int"),
    "other structure": (
        StructureError,
        lambda: init_ensemble(changing(lambda: nn.Linear(2, 2), lambda: nn.Linear(2, 2, bias=False)), 2),
        r"member 1.*bias",
    ),
    "none, then some": (TdfuncError, lambda: init_ensemble(changing(nn.ReLU, lambda: nn.Linear(2, 2)), 2), r"member 1"),
    "some, then none": (TdfuncError, lambda: init_ensemble(changing(lambda: nn.Linear(2, 2), nn.ReLU), 2), r"member 1"),
    "other buffers": (
        TdfuncError,
        lambda: init_ensemble(changing(lambda: nn.BatchNorm1d(2), lambda: nn.BatchNorm1d(2, track_running_stats=False)), 2),
        r"member 1",
    ),
    "other shapes": (
        BatchSizeError,
        lambda: init_ensemble(changing(*[lambda i=i: nn.Linear(2, i) for i in (2, 2, 3)]), 3),
        r"different shapes\n  at: member 2, 'weight'\n  expected: \(2, 2\)\n  got: \(3, 2\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_a_fix(name):
    kind, call, words = REFUSED[name]
    state = torch.get_rng_state()
    with pytest.raises(kind, match="(?s)" + words) as caught:
        call()
    assert "fix: " in str(caught.value)
    assert torch.equal(torch.get_rng_state(), state)


def test_what_is_no_factory_of_new_modules_is_refused_and_stays_where_it_is():
    made = nn.Linear(3, 3)
    before = made.weight.detach().clone()
    with pytest.raises(StructureError, match="expected a factory"):
        init_ensemble(made, 2)
    with pytest.raises(StructureError, match="the same module twice"):
        init_ensemble(lambda: made, 2)
    skeleton, _, _ = init_ensemble(lambda: made, 1)
    assert isinstance(skeleton.weight, nn.Parameter)
    assert skeleton.weight.is_meta
    assert made.weight.device.type == "cpu"
    assert torch.equal(made.weight, before)
