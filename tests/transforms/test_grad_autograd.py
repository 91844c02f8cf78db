"""The autograd backend: the numbers of torch.func, and what torch.func refuses."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tdfunc import StructureError, TensorDict, bind, grad, params_of, value_and_grad, vmap


class Net(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.first, self.second, self.mode = nn.Linear(3, 8), nn.Linear(8, 1), mode
        self.drop = nn.Dropout(0.3)

    def body(self, h):
        return self.drop(self.second(h.tanh()).sin())

    def forward(self, x):
        h = self.first(x)
        return self.body(h) if self.mode is None else checkpoint(self.body, h, use_reentrant=self.mode)


def close(a, b):
    return a.allclose(b, rtol=1e-12, atol=1e-12)


def setup(mode=None, train=False):
    model = Net(mode).double().train(train)
    x = torch.randn(6, 3).double()
    return model, params_of(model), lambda p: bind(model, p)(x).square().mean()


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("mode", [None, False, True], ids=["plain", "checkpoint", "reentrant"])
def test_the_numbers_are_those_of_backward(mode, train):
    model, params, loss = setup(mode, train)
    torch.manual_seed(1)
    value, grads = value_and_grad(loss, backend="autograd")(params)
    torch.manual_seed(1)
    leaves = params.requires_grad()
    expected = loss(leaves)
    expected.backward()
    torch.testing.assert_close(value, expected)
    assert close(grads, leaves.grads())
    assert grads.structure is params.structure
    assert not value.requires_grad
    assert not any(leaf.requires_grad for leaf in grads._leaves)
    assert all(p.grad is None for p in model.parameters())


def test_func_refuses_what_it_is_for():
    _, params, loss = setup(False)
    with pytest.raises(RuntimeError, match="saved tensor hooks"):
        grad(loss)(params)


@pytest.mark.parametrize("argnums", [0, 1, (1, 0)])
def test_aux_argnums_ints_and_unused_leaves_are_as_with_func(argnums):
    a = TensorDict(w=torch.randn(3), n=torch.tensor(2), unused=torch.randn(2))
    b = TensorDict(v=torch.randn(3))
    fn = lambda a, b: ((a["w"] * b["v"]).sum() ** 2 * a["n"], {"tree": a, "text": "t", "w": a["w"] * 2})
    (value, aux), grads = value_and_grad(fn, argnums, has_aux=True, backend="autograd")(a, b)
    (expected, expected_aux), expected_grads = value_and_grad(fn, argnums, has_aux=True)(a, b)
    assert torch.equal(value, expected)
    assert aux["tree"].equal(expected_aux["tree"])
    assert aux["text"] == "t"
    assert not aux["w"].requires_grad
    assert not any(leaf.requires_grad for leaf in aux["tree"]._leaves)
    for g, e in zip(grads if isinstance(grads, tuple) else [grads], expected_grads if isinstance(grads, tuple) else [expected_grads], strict=True):
        assert g.allclose(e)
        assert g.structure is e.structure


def test_a_value_that_does_not_depend_on_the_tree_has_zeros():
    grads = grad(lambda p: torch.ones(()), backend="autograd")(TensorDict(w=torch.ones(2)))
    assert grads["w"].tolist() == [0, 0]


def test_saved_tensor_hooks_run():
    seen = []
    td = TensorDict(w=torch.tensor([1.0, 2.0]))

    def loss(p):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append("pack") or t, lambda t: seen.append("unpack") or t):
            return (p["w"] ** 3).sum()

    assert grad(loss, backend="autograd")(td)["w"].tolist() == [3, 12]
    assert {"pack", "unpack"} == set(seen)


@pytest.mark.parametrize("inner", ["func", "autograd"])
def test_nested_it_is_the_second_derivative(inner):
    td = TensorDict(w=torch.tensor([1.0, 2.0]).double())
    cube = lambda p: (p["w"] ** 3).sum()
    second = grad(lambda p: grad(cube, backend=inner)(p)["w"].sum(), backend="autograd")(td)
    assert second["w"].tolist() == [6, 12]
    third = grad(lambda p: grad(lambda p: grad(cube, backend=inner)(p)["w"].sum(), backend="autograd")(p)["w"].sum(), backend="autograd")(td)
    assert third["w"].tolist() == [6, 6]


def test_around_vmap_it_is_the_gradient_of_the_sum():
    td = TensorDict({"w": torch.randn(4, 3)}, batch_size=4)
    loss = lambda rows: vmap(lambda r: (r["w"] ** 3).sum())(rows).sum()
    torch.testing.assert_close(grad(loss, backend="autograd")(td)["w"], 3 * td["w"] ** 2)


def test_an_outer_graph_reaches_leaves_and_what_is_closed_over():
    td = TensorDict(w=torch.tensor([1.0, 2.0])).requires_grad()
    scale = torch.tensor(3.0, requires_grad=True)
    value, grads = value_and_grad(lambda p: (p["w"] ** 3).sum() * scale, backend="autograd")(td)
    dw, ds = torch.autograd.grad(grads["w"].sum(), [td["w"], scale], retain_graph=True)
    torch.testing.assert_close(dw, 6 * td["w"].detach() * 3)
    torch.testing.assert_close(ds, (3 * td["w"].detach() ** 2).sum())
    assert torch.autograd.grad(value, scale)[0].item() == 9
    closed = grad(lambda p: (p["w"] ** 3).sum() * scale, backend="autograd")(td.detach())
    assert torch.autograd.grad(closed["w"].sum(), scale)[0].item() == 3 + 12
    with torch.no_grad():
        plain = grad(lambda p: (p["w"] ** 3).sum() * scale, backend="autograd")(td)
    assert not plain["w"].requires_grad
    assert plain["w"].tolist() == [9, 36]


def test_checkpoints_can_be_differentiated_twice():
    model, params, loss = setup(False)
    norm = lambda p: grad(loss, backend="autograd")(p).global_norm()
    plain, _, plain_loss = setup(None)
    plain.load_state_dict(model.state_dict())
    torch.manual_seed(0)
    got = grad(norm, backend="autograd")(params)
    model.mode = None
    assert close(got, grad(lambda p: grad(loss)(p).global_norm())(params))


def test_a_reentrant_checkpoint_leaves_other_grads_alone():
    _, params, loss = setup(True)
    other = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    other.grad = torch.tensor(7.0, dtype=torch.float64)
    with torch.no_grad():
        grads = grad(lambda p: loss(p) * other, backend="autograd")(params)
    assert other.grad.item() == 7
    assert close(grads, grad(loss, backend="autograd")(params) * 2)


def test_the_arguments_stay_as_they_are():
    td = TensorDict(w=torch.ones(2))
    grad(lambda p: p["w"].sum(), backend="autograd")(td)
    assert not td["w"].requires_grad
    assert td["w"].grad is None


def one(td):
    return grad(lambda p: (p["w"] ** 2).sum(), backend="autograd")(td)


REFUSED = {
    "vmap": lambda: vmap(one)(TensorDict({"w": torch.ones(3, 2)}, batch_size=3)),
    "grad": lambda: grad(lambda p: one(p)["w"].sum())(TensorDict(w=torch.ones(2))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_inside_a_transform(name):
    with pytest.raises(StructureError, match=r"does not work inside a transform of torch.func\n.*\n.*\n  fix: backend='func'"):
        REFUSED[name]()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Dynamo reads it, torch 2.13
def test_it_is_refused_inside_a_whole_trace_and_breaks_a_graph_that_may_break():
    td = TensorDict(w=torch.tensor([1.0, 2.0]))
    with pytest.raises(torch._dynamo.exc.Unsupported, match="backend='autograd' does not work inside torch.compile"):
        torch.compile(one, fullgraph=True, backend="eager")(td)
    assert torch.compile(one, backend="eager")(td)["w"].tolist() == [2, 4]


def test_a_reentrant_checkpoint_inside_an_outer_graph_is_refused():
    _, params, loss = setup(True)
    with pytest.raises(StructureError, match=r"no second derivative\n.*\n.*\n  fix: checkpoint\(..., use_reentrant=False\)"):
        grad(loss, backend="autograd")(params.requires_grad())
