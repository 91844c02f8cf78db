"""Parameters that are DTensors, in two processes with gloo: FSDP2 and hand-made ones come out, go in, and give their gradients."""

from __future__ import annotations

import multiprocessing
import traceback
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tdfunc import bind, load_into, params_of, state_of

WORLD = 2


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()


def batch():
    return torch.randn(8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def full(tensors):
    return [t.full_tensor() for t in tensors]


def assert_same(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


def sharded(mesh):
    from torch.distributed.tensor import Shard, distribute_module, distribute_tensor

    def shard(name, module, mesh):
        for key, param in module.named_parameters(recurse=False):
            module.register_parameter(key, nn.Parameter(distribute_tensor(param.detach(), mesh, [Shard(0)])))

    return distribute_module(net(), mesh, shard)


def fully_sharded(mesh):
    from torch.distributed.fsdp import fully_shard

    model = net()
    for part in (model[0], model[2]):
        fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def dtensor_parameters_come_out_and_go_in(mesh):
    from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

    model, plain = sharded(mesh), net()
    params = params_of(model)
    assert all(isinstance(leaf, DTensor) for leaf in params._leaves)
    assert_same(full(params._leaves), list(params_of(plain)._leaves))
    x = distribute_tensor(batch(), mesh, [Replicate()])
    other = params.map(lambda t: t * 2).requires_grad()
    wanted = params_of(plain).map(lambda t: t * 2).requires_grad()
    before = full(params_of(model)._leaves)
    out, expected = bind(model, other)(x), bind(plain, wanted)(batch())
    assert_same(out.full_tensor(), expected)
    grads = torch.autograd.grad(out.pow(2).sum(), other._leaves)
    assert_same(full(grads), list(torch.autograd.grad(expected.pow(2).sum(), wanted._leaves)))
    assert_same(full(params_of(model)._leaves), before)
    assert all(p.grad is None for p in model.parameters())


def dtensor_parameters_are_written_by_load_into(mesh):
    model = sharded(mesh)
    other = params_of(model).map(lambda t: t * 2)
    objects = [*model.parameters()]
    load_into(model, other)
    assert_same(full(params_of(model)._leaves), [t * 2 for t in params_of(net())._leaves])
    assert all(a is b for a, b in zip(objects, model.parameters(), strict=True))


def fsdp_parameters_come_out_as_shards(mesh):
    from torch.distributed.tensor import DTensor

    model = fully_sharded(mesh)
    state = state_of(model)
    assert state.structure is state_of(net()).structure
    assert all(isinstance(leaf, DTensor) for leaf in state._leaves)
    assert_same(full(state._leaves), list(params_of(net())._leaves))


def fsdp_binds_to_plain_values(mesh):
    model, plain = fully_sharded(mesh), net()
    values = params_of(plain).map(lambda t: t * 2)
    assert_same(bind(model, values)(batch()), bind(plain, values)(batch()))


def fsdp_binds_to_gathered_shards(mesh):
    model, plain = fully_sharded(mesh), net()
    values = params_of(model).map(lambda t: t.full_tensor() * 2)
    expected = bind(plain, params_of(plain).map(lambda t: t * 2))(batch())
    before = full(params_of(model)._leaves)
    assert_same(bind(model, values)(batch()), expected)
    assert_same(full(params_of(model)._leaves), before)
    assert_same(model(batch()), plain(batch()))


def fsdp_binds_to_shards_with_inputs_of_their_kind(mesh):
    from torch.distributed.tensor import Replicate, distribute_tensor

    model, plain = fully_sharded(mesh), net()
    values = params_of(model).map(lambda t: t * 2)
    out = bind(model, values)(distribute_tensor(batch(), mesh, [Replicate()]))
    assert_same(out.full_tensor(), bind(plain, params_of(plain).map(lambda t: t * 2))(batch()))


def fsdp_trains_on_after_a_bind(mesh):
    model, plain = fully_sharded(mesh), net()
    bind(model, params_of(model))
    model(batch()).pow(2).sum().backward()
    plain(batch()).pow(2).sum().backward()
    assert_same(full([p.grad for p in model.parameters()]), [p.grad for p in plain.parameters()])


CASES = (
    dtensor_parameters_come_out_and_go_in,
    dtensor_parameters_are_written_by_load_into,
    fsdp_parameters_come_out_as_shards,
    fsdp_binds_to_plain_values,
    fsdp_binds_to_gathered_shards,
    fsdp_binds_to_shards_with_inputs_of_their_kind,
    fsdp_trains_on_after_a_bind,
)


def work(rank, path, results):
    warnings.simplefilter("error")
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=WORLD)
    mesh = dist.init_device_mesh("cpu", (WORLD,))
    for case in CASES:
        try:
            case(mesh)
            results.put((case.__name__, rank, ""))
        except Exception:
            results.put((case.__name__, rank, traceback.format_exc()))
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Give what went wrong in each case, by rank."""
    context = multiprocessing.get_context("spawn")
    results, path = context.Queue(), tmp_path_factory.mktemp("group") / "store"
    workers = [context.Process(target=work, args=(rank, path, results)) for rank in range(WORLD)]
    for worker in workers:
        worker.start()
    found = [results.get() for _ in CASES for _ in workers]
    for worker in workers:
        worker.join()
    return {(name, rank): text for name, rank, text in found}


@pytest.mark.parametrize("rank", range(WORLD))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_in_two_processes(case, rank, told):
    assert told[case.__name__, rank] == ""
