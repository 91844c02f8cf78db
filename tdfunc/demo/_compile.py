"""torch.compile that counts: how often was the step compiled, really?"""

from typing import Any

import torch
from torch import fx

from ._train import Step


class Compiler:
    """Compile functions, and count the graphs that the backend was handed.

    With `fullgraph=True` a function is one graph, so the count is that of compilations; a recompilation adds one.

    Args:
        backend: The name of the backend that does the work.
    """

    def __init__(self, backend: str = "inductor") -> None:
        self.backend = backend
        self.count = 0

    def __call__(self, step: Step) -> Step:
        """Return the step, compiled on its first call."""
        return torch.compile(step, fullgraph=True, backend=self._counting)

    def _counting(self, graph: fx.GraphModule, inputs: list[Any]) -> Any:
        from torch._dynamo import lookup_backend

        self.count += 1
        return lookup_backend(self.backend)(graph, inputs)
