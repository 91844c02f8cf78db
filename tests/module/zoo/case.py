"""What a case of the zoo is: a module, its input, and what cannot be asked of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import torch
from torch import nn

PARAMETRIZED = "torch refuses to pickle parametrized modules"
DIV_OUT = "torch has no batching rule for div.out"
IN_GRAPH = "its weight is in a graph, which torch does not copy"
SEQUENCE = lambda: (torch.randn(2, 5, 4),)


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], tuple[torch.Tensor, ...]] = lambda: (torch.randn(6, 4),)
    no_compile: str = ""  # why not under fullgraph
    no_vmap: str = ""  # why not stacked
    no_pickle: str = ""  # why not pickled
    no_deepcopy: str = ""  # why not deep-copied
    no_float: str = ""  # why not cast to float32
    copied: bool = False  # whether its forward writes to its parameters, so that the bound one has copies
    traces: int = 1  # how many traces three steps take that carry the buffers
    no_carry: str = ""  # why a second call is not that of a new one with the buffers of the first
    no_threads: str = ""  # why not in several threads
    warns: tuple[str, ...] = ()  # filters of warnings that torch gives with it
    fails: Mapping[str, str] = dataclasses.field(default_factory=dict)  # what bind gets wrong: test, or test[part of its id], and why

    def make(self) -> nn.Module:
        """Return the module; each call gives an equal one, of its own."""
        torch.manual_seed(1)
        return self.build().double()

    def x(self) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(2)
        return tuple([x.double() if x.is_floating_point() else x for x in self.inputs()])
