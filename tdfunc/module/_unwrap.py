"""Wrappers that torch puts around a module, and what is inside."""

from __future__ import annotations

from torch import nn

WRAPPED = "_orig_mod"
"""The name under which `torch.compile` keeps what it wraps."""


def unwrap(module: nn.Module) -> nn.Module:
    """Return the module that `torch.compile` wrapped, or the module itself.

    A compiled module keeps the original in `_orig_mod`; its names would have that prefix, and a clone of the wrapper
    would still run the original.
    """
    inner = module.__dict__["_modules"].get(WRAPPED)
    return module if inner is None else inner
