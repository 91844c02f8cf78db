"""torch's foreach kernels beside a loop over the leaves, in eager. `python -m compile_bench.foreach`."""

from __future__ import annotations

import torch

from compile_bench._timing import Row, measure
from tdfunc.ops import _foreach

COUNTS = (4, 50, 1000)
OPERANDS = {"add": 1, "sub": 1, "mul": 1, "div": 1, "pow": 1, "maximum": 1, "minimum": 1, "addcmul": 2, "lerp": 2}


def ratio(name: str, count: int) -> float:
    """Return the time of the kernel over that of the loop."""
    columns = [tuple(torch.rand(8) + 0.1 for _ in range(count)) for _ in range(OPERANDS.get(name, 0) + 1)]
    fn, kernel = getattr(torch, name), getattr(torch, f"_foreach_{name}")
    loop = lambda: tuple([fn(*row) for row in zip(*columns)])
    return measure(Row(name, lambda: kernel(*columns), [loop]), blocks=7).ratio


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'time over the loop':20s} {' '.join(f'{count:>6d}' for count in COUNTS)} leaves")
    for name in _foreach._NAMES:
        print(f"{name:20s} {' '.join(f'{ratio(name, count):6.2f}' for count in COUNTS)}")


if __name__ == "__main__":
    main()
