"""`jacrev`, `jacfwd` and `hessian` against torch.func on dicts, finite differences and closed forms."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tdfunc import KeyPathError, StructureError, TensorDict, bind, grad, hessian, jacfwd, jacrev, params_of, stack, vmap

BOTH = pytest.mark.parametrize("jac", [jacrev, jacfwd], ids=["rev", "fwd"])


def tree():
    return TensorDict(
        {"w": torch.randn(3).double(), "deep": {"b": torch.randn(2, 2).double()}, "n": torch.tensor(2), "flag": torch.tensor(True), "name": "x"}
    )


def f(p):
    w, b = p["w"], p["deep", "b"]
    return TensorDict({"y": w.sin() * b.sum() * p["n"], "k": {"z": (b @ b) * w.prod()}, "i": p["n"] + 1})


def as_dict(p):
    return {"w": p["w"], "b": p["deep", "b"]}


def f_of_dict(p):
    out = f({"w": p["w"], ("deep", "b"): p["b"], "n": 2})
    return {"y": out["y"], "z": out["k", "z"]}


def differences(fn, leaf, eps=1e-6):
    columns = []
    for i in range(leaf.numel()):
        step = torch.zeros(leaf.numel(), dtype=leaf.dtype)
        step[i] = eps
        columns.append((fn(leaf + step.view_as(leaf)) - fn(leaf - step.view_as(leaf))) / (2 * eps))
    return torch.stack(columns, -1).reshape(*columns[0].shape, *leaf.shape)


@BOTH
def test_it_is_torch_func_on_dicts_and_finite_differences(jac):
    p = tree()
    got = jac(f)(p)
    expected = torch.func.jacrev(f_of_dict)(as_dict(p))
    for out, path in (("y", ("y",)), ("z", ("k", "z"))):
        torch.testing.assert_close(got[(*path, "w")], expected[out]["w"])
        torch.testing.assert_close(got[(*path, "deep", "b")], expected[out]["b"])
        for leaf in (("w",), ("deep", "b")):
            torch.testing.assert_close(
                got[path + leaf], differences(lambda t, leaf=leaf, path=path: f(p.set(leaf, t))[path], p[leaf]), rtol=1e-6, atol=1e-6
            )


@BOTH
def test_what_is_no_float_has_zeros(jac):
    got = jac(f)(tree())
    assert got["y", "n"].tolist() == [0, 0, 0]
    assert got["y", "n"].dtype is torch.int64
    assert got["y", "flag"].dtype is torch.bool
    assert got["i", "w"].tolist() == [0, 0, 0]
    assert got["y", "name"] == "x"


@BOTH
def test_a_value_with_a_batch_size_gives_a_jacobian_with_it(jac):
    rows = TensorDict({"x": torch.randn(4, 3)}, batch_size=4)
    got = jac(lambda p: rows.map(lambda t: t * p["w"]))(TensorDict(w=torch.ones(3)))
    assert got.batch_size == (4,)
    torch.testing.assert_close(got["x", "w"], torch.diag_embed(rows["x"]))


@BOTH
@pytest.mark.parametrize("chunk_size", [1, 2, 100])
def test_chunks_do_not_show(jac, chunk_size):
    p = tree()
    got, aux = jac(lambda p: (f(p), {"w": p["w"] * 2, "t": "x"}), has_aux=True, chunk_size=chunk_size)(p)
    assert got.allclose(jac(f)(p))
    assert aux["t"] == "x"
    torch.testing.assert_close(aux["w"], p["w"] * 2)


@BOTH
def test_ties_have_one_entry_each_way(jac):
    p = TensorDict(a=torch.tensor(3.0), b=torch.tensor(0.0)).tie("a", "b")
    got = jac(lambda p: p.map(lambda t: t**2))(p)
    assert len(got._leaves) == 1
    assert got["a", "b"] is got["b", "a"]
    assert got["a", "a"].item() == 6


PLAIN = {
    "tensor": (lambda p: p["w"] ** 2, lambda p, j: j["w"]),
    "tuple": (lambda p: (p["w"] ** 2, p["w"].sum()), lambda p, j: j[0]["w"]),
    "dict of tree": (lambda p: {"a": [TensorDict(y=p["w"] ** 2)]}, lambda p, j: j["a"][0]["y", "w"]),
}


@BOTH
@pytest.mark.parametrize("name", PLAIN)
def test_plain_containers_of_the_value_stay(jac, name):
    fn, pick = PLAIN[name]
    p = tree()
    torch.testing.assert_close(pick(p, jac(fn)(p)), torch.diag(2 * p["w"]))


@BOTH
def test_plain_arguments_are_as_with_torch_func(jac):
    x, y = torch.randn(3), {"b": torch.randn(3), "c": [torch.randn(2)]}
    fn = lambda x, y: {"o": x * y["b"] * y["c"][0].sum()}
    got, expected = jac(fn, (0, 1))(x, y), torch.func.jacrev(fn, (0, 1))(x, y)
    assert torch.utils._pytree.tree_structure(got) == torch.utils._pytree.tree_structure(expected)
    torch.testing.assert_close(got, expected)


@BOTH
def test_for_several_arguments_a_tuple_holds_the_trees(jac):
    p, x = tree(), torch.randn(3).double()
    fn = lambda x, p: TensorDict(y=p["w"] * x)
    by_p, by_x = jac(fn, (1, 0))(x, p)
    torch.testing.assert_close(by_p["y", "w"], torch.diag(x))
    torch.testing.assert_close(by_x["y"], torch.diag(p["w"]))
    got = jac(lambda d: TensorDict(y=d["a"] * d["b"][0]))({"a": x, "b": [p["w"]]})
    torch.testing.assert_close(got["b"][0]["y"], torch.diag(x))


@BOTH
def test_wrt_is_what_filter_leaves(jac):
    p = tree()
    got = jac(f, wrt="deep")(p)
    assert got["y"].structure is jac(f)(p)["y"].filter("deep").structure
    assert got["y"].equal(jac(f)(p)["y"].filter("deep"))


@BOTH
def test_under_vmap_inside_and_outside(jac):
    rows = stack([tree() for _ in range(3)])
    assert vmap(jac(f))(rows).allclose(stack([jac(f)(row) for row in rows.unbind()]))
    p = TensorDict(w=torch.randn(3))
    x = torch.randn(4, 3)
    got = jac(lambda p: vmap(lambda row: (row * p["w"]).sum())(x))(p)
    torch.testing.assert_close(got["w"], x)


@BOTH
def test_gradients_flow_through_it(jac):
    p = TensorDict(w=torch.randn(3).double())
    got = grad(lambda p: jac(lambda p: p["w"] ** 3)(p)["w"].sum())(p)
    torch.testing.assert_close(got["w"], 6 * p["w"])
    leaf = p["w"].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda w: jac(lambda p: p["w"].sin())(TensorDict(w=w))["w"], leaf)


@pytest.mark.parametrize("make", [jacrev, jacfwd, hessian], ids=["rev", "fwd", "hessian"])
def test_compiled_in_one_trace(make):
    traces = []
    fn = make(f) if make is not hessian else make(lambda p: f(p)["y"].sum())
    compiled = torch.compile(fn, fullgraph=True, backend=lambda graph, inputs: traces.append(1) or graph.forward)
    for _ in range(3):
        p = tree()
        assert compiled(p).allclose(fn(p))
        assert compiled(p).structure is fn(p).structure
    assert len(traces) == 1


@BOTH
def test_empty_leaves_have_empty_jacobians(jac):
    got = jac(lambda p: p["a"] * 2)(TensorDict(a=torch.ones(2), e=torch.ones(0)))
    assert got["e"].shape == (2, 0)
    assert jac(lambda p: p["e"] * 2)(TensorDict(e=torch.ones(0)))["e"].shape == (0, 0)


def test_a_module_is_as_with_functional_call():
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    x, p = torch.randn(4, 2).double(), params_of(net)
    plain = dict(net.named_parameters())
    expected = torch.func.jacrev(lambda q: torch.func.functional_call(net, q, (x,)))({k: v.detach() for k, v in plain.items()})
    for name, j in jacfwd(lambda p: bind(net, p)(x))(p).to_flat().items():
        torch.testing.assert_close(j, expected[name])


def test_randomness_is_shared_or_refused():
    p = TensorDict(w=torch.ones(4))
    noisy = lambda p: p["w"] * torch.rand(4)
    with pytest.raises(RuntimeError, match="randomness"):
        jacfwd(noisy)(p)
    j = jacfwd(noisy, randomness="same")(p)["w"]
    assert torch.equal(j, torch.diag(j.diagonal()))
    with pytest.raises(StructureError, match="columns must be of one function"):
        jacfwd(noisy, randomness="different")


def test_a_hessian_is_the_closed_form_and_torch_func():
    p = tree()
    fn = lambda p: (p["w"] ** 3).sum() * p["deep", "b"].sum()
    h, aux = hessian(lambda p: (fn(p), "t"), has_aux=True)(p)
    assert aux == "t"
    torch.testing.assert_close(h["w", "w"], torch.diag(6 * p["w"]) * p["deep", "b"].sum())
    torch.testing.assert_close(h["w", "deep", "b"], (3 * p["w"] ** 2)[:, None, None].expand(3, 2, 2))
    torch.testing.assert_close(h["deep", "b", "w"], (3 * p["w"] ** 2).expand(2, 2, 3))
    assert not h["deep", "b", "deep", "b"].any()
    assert h["w", "n"].tolist() == [0, 0, 0]
    assert h["n", "w"].tolist() == [0, 0, 0]
    part = hessian(fn, wrt="deep")(p)
    assert list(part.keys(include_nested=True, leaves_only=True)) == [("deep", "b", "deep", "b")]
    assert hessian(fn, chunk_size=2)(p).allclose(h)
    x, y = torch.randn(2), torch.randn(2)
    torch.testing.assert_close(hessian(lambda x, y: (x**2 * y).sum(), (0, 1))(x, y), torch.func.hessian(lambda x, y: (x**2 * y).sum(), (0, 1))(x, y))


def test_a_hessian_of_a_vector_function_has_its_shape_in_front():
    p = TensorDict(x=torch.randn(3))
    h = hessian(lambda p: TensorDict(y=p["x"] ** 3))(p)
    torch.testing.assert_close(h["y", "x", "x"], torch.diag_embed(torch.diag(6 * p["x"])))


REFUSED = {
    "no float": (StructureError, lambda jac: jac(lambda p: p["n"])(TensorDict(n=torch.tensor([1]))), r"jac...: nothing to differentiate"),
    "int value": (StructureError, lambda jac: jac(lambda p: p["n"])(tree()), r"returns nothing that has a derivative.*got: \['torch.int64'\]"),
    "a number": (StructureError, lambda jac: jac(lambda p: (p["w"], 1.0))(tree()), r"must return tensors.*got: float\n  fix: return \(value, aux\)"),
    "no aux": (StructureError, lambda jac: jac(f, has_aux=True)(tree()), r"jac...: has_aux=True.*got: TensorDict"),
    "argnums": (StructureError, lambda jac: jac(f, 1)(tree()), r"jac...: argnums names no argument\n  expected: less than 1\n  got: 1"),
    "wrt": (KeyPathError, lambda jac: jac(f, wrt="z")(tree()), r"jac...: no entry 'z'"),
}


@BOTH
@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_a_fix(jac, name):
    kind, call, words = REFUSED[name]
    with pytest.raises(kind, match="(?s)" + words) as caught:
        call(jac)
    assert "fix: " in str(caught.value)
