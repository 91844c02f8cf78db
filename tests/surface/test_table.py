"""Every public operation on trees, six ways; see table.py. What holds where is printed in docs/surface.md."""

from __future__ import annotations

import pathlib

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.utils import _pytree

from tdfunc import TensorDict
from tests.surface.page import page
from tests.surface.table import CELLS, ROWS, Row, tree

EVERY = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def holds(cell):
    return pytest.mark.parametrize("row", [row for row in ROWS if cell not in row.not_held], ids=lambda row: row.name)


def leaves(td):
    """The leaves of a tree by path, ties once: what the oracles know of it."""
    return dict(zip(td.structure.paths(), td._leaves))


def expected(row: Row, a, b):
    """What the oracle says: dicts of tensors for trees."""
    ours, theirs = leaves(a), leaves(b)
    if row.whole is not None:
        return row.whole(ours, theirs)
    two = row.leaf.__code__.co_argcount - len(row.leaf.__defaults__ or ()) == 2 if hasattr(row.leaf, "__code__") else row.name.endswith("(td)")
    made = {path: row.leaf(ours[path], theirs[path]) if two else row.leaf(ours[path]) for path in ours}
    made = {path: value for path, value in made.items() if value is not None}
    if row.pieces:
        return tuple({path: value[i] for path, value in made.items()} for i in range(len(next(iter(made.values())))))
    return made


def plain(result):
    """A result with its trees as dicts by path."""
    if isinstance(result, TensorDict):
        return leaves(result)
    if isinstance(result, tuple | list):
        return [plain(item) for item in result]
    return result


def assert_same(got, want, *, exact=False):
    got, want = plain(got), plain(want)
    if isinstance(want, dict):
        assert got.keys() == want.keys()
        for path in want:
            assert_same(got[path], want[path], exact=exact)
    elif isinstance(want, list):
        assert len(got) == len(want)
        for mine, theirs in zip(got, want):
            assert_same(mine, theirs, exact=exact)
    elif isinstance(want, torch.Tensor):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        torch.testing.assert_close(got, want, **({"rtol": 0, "atol": 0} if exact else {}), equal_nan=True)
    else:
        assert got == want


def tensors(result):
    return [leaf for leaf in _pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


@holds("eager")
def test_eager_is_what_the_oracle_says(row):
    a, b = tree(), tree()
    before = [leaf.clone() for leaf in (*a._leaves, *b._leaves)]
    assert_same(row.fn(a, b), expected(row, a, b))
    assert all(torch.equal(x, y) for x, y in zip(before, (*a._leaves, *b._leaves)))  # nothing was written


@EVERY
def test_static_values_ties_and_nodes_pass_through(row):
    """The structure in full: all static values, the tie, and the node without entries."""
    a, b = tree(), tree()
    if not row.keeps:
        assert row.whole is not None or row.leaf is not None
        return
    results = row.fn(a, b)
    for result in results if isinstance(results, tuple) else (results,):
        if isinstance(result, TensorDict):
            assert dict(result.structure.statics())[("s",)] == "static"
            assert {frozenset(group) for group in result.ties} == {frozenset({("one",), ("two",)})}
            assert (("y", "e") in result) is ("prune" not in row.name)


@holds("compile")
def test_compiled_it_is_one_graph_traced_once(row):
    counter = CompileCounter()
    compiled = torch.compile(row.fn, fullgraph=True, backend=counter)
    for _ in range(3):
        a, b = tree(), tree()
        assert_same(compiled(a, b), row.fn(a, b))
    assert counter.frame_count <= 1  # 0 where there is no tensor work


@holds("vmap")
def test_mapped_it_is_a_loop_over_rows(row):
    a, b = tree(3, 5), tree(3, 5)
    got = torch.vmap(lambda a, b: tuple(tensors(row.fn(a, b))))(a, b)
    want = [tensors(row.fn(*pair)) for pair in zip(a.unbind(), b.unbind())]
    assert len(got) == len(want[0])
    for column, rows in zip(got, zip(*want)):
        torch.testing.assert_close(column, torch.stack(rows), equal_nan=True)


@holds("grad")
def test_its_gradient_is_that_of_the_oracle(row):
    a, b = tree().double(), tree().double()

    def scalar(result):
        return sum((leaf.double() * torch.linspace(1, 2, leaf.numel(), dtype=torch.float64).reshape(leaf.shape)).sum() for leaf in tensors(result))

    mine = torch.func.grad(lambda a: scalar(row.fn(a, b)))(a)
    live = a.requires_grad()
    wanted = torch.autograd.grad(scalar(expected(row, live, b)), live._leaves, allow_unused=True)
    through = torch.autograd.grad(scalar(row.fn(live, b)), live._leaves, allow_unused=True)
    for x, y, z in zip(mine._leaves, wanted, through):
        y = torch.zeros_like(x) if y is None else y
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(torch.zeros_like(x) if z is None else z, y, rtol=1e-5, atol=1e-6)


@holds("dynamic")
def test_dynamic_shapes_take_four_batch_sizes_in_one_trace(row):
    counter = CompileCounter()
    compiled = torch.compile(row.fn, fullgraph=True, dynamic=True, backend=counter)
    for n in (5, 3, 7, 4):
        a, b = tree(n), tree(n)
        assert_same(compiled(a, b), row.fn(a, b))
    assert counter.frame_count <= 1


class Module(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, a, b):
        return self.fn(a, b)


@holds("export")
def test_exported_it_runs_on_other_values(row):
    exported = torch.export.export(Module(row.fn), (tree(), tree())).module()
    a, b = tree(), tree()
    assert_same(exported(a, b), row.fn(a, b))


def test_at_least_95_of_100_cells_hold_and_each_other_one_has_its_reason():
    missing = [reason for row in ROWS for reason in row.not_held.values()]
    assert all(missing)
    assert all(set(row.not_held) <= set(CELLS) for row in ROWS)
    applicable = [reason for reason in missing if "no gradient" not in reason]  # integers have none in torch either
    assert len(applicable) / (len(ROWS) * len(CELLS)) <= 0.05


def test_the_page_in_docs_is_this_table():
    assert (pathlib.Path(__file__).parents[2] / "docs" / "surface.md").read_text() == page()
