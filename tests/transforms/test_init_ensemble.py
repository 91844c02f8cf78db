"""`init_ensemble`: reproducible by seed and member number alone, without a trace in the global generators."""

from __future__ import annotations

import gc
import random
import weakref

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tdfunc import bind, buffers_of, cat, ensemble, grad, init_ensemble, optim, params_of, stack, vmap
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


def test_later_members_are_those_of_a_larger_ensemble():
    _, params, buffers = init_ensemble(net, 6, seed=3)
    _, later, later_buffers = init_ensemble(net, 2, seed=3, start=4)
    assert later.equal(params[4:])
    assert later_buffers.equal(buffers[4:])


@pytest.mark.parametrize("make", [net, lambda: nn.Linear(3, 2)], ids=["buffers", "none"])
def test_members_are_added_dropped_and_selected(make):
    _, params, buffers = init_ensemble(make, 6, seed=3)
    opt = optim.adam(0.1)
    grads = params.map(torch.cos)
    after, state = opt.step(params, grads, opt.init(params))
    for tree in (params, buffers, after, state):
        chosen = tree[[4, 0, 4]]
        assert chosen.batch_size == (3,)
        assert chosen.equal(stack([tree[4], tree[0], tree[4]]))
        assert tree[torch.tensor([1, 0, 0, 0, 1, 1]).bool()].equal(tree[[0, 4, 5]])
        assert cat([tree[:2], tree[3:]]).equal(tree[[0, 1, 3, 4, 5]])
        assert cat([tree[:4], tree[4:]]).equal(tree)
        assert chosen.structure is tree.structure or tree.is_empty()  # without a leaf it holds the size


def test_a_member_that_joins_later_trains_as_if_alone():
    """Its optimizer state starts anew: the step counts of the members differ from then on."""
    make, opt = lambda: nn.Linear(3, 1).double(), optim.adam(0.1)
    skeleton, params, _ = init_ensemble(make, 2, seed=0)
    x, y = torch.randn(8, 3).double(), torch.randn(8, 1).double()
    each = vmap(grad(lambda p: (bind(skeleton, p)(x) - y).pow(2).mean()))
    train = lambda params, state: opt.step(params, each(params), state)
    params, state = train(params, opt.init(params))
    new = init_ensemble(make, 1, seed=0, start=2)[1]
    params, state = train(cat([params, new]), cat([state, opt.init(new)]))
    alone, _ = train(new, opt.init(new))
    assert state["step"].tolist() == [2, 2, 1]
    assert params[2:].allclose(alone, rtol=1e-12, atol=1e-14)


def test_one_member_lives_at_a_time():
    """Counted by weak references to the modules and their tensors, with the garbage collector off."""
    modules, tensors, most = [], [], []

    def factory():
        most.append((sum(ref() is not None for ref in modules), sum(ref() is not None for ref in tensors)))
        made = net()
        modules.append(weakref.ref(made))
        tensors.extend(weakref.ref(tensor) for tensor in [*made.parameters(), *made.buffers()])
        return made

    gc.disable()
    try:
        skeleton, params, buffers = init_ensemble(factory, 5, seed=0)
    finally:
        gc.enable()
    assert most == [(0, 0)] * 5
    assert not any(ref() is not None for ref in [*modules, *tensors])
    assert params.batch_size == buffers.batch_size == (5,)
    assert all(tensor.is_meta for tensor in [*skeleton.parameters(), *skeleton.buffers()])


def test_the_bytes_held_are_the_ensemble_and_one_member():
    """What is allocated on the way: the trees once, and never two members beside them."""
    live, most = {}, [0]
    one = lambda: nn.Linear(64, 64)

    class Counts(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for tensor in pytree.tree_leaves(out):
                if isinstance(tensor, torch.Tensor) and not tensor.is_meta:
                    storage = tensor.untyped_storage()
                    live[storage._cdata] = weakref.ref(storage), storage.nbytes()
            most[0] = max(most[0], sum(size for ref, size in live.values() if ref() is not None))
            return out

    with Counts():
        _, params, _ = init_ensemble(one, 6, seed=0)
    member = params_of(one()).bytes()
    assert params.bytes() == 6 * member
    assert params.bytes() <= most[0] < params.bytes() + 2 * member


def changing(*makers):
    rest = iter(makers)

    def factory():
        return next(rest)()

    return factory


REFUSED = {
    "no member": (StructureError, lambda: init_ensemble(net, 0), r"an ensemble has members\n  expected: n >= 1\n  got: 0"),
    "negative": (StructureError, lambda: init_ensemble(net, -2), r"got: -2"),
    "negative start": (StructureError, lambda: init_ensemble(net, 2, seed=0, start=-1), r"expected: start >= 0, and a seed\n  got: start=-1, seed=0"),
    "start of no seed": (StructureError, lambda: init_ensemble(net, 2, start=1), r"got: start=1, seed=None"),
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
