"""What a tree looks like printed: one aligned line a leaf, and never more than a screen."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from tdfunc import ops
from tdfunc.structure import KeyPath, Static, Subtree, constant

from ._access import fetch

_MOST = 40
_WIDE = 60
_PLAIN = re.compile(r"[\w-]+")


def text(tree: Any) -> str:
    """Return a tree as text: batch size, then per leaf its path, shape, dtype, device and other paths.

    A node has a line of its own where it has more batch dims than its parent, or holds nothing.
    """
    head = f"{type(tree).__name__}(batch_size={tuple(ops.batch_size(tree))}"
    rows, hidden = listed(tree)
    lines = ["  " + line for line in _aligned(rows)] + ([f"  ... {hidden} more"] if hidden else [])
    return "\n".join([f"{head},", *lines]) + ")" if lines else f"{head})"


def rich_rows(tree: Any) -> Iterator[tuple[str, Any] | tuple[Any]]:
    """Yield what rich prints: pairs of a path and what is there, after the batch size."""
    yield "batch_size", tuple(ops.batch_size(tree))
    rows, hidden = listed(tree)
    for path, *cells in rows:
        yield path, Line(" ".join(cells).removeprefix("static "))
    if hidden:
        yield (Line(f"... {hidden} more"),)


class Line:
    """A text that prints as it is."""

    __slots__ = ("line",)

    def __init__(self, line: str) -> None:
        self.line = line

    def __repr__(self) -> str:
        return self.line


def listed(tree: Any) -> tuple[list[list[str]], int]:
    """Return the cells of as many lines as a screen holds, and how many more there would be."""
    structure = tree._structure
    first = structure.paths()
    rows: list[list[str]] = []
    statics: list[list[str]] = []
    hidden = 0
    for key, entry in structure.all_entries().items():
        path = key if isinstance(key, tuple) else (key,)
        is_static = isinstance(entry, Static)
        if type(entry) is Subtree and not entry.extra and entry.structure.entries():
            continue  # a node like its parent, told by what it holds
        if len(rows) == _MOST or (is_static and len(statics) == _MOST):
            hidden += 1
        elif is_static:
            statics.append([shown(path), "static", shortened(entry.get())])
        else:
            rows.append([shown(path), *_cells(tree, path, entry, first)])
    kept = _MOST - len(rows)
    return rows + statics[:kept], hidden + len(statics[kept:])


def _cells(tree: Any, path: KeyPath, entry: Any, first: tuple[KeyPath, ...]) -> list[str]:
    if type(entry) is Subtree:
        return [f"batch_size={tuple(ops.batch_size(fetch(tree, path, entry)))}" if entry.extra else "{}"]
    cells = facts(tree._leaves[entry])
    return cells if path == first[entry] else [*cells, f"= {shown(first[entry])}"]


def facts(leaf: Any) -> list[str]:
    """Return what is told of a leaf: its shape, and its dtype with the device where that is not the CPU; else its type."""
    if not isinstance(leaf, Tensor):  # an unflattened tree may hold anything
        return [type(leaf).__name__, ""]
    where = "" if leaf.device.type == "cpu" else f" {leaf.device}"
    return [str(tuple(leaf.shape)), f"{str(leaf.dtype).removeprefix('torch.')}{where}"]


@constant
def shown(path: KeyPath) -> str:
    """Return a path joined by dots, a name with anything but letters, digits, `_` and `-` as Python writes it: `a.'b.c'`."""
    return _cut(".".join(name if _PLAIN.fullmatch(name) else repr(name) for name in path))


def shortened(value: object) -> str:
    """Return the repr of a static value on one line, its middle left out where it is long."""
    return _cut(" ".join(repr(value).split("\n")))


@constant
def _cut(line: str) -> str:
    return line if len(line) <= _WIDE else f"{line[: _WIDE // 2 - 2]} ... {line[3 - _WIDE // 2 :]}"


@constant
def _aligned(rows: list[list[str]]) -> list[str]:
    """Return the rows with their cells under one another; long values and nodes make no column wider."""
    leaves = [row for row in rows if len(row) > 2]
    columns = [[row[0] for row in rows], [row[1] for row in leaves], [row[2] for row in leaves if row[1] != "static"]]
    widths = [max(map(_width, column), default=0) for column in columns]
    return ["  ".join([*[_filled(cell, width) for cell, width in zip(row, widths, strict=False)], *row[3:]]).rstrip() for row in rows]


def _filled(cell: str, width: int) -> str:
    return cell + " " * (width - _width(cell))


def _width(cell: str) -> int:
    """Return how many columns of a terminal a text takes: a wide letter two, an accent that combines none."""
    if cell.isascii():
        return len(cell)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in cell)
