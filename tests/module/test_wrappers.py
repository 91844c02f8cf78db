"""What torch wraps around a module: bind takes what is inside, under clean names, and takes the prefixed names too."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tdfunc import BindError, KeyPathError, TensorDict, bind, buffers_of, from_flat, load_into, params_of, state_of

X = torch.randn(5, 4)


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory):
    store = dist.FileStore(str(tmp_path_factory.mktemp("group") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


WRAP = {
    "compiled": lambda m: torch.compile(m, backend="eager"),
    "data parallel": nn.DataParallel,
    "distributed": nn.parallel.DistributedDataParallel,
    "compiled and distributed": lambda m: torch.compile(nn.parallel.DistributedDataParallel(m), backend="eager"),
    "distributed and compiled": lambda m: nn.parallel.DistributedDataParallel(torch.compile(m, backend="eager")),
}
PLACE = {"alone": lambda wrap: wrap(net()), "inside": lambda wrap: nn.Sequential(wrap(net()), nn.Linear(2, 2))}


@pytest.fixture(params=WRAP)
def wrap(request):
    return WRAP[request.param]


@pytest.mark.parametrize("place", PLACE)
def test_names_are_clean_and_values_are_followed(wrap, place):
    plain, wrapped = PLACE[place](lambda m: m), PLACE[place](wrap)
    assert params_of(wrapped).structure is params_of(plain).structure
    assert buffers_of(wrapped).structure is buffers_of(plain).structure
    state = state_of(plain).map(lambda t: t * 1.5 if t.is_floating_point() else t)
    bound = bind(wrapped, state)
    assert type(bound) is nn.Sequential
    assert not any(isinstance(part, nn.DataParallel | nn.parallel.DistributedDataParallel) for part in bound.modules())
    torch.testing.assert_close(bound(X), bind(plain, state)(X))


def test_gradients_go_to_what_was_given_and_the_wrapper_stays_as_it_is(wrap, snapshot):
    wrapped, plain = wrap(net()), net()
    params = params_of(wrapped).requires_grad()
    before = snapshot(wrapped)
    bound = bind(wrapped, params)
    bound(X).square().sum().backward()
    plain(X).square().sum().backward()
    torch.testing.assert_close(params.grads().to_flat(), {name: p.grad for name, p in plain.named_parameters()})
    assert snapshot(wrapped) == before
    assert not buffers_of(bound).equal(buffers_of(wrapped))


@pytest.mark.parametrize("place", PLACE)
@pytest.mark.parametrize("use_state_dict", [False, True])
@pytest.mark.parametrize("form", [dict, from_flat], ids=["dict", "tree"])
def test_the_prefixed_names_of_a_wrappers_own_state_dict_are_taken(wrap, place, use_state_dict, form):
    wrapped = PLACE[place](wrap)
    expected = bind(wrapped, state_of(wrapped).map(torch.zeros_like)).eval()(X)
    zeros = {key: torch.zeros_like(value) for key, value in wrapped.state_dict().items()}
    torch.testing.assert_close(bind(wrapped, form(zeros), use_state_dict=use_state_dict).eval()(X), expected)
    load_into(wrapped, form(zeros), use_state_dict=use_state_dict)
    assert all((p == 0).all() for p in wrapped.parameters())


def test_a_prefix_that_no_wrapper_has_is_unknown_and_the_message_says_what_to_do():
    state = from_flat(nn.DataParallel(net()).state_dict())
    with pytest.raises(KeyPathError, match=r"has no 'module' that takes a subtree[\s\S]*state\[\('module',\)\]"):
        bind(net(), state)
    assert torch.equal(bind(net(), state["module"]).eval()(X), net().eval()(X))


def test_a_sub_module_called_module_is_none_of_it():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = nn.Linear(4, 4)

        def forward(self, x):
            return self.module(x)

    for module in (Outer(), nn.DataParallel(Outer())):
        params = params_of(module)
        assert set(params) == {"module"}
        assert torch.equal(bind(module, params.map(torch.zeros_like))(X), torch.zeros(5, 4))


def test_a_sharded_module_gives_global_tensors_and_runs_on_what_it_is_given():
    from torch.distributed.fsdp import fully_shard

    module, plain = net(), net()
    for part in module:
        fully_shard(part)
    fully_shard(module)
    params = params_of(module)
    assert params.structure is params_of(plain).structure
    assert all(isinstance(leaf, dist.tensor.DTensor) for leaf in params._leaves)
    full = params.map(lambda t: (t.full_tensor() * 1.5).requires_grad_())
    bound = bind(module, full)
    twin = copy.deepcopy(plain)
    load_into(twin, full)
    torch.testing.assert_close(bound(X), twin(X))
    bound(X).square().sum().backward()
    twin(X).square().sum().backward()
    torch.testing.assert_close(full.grads().to_flat(), TensorDict(params_of(twin, detach=False).grads()).to_flat())
    assert [type(p) for p in module.parameters()] == [type(p) for p in params_of(module, detach=False)._leaves]
    torch.testing.assert_close(module(X), net()(X))  # the original still gathers and shards


def test_sharded_leaves_of_another_shape_are_refused():
    from torch.distributed.fsdp import fully_shard

    module = net()
    fully_shard(module)
    with pytest.raises(BindError, match="wrong shape"):
        bind(module, params_of(module).set(("0", "bias"), torch.ones(9)))
