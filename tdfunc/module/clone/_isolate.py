"""Buffers of its own for a bound module: copied when small, copy-on-write when large."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tdfunc.ops import in_transform
from tdfunc.structure import traced_as

_LARGE = 1 << 20
"""Bytes from which a copy costs more than what copy-on-write takes to set up."""


def _clone(buffer: Tensor) -> Tensor:
    return buffer.clone()


@traced_as(_clone)
def isolate(buffer: Tensor) -> Tensor:
    """Return a tensor of the same value that can be written without the original changing.

    `torch._lazy_clone` copies when either side is first written. It is private; `clone` is the public fallback, used
    where it cannot be had: storage that torch does not own, sparse and jagged tensors, subclasses, inside functorch
    transforms and under torch.compile (which drops the copy where nobody writes).
    """
    if type(buffer) is not Tensor or buffer.nbytes < _LARGE:
        return buffer.clone()
    if in_transform():
        return buffer.clone()
    try:
        return torch._lazy_clone(buffer)  # pyright: ignore[reportPrivateImportUsage]
    except RuntimeError:
        return buffer.clone()


def _clone_all(buffers: list[Tensor]) -> list[Tensor]:
    return [buffer.clone() for buffer in buffers]


@traced_as(_clone_all)
def isolate_all(buffers: list[Tensor]) -> Sequence[Tensor]:
    """Return for each tensor what `isolate` does; the small ones of a module are copied in one call."""
    if in_transform() or any(type(buffer) is not Tensor or buffer.requires_grad or buffer.nbytes >= _LARGE for buffer in buffers):
        return [isolate(buffer) for buffer in buffers]
    return _copied(buffers)


_copied: Callable[[list[Tensor]], Sequence[Tensor]] = getattr(torch, "_foreach_clone", _clone_all)
"""Private as torch's foreach functions all are; `clone` on each is the fallback, and takes a third longer."""
