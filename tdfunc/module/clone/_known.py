"""What bind must know of a module's own tensors: which they are, and how large.

In a trace these are constants, and the tensors are not touched: each one that is would be an input of the graph, guarded on
at every call. So a compiled function does not see that a template was given parameters of other sizes after the trace.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tdfunc.structure import constant, traced_as

Known = Any
"""A tensor; in a trace its identity and its size."""

_size = Tensor.size


@constant
def _facts(module: nn.Module, kind: str, _count: int) -> tuple[tuple[str, tuple[int, tuple[int, ...]] | None], ...]:
    """Return, as a constant of the trace, the names, identities and sizes of a module's tensors; their count is guarded on."""
    return tuple([(name, None if tensor is None else (id(tensor), tuple(tensor.size()))) for name, tensor in module.__dict__[kind].items()])


def _traced_known(module: nn.Module) -> dict[str, dict[str, Known | None]]:
    return {kind: dict(_facts(module, kind, len(module.__dict__[kind]))) for kind in ("_parameters", "_buffers")}


@traced_as(_traced_known)
def known(module: nn.Module) -> dict[str, Any]:
    """Return what is known of a module's parameters and buffers, by kind and name."""
    return module.__dict__


def _traced_identities(known: list[Known]) -> list[int]:
    return [each[0] for each in known]


@traced_as(_traced_identities)
def identities(known: list[Known]) -> list[int]:
    """Return what tells tensors apart."""
    return [*map(id, known)]


def _traced_sizes(known: list[Known]) -> list[tuple[int, ...]]:
    return [each[1] for each in known]


@traced_as(_traced_sizes)
def sizes(known: list[Known]) -> list[tuple[int, ...]]:
    """Return the sizes of a module's tensors."""
    return [*map(_size, known)]
