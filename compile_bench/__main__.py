"""All benchmarks, one after the other: `python -m compile_bench`."""

from __future__ import annotations

import statistics
import warnings

import torch

from compile_bench import bridge, container, ensemble_step, foreach, models, seed, surface
from compile_bench._timing import measure, table


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results = [measure(row) for row in [*container.rows(), *bridge.rows()]]
    print(table(results))
    print(f"rows slower than tensordict: {[f'{r.name} {r.ratio:.2f}' for r in results if r.ratio > 1] or 'none'}")
    print(f"geometric mean of {len(results)} rows: {statistics.geometric_mean([r.ratio for r in results]):.3f}\n")
    bridge.print_added()
    print()
    ensemble_step.compare()
    for part in (models, seed, surface, foreach):
        print()
        part.main()


if __name__ == "__main__":
    main()
