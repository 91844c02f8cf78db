"""The progress bar: loss and accuracy of the mean member, on stderr."""

import contextlib
from collections.abc import Callable, Generator
from typing import Any

from torch import Tensor


@contextlib.contextmanager
def progress(steps: int, first: str) -> Generator[Callable[[Tensor, Tensor], None]]:
    """Show a bar, and give the function that moves it one step on.

    Args:
        steps: How many steps there will be.
        first: What to show until the first step is done.
    """
    from tqdm import tqdm  # pyright: ignore[reportMissingModuleSource]

    bar: Any = tqdm(total=steps, desc=first, unit="step", dynamic_ncols=True)

    def watch(losses: Tensor, accuracies: Tensor) -> None:
        bar.set_description("training", refresh=False)
        bar.set_postfix({"loss": f"{losses.mean():.4f}", "accuracy": f"{accuracies.mean():.3f}"}, refresh=False)
        bar.update()

    with bar:
        yield watch
