"""Moves to other devices and dtypes, in and out of autograd, and new leaves of the same shapes."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from tdfunc import ops
from tdfunc._typing import Size
from tdfunc.core._slots import Tree


class Casts(Tree):
    """Other devices, dtypes and values; the structure and the shapes stay. What needs no change is shared, as in torch."""

    __slots__ = ()

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Return the tree with `leaf.to(...)` for every leaf: a device, a dtype or both, as for a tensor."""
        return ops.to(self, *args, **kwargs)

    def cpu(self) -> Self:
        """Return the tree on the CPU."""
        return ops.to(self, "cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Self:
        """Return the tree on a CUDA device, the current one by default."""
        return ops.to(self, ops.cuda_device(device), non_blocking=non_blocking)

    def float(self) -> Self:
        """Return the tree as float32; every leaf is cast."""
        return ops.to(self, torch.float32)

    def double(self) -> Self:
        """Return the tree as float64; every leaf is cast."""
        return ops.to(self, torch.float64)

    def half(self) -> Self:
        """Return the tree as float16; every leaf is cast."""
        return ops.to(self, torch.float16)

    def bfloat16(self) -> Self:
        """Return the tree as bfloat16; every leaf is cast."""
        return ops.to(self, torch.bfloat16)

    def int(self) -> Self:
        """Return the tree as int32; every leaf is cast."""
        return ops.to(self, torch.int32)

    def long(self) -> Self:
        """Return the tree as int64; every leaf is cast."""
        return ops.to(self, torch.int64)

    def bool(self) -> Self:
        """Return the tree as bools; every leaf is cast."""
        return ops.to(self, torch.bool)

    def float16(self) -> Self:
        """Return the tree as float16; every leaf is cast."""
        return ops.to(self, torch.float16)

    def float32(self) -> Self:
        """Return the tree as float32; every leaf is cast."""
        return ops.to(self, torch.float32)

    def float64(self) -> Self:
        """Return the tree as float64; every leaf is cast."""
        return ops.to(self, torch.float64)

    def int8(self) -> Self:
        """Return the tree as int8; every leaf is cast."""
        return ops.to(self, torch.int8)

    def int16(self) -> Self:
        """Return the tree as int16; every leaf is cast."""
        return ops.to(self, torch.int16)

    def int32(self) -> Self:
        """Return the tree as int32; every leaf is cast."""
        return ops.to(self, torch.int32)

    def int64(self) -> Self:
        """Return the tree as int64; every leaf is cast."""
        return ops.to(self, torch.int64)

    def uint8(self) -> Self:
        """Return the tree as uint8; every leaf is cast."""
        return ops.to(self, torch.uint8)

    def complex64(self) -> Self:
        """Return the tree as complex64; every leaf is cast."""
        return ops.to(self, torch.complex64)

    def complex128(self) -> Self:
        """Return the tree as complex128; every leaf is cast."""
        return ops.to(self, torch.complex128)

    def type(self, dtype: torch.dtype, *, where: Any = None) -> Self:
        """Return the tree as a dtype; with `where` only the leaves that are meant, as in `filter`."""
        return ops.cast(self, dtype, where)

    def pin_memory(self) -> Self:
        """Return the tree in page-locked memory, from which copies to a CUDA device are asynchronous."""
        return ops.unary(self, Tensor.pin_memory, "pin_memory")

    def detach(self) -> Self:
        """Return the tree out of the autograd graph; the leaves share their values."""
        return ops.leafwise(self, Tensor.detach)

    def clone(self) -> Self:
        """Return the tree with copies of the leaves; gradients flow through."""
        return ops.unary(self, torch.clone, "clone")

    def requires_grad(self, flag: bool = True) -> Self:
        """Return the tree of fresh autograd leaves that share the values; integer leaves stay as they are."""
        return ops.requires_grad(self, flag)

    def grads(self) -> Self:
        """Return the `.grad` of each leaf; leaves without one are left out."""
        return ops.grads(self)

    def zeros_like(self, *, dtype: Any = None, device: Any = None) -> Self:
        """Return the tree of zeros in the leaves' shapes."""
        return ops.like(self, torch.zeros_like, "zeros_like", dtype=dtype, device=device)

    def ones_like(self, *, dtype: Any = None, device: Any = None) -> Self:
        """Return the tree of ones in the leaves' shapes."""
        return ops.like(self, torch.ones_like, "ones_like", dtype=dtype, device=device)

    def full_like(self, value: Any, *, dtype: Any = None, device: Any = None) -> Self:
        """Return the tree of one value in the leaves' shapes."""
        return ops.like(self, torch.full_like, "full_like", value, dtype=dtype, device=device)

    def empty_like(self, *, dtype: Any = None, device: Any = None) -> Self:
        """Return the tree of uninitialised leaves in the same shapes."""
        return ops.like(self, torch.empty_like, "empty_like", dtype=dtype, device=device)

    def rand_like(self, *, generator: torch.Generator | None = None, dtype: Any = None, device: Any = None) -> Self:
        """Return the tree of numbers drawn evenly from [0, 1) in the leaves' shapes."""
        return ops.random_like(self, torch.rand, "rand_like", generator, dtype=dtype, device=device)

    def randn_like(self, *, generator: torch.Generator | None = None, dtype: Any = None, device: Any = None) -> Self:
        """Return the tree of numbers drawn from the standard normal distribution in the leaves' shapes."""
        return ops.random_like(self, torch.randn, "randn_like", generator, dtype=dtype, device=device)

    def new_zeros(self, size: Size, *, dtype: Any = None, device: Any = None) -> Self:
        """Return the tree of zeros with another batch size, each leaf with its event shape."""
        return ops.new(self, Tensor.new_zeros, "new_zeros", size, dtype=dtype, device=device)

    def new_ones(self, size: Size, *, dtype: Any = None, device: Any = None) -> Self:
        """Return the tree of ones with another batch size, each leaf with its event shape."""
        return ops.new(self, Tensor.new_ones, "new_ones", size, dtype=dtype, device=device)

    def new_full(self, size: Size, value: Any, *, dtype: Any = None, device: Any = None) -> Self:
        """Return the tree of one value with another batch size, each leaf with its event shape."""
        return ops.new(self, Tensor.new_full, "new_full", size, value, dtype=dtype, device=device)

    def new_empty(self, size: Size, *, dtype: Any = None, device: Any = None) -> Self:
        """Return the tree of uninitialised leaves with another batch size, each with its event shape."""
        return ops.new(self, Tensor.new_empty, "new_empty", size, dtype=dtype, device=device)
