"""Path rules and named dims of `vmap` against a loop over rows."""

from __future__ import annotations

import pytest
import torch

from tdfunc import KeyPathError, StructureError, TensorDict, grad, vmap


def tree():
    return TensorDict({"x": torch.randn(4, 3), "deep": {"y": torch.randn(2, 4), "z": torch.randn(3)}, "k": torch.arange(4), "name": "t"})


def row_of(td, i):
    return td.set("x", td["x"][i]).set(("deep", "y"), td["deep", "y"][:, i]).set("k", td["k"][i])


def fn(r, w=1.0):
    return r["x"] * r["deep", "z"] * r["deep", "y"].sum() * r["k"] * w


RULES = {"x": 0, "k": 0, ("deep", "y"): 1}
SAME = {
    "globs": {("*", "y"): 1, "[xk]": 0},
    "a negative dim": {"x": 0, "k": -1, ("deep", "y"): -1},
    "the first that names a leaf counts": {("deep", "z"): None, ("deep", "y"): 1, "**": 0},
    "a predicate": {(lambda path, leaf: leaf.shape[0] == 4): 0, (lambda path, leaf: path[-1] == "y"): 1},
}


@pytest.mark.parametrize("rules", [RULES, *SAME.values()], ids=["paths", *SAME])
def test_rules_for_the_leaves_are_a_loop_over_rows(rules):
    td = tree()
    expected = torch.stack([fn(row_of(td, i)) for i in range(4)])
    torch.testing.assert_close(vmap(fn, (rules,))(td), expected)
    torch.testing.assert_close(vmap(fn, (rules,), chunk_size=3)(td), expected)
    torch.testing.assert_close(vmap(lambda r, w: fn(r, w[0]), (rules, None))(td, [torch.tensor(2.0)]), expected * 2)
    torch.testing.assert_close(
        vmap(lambda r, w: fn(r, w["a"]), (rules, {"a": 0}))(td, {"a": torch.arange(4.0)}), expected * torch.arange(4.0)[:, None]
    )


def test_rules_for_the_results():
    td = tree()
    out = vmap(lambda r: (TensorDict(a=fn(r), b=r["x"], c=r["k"]), r["x"]), (RULES,), out_dims=({"a": 1, "b": -1}, 1))(td)
    expected = torch.stack([fn(row_of(td, i)) for i in range(4)])
    torch.testing.assert_close(out[0]["a"], expected.T)
    assert torch.equal(out[0]["b"], td["x"].T)
    assert torch.equal(out[0]["c"], td["k"])
    assert torch.equal(out[1], td["x"].T)
    assert vmap(lambda x: TensorDict(a=x, b=x), out_dims={"**": 1})(td["x"])["b"].shape == (3, 4)
    plain = vmap(lambda x: {"a": x, "b": TensorDict(c=x)}, out_dims={"a": 1, "b": {"c": 0}})(td["x"])
    assert plain["a"].shape == (3, 4)
    assert plain["b"]["c"].shape == (4, 3)


def test_keywords_are_mapped_by_name():
    td, w = tree(), torch.randn(3, 4)
    expected = torch.stack([fn(row_of(td, i), w=w[:, i]) for i in range(4)])
    torch.testing.assert_close(vmap(fn, {0: RULES, "w": 1})(td, w=w), expected)
    shared = torch.tensor(2.0)
    torch.testing.assert_close(vmap(fn, {0: RULES, "w": None})(td, w=shared), vmap(lambda r: fn(r, shared), (RULES,))(td))
    x = torch.randn(4, 3)
    got = vmap(lambda x, *, p, text: x * p["x"] * len(text), {"p": {"x": 0}})(x, p=td, text="ab")
    torch.testing.assert_close(got, x * td["x"] * 2)
    torch.testing.assert_close(vmap(lambda *, x: x.sum(), {"x": 0})(x=x), x.sum(1))


def test_compiled_with_rules_in_one_trace():
    traces = []
    mapped = vmap(lambda r, w: TensorDict(a=fn(r, w)), {0: RULES, "w": 1}, out_dims={"a": 1})
    compiled = torch.compile(mapped, fullgraph=True, backend=lambda graph, inputs: traces.append(1) or graph.forward)
    for _ in range(3):
        td, w = tree(), torch.randn(3, 4)
        torch.testing.assert_close(compiled(td, w=w)["a"], mapped(td, w=w)["a"])
    assert len(traces) == 1


def test_gradients_flow_through_mapped_and_shared_leaves():
    td = tree()
    grads = grad(lambda p: vmap(fn, (RULES,))(p).sum())(td)
    plain = grad(lambda p: sum([fn(row_of(p, i)).sum() for i in range(4)]))(td)
    assert grads.allclose(plain, rtol=1e-4, atol=1e-5)


REFUSED = {
    "no such leaf": (KeyPathError, lambda: vmap(fn, ({"q": 0},))(tree()), r"vmap \(in_dims\): no entry 'q'"),
    "no dim": (
        StructureError,
        lambda: vmap(fn, ({"x": "0"},))(tree()),
        r"a rule of in_dims must give a dim\n  at: x\n  expected: an int, or None\n  got: '0'",
    ),
    "unknown name": (
        StructureError,
        lambda: vmap(fn, {"v": 0})(tree(), w=1.0),
        r"names no argument of the call\n  expected: \[0, 'w'\]\n  got: \['v'\]",
    ),
    "unknown position": (StructureError, lambda: vmap(fn, {1: 0})(tree()), r"got: \[1\]"),
    "out leaf": (KeyPathError, lambda: vmap(lambda x: TensorDict(a=x), out_dims={"b": 1})(torch.ones(2, 2)), r"vmap \(out_dims\): no entry 'b'"),
    "out of a tensor": (StructureError, lambda: vmap(torch.sin, out_dims={"b": 1})(torch.ones(2, 2)), r"out_dims do not fit.*for a Tensor"),
    "keyword left out": (StructureError, lambda: vmap(fn, {0: RULES})(tree(), w=torch.ones(4)), r"at: keyword 'w'.*fix: in_dims=\{'w': 0\}"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name):
    kind, call, words = REFUSED[name]
    with pytest.raises(kind, match="(?s)" + words):
        call()
