"""`vmap` over trees equals a loop, whatever the dims, chunks and nesting; what torch.vmap would not map is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tdfunc
from tdfunc import TensorDict, bind, params_of, stack, vmap
from tdfunc._errors import StructureError


def batch(n=4):
    return TensorDict({"x": torch.randn(n, 3), "deep": {"y": torch.randn(n, 2, 2)}, "k": torch.arange(n), "name": "rows"}, batch_size=n)


def row(td):
    return td.set("sum", td["x"].sum() + td["deep", "y"].sum()).set(("deep", "z"), td["deep", "y"] @ td["deep", "y"])


def test_a_mapped_tree_is_the_stack_of_its_rows_done_one_by_one():
    td = batch()
    out = vmap(row)(td)
    assert out.batch_size == (4,)
    assert out["name"] == "rows"
    assert out.allclose(stack([row(r) for r in td.unbind()]))
    assert out.structure is stack([row(r) for r in td.unbind()]).structure


def test_inside_the_batch_size_has_lost_the_mapped_dim():
    td = TensorDict({"x": torch.zeros(4, 5, 3)}, batch_size=(4, 5))
    seen = []
    vmap(vmap(lambda r: seen.append(tuple(r.batch_size)) or r["x"]))(td)
    vmap(lambda r: seen.append(tuple(r.batch_size)) or r["x"])(td)
    assert seen == [(), (5,)]


@pytest.mark.parametrize(
    ("in_dims", "expected"),
    [
        ((0, None), lambda td, w: torch.stack([r["x"] @ w[:, 0] for r in td.unbind()])),
        ((None, 1), lambda td, w: torch.stack([td["x"] @ w[:, i] for i in range(4)])),
        ((0, 1), lambda td, w: torch.stack([td[i]["x"] @ w[:, i] for i in range(4)])),
        ((0, -1), lambda td, w: torch.stack([td[i]["x"] @ w[:, i] for i in range(4)])),
    ],
)
def test_in_dims_pick_what_is_mapped(in_dims, expected):
    td, w = batch(), torch.randn(3, 4)
    fn = lambda td, w: td["x"] @ (w if w.dim() == 1 else w[:, 0])
    torch.testing.assert_close(vmap(fn, in_dims)(td, w), expected(td, w))


def test_a_dim_per_leaf_of_a_tree():
    td = TensorDict({"a": torch.randn(3, 4), "b": torch.randn(4, 3)})
    tree = torch.utils._pytree.tree_unflatten([1, 0], torch.utils._pytree.tree_structure(td))
    out = vmap(lambda t: t["a"] + t["b"], in_dims=(tree,))(td)
    torch.testing.assert_close(out, td["a"].T + td["b"])


def test_out_dims_put_the_mapped_dim_where_told():
    td = batch()
    out = vmap(lambda r: (r["x"], r), out_dims=(1, 0))(td)
    assert torch.equal(out[0], td["x"].T)
    assert out[1].equal(td)


@pytest.mark.parametrize("chunk_size", [1, 3, 4, 9])
def test_chunks_do_not_show(chunk_size):
    td = batch(7)
    assert vmap(row, chunk_size=chunk_size)(td).allclose(vmap(row)(td))


@pytest.mark.parametrize("randomness", ["different", "same"])
def test_randomness_is_per_row_or_shared(randomness):
    td = TensorDict({"x": torch.zeros(5, 64)}, batch_size=5)
    noise = vmap(lambda r: r["x"] + torch.rand(64), randomness=randomness)(td)
    rows = {tuple(r.tolist()) for r in noise}
    assert len(rows) == (5 if randomness == "different" else 1)


def test_randomness_is_refused_by_default():
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(lambda r: r["x"] + torch.rand(3))(batch())


@pytest.mark.parametrize(
    "value", [torch.ones(4), [torch.ones(4)], {"w": torch.ones(4)}, TensorDict(w=torch.ones(4))], ids=["tensor", "list", "dict", "tree"]
)
def test_tensors_by_keyword_are_refused(value):
    with pytest.raises(StructureError, match=r"keyword would not be mapped\n  at: keyword 'w'"):
        vmap(lambda r, w: r["x"])(batch(), w=value)


def test_other_keywords_pass():
    td = batch()
    assert torch.equal(vmap(lambda r, scale, name: r["x"] * scale)(td, scale=2.0, name="x"), td["x"] * 2)


def test_ties_stay_ties():
    td = TensorDict({"a": torch.randn(3, 2), "b": torch.randn(3, 2)}, batch_size=3).tie("a", "b")
    out = vmap(lambda t: t.map(torch.sin))(td)
    assert out.ties == td.ties
    assert out["a"] is out["b"]


def test_gradients_flow_to_the_stacked_leaves():
    td = batch().partition(lambda path, leaf: leaf.is_floating_point())[0].requires_grad()
    out = vmap(lambda r: (r["x"] ** 2).sum())(td)
    (got,) = torch.autograd.grad(out.sum(), [td["x"]])
    torch.testing.assert_close(got, 2 * td["x"])


def test_compiled_it_is_the_same_in_one_trace():
    net = nn.Linear(3, 2)
    traces = []
    backend = lambda graph, inputs: traces.append(1) or graph.forward
    fn = lambda p, x: (bind(net, p)(x), p.set("norm", p["weight"].norm()))
    mapped = vmap(fn, (0, None))
    compiled = torch.compile(mapped, fullgraph=True, backend=backend)
    for _ in range(3):
        params = stack([params_of(net).map(torch.randn_like) for _ in range(4)])
        x = torch.randn(5, 3)
        (out, tree), (expected, expected_tree) = compiled(params, x), mapped(params, x)
        torch.testing.assert_close(out, expected)
        assert tree.allclose(expected_tree)
        assert tree.batch_size == (4,)
    assert len(traces) == 1


def test_it_is_named_after_the_function():
    assert vmap(row).__name__ == "row"
    assert tdfunc.grad(row).__name__ == "row"
