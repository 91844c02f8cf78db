"""`jvp`, `vjp`, `hvp` and `per_sample_grad` against Jacobians, loops and finite differences."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tdfunc import StructureError, TensorDict, bind, grad, hvp, jvp, params_of, per_sample_grad, stack, vjp, vmap


def tree():
    return TensorDict({"w": torch.randn(3).double(), "deep": {"b": torch.randn(2, 2).double()}, "n": torch.tensor(2), "name": "x"})


def f(p, x=1.0):
    return TensorDict({"y": p["w"].sin() * p["deep", "b"].sum() * p["n"] * x, "i": p["n"] + 1, "s": "static"})


def loss(p, x=1.0):
    return (p["w"] ** 3).sum() * p["deep", "b"].exp().sum() * p["n"] * x


def test_jvp_is_a_finite_difference():
    p, v = tree(), tree()
    value, tangent = jvp(f, (p,), (v,))
    step = v.exclude("n") * 1e-6
    above, below = f(p.update(p.exclude("n") + step)), f(p.update(p.exclude("n") - step))
    assert value.equal(f(p))
    torch.testing.assert_close(tangent["y"], (above["y"] - below["y"]) / 2e-6, rtol=1e-6, atol=1e-6)
    assert tangent["i"].item() == 0
    assert tangent["s"] == "static"
    assert tangent.structure is value.structure


def test_a_none_tangent_holds_an_argument_constant():
    p, x = tree(), torch.randn(3).double()
    _, tangent, aux = jvp(lambda p, x: (f(p, x), {"t": "a", "x": x}), (p, x), (None, torch.ones_like(x)), has_aux=True)
    torch.testing.assert_close(tangent["y"], f(p)["y"])
    assert aux["t"] == "a"
    assert torch.equal(aux["x"], x)


def test_jvp_strict_refuses_what_does_not_depend():
    p = tree()
    constant = torch.ones(3)
    assert jvp(lambda p: constant, (p,), (p,))[1].tolist() == [0, 0, 0]
    with pytest.raises(RuntimeError, match="independent of the input"):
        jvp(lambda p: constant, (p,), (p,), strict=True)


def test_vjp_and_jvp_are_adjoint():
    p, v, u = tree(), tree(), TensorDict(y=torch.randn(3).double(), i=torch.tensor(0), s="static")
    value, pull, aux = vjp(lambda p: (f(p), "aux"), p, has_aux=True)
    (cotangent,) = pull(u)
    assert aux == "aux"
    assert value.equal(f(p))
    _, tangent = jvp(f, (p,), (v,))
    left = (tangent["y"] * u["y"]).sum()
    right = (cotangent["w"] * v["w"]).sum() + (cotangent["deep", "b"] * v["deep", "b"]).sum()
    torch.testing.assert_close(left, right)
    assert cotangent["n"].item() == 0
    assert cotangent.structure is p.structure


def test_vjp_of_a_scalar_is_the_gradient_for_every_argument():
    p, x = tree(), torch.tensor(2.0).double()
    value, pull = vjp(loss, p, x)
    by_p, by_x = pull(torch.ones_like(value))
    assert by_p.allclose(grad(loss)(p, x))
    torch.testing.assert_close(by_x, loss(p))
    rows = vmap(lambda c: pull(c)[0])(torch.tensor([1.0, 2.0]).double())
    assert rows.batch_size == (2,)
    torch.testing.assert_close(rows["w"][1], 2 * by_p["w"])


def test_hvp_is_the_difference_of_gradients():
    p, v = tree(), tree()
    product = hvp(loss, (p,), (v,))
    part = ["w", "deep"]
    step = v.filter(part) * 1e-6
    above, below = (grad(loss)(p.update(p.filter(part) + s)).filter(part) for s in (step, -step))
    assert product.filter(part).allclose((above - below) / 2e-6, rtol=1e-5, atol=1e-5)
    assert product["n"].item() == 0
    assert product.structure is p.structure


def test_hvp_of_several_arguments_and_with_aux():
    x, y = torch.randn(3).double(), torch.randn(3).double()
    fn = lambda x, y: ((x**2 * y).sum(), "t")
    (by_x, by_y), aux = hvp(fn, (x, y), (torch.ones_like(x), torch.ones_like(y)), has_aux=True)
    assert aux == "t"
    torch.testing.assert_close(by_x, 2 * y + 2 * x)
    torch.testing.assert_close(by_y, 2 * x)
    torch.testing.assert_close(hvp(lambda x, y: fn(x, y)[0], (x, y), (torch.ones_like(x), None)), 2 * y)


def test_a_tie_has_one_tangent():
    p = TensorDict(a=torch.tensor(3.0), b=torch.tensor(0.0)).tie("a", "b")
    product = hvp(lambda p: p["a"] ** 2 * p["b"], (p,), (p.ones_like(),))
    assert len(product._leaves) == 1
    assert product["a"].item() == 18
    assert jvp(lambda p: p["a"] * p["b"], (p,), (p.ones_like(),))[1].item() == 6


CALLS = {
    "jvp": lambda p: jvp(f, (p,), (p,))[1],
    "vjp": lambda p: vjp(loss, p)[1](torch.ones((), dtype=torch.float64))[0],
    "hvp": lambda p: hvp(loss, (p,), (p,)),
}


@pytest.mark.parametrize("name", CALLS)
def test_under_vmap_grad_and_compile(name):
    call = CALLS[name]
    rows = stack([tree() for _ in range(3)])
    assert vmap(call)(rows).allclose(stack([call(row) for row in rows.unbind()]))
    total = lambda p: sum([leaf.sum() for leaf in call(p)._leaves if leaf.is_floating_point()])
    p = tree()
    w = p["w"].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda w: total(p.set("w", w)), w)
    assert torch.autograd.gradcheck(lambda w: grad(lambda q: total(q))(p.set("w", w))["w"], w)
    traces = []
    compiled = torch.compile(call, fullgraph=True, backend=lambda graph, inputs: traces.append(1) or graph.forward)
    for _ in range(3):
        q = tree()
        assert compiled(q).allclose(call(q))
    assert len(traces) == 1


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_per_sample_gradients_are_those_of_a_loop_of_backward(chunk_size):
    model, x, y = net(), torch.randn(5, 3).double(), torch.randint(0, 2, (5,))
    params = params_of(model)
    fn = lambda p, x, y: (nn.functional.cross_entropy(bind(model, p)(x), y), {"x": x * 2})
    got, aux = per_sample_grad(fn, has_aux=True, chunk_size=chunk_size)(params, x, y)
    assert got.batch_size == (5,)
    assert torch.equal(aux["x"], x * 2)
    for i in range(5):
        model.zero_grad()
        nn.functional.cross_entropy(model(x[i]), y[i]).backward()
        for name, g in got[i].to_flat().items():
            torch.testing.assert_close(g, model.get_parameter(name).grad)


def test_per_sample_gradients_of_a_part_another_argument_and_dim():
    model, x = net(), torch.randn(3, 5).double()
    params = params_of(model)
    fn = lambda x, p: bind(model, p)(x).sum()
    got = per_sample_grad(fn, 1, wrt="2", in_dims=(1, None))(x, params)
    assert got.equal(per_sample_grad(fn, -1)(x.T, params).filter("2"))
    assert got["2", "bias"].shape == (5, 2)


def test_per_sample_gradients_with_dropout_need_randomness():
    drop = nn.Dropout(0.5)
    fn = lambda p, x: drop(p["w"] * x).sum()
    p, x = TensorDict(w=torch.ones(64)), torch.ones(4, 64)
    with pytest.raises(RuntimeError, match="randomness"):
        per_sample_grad(fn)(p, x)
    assert len({tuple(g.tolist()) for g in per_sample_grad(fn, randomness="different")(p, x)["w"]}) == 4


def test_per_sample_gradients_compiled_in_one_trace():
    model, traces = net(), []
    fn = per_sample_grad(lambda p, x: bind(model, p)(x).square().sum())
    compiled = torch.compile(fn, fullgraph=True, backend=lambda graph, inputs: traces.append(1) or graph.forward)
    for _ in range(3):
        p, x = params_of(net()), torch.randn(5, 3).double()
        assert compiled(p, x).allclose(fn(p, x))
    assert len(traces) == 1


ONE = torch.ones(())
REFUSED = {
    "no tuple": (lambda: jvp(f, tree(), tree()), r"jvp: primals and tangents are tuples.*got: TensorDict and TensorDict"),
    "lengths": (lambda: jvp(f, (tree(), ONE), (tree(),)), r"got: 2 in a tuple and 1 in a tuple\n  fix: jvp\("),
    "no tangent": (lambda: hvp(loss, (tree(),), (None,)), r"hvp: no argument has a tangent"),
    "other keys": (lambda: jvp(f, (tree(),), (tree().exclude("w"),)), r"jvp \(tangent\): the trees have different leaves"),
    "a tensor for a tree": (lambda: jvp(f, (tree(),), (ONE,)), r"jvp \(tangent\): expected another TensorDict\n  got: Tensor"),
    "a tree for a tensor": (lambda: jvp(torch.sin, (ONE,), (tree(),)), r"tangent is not like"),
    "shape": (lambda: jvp(torch.sin, (ONE,), (torch.ones(2),)), r"another shape or dtype\n  expected: \(\) torch.float32\n  got: \(2,\)"),
    "dtype": (lambda: jvp(torch.sin, (ONE,), (ONE.double(),)), r"got: \(\) torch.float64"),
    "no float": (lambda: jvp(lambda n: n, (ONE.int(),), (ONE.int(),)), r"jvp: nothing to differentiate"),
    "int value": (lambda: jvp(lambda x: x.int(), (ONE,), (ONE,)), r"jvp: the function returns nothing that has a derivative"),
    "vjp no float": (lambda: vjp(lambda n: n, ONE.int()), r"vjp: nothing to differentiate"),
    "cotangent": (lambda: vjp(f, tree())[1](ONE), r"vjp \(cotangent\): expected another TensorDict"),
    "cotangent shape": (lambda: vjp(torch.sin, ONE)[1](torch.ones(3)), r"the cotangent has a leaf of another shape"),
    "no scalar": (lambda: hvp(torch.sin, (torch.ones(2),), (torch.ones(2),)), r"must return a scalar tensor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_a_fix(name):
    call, words = REFUSED[name]
    with pytest.raises(StructureError, match="(?s)" + words) as caught:
        call()
    assert "fix: " in str(caught.value)
