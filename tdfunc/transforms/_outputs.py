"""What a function gives, as flat leaves: those that have a derivative, and the tree to put derivatives in."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tdfunc._errors import StructureError, describe

from ._flat import Rebuild, flatten, split
from ._parts import is_float


class Outputs:
    """The results of one call inside a transform: torch takes tensors out, the rest waits here."""

    __slots__ = ("_at", "_aux", "_count", "_rebuild")

    def __init__(self, at: list[int], count: int, rebuild: Rebuild, aux: Rebuild) -> None:
        self._at = at
        self._count = count
        self._rebuild = rebuild
        self._aux = aux

    def split(self, tensors: list[Tensor]) -> tuple[list[Tensor], Any]:
        """Return the leaves of the result and aux, of the tensors that came out beside the float leaves."""
        return tensors[: self._count], self._aux(tensors[self._count :])

    def value(self, leaves: list[Tensor]) -> Any:
        """Return the result of its leaves."""
        return self._rebuild(leaves)

    def spread(self, found: list[Any], held: list[Any]) -> list[Any]:
        """Return what was found for the float leaves, in their places among what is held for all."""
        full = list(held)
        for i, leaf in zip(self._at, found, strict=True):
            full[i] = leaf
        return full

    def floats(self, leaves: list[Any]) -> list[Any]:
        """Return those of the leaves that have a derivative."""
        return [leaves[i] for i in self._at]


def outputs(result: Any, has_aux: bool, op: str) -> tuple[list[Tensor], list[Tensor], Outputs]:
    """Return the float leaves of a result, all its tensors and those of aux, and how to put such together."""
    value, aux = with_aux(result, op) if has_aux else (result, None)
    leaves, rebuild = flatten(value)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise StructureError(
                describe(
                    f"{op}: the function must return tensors, or trees of them",
                    expected="tensors",
                    got=type(leaf).__name__,
                    fix="return (value, aux) with has_aux=True",
                )
            )
    at = [i for i, leaf in enumerate(leaves) if is_float(leaf)]
    if not at:
        raise StructureError(
            describe(
                f"{op}: the function returns nothing that has a derivative",
                expected="at least one float or complex tensor",
                got=sorted({str(leaf.dtype) for leaf in leaves}),
                fix="x.to(torch.float32) in the function",
            )
        )
    tensors, rest = split(aux)
    return [leaves[i] for i in at], [*leaves, *tensors], Outputs(at, len(leaves), rebuild, rest)


def with_aux(result: Any, op: str) -> tuple[Any, Any]:
    """Return the two things that a function with aux returns."""
    if not (isinstance(result, tuple) and len(result) == 2):  # pyright: ignore[reportUnknownArgumentType]
        raise StructureError(
            describe(
                f"{op}: has_aux=True, so the function must return two things",
                expected="(value, aux)",
                got=type(result).__name__,
                fix="return value, aux",
            )
        )
    return result  # pyright: ignore[reportUnknownVariableType]
