"""The facts that the design rests on: what traces, what is guarded on, and what does not recompile."""

from __future__ import annotations

import gc
import time

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

import tdfunc
from tdfunc import TensorDict, bind, params_of
from tdfunc.structure import clear_caches


def counted(fn, **options):
    """Return a compiled function and the counter of its compilations."""
    counter = CompileCounter()
    return torch.compile(fn, fullgraph=True, backend=counter, **options), counter


def tree(order=("x", "y")):
    parts = {"x": torch.randn(3, 4), "y": {"z": torch.randn(3)}}
    return TensorDict({name: parts[name] for name in order}, 3)


def hundred_sets(td):
    for i in range(100):
        td = td.set(f"x{i}", td["0"] + i)
    return td


def test_a_hundred_sets_of_new_keys_trace_in_time_and_never_recompile():
    td = TensorDict({str(i): torch.full((), float(i)) for i in range(50)})
    compiled, counter = counted(hundred_sets)
    start = time.perf_counter()
    got = compiled(td)
    ours = time.perf_counter() - start
    assert got.equal(hundred_sets(td))
    for _ in range(3):
        compiled(td.map(lambda leaf: leaf + 1))
    assert counter.frame_count == 1
    torch._dynamo.reset()

    def bare(leaves):  # the same tensor work on a plain list: what no library can go below
        leaves = list(leaves)
        for i in range(100):
            leaves.append(leaves[0] + i)
        return leaves

    plain, _ = counted(bare)
    start = time.perf_counter()
    plain(td._leaves)
    assert ours < 3 * (time.perf_counter() - start) + 3.0  # the prototype, traced at the same place, took about a second


def test_a_set_inside_vmap_inside_compile_has_the_right_batch_size():
    td = TensorDict({"a": torch.randn(4, 3), "b": torch.randn(4, 3, 2)}, 4)
    seen = []

    def inner(row):
        row = row.set("n", row["a"].sum()).set(("deep", "m"), row["a"])
        seen.append((row.batch_size, row["deep"].batch_size))
        return row

    compiled, counter = counted(lambda td: torch.vmap(inner)(td))
    got = compiled(td)
    assert seen[-1] == ((), ())
    assert got.batch_size == got["deep"].batch_size == (4,)
    assert got["n"].shape == (4,)
    assert got.equal(torch.vmap(inner)(td))
    assert counter.frame_count == 1


@pytest.mark.parametrize("touch", [lambda td: td["y"], lambda td: list(td.items()), lambda td: td["y", "z"], lambda td: None])
def test_a_fresh_tree_of_the_same_structure_never_recompiles_whatever_was_read_of_it(touch):
    compiled, counter = counted(lambda td: td["y"]["z"].sum() + (td + 1)["x"].sum() + len(td.items()))
    for i in range(4):
        td = tree()
        if i % 2:
            touch(td)
        compiled(td)
    assert counter.frame_count == 1


def test_another_order_of_insertion_is_another_structure_which_compiles_once_more():
    compiled, counter = counted(lambda td: td.set("s", td["x"].sum(1) + td["y", "z"]))
    first, second = tree(), tree(("y", "x"))
    assert first.structure is not second.structure
    for td in (first, second, first + 1, second + 1):
        assert compiled(td).equal(td.set("s", td["x"].sum(1) + td["y", "z"]))
    assert counter.frame_count == 2
    assert (first + second.map(torch.zeros_like)).equal(first)  # operations match leaves by path, whatever the order


def test_another_static_value_compiles_once_more():
    compiled, counter = counted(lambda td: td["x"] * len(td["mode"]))
    for mode, factor in (("a", 1), ("abc", 3), ("a", 1), ("abc", 3)):
        td = TensorDict(x=torch.ones(2), mode=mode)
        assert torch.equal(compiled(td), torch.full((2,), float(factor)))
    assert counter.frame_count == 2


def test_the_structure_of_a_guard_stays_alive():
    compiled, counter = counted(lambda td: td.set("new", td["only in this test"] * 2))
    make = lambda: TensorDict({"only in this test": torch.ones(2)})
    compiled(make())
    clear_caches()
    gc.collect()
    assert torch.equal(compiled(make())["new"], torch.full((2,), 2.0))
    assert counter.frame_count == 1


def missing(td):
    try:
        return td["nope"]
    except KeyError:
        return td["x"] + 1


def misfit(td):
    try:
        return td.set("k", torch.zeros(7))["k"]
    except ValueError:
        return td["x"] + 2


def assigned(td):
    try:
        td["k"] = td["x"]
    except TypeError:
        return td["x"] + 3


@pytest.mark.parametrize("fn", [missing, misfit, assigned])
def test_errors_are_caught_inside_a_compiled_function(fn):
    compiled, counter = counted(fn)
    td = tree()
    assert torch.equal(compiled(td), fn(td))
    assert counter.frame_count == 1


def test_four_batch_sizes_compile_at_most_twice():
    def fn(td):
        return td.set("s", td["x"].sum(1)), td.batch_size[0], (td * 2)[0]

    compiled, counter = counted(fn, dynamic=True)
    for n in (5, 6, 7, 9):
        td = TensorDict({"x": torch.randn(n, 4), "y": {"z": torch.randn(n)}}, n)
        got, size, row = compiled(td)
        assert size == n
        assert got.equal(fn(td)[0])
        assert row.equal(fn(td)[2])
    assert counter.frame_count <= 2


@pytest.mark.parametrize("strict", [False, True])
def test_a_function_of_a_tree_is_exported(strict):
    class Double(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 2)

        def forward(self, td):
            return td.set("out", bind(self.net, params_of(self.net))(td["x"])) * 2

    module, td = Double(), tree()
    exported = torch.export.export(module, (td,), strict=strict)
    got, want = exported.module()(td), module(td)
    assert got.structure is want.structure
    assert got.allclose(want)


def test_the_step_of_an_ensemble_is_one_graph_with_inductor():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return torch._inductor.compile(gm, inputs)

    net, params, buffers = tdfunc.init_ensemble(
        lambda: nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 3)).double(), 3, seed=0
    )
    opt = tdfunc.optim.adam(1e-2)
    state = opt.init(params)

    def loss(p, b, x, y):
        bound = bind(net, p, b)
        return nn.functional.cross_entropy(bound(x), y), tdfunc.buffers_of(bound)

    def step(p, b, s, x, y):
        (value, b), grads = tdfunc.vmap(tdfunc.value_and_grad(loss, has_aux=True), in_dims=(0, 0, None, None))(p, b, x, y)
        return *opt.step(p, grads, s), b, value

    compiled = torch.compile(step, fullgraph=True, backend=backend)
    ours, theirs = (params, state, buffers), (params, state, buffers)
    for _ in range(4):
        x, y = torch.randn(16, 4).double(), torch.randint(0, 3, (16,))
        *ours, value = compiled(ours[0], ours[2], ours[1], x, y)
        *theirs, want = step(theirs[0], theirs[2], theirs[1], x, y)
        torch.testing.assert_close(value, want)
    assert all(a.allclose(b, rtol=1e-9, atol=1e-10) for a, b in zip(ours, theirs))
    assert len(graphs) == 1


def test_map_keeps_the_batch_size_symbolic():
    compiled, counter = counted(lambda td: td.map(lambda leaf: leaf * 2), dynamic=True)
    for n in (4, 5, 6, 9, 12):
        td = TensorDict({"a": torch.randn(n, 3)}, n)
        assert compiled(td).equal(td * 2)
    assert counter.frame_count == 1
