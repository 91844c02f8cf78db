"""What every test starts from: a fixed seed, and no compiled code of another test."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _clean():
    torch.manual_seed(0)
    yield
    if "torch._dynamo" in __import__("sys").modules:
        torch._dynamo.reset()
