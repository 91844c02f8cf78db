"""Modules that torch wraps for several devices: the inner module is bound, under its own names."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tdfunc import bind, buffers_of, load_into, params_of, state_of

PREFIX = "bind unwraps what torch.compile made, and no other wrapper: names have the prefix 'module'"
X = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2))


@pytest.fixture
def _group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(params=["DataParallel", "DistributedDataParallel"])
def wrapped(request):
    if request.param == "DistributedDataParallel":
        request.getfixturevalue("_group")
    return getattr(nn.parallel, request.param)(net())


def test_it_computes_and_differentiates_as_what_is_inside(wrapped):
    params = params_of(wrapped).map(lambda t: t + 0.1).requires_grad()
    inner = wrapped.module
    expected = params_of(inner).map(lambda t: t + 0.1).requires_grad()
    got, wanted = bind(wrapped, params)(X), bind(inner, expected)(X)
    torch.testing.assert_close(got, wanted)
    grads, theirs = torch.autograd.grad(got.pow(2).sum(), params._leaves), torch.autograd.grad(wanted.pow(2).sum(), expected._leaves)
    torch.testing.assert_close(grads, theirs)
    assert any(grad.abs().sum() > 0 for grad in grads)
    assert all(p.grad is None for p in wrapped.parameters())


def test_the_wrapper_and_its_buffers_stay_as_they_are(wrapped, snapshot):
    before = snapshot(wrapped.module)
    bound = bind(wrapped, params_of(wrapped))
    bound(X)
    assert snapshot(wrapped.module) == before
    assert not buffers_of(bound).equal(buffers_of(wrapped))


@pytest.mark.xfail(strict=True, reason=PREFIX)
def test_its_names_are_those_of_what_is_inside(wrapped):
    assert state_of(wrapped).structure is state_of(wrapped.module).structure


@pytest.mark.xfail(strict=True, reason=PREFIX)
def test_a_state_of_the_inner_module_fits(wrapped):
    params = params_of(net()).map(lambda t: t + 0.1)
    bound = bind(wrapped, params)
    assert type(bound) is nn.Sequential
    assert torch.equal(bound(X), bind(net(), params)(X))


@pytest.mark.xfail(strict=True, reason=PREFIX)
def test_a_state_of_the_inner_module_loads(wrapped):
    params = params_of(net()).map(lambda t: t + 0.1)
    load_into(wrapped, params)
    assert params_of(wrapped.module).equal(params)
