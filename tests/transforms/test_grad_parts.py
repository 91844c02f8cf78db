"""`wrt`: gradients of a part of a tree are the whole's, and nothing of the rest is there."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tdfunc import KeyPathError, StructureError, TensorDict, bind, grad, optim, params_of, stack, value_and_grad, vmap


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def tree():
    return TensorDict({"a": {"w": torch.randn(3), "b": torch.randn(2)}, "c": {"w": torch.randn(2)}, "n": torch.tensor(3), "name": "x"})


def loss(p):
    return sum([(leaf.sin() ** 2).sum() for leaf in p._leaves if leaf.is_floating_point()]) * p["a", "w"].sum()


WRT = {
    "a subtree": "a",
    "a path": ("a", "w"),
    "a glob": ("*", "w"),
    "any depth": ("**", "b"),
    "several": [("a", "b"), "c"],
    "a predicate": lambda path, leaf: path[-1] == "w",
    "a predicate and a path": [lambda path, leaf: leaf.shape == (3,), "c"],
    "with an int": ["n", "c"],
}


@pytest.mark.parametrize("name", WRT)
@pytest.mark.parametrize("backend", ["func", "autograd"])
def test_the_part_is_what_filter_leaves_of_the_whole(name, backend):
    td = tree()
    value, grads = value_and_grad(loss, wrt=WRT[name], backend=backend)(td)
    whole = grad(loss)(td).filter(WRT[name]) if not callable(WRT[name]) else grad(loss)(td).filter(lambda path, _: WRT[name](path, td[path]))
    assert grads.structure is td.filter(WRT[name]).structure
    assert grads.allclose(whole)
    assert torch.equal(value, loss(td))


def test_several_arguments_each_have_their_part():
    a, b = tree(), tree()
    got = grad(lambda a, b: loss(a) * loss(b), (1, 0), wrt=("*", "w"))(a, b)
    whole = grad(lambda a, b: loss(a) * loss(b), (1, 0))(a, b)
    assert isinstance(got, tuple)
    for part, full in zip(got, whole, strict=True):
        assert part.equal(full.filter(("*", "w")))


def test_an_optimizer_has_no_entries_for_frozen_leaves():
    model, x = net(), torch.randn(5, 3).double()
    params = params_of(model)
    grads = grad(lambda p: bind(model, p)(x).square().mean(), wrt="2")(params)
    part = params.filter("2")
    opt = optim.adam(0.1)
    new, _ = opt.step(part, grads, opt.init(part))
    moved = params | new
    assert moved.filter("0").equal(params.filter("0"))
    assert not moved.filter("2").allclose(part)
    model[0].requires_grad_(False)
    torch_opt = torch.optim.Adam(model[2].parameters(), 0.1)
    model(x).square().mean().backward()
    torch_opt.step()
    assert moved.allclose(params_of(model))


def test_a_tie_that_is_meant_under_one_path_comes_with_all():
    td = TensorDict(a=torch.tensor(3.0), b=torch.tensor(0.0), c=torch.tensor(1.0)).tie("a", "b")
    grads = grad(lambda p: p["a"] * 2 + p["b"] ** 2 + p["c"], wrt="b")(td)
    assert sorted(grads.keys()) == ["a", "b"]
    assert len(grads._leaves) == 1
    assert grads["b"].item() == 8


def test_inside_vmap_and_itself():
    rows = stack([tree() for _ in range(3)])
    fn = grad(loss, wrt=("*", "w"))
    got = vmap(fn)(rows)
    assert got.allclose(stack([fn(row) for row in rows.unbind()]))
    second = grad(lambda p: fn(p)["c", "w"].sum(), wrt="c")(rows[0])
    x, s = rows[0]["c", "w"], rows[0]["a", "w"].sum()
    torch.testing.assert_close(second["c", "w"], 2 * torch.cos(2 * x) * s)


def test_compiled_in_one_trace():
    traces = []
    fn = value_and_grad(loss, wrt=[("*", "w")])
    compiled = torch.compile(fn, fullgraph=True, backend=lambda graph, inputs: traces.append(1) or graph.forward)
    for _ in range(3):
        td = tree()
        (value, grads), (expected, expected_grads) = compiled(td), fn(td)
        torch.testing.assert_close(value, expected)
        assert grads.allclose(expected_grads)
        assert grads.structure is expected_grads.structure
    assert len(traces) == 1


REFUSED = {
    "no such key": (KeyPathError, lambda: grad(loss, wrt="d")(tree()), r"grad: no entry 'd'"),
    "a glob for nothing": (KeyPathError, lambda: grad(loss, wrt=("*", "z"))(tree()), r"grad: no entry matches the pattern '\*', 'z'"),
    "a predicate for nothing": (
        StructureError,
        lambda: grad(loss, wrt=lambda p, t: False)(tree()),
        r"that wrt names\n  got: \[\]\n  fix: another wrt",
    ),
    "only an int": (StructureError, lambda: grad(loss, wrt="n")(tree()), r"nothing to differentiate.*got: \['torch.int64'\]\n  fix: another wrt"),
    "a plain dict": (StructureError, lambda: grad(lambda p: p["a"], wrt="a")({"a": torch.ones(())}), r"expected: a TensorDict\n  got: dict"),
    "backend": (StructureError, lambda: grad(loss, backend="jax"), r"unknown backend\n  expected: \['func', 'autograd'\]\n  got: 'jax'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_a_fix(name):
    kind, call, words = REFUSED[name]
    with pytest.raises(kind, match="(?s)" + words) as caught:
        call()
    assert "fix: " in str(caught.value)
