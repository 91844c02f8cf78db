"""Which memory a tensor lies in: what tells that two tensors, or a tensor and a parameter, are one."""

from __future__ import annotations

from torch import Tensor

from tdfunc.structure import traced_as


def storage_of(tensor: Tensor) -> int | None:
    """Return what tells a storage; None where there is none to share, be it empty, on meta or inside a transform."""
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):
        return None


def _traced_same(a: Tensor, b: Tensor) -> bool:
    return a is b  # a trace knows tensors by their names


@traced_as(_traced_same)
def same(a: Tensor, b: Tensor) -> bool:
    """Say whether two tensors are the same elements: `state_dict()` gives a new alias for each name of a tied parameter."""
    if a is b:
        return True
    storage = storage_of(a)
    if storage is None or storage != storage_of(b) or a.dtype != b.dtype:
        return False
    return (a.shape, a.stride(), a.storage_offset()) == (b.shape, b.stride(), b.storage_offset())
