"""`grad` and `value_and_grad` against closed forms and torch.autograd."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tdfunc import TensorDict, bind, grad, params_of, stack, value_and_grad, vmap
from tdfunc._errors import StructureError


def tree(**more):
    return TensorDict({"w": torch.tensor([1.0, 2.0, 3.0]), "deep": {"b": torch.tensor(0.5)}, **more})


def loss(p, x=2.0):
    return (p["w"] ** 3).sum() * x + p["deep", "b"].exp()


def test_it_is_the_closed_form():
    td = tree()
    value, grads = value_and_grad(loss)(td, 2.0)
    assert torch.allclose(value, loss(td))
    assert torch.allclose(grads["w"], 6 * td["w"] ** 2)
    assert torch.allclose(grads["deep", "b"], td["deep", "b"].exp())
    assert grads.structure is td.structure
    assert grad(loss)(td, x=2.0).equal(grads)


def test_it_is_what_autograd_gives_for_a_module():
    net, x, y = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double(), torch.randn(6, 4).double(), torch.randint(0, 3, (6,))
    value, grads = value_and_grad(lambda p: nn.functional.cross_entropy(bind(net, p)(x), y))(params_of(net))
    expected = nn.functional.cross_entropy(net(x), y)
    expected.backward()
    assert torch.equal(value, expected)
    assert not value.requires_grad
    for name, g in grads.to_flat().items():
        torch.testing.assert_close(g, net.get_parameter(name).grad, rtol=1e-12, atol=1e-12)


ARGNUMS = {
    "0": (0, ("a",)),
    "1": (1, ("b",)),
    "-1": (-1, ("b",)),
    "(0, 1)": ((0, 1), ("a", "b")),
    "(1, 0)": ((1, 0), ("b", "a")),
    "(-1,)": ((-1,), ("b",)),
    "(-2, 1)": ((-2, 1), ("a", "b")),
}


@pytest.mark.parametrize("name", ARGNUMS)
def test_argnums_pick_the_arguments_in_their_order(name):
    argnums, picked = ARGNUMS[name]
    a, b = TensorDict(x=torch.tensor(3.0)), torch.tensor(5.0)
    fn = lambda a, b: a["x"] ** 2 * b
    whole = {"a": TensorDict(x=2 * a["x"] * b), "b": a["x"] ** 2}
    got = grad(fn, argnums)(a, b)
    got = got if isinstance(argnums, tuple) else (got,)
    assert isinstance(got, tuple)
    assert len(got) == len(picked)
    for g, which in zip(got, picked, strict=True):
        assert g.equal(whole[which])


def test_aux_passes_through_tensors_or_not():
    td = tree()
    aux = {"tensor": td["w"], "text": "hello", "n": 3, "none": None, "tree": td, "nested": [(1, torch.ones(2))]}
    (value, got), grads = value_and_grad(lambda p: (loss(p), {**aux, "tensor": p["w"] * 2, "tree": p}), has_aux=True)(td)
    assert torch.allclose(value, loss(td))
    assert torch.equal(got["tensor"], td["w"] * 2)
    assert got["tree"].equal(td)
    assert (got["text"], got["n"], got["none"], got["nested"][0][0]) == ("hello", 3, None, 1)
    assert torch.equal(got["nested"][0][1], torch.ones(2))
    grads_again, aux_again = grad(lambda p: (loss(p), "x"), has_aux=True)(td)
    assert grads_again.equal(grads)
    assert aux_again == "x"


def test_aux_is_out_of_the_transform():
    _, aux = grad(lambda p: (loss(p), p["w"]), has_aux=True)(tree())
    assert not torch._C._functorch.is_gradtrackingtensor(aux)
    assert aux.tolist() == [1, 2, 3]


def test_integer_and_bool_leaves_get_zeros_of_their_dtype():
    td = tree(n=torch.tensor([2, 3]), flag=torch.tensor([True]))
    grads = grad(lambda p: loss(p) * p["n"].sum() * p["flag"].sum())(td)
    assert grads["n"].tolist() == [0, 0]
    assert grads["n"].dtype is torch.int64
    assert grads["flag"].tolist() == [False]
    assert grads["flag"].dtype is torch.bool
    assert torch.allclose(grads["w"], 5 * 6 * td["w"] ** 2)
    assert grads.structure is td.structure


def test_a_tied_leaf_has_the_sum_over_its_uses():
    td = TensorDict(a=torch.tensor(3.0), b=torch.tensor(0.0), c=torch.tensor(1.0)).tie("a", "b")
    grads = grad(lambda p: p["a"] * 2 + p["b"] ** 2 + p["c"])(td)
    assert grads["a"].item() == 2 + 2 * 3
    assert grads.ties == td.ties
    assert len(grads._leaves) == 2


def test_an_unused_leaf_has_zeros():
    assert grad(lambda p: p["w"].sum())(tree())["deep", "b"].item() == 0


def test_a_complex_leaf_has_autograds_gradient():
    z = torch.tensor([1 + 2j, 3 - 1j])
    leaf = z.clone().requires_grad_()
    (leaf.abs() ** 2).sum().backward()
    assert torch.allclose(grad(lambda p: (p["z"].abs() ** 2).sum())(TensorDict(z=z))["z"], leaf.grad)


def test_gradients_of_gradients():
    td = tree()
    second = grad(lambda p: sum([g.sum() for g in grad(loss)(p)._leaves]))(td)
    assert torch.allclose(second["w"], 12 * td["w"])
    third = grad(lambda p: grad(lambda p: grad(loss)(p)["w"].sum())(p)["w"].sum())(td)
    assert torch.allclose(third["w"], torch.full((3,), 12.0))


def test_the_gradient_can_be_trained_through():
    td = tree().requires_grad()
    grads = grad(loss)(td)
    (outer,) = torch.autograd.grad(grads["w"].sum(), [td["w"]])
    assert torch.allclose(outer, 12 * td["w"])


def test_inside_vmap_it_is_one_gradient_per_row():
    rows = stack([tree().map(lambda t, i=i: t + i) for i in range(4)])
    got = vmap(grad(loss))(rows)
    assert got.allclose(stack([grad(loss)(row) for row in rows.unbind()]))
    assert got.batch_size == (4,)
    outer = grad(lambda rows: vmap(loss)(rows).sum())(rows)
    assert outer.allclose(got)


def test_per_sample_gradients_sum_to_the_whole():
    net, x = nn.Linear(3, 1).double(), torch.randn(5, 3).double()
    fn = lambda p, x: bind(net, p)(x).sin().sum()
    per = vmap(grad(fn), in_dims=(None, 0))(params_of(net), x)
    assert per["weight"].shape == (5, 1, 3)
    assert per.map(lambda t: t.sum(0)).allclose(grad(fn)(params_of(net), x))


@pytest.mark.parametrize("has_aux", [False, True])
def test_compiled_it_is_the_same_in_one_trace(has_aux):
    traces = []
    fn = (lambda p, x: (loss(p, x), {"w": p["w"] * 2, "text": "a"})) if has_aux else loss
    eager = value_and_grad(fn, has_aux=has_aux)
    compiled = torch.compile(eager, fullgraph=True, backend=lambda graph, inputs: traces.append(1) or graph.forward)
    for i in range(3):
        td, x = tree(n=torch.tensor(i)).map(lambda t, i=i: t + i), torch.tensor(float(i))
        (value, grads), (expected, expected_grads) = compiled(td, x), eager(td, x)
        if has_aux:
            assert value[1]["text"] == "a"
            assert torch.equal(value[1]["w"], expected[1]["w"])
            value, expected = value[0], expected[0]
        assert torch.allclose(value, expected)
        assert grads.allclose(expected_grads)
    assert len(traces) == 1


def test_the_arguments_stay_as_they_are():
    td = tree()
    kept = td.clone()
    grad(lambda p: loss(p.map(lambda t: t.mul(2))))(td)
    assert td.equal(kept)
    assert all(not leaf.requires_grad and leaf.grad is None for leaf in td._leaves)


def test_plain_pytrees_are_fine_too():
    assert grad(lambda p: p["a"] ** 2 + p["b"][0])({"a": torch.tensor(3.0), "b": [torch.tensor(1.0)]}) == {
        "a": torch.tensor(6.0),
        "b": [torch.tensor(1.0)],
    }


REFUSED = {
    "not scalar": (lambda: grad(lambda p: p["w"])(tree()), r"must return a scalar tensor\n  expected: shape \(\)\n  got: \(3,\)\n  fix: reduce it"),
    "one element": (lambda: grad(lambda p: p["w"][:1])(tree()), r"got: \(1,\)"),
    "a tree": (lambda: grad(lambda p: p)(tree()), r"got: TensorDict"),
    "a float": (lambda: grad(lambda p: 1.0)(tree()), r"got: float"),
    "aux unasked": (lambda: grad(lambda p: (loss(p), 1))(tree()), r"got: tuple\n  fix: return \(value, aux\) with has_aux=True"),
    "no aux": (lambda: grad(loss, has_aux=True)(tree()), r"must return two things\n  expected: \(value, aux\)\n  got: Tensor"),
    "three things": (lambda: grad(lambda p: (loss(p), 1, 2), has_aux=True)(tree()), r"must return two things"),
    "no float": (lambda: grad(lambda p: p["n"].sum())(TensorDict(n=torch.tensor([1]))), r"nothing to differentiate.*got: \['torch.int64'\]"),
    "argnums": (lambda: grad(loss, 2)(tree(), 1.0), r"argnums names no argument\n  expected: less than 2\n  got: 2"),
    "negative argnums": (lambda: grad(loss, -3)(tree(), 1.0), r"argnums names no argument"),
    "by keyword": (lambda: grad(loss)(p=tree()), r"fix: pass the argument by position"),
    "one of two": (lambda: grad(loss, (0, 5))(tree(), 1.0), r"got: 5"),
    "a module": (lambda: grad(lambda m: m.weight.sum())(nn.Linear(1, 1)), r"got: \['Linear'\]\n  fix: grad\(fn\)\(params_of\(module\)\)"),
    "a number": (lambda: grad(loss, 1)(tree(), 1.0), r"nothing to differentiate.*got: \['float'\]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_a_fix(name):
    call, words = REFUSED[name]
    with pytest.raises(StructureError, match="(?s)" + words) as caught:
        call()
    assert "fix: " in str(caught.value)
