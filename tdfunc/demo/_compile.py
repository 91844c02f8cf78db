"""torch.compile that counts: how often was the step compiled, really?"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ._train import Step


class Compiler:
    """Compile functions with inductor, and count the graphs that it was handed.

    With `fullgraph=True` a function is one graph, so the count is that of compilations; a recompilation adds one.
    """

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, step: Step) -> Step:
        """Return the step, compiled on its first call."""
        return torch.compile(step, fullgraph=True, dynamic=False, backend=self._backend)

    def _backend(self, graph: fx.GraphModule, inputs: list[Any]) -> Any:
        from torch._dynamo import lookup_backend

        self.count += 1
        return lookup_backend("inductor")(graph, inputs)
