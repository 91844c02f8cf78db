"""A zoo of modules; the fixture `case` runs over all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.module.zoo.buffers import BUFFERS
from tests.module.zoo.case import Case
from tests.module.zoo.families import FAMILIES
from tests.module.zoo.nets import NETS
from tests.module.zoo.own import OWN
from tests.module.zoo.weights import WEIGHTS

ZOO = [*OWN, *FAMILIES, *NETS, *WEIGHTS, *BUFFERS]


def _marked(case: Case) -> Any:
    return pytest.param(case, id=case.name, marks=[pytest.mark.filterwarnings(f"ignore:{text}") for text in case.warns])


@pytest.fixture(params=[_marked(case) for case in ZOO])
def case(request) -> Case:
    for name, reason in request.param.fails.items():
        test, _, part = name.rstrip("]").partition("[")
        if test == request.node.originalname and (not part or part in request.node.callspec.id.split("-")):
            request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    return request.param


@pytest.fixture
def twin_with() -> Callable[..., nn.Module]:
    """Give `twin(case, state)`: another module like it with these values, loaded by torch's own means."""

    def load(case: Case, *states: Any) -> nn.Module:
        made = case.make()
        with torch.no_grad():
            for names in (made.named_parameters(remove_duplicate=False), made.named_buffers(remove_duplicate=False)):
                for name, tensor in names:
                    path = tuple(name.replace("_orig_mod.", "").split("."))
                    for state in states:
                        if path in state:
                            tensor.data.copy_(state[path])
        return made

    return load


@pytest.fixture
def snapshot() -> Callable[[nn.Module], Any]:
    """Give all that must not change in a module, comparable by `==`."""

    def take(module: nn.Module) -> Any:
        facts = {}
        for name, part in module.named_modules(remove_duplicate=False):
            for key, value in part.__dict__.items():
                inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
                facts[name, key] = (id(value), value if isinstance(value, bool | int) else None, [(str(k), id(v)) for k, v in inside])
            for key, value in [*part._parameters.items(), *part._buffers.items()]:
                if value is not None:
                    facts[name, key, "tensor"] = (value.detach().tolist(), value._version, value.requires_grad, value.dtype, value.grad is None)
        return facts, {key: value.tolist() if isinstance(value, torch.Tensor) else str(value) for key, value in module.state_dict().items()}

    return take
