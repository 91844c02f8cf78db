"""What two trees differ in: as data, and in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from tdfunc._errors import StructureError, describe, show_path
from tdfunc._typing import KeyPath, TensorTree
from tdfunc.structure import Difference, Subtree, in_words

from ._batch import batch_size

Kind = Literal["removed", "added", "moved", "shape", "dtype", "value", "static", "ties", "batch_size"]


@dataclasses.dataclass(frozen=True)
class Change:
    """One thing in which two trees differ.

    Attributes:
        kind: "removed" and "added" (a path is in one tree only), "moved" (the same values under another path), "shape",
            "dtype", "value" (of a leaf under the same path), "static" (a static value), "ties", "batch_size" (of a node).
        path: Where, in the first tree; for "added" in the second. Empty for the root.
        before: What the first tree has: a shape, a dtype, a static value, the paths of a tie, a batch size.
        after: What the second one has; for "moved" the new path.
        max_abs: For "value" the largest difference.
        max_rel: For "value" the largest difference relative to the second tree's value; inf where that is zero.
        count: For "value" how many elements differ.
    """

    kind: Kind
    path: KeyPath
    before: Any = None
    after: Any = None
    max_abs: float | None = None
    max_rel: float | None = None
    count: int | None = None

    def __str__(self) -> str:
        where = show_path(self.path)
        if self.kind == "moved":
            return f"moved: {where} to {show_path(self.after)}"
        if self.kind == "value":
            return f"value: {where} {self.count} elements differ, at most by {self.max_abs:.3g} (relative {self.max_rel:.3g})"
        return in_words(self.kind, self.path, self.before, self.after)


class Diff:
    """The changes from one tree to another: iterable, countable, empty if there is none; `str` says them a line each."""

    __slots__ = ("changes",)

    def __init__(self, changes: tuple[Change, ...]) -> None:
        self.changes = changes

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def of(self, kind: Kind) -> tuple[Change, ...]:
        """Return the changes of one kind."""
        return tuple(change for change in self.changes if change.kind == kind)

    def __str__(self) -> str:
        lines = [str(change) for change in self.changes[:_MOST]]
        return "\n".join(lines + ([f"... and {len(self) - _MOST} more"] if len(self) > _MOST else [])) or "no difference"

    def __repr__(self) -> str:
        return f"Diff({len(self)} changes)\n{self}" if self.changes else "Diff(no difference)"


_MOST = 40


def diff(a: TensorTree, b: TensorTree, *, rtol: float | None = 0.0, atol: float | None = 0.0, equal_nan: bool = True, dtypes: bool = True) -> Diff:
    """Return what two trees differ in; tolerances of None are those of `torch.testing.assert_close` for each dtype."""
    for tree in (a, b):
        if getattr(tree, "_structure", None) is None:
            raise StructureError(describe("diff: expected two TensorDicts", got=type(tree).__name__, fix="TensorDict(...) it"))
    ours, theirs = dict(a._structure.slots()), dict(b._structure.slots())
    structural = a._structure.differences(b._structure)
    changes = list(_paths(a, b, structural))
    seen: set[tuple[int, int]] = set()
    for path, i in ours.items():
        j = theirs.get(path)
        if j is not None and (i, j) not in seen:  # tied leaves are one
            seen.add((i, j))
            changes += _leaf(path, a._leaves[i], b._leaves[j], rtol, atol, equal_nan, dtypes)
    changes += [Change(*difference) for difference in structural if not difference.of_leaf]
    changes += _sizes(a, b, ())
    return Diff(tuple(changes))


def _paths(a: TensorTree, b: TensorTree, structural: tuple[Difference, ...]) -> Iterator[Change]:
    """Yield what is under paths of one tree only: moved where the other has the same leaf under a path of its own."""
    ours, theirs = dict(a._structure.slots()), dict(b._structure.slots())
    paths = [difference for difference in structural if difference.of_leaf]
    added = {path: b._leaves[theirs[path]] for kind, path, *_ in paths if kind == "added"}
    for path in [path for kind, path, *_ in paths if kind == "removed"]:
        leaf = a._leaves[ours[path]]
        new = next((other for other, candidate in added.items() if _same(leaf, candidate)), None)
        if new is None:
            yield Change("removed", path, before=_summary(leaf))
        else:
            del added[new]
            yield Change("moved", path, before=path, after=new)
    for path, leaf in added.items():
        yield Change("added", path, after=_summary(leaf))


def _summary(leaf: Tensor) -> str:
    return f"{tuple(leaf.shape)} {str(leaf.dtype).removeprefix('torch.')}"


def _same(a: Tensor, b: Tensor) -> bool:
    if a is b:
        return True
    return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and a.device.type != "meta" and torch.equal(a, b)


def _leaf(path: KeyPath, a: Tensor, b: Tensor, rtol: float | None, atol: float | None, equal_nan: bool, dtypes: bool) -> Iterator[Change]:
    if a.dtype != b.dtype and dtypes:
        yield Change("dtype", path, a.dtype, b.dtype)
    if a.shape != b.shape:
        yield Change("shape", path, tuple(a.shape), tuple(b.shape))
    elif a is not b or not equal_nan:
        yield from _values(path, a, b, rtol, atol, equal_nan)


def _values(path: KeyPath, a: Tensor, b: Tensor, rtol: float | None, atol: float | None, equal_nan: bool) -> Iterator[Change]:
    if "meta" in (a.device.type, b.device.type):
        return  # there are no values
    dtype = torch.promote_types(a.dtype, b.dtype)
    relative, absolute = _tolerances(a.dtype, b.dtype) if rtol is None or atol is None else (rtol, atol)
    relative, absolute = relative if rtol is None else rtol, absolute if atol is None else atol
    x, y = (t.detach().to(b.device).to_dense() if t.layout is not torch.strided else t.detach().to(b.device) for t in (a, b))
    wide = torch.complex128 if dtype.is_complex else torch.float64
    if dtype is torch.bool or (not dtype.is_floating_point and not dtype.is_complex and relative == absolute == 0):
        apart = x.to(dtype) != y.to(dtype)  # exact, where float64 has not the digits of int64
    else:
        apart = ~torch.isclose(x.to(wide), y.to(wide), rtol=relative, atol=absolute, equal_nan=equal_nan)
    if not bool(apart.any()):
        return
    u, v = x[apart].to(wide), y[apart].to(wide)
    distance = (u - v).abs()
    rel = distance / v.abs()
    yield Change("value", path, max_abs=_most(distance), max_rel=_most(rel), count=int(apart.sum()))


def _most(values: Tensor) -> float:
    """Return the largest value; nan where a nan meets a number."""
    return float("nan") if bool(values.isnan().any()) else float(values.max())


def _tolerances(a: torch.dtype, b: torch.dtype) -> tuple[float, float]:
    """Return the looser of torch's tolerances for two dtypes."""
    table = {torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5), torch.float32: (1.3e-6, 1e-5), torch.float64: (1e-7, 1e-7)}
    table |= {torch.complex32: (1e-3, 1e-5), torch.complex64: (1.3e-6, 1e-5), torch.complex128: (1e-7, 1e-7)}
    pairs = [table.get(dtype, (0.0, 0.0)) for dtype in (a, b)]
    return max(rtol for rtol, _ in pairs), max(atol for _, atol in pairs)


def _sizes(a: Any, b: Any, path: KeyPath) -> Iterator[Change]:
    """Yield the nodes of both trees whose batch sizes differ, the leaves' shapes alike."""
    ours, theirs = tuple(batch_size(a)), tuple(batch_size(b))
    if len(ours) != len(theirs) or (ours != theirs and not a._leaves and not b._leaves):
        yield Change("batch_size", path, ours, theirs)
        return
    for name, entry in a._structure.entries().items():
        if type(entry) is Subtree and type(b._structure.find(name)) is Subtree:
            yield from _sizes(a[name], b[name], (*path, name))
