"""`load_into`: values go into the module's own tensors, all or none; what the tensors are stays."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tdfunc import buffers_of, load_into, params_of, state_of
from tdfunc._errors import BindError, KeyPathError


def net():
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))


def identities(module):
    return {name: id(t) for name, t in [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]}


def test_values_arrive_and_objects_stay_however_often():
    module, other = net(), net()
    other[1].running_mean.fill_(4.0)
    module[0].weight.requires_grad_(False)
    before, keys = identities(module), list(module.state_dict())
    flags = [p.requires_grad for p in module.parameters()]
    for _ in range(2):
        load_into(module, state_of(other))
        assert identities(module) == before
        assert list(module.state_dict()) == keys
        assert all(torch.equal(value, other.state_dict()[name]) for name, value in module.state_dict().items())
        assert [p.requires_grad for p in module.parameters()] == flags
        assert all(type(p) is nn.Parameter and p.grad_fn is None for p in module.parameters())


@pytest.mark.parametrize("bad", ["shape", "unknown", "missing"])
def test_one_wrong_leaf_and_nothing_is_written(bad):
    module = net()
    state, before = state_of(module).map(lambda t: t + 1), {name: value.clone() for name, value in module.state_dict().items()}
    last = ("2", "bias")
    state = {"shape": state.set(last, torch.zeros(7)), "unknown": state.set(("2", "zzz"), torch.zeros(1)), "missing": state.exclude(last)}[bad]
    with pytest.raises((BindError, KeyPathError), match="'2', '(bias|zzz)'"):
        load_into(module, state)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_not_strict_leaves_the_rest_and_still_refuses_the_unknown():
    module = net()
    kept = module[0].weight.detach().clone()
    load_into(module, {"2.bias": torch.full((1,), 5.0)}, strict=False)
    assert module[2].bias.item() == 5
    assert torch.equal(module[0].weight, kept)
    with pytest.raises(KeyPathError, match=r"did you mean '(2\.)?bias'"):
        load_into(module, {"2.bais": torch.zeros(1)}, strict=False)


def test_dtype_and_device_are_the_modules():
    module = net().double()
    load_into(module, params_of(net()).to(torch.float16).map(torch.ones_like))
    assert all(p.dtype is torch.float64 and p.device.type == "cpu" and (p == 1).all() for p in module.parameters())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
        self.b.weight, self.c = self.a.weight, self.a


def test_ties_stay_ties_and_one_path_is_enough():
    module, new = Tied(), torch.full((2, 2), 3.0)
    params = params_of(module).map(torch.zeros_like)
    load_into(module, params.set(("b", "weight"), new))
    assert module.a.weight is module.b.weight
    assert module.c is module.a
    assert torch.equal(module.a.weight, new)
    load_into(module, {"c.weight": new + 1, "a.bias": torch.ones(2), "b.bias": torch.ones(2)})
    assert torch.equal(module.b.weight, new + 1)
    assert params_of(module).ties == params.ties


def test_equal_tensors_that_are_two_objects_are_refused_for_one_tie():
    state = params_of(Tied())
    with pytest.raises(BindError, match="tensors given for one tied parameter"):
        load_into(Tied(), state.untie(("b", "weight")).set(("b", "weight"), torch.zeros(2, 2)))


def test_a_torch_optimizer_goes_on_with_the_loaded_values():
    module, x = net(), torch.randn(8, 2)
    opt = torch.optim.Adam(module.parameters(), 0.1)
    module(x).sum().backward()
    opt.step()
    load_into(module, params_of(module).map(torch.ones_like))
    assert (module[0].weight == 1).all()
    opt.step()
    assert not (module[2].weight == 1).any()
    assert len(opt.state) == len(list(module.parameters()))


def test_gradients_are_kept_and_no_graph_is_made():
    module = net()
    module(torch.randn(8, 2)).sum().backward()
    grads = [p.grad for p in module.parameters()]
    load_into(module, params_of(net()).requires_grad())
    assert all(p.grad is g and p.is_leaf for p, g in zip(module.parameters(), grads, strict=True))


def test_a_state_over_the_modules_own_storage_is_read_before_it_is_written():
    module = nn.Module()
    module.a, module.b = nn.Parameter(torch.tensor([1.0])), nn.Parameter(torch.tensor([2.0]))
    params = params_of(module)
    load_into(module, {"a": params["b"], "b": params["a"]})
    assert (module.a.item(), module.b.item()) == (2, 1)


@pytest.mark.parametrize("wrap", ["whole", "inner"])
def test_compiled_modules_take_the_plain_names(wrap):
    plain = net()
    made = torch.compile(plain, backend="eager") if wrap == "whole" else nn.Sequential(torch.compile(plain[0], backend="eager"), plain[1], plain[2])
    load_into(made, state_of(net()).map(torch.zeros_like))
    assert all((p == 0).all() for p in plain.parameters())
    assert buffers_of(plain)["1", "running_var"].sum() == 0


def test_buffers_alone_need_no_strict_false_only_where_no_parameter_is_missing():
    module = nn.BatchNorm1d(2, affine=False)
    load_into(module, buffers_of(module).map(lambda t: t + 3))
    assert module.num_batches_tracked == 3
    with pytest.raises(KeyPathError, match="missing parameter"):
        load_into(nn.BatchNorm1d(2), buffers_of(module))
