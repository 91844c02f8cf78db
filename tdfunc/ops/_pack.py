"""All leaves in one tensor, and back: what a solver, a sampler or a hypernetwork wants of parameters."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from tdfunc._errors import BatchSizeError, StructureError, describe, show_path
from tdfunc._typing import TensorTree
from tdfunc.structure import KeyPath, Structure, constant

from ._batch import batch_dims, front, held_size
from ._dims import batch_dim
from ._foreach import each


@dataclasses.dataclass(frozen=True)
class Layout:
    """How the leaves of a tree lie in the tensor that `td.pack()` made: frozen, hashable, compared by value.

    It holds no tensors and no batch size, so one layout serves a tree and its rows, inside `torch.vmap` and outside; to
    `torch.compile` it is a constant, and to pytrees a node without leaves.

    Attributes:
        kind: The class of the tree.
        structure: Its structure.
        shapes: The event shape of each leaf.
        dtypes: The dtype of each leaf where `pack` was given one for all; else None, and a leaf has that of the tensor.
        dim: The packed dim, counted from the end.
    """

    kind: type[Any]
    structure: Structure
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...] | None = None
    dim: int = -1

    @property
    def paths(self) -> tuple[KeyPath, ...]:
        """The first key path of each leaf, in the order in which they lie."""
        return self.structure.paths()

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many elements each leaf has along the packed dim."""
        return tuple([math.prod(shape) for shape in self.shapes])

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each leaf starts along the packed dim."""
        sizes = self.sizes
        return tuple([sum(sizes[:i]) for i in range(len(sizes))])

    @property
    def numel(self) -> int:
        """The size of the packed dim."""
        return sum(self.sizes)

    def unpack(self, tensor: Tensor) -> Any:
        """Return the tree whose leaves lie in a tensor.

        Args:
            tensor: A tensor with `numel` elements along the packed dim. Its other dims are the batch size of the result:
                they need not be those of the tree that was packed.

        Returns:
            The tree, whose leaves are views of the tensor unless they are cast; ties and static values are as they were.

        Raises:
            BatchSizeError: If the size of the packed dim is another one, or there is no such dim.
            StructureError: If it is no tensor.

        Shapes:
            `(*batch, numel)` to `(*batch, *event)` for each leaf, with the packed dim at `dim`.

        Example:
            >>> import torch, tdfunc
            >>> tensor, layout = tdfunc.TensorDict(w=torch.ones(2, 2), b=torch.zeros(2)).pack()
            >>> layout.unpack(tensor.expand(5, -1))["w"].shape
            torch.Size([5, 2, 2])
        """
        self._check(tensor)
        rows = tensor.movedim(self.dim, -1)  # (*batch, numel)
        batch = rows.shape[:-1]
        if not self.shapes:
            return self.kind._rebuild((), self.structure.sized(held_size(batch)))
        parts = torch.split(rows, list(self.sizes), -1)
        leaves = [part.reshape((*batch, *shape)) for part, shape in zip(parts, self.shapes, strict=True)]
        if self.dtypes is not None:
            leaves = [_cast(leaf, dtype) for leaf, dtype in zip(leaves, self.dtypes, strict=True)]
        return self.kind._rebuild(tuple(leaves), self.structure)

    def _check(self, tensor: Any) -> None:
        if not isinstance(tensor, Tensor):
            raise StructureError(describe("unpack: not a tensor", expected="a tensor", got=type(tensor).__name__, fix="tensor, layout = td.pack()"))
        if tensor.dim() < -self.dim or tensor.shape[self.dim] != self.numel:
            raise BatchSizeError(
                describe(
                    "unpack: the tensor does not hold the leaves of this layout",
                    expected=f"{self.numel} elements along dim {self.dim}",
                    got=f"a tensor of shape {tuple(tensor.shape)}",
                    fix="the layout that pack gave with the tensor",
                )
            )


def _cast(leaf: Tensor, dtype: torch.dtype) -> Tensor:
    return (leaf.real if leaf.is_complex() and not dtype.is_complex else leaf).to(dtype)


def pack(tree: TensorTree, dim: int = -1, *, dtype: torch.dtype | None = None) -> tuple[Tensor, Layout]:
    """Return all leaves in one tensor, and the layout that gives the tree back."""
    at, dims = batch_dim(tree, dim, "pack", new=1), batch_dims(tree)
    leaves, structure = tree._leaves, tree._structure
    shapes = tuple([tuple(leaf.shape[dims:]) for leaf in leaves])
    _check_one_kind(tree, dtype)
    layout = Layout(type(tree), structure, shapes, None if dtype is None else tuple([leaf.dtype for leaf in leaves]), at - dims - 1)
    if not leaves:
        size = front(tree)
        return torch.empty((*size[:at], 0, *size[at:]), dtype=dtype), layout
    rows = each(tree, "pack", lambda leaf: _row(leaf, dims, at, dtype), leaves)
    return torch.cat(rows, at), layout


def _row(leaf: Tensor, dims: int, at: int, dtype: torch.dtype | None) -> Tensor:
    """Return a leaf with its event dims made one: (*batch, event), that dim moved to its place."""
    row = leaf.flatten(dims) if leaf.dim() > dims else leaf.unsqueeze(dims)
    if at != dims:
        row = row.movedim(dims, at)
    return row if dtype is None else row.to(dtype)


def _check_one_kind(tree: TensorTree, dtype: torch.dtype | None) -> None:
    """Raise where the leaves cannot lie in one tensor: dtypes that differ or would not survive, devices that differ."""
    leaves, paths = tree._leaves, tree._structure.paths()
    if dtype is None and any(leaf.dtype != leaves[0].dtype for leaf in leaves):
        wide = leaves[0].dtype
        for leaf in leaves:
            wide = torch.promote_types(wide, leaf.dtype)
        raise StructureError(
            describe(
                "pack: leaves of different dtypes",
                at="; ".join([f"{show_path(path)}: {leaf.dtype}" for path, leaf in zip(paths, leaves, strict=True)]),
                expected="one dtype",
                fix=f"td.pack(dtype={wide}), which unpack casts back",
            )
        )
    lost = [
        f"{show_path(path)}: {leaf.dtype}" for path, leaf in zip(paths, leaves, strict=True) if dtype is not None and not _holds(dtype, leaf.dtype)
    ]
    if lost:
        raise StructureError(
            describe(
                f"pack: leaves that {dtype} cannot hold",
                at="; ".join(lost),
                expected="a dtype to which torch casts them",
                fix="td.pack(dtype=torch.complex64) for complex leaves, torch.float32 for others",
            )
        )
    if any(leaf.device != leaves[0].device for leaf in leaves):
        raise StructureError(
            describe(
                "pack: leaves on different devices",
                at="; ".join([f"{show_path(path)}: {leaf.device}" for path, leaf in zip(paths, leaves, strict=True)]),
                expected="one device",
                fix=f"td.to({str(leaves[0].device)!r}).pack()",
            )
        )


@constant
def _holds(dtype: torch.dtype, other: torch.dtype) -> bool:
    """Say whether values of another dtype keep their kind in a dtype."""
    return torch.can_cast(other, dtype)
