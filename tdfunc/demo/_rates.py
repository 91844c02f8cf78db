"""Steps per second, fairly: the same work, in turns."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import Tensor

from ._train import State, Step


class Rates(NamedTuple):
    """Steps per second; None where it was not measured."""

    compiled: float | None = None
    eager: float | None = None
    loop: float | None = None


def repeated(step: Step, state: State, x: Tensor, y: Tensor) -> Callable[[], None]:
    """Return a function that goes one step further each time, always with the same minibatch."""

    def run() -> None:
        nonlocal state
        state, _, _ = step(state, x, y)

    return run


def measure(runs: Mapping[str, Callable[[], object]], *, rounds: int = 7, seconds: float = 0.25) -> dict[str, float]:
    """Measure how often each function runs per second.

    They take turns, and the median over the rounds counts: what else the machine does falls on all of them alike.

    Args:
        runs: Functions of no argument, by name.
        rounds: How often each has its turn, after one to warm up.
        seconds: How long a turn lasts at least.

    Returns:
        Runs per second, by name.
    """
    turns = [{name: _rate(run, seconds) for name, run in runs.items()} for _ in range(1 + rounds)]
    return {name: statistics.median([turn[name] for turn in turns[1:]]) for name in runs}


def _rate(run: Callable[[], object], seconds: float) -> float:
    start = time.perf_counter()
    count, spent = 0, 0.0
    while spent < seconds or not count:
        run()
        count += 1
        spent = time.perf_counter() - start
    return count / spent
