"""Buffers: what a call writes is read from the bound module, and reaches neither the caller's tensors nor the module's."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from tdfunc import bind, buffers_of, params_of, state_of

MIB = 1 << 20


def test_batchnorm_statistics_are_those_of_the_stateful_module():
    torch.manual_seed(5)
    stateful = nn.BatchNorm1d(3, dtype=torch.float64)
    torch.manual_seed(5)
    template = nn.BatchNorm1d(3, dtype=torch.float64)
    params, buffers = params_of(template), buffers_of(template)
    for _ in range(5):
        x, kept = torch.randn(8, 3, dtype=torch.float64) * 3 + 1, buffers.clone()
        bound = bind(template, params, buffers)
        assert torch.equal(bound(x), stateful(x))
        assert buffers.equal(kept)
        buffers = buffers_of(bound)
        assert buffers.equal(buffers_of(stateful))
    assert template.num_batches_tracked == 0
    assert buffers["num_batches_tracked"] == 5
    template.eval(), stateful.eval()
    assert torch.equal(bind(template, params, buffers)(x), stateful(x))


def test_what_comes_out_is_a_fresh_alias_out_of_the_graph():
    bound = bind(nn.BatchNorm1d(3), params_of(nn.BatchNorm1d(3)))
    first, second = buffers_of(bound), buffers_of(bound)
    assert all(a is not b and a.data_ptr() == b.data_ptr() and not a.requires_grad for a, b in zip(first._leaves, second._leaves, strict=True))


class Large(nn.Module):
    def __init__(self, n, write):
        super().__init__()
        self.w = nn.Parameter(torch.ones(()))
        self.register_buffer("table", torch.zeros(n))
        self.write = write

    def forward(self, x):
        if self.write == "add_":
            self.table.add_(x)
        elif self.write == "row":
            self.table[:3] = x
        elif self.write == "view":
            self.table.view(-1, 4)[0].copy_(x.expand(4))
        elif self.write == "data":
            self.table.data.fill_(2.0)
        elif self.write == "out":
            torch.add(self.table, x, out=self.table)
        else:
            self.table = self.table + x
        return (self.table[:4] * self.w).sum()


SOURCES = {
    "torch": torch.zeros,
    "numpy": lambda n: torch.from_numpy(np.zeros(n, dtype=np.float32)),
    "frombuffer": lambda n: torch.frombuffer(bytearray(4 * n), dtype=torch.float32),
    "view": lambda n: torch.zeros(2 * n)[n:],
    "shared": lambda n: torch.zeros(n).share_memory_(),
}


@pytest.mark.parametrize("write", ["add_", "row", "view", "data", "out", "assign"])
@pytest.mark.parametrize("size", [16, 2 * MIB // 4], ids=["small", "large"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_write_stays_in_the_bound_module(source, size, write):
    module, table = Large(size, write), SOURCES[source](size)
    state = state_of(module).set("table", table)
    bound = bind(module, state)
    assert bound(torch.ones(())) > 0
    assert buffers_of(bound)["table"].sum() > 0
    assert table.count_nonzero() == 0
    assert state["table"] is table
    assert module.table.count_nonzero() == 0
    table.fill_(-1.0)  # and the other way round
    assert buffers_of(bound)["table"][:3].min() > 0


@pytest.mark.parametrize("owner", ["module", "caller"])
@pytest.mark.parametrize("size", [16, 2 * MIB // 4], ids=["small", "large"])
def test_buffers_of_two_bound_modules_are_apart(size, owner):
    module = Large(size, "add_")
    states = [params_of(module)] if owner == "module" else [state_of(module)]
    a, b = bind(module, *states), bind(module, *states)
    a(torch.ones(()))
    b(torch.full((), 5.0))
    assert (buffers_of(a)["table"] == 1).all()
    assert (buffers_of(b)["table"] == 5).all()
    assert (module.table == 0).all()


@pytest.mark.parametrize("size", [16, 2 * MIB // 4], ids=["small", "large"])
@pytest.mark.parametrize("transform", ["grad", "vmap", "vmap of grad"])
def test_a_write_inside_a_transform_stays_there(transform, size):
    module = Large(size, "add_")
    params, buffers = params_of(module), buffers_of(module)
    call = lambda p, b, x: bind(module, p, b)(x)
    gradient = lambda p, b, x: torch.func.grad(call)(p, b, x)["w"]
    if transform == "grad":
        got, expected = gradient(params, buffers, torch.ones(())), torch.tensor(4.0)
        assert buffers["table"].count_nonzero() == 0
    else:
        rows, tables = torch.arange(1.0, 4.0), buffers.map(lambda t: t.new_zeros(3, *t.shape))
        got = torch.vmap(gradient if transform == "vmap of grad" else call, in_dims=(None, 0, 0))(params, tables, rows)
        expected = 4 * rows
        assert tables["table"].count_nonzero() == 0
    assert torch.equal(got, expected)
    assert module.table.count_nonzero() == 0


@pytest.mark.parametrize("size", [16, 2 * MIB // 4], ids=["small", "large"])
def test_a_dropped_bound_module_leaves_nothing_behind_without_the_collector(size):
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.LSTM(4, 4), Large(size, "add_"))
    gc.collect()
    gc.disable()
    try:
        state = state_of(module).clone()
        bound = bind(module, state)
        watched = [weakref.ref(part) for part in bound.modules()]
        watched += [weakref.ref(tensor) for tensor in [*state._leaves, *bound.buffers()]]
        del bound, state
        assert [ref() for ref in watched if ref() is not None] == []
    finally:
        gc.enable()


def test_a_thousand_binds_keep_no_object():
    module = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(4)])
    state, x = state_of(module), torch.randn(3, 4)
    count = lambda: sum([issubclass(type(o), torch.Tensor | nn.Module) for o in gc.get_objects()])
    bind(module, state)(x)
    gc.collect()
    before = count()
    for _ in range(1000):
        bind(module, state)
    for _ in range(50):
        bind(module, state)(x)
    gc.collect()
    assert count() == before


def test_buffers_that_are_not_given_come_from_the_module_as_copies():
    module = nn.BatchNorm1d(2)
    module.running_mean.fill_(3.0)
    bound = bind(module, params_of(module))
    assert (bound.running_mean == 3).all()
    bound.running_mean.zero_()
    assert (module.running_mean == 3).all()


def test_a_plain_tensor_attribute_is_isolated_too():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.last, self.many = nn.Linear(2, 2), torch.zeros(2), [torch.zeros(2)]

        def forward(self, x):
            self.last.add_(1)
            self.many[0].add_(1)
            return self.lin(x) + self.last + self.many[0]

    module = Cache()
    bound = bind(module, params_of(module).map(torch.zeros_like))
    assert (bound(torch.zeros(1, 2)) == 2).all()
    assert (bound(torch.zeros(1, 2)) == 4).all()
    assert (module.last == 0).all()
    assert (module.many[0] == 0).all()


def test_non_persistent_and_none_buffers_come_through():
    module = nn.Module()
    module.register_buffer("gone", None)
    module.register_buffer("brief", torch.ones(2), persistent=False)
    module.register_parameter("nothing", None)
    bound = bind(module, {"brief": torch.zeros(2)})
    assert bound.gone is None
    assert bound.nothing is None
    assert list(bound.state_dict()) == []
    assert (buffers_of(bound)["brief"] == 0).all()
    assert sorted(buffers_of(bound)) == ["brief"]
