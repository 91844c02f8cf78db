"""What a tree looks like printed: one aligned line a leaf, and never more than a screen."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tdfunc import ops

_MOST = 40


def text(tree: Any) -> str:
    """Return a tree as text: batch size, then per leaf its path, shape, dtype, device and other paths."""
    rows = _rows(tree)
    widths = [max(len(row[i]) for row in rows) for i in range(3)] if rows else []
    lines = ["  " + "  ".join([*[cell.ljust(width) for cell, width in zip(row, widths, strict=False)], *row[3:]]).rstrip() for row in rows[:_MOST]]
    if len(rows) > _MOST:
        lines.append(f"  ... {len(rows) - _MOST} more")
    head = f"TensorDict(batch_size={tuple(ops.batch_size(tree))}"
    return "\n".join([f"{head},", *lines]) + ")" if lines else f"{head})"


def _rows(tree: Any) -> list[list[str]]:
    structure = tree._structure
    first = structure.paths()
    rows: list[list[str]] = []
    for path, i in structure.slots():
        leaf = tree._leaves[i]
        row = [".".join(path), *(_facts(leaf) if isinstance(leaf, Tensor) else [type(leaf).__name__, ""])]
        rows.append([*row, f"= {'.'.join(first[i])}"] if path != first[i] else row)
    rows += [[".".join(path), "static", repr(value)] for path, value in structure.statics()]
    return rows


def _facts(leaf: Tensor) -> list[str]:
    where = "" if leaf.device.type == "cpu" else f" {leaf.device}"
    return [str(tuple(leaf.shape)), f"{str(leaf.dtype).removeprefix('torch.')}{where}"]
