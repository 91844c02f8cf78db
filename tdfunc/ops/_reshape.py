"""Operations that arrange the batch dims anew; the event dims of each leaf stay as they are."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tdfunc._errors import BatchSizeError, describe, show_path
from tdfunc._typing import T, TensorTree

from ._batch import as_size, batch_dims, batch_size, front
from ._dims import batch_dim, normal_dims, over_batch
from ._foreach import each
from ._map import rebuilt


def sizes(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return sizes given one by one or as one sequence."""
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], tuple | list) else given


def reshape(tree: T, shape: tuple[Any, ...], *, view: bool = False) -> T:
    """Return the tree with its batch dims reshaped."""
    op = "view" if view else "reshape"
    wanted = _resolved(tree, sizes(shape), op)
    dims = batch_dims(tree)
    if view:
        return over_batch(tree, op, lambda leaf: leaf.view((*wanted, *leaf.shape[dims:])))
    if len(wanted) == 1 and dims:
        return over_batch(tree, op, lambda leaf: leaf.flatten(0, dims - 1))
    return over_batch(tree, op, lambda leaf: leaf.reshape((*wanted, *leaf.shape[dims:])))


def view_dtype(tree: T, dtype: torch.dtype) -> T:
    """Return the tree whose leaves' bytes are read as another dtype."""
    dims = batch_dims(tree)
    for path, leaf in zip(tree._structure.paths(), tree._leaves, strict=True):
        width, wanted = leaf.dtype.itemsize, dtype.itemsize
        if width != wanted and (leaf.dim() <= dims or leaf.shape[-1] * width % wanted):
            raise BatchSizeError(
                describe(
                    "view: the last event dim cannot hold the bytes as this dtype",
                    at=show_path(path),
                    expected=f"an event dim whose bytes are a multiple of {wanted}",
                    got=f"{leaf.dtype}, shape {tuple(leaf.shape)}, {dims} of them batch dims",
                    fix=f"td.to({dtype}) for the values, or td.select(...) the leaves that have one",
                )
            )
    return rebuilt(tree, list(each(tree, "view", lambda leaf: leaf.view(dtype), tree._leaves)), "view")


def _resolved(tree: TensorTree, shape: tuple[Any, ...], op: str) -> tuple[Any, ...]:
    """Return a shape without -1; the event dims of a leaf may hold no element, so torch could not tell."""
    have = math.prod(front(tree))
    known = math.prod([n for n in shape if n != -1])
    free = [i for i, n in enumerate(shape) if n == -1]
    wrong = len(free) > 1 or any(n < -1 for n in shape) or (have != known if not free else known == 0 or have % known != 0)
    if wrong:
        raise BatchSizeError(
            describe(
                f"{op}: the batch size cannot have this shape",
                expected=f"sizes whose product is {have}, the batch size being {tuple(batch_size(tree))}",
                got=tuple(shape),
                fix=f"td.{op}(-1) for one batch dim; event dims are reshaped by td.map",
            )
        )
    return tuple([have // known if n == -1 else n for n in shape])


def flatten(tree: T, start: int, end: int) -> T:
    """Return the tree with a range of batch dims made one."""
    if not batch_dims(tree):
        return reshape(tree, (1,))
    first, last = batch_dim(tree, start, "flatten"), batch_dim(tree, end, "flatten")
    if first > last:
        raise BatchSizeError(describe("flatten: the range of dims is empty", expected="start <= end", got=(start, end), fix="td.flatten()"))
    return over_batch(tree, "flatten", lambda leaf: leaf.flatten(first, last))


def unflatten(tree: T, dim: int, size: Any) -> T:
    """Return the tree with one batch dim made several."""
    at = batch_dim(tree, dim, "unflatten")
    given = tuple(size) if isinstance(size, tuple | list) else (size,)
    whole = front(tree)
    have, known = whole[at], math.prod([n for n in given if n != -1])
    free = given.count(-1)
    if free > 1 or (have != known if not free else known == 0 or have % known != 0):
        raise BatchSizeError(
            describe(
                "unflatten: the dim cannot have these sizes",
                expected=f"sizes whose product is {have}",
                got=given,
                fix=f"td.unflatten({dim}, (-1, 1))",
            )
        )
    wanted = tuple([have // known if n == -1 else n for n in given])
    return over_batch(tree, "unflatten", lambda leaf: leaf.unflatten(at, wanted))


def permute(tree: T, dims: tuple[Any, ...]) -> T:
    """Return the tree with its batch dims in another order."""
    order = normal_dims(tree, sizes(dims), "permute")
    n = batch_dims(tree)
    if len(order) != n:
        raise BatchSizeError(
            describe(
                "permute: not every batch dim is given",
                expected=f"an order of {n} batch dims",
                got=order,
                fix=f"td.permute{tuple(reversed(range(n)))}",
            )
        )
    return over_batch(tree, "permute", Tensor.permute, lambda rank: (*order, *range(n, n + rank)))


def transpose(tree: T, dim0: int, dim1: int) -> T:
    """Return the tree with two batch dims swapped."""
    a, b = batch_dim(tree, dim0, "transpose"), batch_dim(tree, dim1, "transpose")
    return over_batch(tree, "transpose", lambda leaf: leaf.transpose(a, b))


def movedim(tree: T, source: Any, destination: Any) -> T:
    """Return the tree with batch dims moved to other places."""
    a, b = normal_dims(tree, source, "movedim"), normal_dims(tree, destination, "movedim")
    if len(a) != len(b):
        raise BatchSizeError(describe("movedim: as many places as dims", expected=f"{len(a)} places", got=b, fix="td.movedim(0, -1)"))
    return over_batch(tree, "movedim", lambda leaf: leaf.movedim(a, b))


def squeeze(tree: T, dim: Any) -> T:
    """Return the tree without the batch dims of size 1, or without these of them."""
    whole = front(tree)
    candidates = range(len(whole)) if dim is None else normal_dims(tree, dim, "squeeze")
    at = tuple([i for i in candidates if whole[i] == 1])
    if not at:
        return tree
    one_or_all = at[0] if len(at) == 1 else at
    return over_batch(tree, "squeeze", lambda leaf: leaf.squeeze(one_or_all))


def unsqueeze(tree: T, dim: int) -> T:
    """Return the tree with a batch dim of size 1 more."""
    at = batch_dim(tree, dim, "unsqueeze", new=1)
    return over_batch(tree, "unsqueeze", lambda leaf: leaf.unsqueeze(at))


def expand(tree: T, shape: tuple[Any, ...], op: str = "expand") -> T:
    """Return the tree with its batch dims expanded, as views; -1 keeps a size."""
    wanted, have = sizes(shape), front(tree)
    # Compared one by one: Dynamo does not find a symbolic size in a tuple.
    fits = len(wanted) >= len(have) and all(n == -1 or n == m or m == 1 for n, m in zip(wanted[len(wanted) - len(have) :], have, strict=True))  # noqa: PLR1714
    if not fits or any(n < 0 for n in wanted[: len(wanted) - len(have)]):
        raise BatchSizeError(
            describe(
                f"{op}: the batch size does not expand to this",
                expected=f"sizes that end in {tuple(batch_size(tree))}, where a 1 may become anything and -1 keeps a size",
                got=tuple(wanted),
                fix="td.unsqueeze(dim) first",
            )
        )
    return over_batch(tree, op, Tensor.expand, lambda rank: (*wanted, *[-1] * rank))


def repeat(tree: T, repeats: tuple[Any, ...], op: str = "repeat") -> T:
    """Return the tree repeated along its batch dims; more repeats than batch dims add dims in front."""
    times = as_size(sizes(repeats))
    if len(times) < batch_dims(tree):
        raise BatchSizeError(
            describe(
                f"{op}: fewer repeats than batch dims", expected=f"at least {batch_dims(tree)} numbers", got=times, fix="td.tile(...) fills with ones"
            )
        )
    return over_batch(tree, op, Tensor.repeat, lambda rank: (*times, *[1] * rank))


def tile(tree: T, repeats: tuple[Any, ...]) -> T:
    """Return the tree repeated along its last batch dims."""
    times = as_size(sizes(repeats))
    return repeat(tree, (1,) * (batch_dims(tree) - len(times)) + times, "tile")


def repeat_interleave(tree: T, repeats: Any, dim: int | None, output_size: int | None = None) -> T:
    """Return the tree with each row along a batch dim repeated; without a dim, over the flattened batch."""
    if dim is None:
        return repeat_interleave(flatten(tree, 0, -1), repeats, 0, output_size)
    at = batch_dim(tree, dim, "repeat_interleave")
    if isinstance(repeats, Tensor) and repeats.dim() and repeats.shape[0] not in (1, front(tree)[at]):
        raise BatchSizeError(
            describe(
                "repeat_interleave: one number for each row",
                expected=f"{front(tree)[at]} numbers",
                got=tuple(repeats.shape),
                fix="an int for all rows",
            )
        )
    return over_batch(tree, "repeat_interleave", lambda leaf: leaf.repeat_interleave(repeats, at, output_size=output_size))


def flip(tree: T, dims: Any, op: str = "flip") -> T:
    """Return the tree reversed along batch dims."""
    at = normal_dims(tree, dims, op)
    one_or_all = at[0] if len(at) == 1 else at  # torch reads an int in half the time
    return over_batch(tree, op, lambda leaf: leaf.flip(one_or_all))


def roll(tree: T, shifts: Any, dims: Any) -> T:
    """Return the tree rolled along batch dims; without dims, over the flattened batch."""
    if dims is None:
        return reshape(roll(flatten(tree, 0, -1), shifts, 0), tuple(front(tree)))
    at = normal_dims(tree, dims, "roll")
    by = tuple(shifts) if isinstance(shifts, tuple | list) else (shifts,)
    if len(by) != len(at):
        raise BatchSizeError(describe("roll: one shift for each dim", expected=f"{len(at)} shifts", got=by, fix="td.roll(1, 0)"))
    if len(at) == 1:
        (shift,), (dim,) = by, at
        return over_batch(tree, "roll", lambda leaf: leaf.roll(shift, dim))
    return over_batch(tree, "roll", lambda leaf: leaf.roll(by, at))


def rot90(tree: T, k: int, dims: Any) -> T:
    """Return the tree turned by 90 degrees in the plane of two batch dims."""
    plane = normal_dims(tree, dims, "rot90")
    if len(plane) != 2:
        raise BatchSizeError(describe("rot90: a plane has two dims", expected="two batch dims", got=plane, fix="td.rot90(1, (0, 1))"))
    return over_batch(tree, "rot90", lambda leaf: leaf.rot90(k, plane))


def narrow(tree: T, dim: int, start: Any, length: int) -> T:
    """Return a stretch of the tree along a batch dim, as views."""
    at = batch_dim(tree, dim, "narrow")
    size = front(tree)[at]
    first = start + size if start < 0 else start
    if first < 0 or length < 0 or first + length > size:
        raise BatchSizeError(
            describe(
                "narrow: the stretch leaves the dim",
                expected=f"0 <= start, 0 <= length, start + length <= {size}",
                got=f"start {start}, length {length}",
                fix="td[start:stop]",
            )
        )
    return over_batch(tree, "narrow", lambda leaf: leaf.narrow(at, first, length))


def pad(tree: T, pads: Any, value: float = 0.0) -> T:
    """Return the tree with rows of a value before and after along its batch dims.

    `pads` are pairs of numbers, before and after, for the batch dims from the first on: the order of the dims, not the
    reversed one of `torch.nn.functional.pad`.
    """
    flat = tuple(pads)
    dims = batch_dims(tree)
    if len(flat) % 2 or len(flat) > 2 * dims or any(n < 0 for n in flat):
        raise BatchSizeError(
            describe(
                "pad: pairs for the batch dims from the first on", expected=f"up to {dims} pairs of numbers >= 0", got=flat, fix="td.pad((0, 1))"
            )
        )
    pairs = [flat[i : i + 2] for i in range(0, len(flat), 2)] + [(0, 0)] * (dims - len(flat) // 2)

    # torch counts the pads from the last dim on
    return over_batch(tree, "pad", torch.nn.functional.pad, lambda rank: [0, 0] * rank + [n for pair in reversed(pairs) for n in pair], value=value)


def atleast(tree: T, n: int) -> T:
    """Return the tree with at least n batch dims: new ones in front, the third one behind, as in torch."""
    dims = batch_dims(tree)
    if dims >= n:
        return tree
    whole = tuple(front(tree))
    shape = {1: (1,), 2: (1, *whole) if dims else (1, 1), 3: {0: (1, 1, 1), 1: (1, *whole, 1), 2: (*whole, 1)}.get(dims, whole)}[n]
    return reshape(tree, shape)
