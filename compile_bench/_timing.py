"""Timing on noisy machines: all candidates of a row in turn, in short blocks, and the median of the blocks' ratios."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

Fn = Callable[[], object]


class Row(NamedTuple):
    """One thing to do, in tdfunc's form, in one or more forms of the other libraries, and in bare torch if it can be."""

    name: str
    ours: Fn
    theirs: Sequence[Fn]
    bare: Fn | None = None


class Result(NamedTuple):
    """The medians of a row in microseconds, and the ratios to the best form of the other and to bare torch."""

    name: str
    ours: float
    theirs: float
    ratio: float
    bare: float | None
    bare_ratio: float | None


def block(fn: Fn, repeats: int) -> float:
    """Return the seconds that one call takes, over a block of calls."""
    start = time.perf_counter()
    for _ in range(repeats):
        fn()
    return (time.perf_counter() - start) / repeats


def repeats_for(fn: Fn, seconds: float = 2e-3) -> int:
    """Return how many calls fill a block."""
    fn()
    return max(1, int(seconds / max(block(fn, 3), 1e-7)))


def columns(fns: Sequence[Fn], blocks: int) -> list[list[float]]:
    """Return for each function the seconds of one call, in each of the blocks that they take in turn."""
    repeats = [repeats_for(fn) for fn in fns]
    times: list[list[float]] = [[] for _ in fns]
    gc.collect()
    for _ in range(blocks):
        for column, fn, n in zip(times, fns, repeats):
            column.append(block(fn, n))
    return times


def measure(row: Row, blocks: int = 21) -> Result:
    """Time a row."""
    fns = [row.ours, *row.theirs, *([row.bare] if row.bare else [])]
    times = columns(fns, blocks)
    medians = [statistics.median(column) for column in times]
    best = min(range(1, 1 + len(row.theirs)), key=lambda i: medians[i])

    def ratio(i: int) -> float:
        return statistics.median(a / b for a, b in zip(times[0], times[i]))

    bare = len(fns) - 1 if row.bare else None
    return Result(
        row.name,
        medians[0] * 1e6,
        medians[best] * 1e6,
        ratio(best),
        None if bare is None else medians[bare] * 1e6,
        None if bare is None else ratio(bare),
    )


def table(results: Sequence[Result], other: str = "tensordict") -> str:
    """Return results as an aligned table with the geometric mean of the ratios."""
    lines = [f"{'row':34s} {'tdfunc us':>10s} {other + ' us':>14s} {'ratio':>7s} {'bare us':>9s} {'ratio':>7s}"]
    for r in results:
        bare = f"{r.bare:9.2f} {r.bare_ratio:7.2f}" if r.bare is not None else ""
        lines.append(f"{r.name:34s} {r.ours:10.2f} {r.theirs:14.2f} {r.ratio:7.2f} {bare}")
    mean = statistics.geometric_mean([r.ratio for r in results])
    worst = max(results, key=lambda r: r.ratio)
    lines.append(f"geometric mean {mean:.3f}; worst row {worst.name} {worst.ratio:.2f}")
    return "\n".join(lines)
