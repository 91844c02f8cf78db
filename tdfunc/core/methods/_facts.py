"""What a tree tells of itself."""

from __future__ import annotations

from typing import Any

import torch

from tdfunc import ops
from tdfunc._typing import Key, KeyPath
from tdfunc.core import _access
from tdfunc.core._slots import Tree
from tdfunc.structure import Structure, as_path


class Facts(Tree):
    """The facts of a tree: sizes, device, dtype, ties."""

    __slots__ = ()

    @property
    def structure(self) -> Structure:
        """The static half: names, event ranks, ties, static values."""
        return self._structure

    @property
    def batch_size(self) -> torch.Size:
        """The longest leading shape on which all leaves agree, event dims aside."""
        return ops.batch_size(self)

    shape = batch_size

    @property
    def batch_dims(self) -> int:
        """The number of batch dims."""
        return len(ops.batch_size(self))

    ndim = batch_dims

    def dim(self) -> int:
        """Return the number of batch dims."""
        return len(ops.batch_size(self))

    ndimension = dim

    def size(self, dim: int | None = None) -> Any:
        """Return the batch size, or that of one batch dim."""
        size = ops.batch_size(self)
        return size if dim is None else size[ops.batch_dim(self, dim, "size")]

    @property
    def device(self) -> torch.device | None:
        """The device of all leaves, or None if they differ."""
        return ops.device(self)

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of all leaves, or None if they differ."""
        return ops.dtype(self)

    @property
    def is_cpu(self) -> bool:
        """Whether all leaves are on the CPU; False of a tree without leaves."""
        return ops.on(self, "cpu")

    @property
    def is_cuda(self) -> bool:
        """Whether all leaves are on CUDA devices; False of a tree without leaves."""
        return ops.on(self, "cuda")

    @property
    def is_meta(self) -> bool:
        """Whether all leaves are on the meta device, without values; False of a tree without leaves."""
        return ops.on(self, "meta")

    @property
    def ties(self) -> tuple[tuple[KeyPath, ...], ...]:
        """The groups of key paths that share one leaf."""
        return self._structure.ties()

    @property
    def depth(self) -> int:
        """The number of levels below the root."""
        return max([len(path) for path, _ in self._structure.slots()] + [len(path) for path, _ in self._structure.statics()], default=1) - 1

    def is_floating_point(self) -> bool:
        """Say whether all leaves are of floating point dtypes."""
        return all(leaf.is_floating_point() for leaf in self._leaves)

    def numel(self) -> int:
        """Return the number of elements of all leaves, a tied leaf counted once."""
        return sum([leaf.numel() for leaf in self._leaves])

    def param_count(self, *, count_duplicates: bool = True) -> int:
        """Return the number of elements under all paths, a tied leaf under each of them, or once: then it is `numel`."""
        return ops.param_count(self, count_duplicates=count_duplicates)

    def bytes(self, *, count_duplicates: bool = True, local: bool = True) -> int:
        """Return the bytes of the leaves and their `.grad`: of the values under each path, or of each storage, whole and once.

        Args:
            count_duplicates: True for what the elements under each path take, a tied leaf under each of its paths. False
                for the memory held, which ties and views share, and of which a small view may hold a large storage.
            local: Whether of a DTensor the shard of this rank counts, or else the global tensor.
        """
        return ops.bytes_of(self, count_duplicates=count_duplicates, local=local)

    def memory_table(self, *, local: bool = True) -> ops.MemoryTable:
        """Return what each path takes, values, `.grad` and storage, as a table to print or to iterate."""
        return ops.memory_table(self, local=local)

    @property
    def sorted_keys(self) -> list[str]:
        """The keys of the root in order; `sort_keys` gives a tree whose keys are."""
        return sorted(self._structure.entries())

    def entry_class(self, key: Key) -> type[Any]:
        """Return the class of what stands under a key path."""
        return type(_access.getitem(self, as_path(key)))

    def is_empty(self) -> bool:
        """Say whether there is no leaf."""
        return len(self._leaves) == 0  # torch.compile 2.13 has no `not` of a tuple of tensors
