"""What the regression tests share: a compile that counts its traces, and all of a module that a call must not change."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def counted():
    """Give `counted(fn)`: the function compiled as one graph, and the list of the graphs that were traced."""

    def make(fn, **options):
        graphs = []
        return torch.compile(fn, fullgraph=True, backend=lambda graph, _: graphs.append(graph) or graph.forward, **options), graphs

    return make


@pytest.fixture
def everything():
    """Give `everything(module)`: attributes, tensors with their identity, version and value, hooks; comparable by `==`."""

    def facts(value):
        if isinstance(value, torch.Tensor):
            return id(value), value._version, value.requires_grad, str(value.dtype), value.detach().tolist(), value.grad is None
        if isinstance(value, dict):
            return id(value), [(key, facts(item)) for key, item in value.items()]
        if isinstance(value, list | tuple):
            return id(value), [facts(item) for item in value]
        return value if isinstance(value, bool | int | str) else id(value)

    return lambda module: [(name, key, facts(value)) for name, part in module.named_modules() for key, value in part.__dict__.items()]
