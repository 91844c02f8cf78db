"""The types that all layers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self, TypeAlias, TypeVar

from torch import Tensor

from tdfunc.structure import KeyPath as KeyPath
from tdfunc.structure import Structure

Key: TypeAlias = "str | tuple[Any, ...]"
"""What a user may write for a key path: a str, or a tuple of them."""

Size: TypeAlias = "int | tuple[int, ...] | list[int]"
"""What a user may write for a batch size; a torch.Size is a tuple."""

Dim: TypeAlias = "int | tuple[int, ...] | list[int] | str | None"
"""What a user may write for what is reduced: batch dims, None for all of each leaf, "feature" for its event dims."""

Number: TypeAlias = "int | float | complex"

Predicate: TypeAlias = Callable[[KeyPath, Tensor], bool]
"""A test on a leaf under its first path."""


class TensorTree(Protocol):
    """What the operations need of a container: a structure, its leaves, and a way to make another one."""

    @property
    def _structure(self) -> Structure: ...

    @property
    def _leaves(self) -> tuple[Tensor, ...]: ...

    def _rebuild(self, leaves: tuple[Tensor, ...], structure: Structure) -> Self: ...


T = TypeVar("T", bound=TensorTree)
