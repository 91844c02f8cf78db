"""Normalisation inside transforms: lanes that share running statistics and differ in their inputs get statistics of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


def _form(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(module: Any, input: Tensor) -> Any:
        if module.training:
            # In vmap a tensor made by a batched one is batched; torch refuses to write what differs to what is shared.
            zero = input.new_zeros(())
            buffers = module._buffers
            own = {id(buffers[name]): buffers[name] + zero.to(buffers[name].dtype) for name in _WRITTEN if buffers.get(name) is not None}
            buffers.update({name: own[id(buffer)] for name, buffer in buffers.items() if id(buffer) in own})
        return forward(module, input)

    return run


_WRITTEN = ("running_mean", "running_var")
FORMS: dict[Any, Callable[..., Any]] = {cls.forward: _form(cls.forward) for cls in (nn.BatchNorm1d, nn.InstanceNorm1d)}
"""What runs instead of a class's `forward`, by that function, which those for more dims share."""
