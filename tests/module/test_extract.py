"""`params_of`, `buffers_of`, `state_of`: nested names, aliases of the module's tensors, ties as ties."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tdfunc import BindError, bind, buffers_of, load_into, params_of, state_of


def test_names_nest_as_the_sub_modules_do():
    module = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Sequential(nn.BatchNorm1d(3)))
    assert params_of(module).to_flat().keys() == dict(module.named_parameters()).keys()
    assert buffers_of(module).to_flat().keys() == dict(module.named_buffers()).keys()
    assert state_of(module).to_flat().keys() == module.state_dict().keys()
    assert list(params_of(module)) == ["0", "2"], "ReLU holds nothing"
    assert params_of(module).batch_size == ()


def test_what_is_none_or_missing_gives_no_entry():
    module = nn.Linear(2, 2, bias=False)
    module.register_buffer("none", None)
    module.add_module("nobody", None)
    assert list(state_of(module)) == ["weight"]
    assert buffers_of(module).is_empty()
    assert params_of(nn.ReLU()).is_empty()


@pytest.mark.parametrize("of", [params_of, buffers_of, state_of])
def test_leaves_are_fresh_aliases_that_share_storage(of):
    module = nn.BatchNorm1d(2)
    tree, again = of(module), of(module)
    for name, leaf in tree.items():
        own = getattr(module, name)
        assert leaf.data_ptr() == own.data_ptr()
        assert leaf is not own
        assert leaf is not again[name]
        assert type(leaf) is torch.Tensor
        assert not leaf.requires_grad


def test_not_detached_they_are_the_parameters():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    assert all(leaf is dict(module.named_parameters())[name] for name, leaf in params_of(module, detach=False).to_flat().items())


class Ties(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.alias = self.a
        self.head = nn.Linear(3, 3)
        self.head.bias = self.a.bias
        self.register_buffer("x", torch.zeros(3))
        self.sub = nn.Module()
        self.sub.register_buffer("y", self.x)

    def forward(self, v):
        return self.head(self.alias(self.a(v))) + self.x + self.sub.y


def test_ties_of_every_level_are_one_leaf_with_its_paths():
    module = Ties()
    params, state = params_of(module), state_of(module)
    bias = (("a", "bias"), ("alias", "bias"), ("head", "bias"))
    weight = (("a", "weight"), ("alias", "weight"))
    assert {frozenset(group) for group in params.ties} == {frozenset(bias), frozenset(weight)}
    assert {frozenset(group) for group in buffers_of(module).ties} == {frozenset({("x",), ("sub", "y")})}
    assert len(state.ties) == 3
    assert params.numel() == sum([p.numel() for p in module.parameters()])
    assert all(params[path] is params[bias[0]] for path in bias)


def test_equal_values_are_no_tie():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[1].load_state_dict(module[0].state_dict())
    assert params_of(module).ties == ()


@pytest.mark.parametrize("path", [("a", "bias"), ("alias", "bias"), ("head", "bias")])
def test_one_path_of_a_tie_sets_all(path):
    module, new = Ties(), torch.full((3,), 9.0)
    params = params_of(module)
    rest = params.untie(*[p for group in params.ties for p in group]).exclude(("a", "bias"), ("alias", "bias"), ("head", "bias"))
    bound = bind(module, {"a": {"weight": params["a", "weight"]}, "head": {"weight": rest["head", "weight"]}}, {".".join(path): new})
    assert bound.a.bias is new
    assert bound.alias is bound.a
    assert bound.head.bias is new
    assert bind(module, params.set(path, new)).head.bias is new


def test_a_tied_buffer_stays_one_buffer():
    module = Ties()
    for bound in (bind(module, params_of(module)), bind(module, state_of(module)), bind(module, params_of(module), {"x": torch.ones(3)})):
        assert bound.sub.y is bound.x
        bound.x.add_(1)
        assert buffers_of(bound).ties == buffers_of(module).ties
    assert module.x.sum() == 0


def test_the_gradient_of_a_tie_is_the_sum_over_its_uses():
    module, v = Ties().double(), torch.randn(2, 3, dtype=torch.float64)
    params = params_of(module).requires_grad()
    module(v).sin().sum().backward()
    grads = torch.autograd.grad(bind(module, params)(v).sin().sum(), params._leaves)
    own = params_of(module, detach=False)
    assert all(torch.allclose(g, p.grad, rtol=1e-12, atol=1e-12) for g, p in zip(grads, own._leaves, strict=True))


def test_a_module_that_contains_itself_is_listed_once():
    module = nn.Sequential(nn.Linear(2, 2))
    module[0].add_module("up", module)
    assert list(params_of(module).to_flat()) == ["0.weight", "0.bias"]
    bound = bind(module, params_of(module))
    assert bound[0].up is bound


def test_a_meta_template_runs_once_all_is_given():
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    with torch.device("meta"):
        skeleton = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    x = torch.randn(4, 2)
    assert torch.equal(bind(skeleton, state_of(module))(x), module(x))
    assert state_of(skeleton).device.type == "meta"


def test_parameters_of_a_subclass_and_of_other_kinds_come_through():
    class Mine(nn.Parameter):
        pass

    module = nn.Module()
    module.w = Mine(torch.ones(2))
    module.index = nn.Parameter(torch.tensor([1, 0]), requires_grad=False)
    module.short = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    module.empty = nn.Parameter(torch.ones(0, 3))
    params = params_of(module)
    assert [str(leaf.dtype) for leaf in params.values()] == ["torch.float32", "torch.int64", "torch.bfloat16", "torch.float32"]
    assert params_of(bind(module, params)).equal(params)


def test_torchs_own_state_dict_of_a_tied_module_is_a_state():
    module = Ties()  # state_dict() gives each name an alias of its own
    state = module.state_dict()
    assert state["a.bias"] is not state["head.bias"]
    bound = bind(module, state)
    assert torch.equal(bound.head.bias, module.a.bias)
    load_into(module, {key: value * 2 for key, value in bound.state_dict().items() if key.startswith(("a.", "head.weight"))})
    load_into(module, module.state_dict())
    with pytest.raises(BindError, match="several tensors given for one tied parameter"):
        bind(module, state | {"head.bias": state["head.bias"].clone()})
