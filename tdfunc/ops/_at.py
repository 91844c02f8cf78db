"""Writing rows out of place: `td.at[index].set(value)` and its kin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tdfunc._errors import BatchSizeError, StructureError, describe, show_path
from tdfunc._typing import T, TensorTree
from tdfunc.structure import is_path, traced_as

from ._batch import batch_dims, front
from ._foreach import PLAIN, each, in_transform
from ._index import index, within
from ._map import aligned
from ._pointwise import spread

Put = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(rows of a leaf, positions, values) -> the rows with the values put in: (n, *event), (k,), (k, *event) -> (n, *event)."""


def _put_by_position(tree: T, idx: Any, value: Any, how: Put, op: str) -> T:
    """Return the tree with values put into the rows that an index picks from the batch.

    Rows are picked by their positions in the flattened batch, so every index that reads can write, repeated positions
    are seen, and nothing is written in place: it traces, and runs inside transforms.
    """
    dims = batch_dims(tree)
    size = front(tree)
    inner = within(tree, idx, dims)
    if _is_mask(inner, dims) and how is overwrite:
        return _masked(tree, inner, value, op)
    numbers = torch.arange(math.prod(size), device=tree._leaves[0].device if tree._leaves else None).reshape(size)
    positions = numbers[inner]
    columns = _columns(tree, value, tuple(positions.shape), op)
    flat = positions.reshape(-1)
    count = math.prod(size)

    def written(leaf: Tensor, new: Any) -> Tensor:
        rows = leaf.reshape(count, *leaf.shape[dims:]) if dims != 1 else leaf
        wanted = (*positions.shape, *leaf.shape[dims:])
        _check_cast(leaf, new, op)
        new = torch.as_tensor(new, dtype=leaf.dtype, device=leaf.device)
        return how(rows, flat.to(leaf.device), new.expand(wanted).reshape(flat.shape[0], *leaf.shape[dims:])).reshape(leaf.shape)

    return tree._rebuild(each(tree, op, written, tree._leaves, columns), tree._structure)


@traced_as(_put_by_position)
def put(tree: T, idx: Any, value: Any, how: Put, op: str) -> T:
    """Return the tree with values put into the rows that an index picks from the batch; in eager into fresh copies."""
    if how is not overwrite or not tree._leaves or in_transform() or any(type(leaf) not in PLAIN for leaf in tree._leaves):
        return _put_by_position(tree, idx, value, how, op)
    dims = batch_dims(tree)
    inner = within(tree, idx, dims)
    picked = tree._leaves[0][inner].shape
    columns = _columns(tree, value, tuple(picked[: len(picked) - tree._structure.first_rank()]), op)

    def written(leaf: Tensor, new: Any) -> Tensor:
        _check_cast(leaf, new, op)
        copy = leaf.clone()
        copy[inner] = new
        return copy

    return tree._rebuild(each(tree, op, written, tree._leaves, columns), tree._structure)


def _check_cast(leaf: Tensor, new: Any, op: str) -> None:
    """Raise where a value would lose what its kind has and the leaf's has not: torch's rule for `leaf *= value`."""
    if _kind(new) > _kind(leaf):
        raise StructureError(
            describe(
                f"{op}: the leaf cannot hold such values",
                expected=f"values of a kind that goes into {leaf.dtype}",
                got=new.dtype if isinstance(new, Tensor) else type(new).__name__,
                fix="td.to(dtype) first",
            )
        )


def _kind(value: Any) -> int:
    """Return where a tensor's or a number's kind stands in bool, integer, float, complex."""
    if isinstance(value, Tensor):
        return 3 if value.is_complex() else 2 if value.is_floating_point() else 0 if value.dtype is torch.bool else 1
    return 0 if isinstance(value, bool) else 1 if isinstance(value, int | torch.SymInt) else 3 if isinstance(value, complex) else 2


def _is_mask(inner: Any, dims: int) -> bool:
    part = inner[0] if type(inner) is tuple and len(inner) == 1 else inner
    return isinstance(part, Tensor) and part.dtype is torch.bool and part.dim() <= dims


def _masked(tree: T, inner: Any, value: Any, op: str) -> T:
    """Return the tree with a value where a mask is true: without a size that depends on data, unless the value has one."""
    mask = inner[0] if type(inner) is tuple else inner
    dims = batch_dims(tree)
    single = not hasattr(value, "_structure") and torch.as_tensor(value).dim() <= dims - mask.dim()
    full = mask[(..., *[None] * (dims - mask.dim()))]
    if single:
        return tree._rebuild(each(tree, op, _where, tree._leaves, spread(tree, full), spread(tree, torch.as_tensor(value))), tree._structure)
    return _put_by_position(tree, mask.nonzero(as_tuple=True), value, overwrite, op)


def _where(leaf: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    _check_cast(leaf, value, "at[...].set")
    return torch.where(mask, value.to(dtype=leaf.dtype, device=leaf.device), leaf)


def _columns(tree: TensorTree, value: Any, picked: tuple[int, ...], op: str) -> Any:
    """Return the value for each leaf: of a tree its leaves, of a tensor over the picked batch its spread, a number as it is."""
    if hasattr(value, "_structure"):
        columns = aligned(tree, value, op)
        dims = batch_dims(tree)
        for path, leaf, new in zip(tree._structure.paths(), tree._leaves, columns, strict=True):
            _check_shape((*picked, *leaf.shape[dims:]), tuple(new.shape), path, op)
        return columns
    if isinstance(value, Tensor) or hasattr(value, "__array__"):
        tensor = torch.as_tensor(value)
        _check_shape(picked, tuple(tensor.shape), (), op)
        return spread(tree, tensor)
    if isinstance(value, bool | int | float | complex | torch.SymInt | torch.SymFloat):
        return value
    raise BatchSizeError(
        describe(
            f"{op}: not a value",
            expected="a TensorDict, a tensor over the picked batch, or a number",
            got=type(value).__name__,
            fix="TensorDict(...) it",
        )
    )


def _check_shape(wanted: tuple[Any, ...], got: tuple[Any, ...], path: tuple[str, ...], op: str) -> None:
    n = len(wanted) - len(got)
    if n < 0 or any(g not in (1, w) for w, g in zip(wanted[n:], got, strict=True)):
        raise BatchSizeError(
            describe(
                f"{op}: the value has another shape",
                at=show_path(path),
                expected=f"a shape that broadcasts to {wanted}",
                got=got,
                fix="td[index] shows it",
            )
        )


def overwrite(rows: Tensor, positions: Tensor, values: Tensor) -> Tensor:
    """Put the values in the place of the rows."""
    return rows.index_put((positions,), values)


def add(rows: Tensor, positions: Tensor, values: Tensor) -> Tensor:
    """Add the values to the rows; a position that is given twice gets both."""
    return rows.index_put((positions,), values, accumulate=True)


def multiply(rows: Tensor, positions: Tensor, values: Tensor) -> Tensor:
    """Multiply the rows by the values; a position that is given twice is multiplied by both."""
    spread_out = positions[(..., *[None] * (rows.dim() - 1))].expand_as(values)
    return rows.scatter_reduce(0, spread_out, values, "prod")


class At:
    """`td.at[index]`: the rows that an index picks, to be read, or to be written out of place.

    The index is one over batch dims, or a key path followed by one: `td.at["a", 0]`.
    """

    __slots__ = ("_index", "_tree")

    def __init__(self, tree: Any, index: Any = ()) -> None:
        self._tree = tree
        self._index = index

    def __getitem__(self, index: Any) -> At:
        return At(self._tree, index)

    def get(self) -> Any:
        """Return the rows: `td[index]`."""
        path, idx = self._parts()
        return self._tree[path][idx] if path else index(self._tree, idx)

    def set(self, value: Any) -> Any:
        """Return the tree with the value in these rows.

        Of an index that picks a row twice, which of the values stays is not defined.
        """
        return self._put(value, overwrite, "at[...].set")

    def add(self, value: Any) -> Any:
        """Return the tree with the value added to these rows; a row picked twice gets it twice."""
        return self._put(value, add, "at[...].add")

    def mul(self, value: Any) -> Any:
        """Return the tree with these rows multiplied by the value; a row picked twice is multiplied twice."""
        return self._put(value, multiply, "at[...].mul")

    def _parts(self) -> tuple[tuple[str, ...], Any]:
        parts = self._index if isinstance(self._index, tuple) else (self._index,)
        n = 0
        while n < len(parts) and is_path(parts[n]):
            n += 1
        path: tuple[str, ...] = parts[:n]
        return path, (parts[n:] if path or isinstance(self._index, tuple) else self._index)

    def _put(self, value: Any, how: Put, op: str) -> Any:
        path, idx = self._parts()
        if not path:
            return put(self._tree, idx, value, how, op)
        entry = self._tree[path]
        if not isinstance(entry, Tensor):
            if not hasattr(entry, "_structure"):
                raise StructureError(
                    describe(f"{op}: a static value has no rows", at=show_path(path), got=repr(entry), fix=f"td.set({path!r}, value)")
                )
            return self._tree.set(path, entry.at[idx]._put(value, how, op))
        alone = type(self._tree)({"leaf": entry}, entry.shape)
        return self._tree.set(path, put(alone, idx, value, how, op)["leaf"])
