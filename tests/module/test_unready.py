"""Modules that have no tensors to take or to replace yet: refused by name, by every function of the bridge."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tdfunc import BindError, bind, buffers_of, load_into, params_of, state_of

OPS = {
    "params_of": params_of,
    "state_of": state_of,
    "bind": lambda m: bind(m, {}, strict=False),
    "bind, given": lambda m: bind(m, {"0.weight": torch.ones(2, 3), "0.bias": torch.ones(2)}, strict=False),
    "load_into": lambda m: load_into(m, {}, strict=False),
    "state_dict": lambda m: bind(m, {}, strict=False, use_state_dict=True),
}


@pytest.mark.parametrize("op", OPS)
def test_a_lazy_module_is_refused_until_it_ran_once(op, snapshot):
    module = nn.Sequential(nn.LazyLinear(2), nn.LazyBatchNorm1d())
    with pytest.raises(
        BindError, match=r"not initialised yet\n  at: '0', 'weight'; '0', 'bias'; '1', 'weight'[\s\S]*running_var[\s\S]*call the module once"
    ):
        OPS[op](module)
    assert type(module[0]) is nn.LazyLinear
    module(torch.ones(4, 3))
    assert torch.equal(bind(module, params_of(module)).eval()(torch.ones(1, 3)), module.eval()(torch.ones(1, 3)))


def test_lazy_buffers_are_refused_too():
    with pytest.raises(BindError, match="buffers_of: parameters that are not initialised"):
        buffers_of(nn.LazyBatchNorm1d())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, torch.ones(1, 3))], ids=["script", "trace"])
@pytest.mark.parametrize("op", OPS)
def test_torchscript_is_refused(make, op):
    module = nn.Sequential(nn.Linear(3, 2), make(nn.Linear(3, 2)))
    with pytest.raises(BindError, match=r"a TorchScript module cannot be bound[\s\S]*at: '1'[\s\S]*use the module that was scripted"):
        OPS[op](module)
    with pytest.raises(BindError, match=r"at: the root"):
        OPS[op](module[1])
