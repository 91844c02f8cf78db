"""How many bytes a tree takes: as values, and as the memory behind them.

Two questions, two answers. *Values*: what the elements under each path take, as if each were written out by itself. *Held*:
what stays allocated because of the tree, each storage whole and once. They differ both ways: ties, shared views and expanded
tensors hold less than their values; a small view of a large storage holds more, for it keeps all of that storage alive.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tdfunc._errors import show_path
from tdfunc._typing import KeyPath, TensorTree

# Where an address is one of memory. Elsewhere (MPS) it may be a handle, and two near each other mean nothing.
_ADDRESSED = frozenset({"cpu", "cuda"})
_ROWS = frozenset({torch.sparse_csr, torch.sparse_bsr})
_COLUMNS = frozenset({torch.sparse_csc, torch.sparse_bsc})
_PER_CHANNEL = frozenset({torch.per_channel_affine, torch.per_channel_affine_float_qparams, torch.per_channel_symmetric})
_PER_BYTE = {torch.quint4x2: 2, torch.quint2x4: 4}
# Private by necessity: the public `data_ptr` is a write to torch, and copies what `torch._lazy_clone` shares. Where a torch
# release lacks it, only storages that torch itself shares are seen as one.
_address: Callable[[Tensor], int] = getattr(torch._C, "_data_address", lambda _tensor: 0)


def param_count(tree: TensorTree, *, count_duplicates: bool = True) -> int:
    """Return the number of elements: under each path, or of each leaf once."""
    leaves = tree._leaves
    if count_duplicates:
        return sum([leaves[i].numel() for _, i in tree._structure.slots()])
    return sum([leaf.numel() for leaf in leaves])


def bytes_of(tree: TensorTree, *, count_duplicates: bool = True, local: bool = True) -> int:
    """Return how many bytes the leaves and their `.grad` take.

    What a leaf is made of is counted, not what it stands for: indices and values of a sparse tensor; values, offsets and
    lengths of a jagged one; the scales and zero points of channels beside the quantised integers; the inner tensors of a
    wrapper subclass, recursively. Meta and fake tensors count what they would take. Of a gradient counts the one level.
    Inside `vmap` and `grad`, where torch shows a plain tensor, the values are those of the one example.

    Args:
        tree: The tree.
        count_duplicates: True for the values: the elements under each key path, so a tied leaf counts under each of its
            paths and an expanded one in full. False for the memory held: each storage whole and once, whichever ties, views,
            `detach()`ed aliases, copy-on-write clones or arrays it is reached through. A view of a part holds all of its
            storage (that is what is freed with the tree, and what an allocator reports), so this may be the larger of the two.
        local: Whether of a DTensor the shard of this rank counts, or else the global tensor, as `full_tensor()` would hold it.

    Returns:
        The number of bytes. With duplicates it traces to a constant under torch.compile; without, the graph breaks, since a
        graph does not know its inputs' storages.

    Examples:
        >>> import torch, tdfunc
        >>> x = torch.zeros(1000)
        >>> td = tdfunc.TensorDict(row=x[:3], all=x)
        >>> td.bytes(), td.bytes(count_duplicates=False)
        (4012, 4000)
        >>> td.select("row").bytes(), td.select("row").bytes(count_duplicates=False)
        (12, 4000)
    """
    if not count_duplicates:
        return sum(_blocks([piece for leaf in tree._leaves for piece in _pieces(leaf, local)])[1])
    sizes = [_values(leaf, local) + _grad_values(leaf, local) for leaf in tree._leaves]
    return sum([sizes[i] for _, i in tree._structure.slots()])


@dataclasses.dataclass(frozen=True)
class MemoryRow:
    """What one key path of a tree takes.

    Attributes:
        path: The key path.
        shape: The shape of the leaf.
        dtype: Its dtype.
        device: Its device.
        bytes: What its elements take.
        grad: What those of its `.grad` take; 0 without one.
        storage: What the storages behind the leaf and its `.grad` take: they stay allocated as long as it lives.
        shares: The path of the first earlier row with any of that memory; None if there is none.
    """

    path: KeyPath
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    bytes: int
    grad: int
    storage: int
    shares: KeyPath | None


@dataclasses.dataclass(frozen=True, repr=False)
class MemoryTable:
    """What a tree takes, a row for each key path: iterable, countable; `str` is all of it as an aligned table.

    Attributes:
        rows: A `MemoryRow` for each key path, in the order of the tree; a tied leaf has one for each of its paths.
        total: The bytes of all rows and their gradients, `td.bytes()`.
        held: The bytes of all storages, each once, `td.bytes(count_duplicates=False)`.
    """

    rows: tuple[MemoryRow, ...]
    total: int
    held: int

    def __iter__(self) -> Iterator[MemoryRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        return self._text(len(self.rows))

    def __repr__(self) -> str:
        return self._text(_MOST)

    def _text(self, most: int) -> str:
        """Return the head, at most so many rows, and the totals, under one another."""
        shown = [_cells(row) for row in self.rows[:most]]
        grads = sum([row.grad for row in self.rows])
        last = ("total", "", "", "", _number(self.total - grads), _number(grads), _number(self.held), "")
        widths = [max(map(len, column)) for column in zip(_HEAD, *shown, last, strict=True)]
        lines = [_line(cells, widths) for cells in (_HEAD, *shown, last)]
        hidden = len(self.rows) - len(shown)
        return "\n".join([*lines[:-1], *([f"... {hidden} more"] if hidden else []), lines[-1]])


_MOST = 40
_HEAD = ("path", "shape", "dtype", "device", "bytes", "grad", "storage", "")


def memory_table(tree: TensorTree, *, local: bool = True) -> MemoryTable:
    """Return what each key path of a tree takes, and the totals; `bytes_of` says what counts.

    Args:
        tree: The tree.
        local: Whether of a DTensor the shard of this rank counts, or else the global tensor.
    """
    pieces = [_pieces(leaf, local) for leaf in tree._leaves]
    numbers, sizes = _blocks([piece for each in pieces for piece in each])
    blocks = iter(numbers)
    blocks_of = [{next(blocks) for _ in each} for each in pieces]
    rows: list[MemoryRow] = []
    first: dict[int, int] = {}  # of each block, the row that met it first
    for path, i in tree._structure.slots():
        leaf = tree._leaves[i]
        earlier = [first.setdefault(block, len(rows)) for block in blocks_of[i]]
        shares = min(earlier, default=len(rows))
        rows.append(
            MemoryRow(
                path=path,
                shape=leaf.shape,
                dtype=leaf.dtype,
                device=leaf.device,
                bytes=_values(leaf, local),
                grad=_grad_values(leaf, local),
                storage=sum(_blocks(pieces[i])[1]),
                shares=rows[shares].path if shares < len(rows) else None,
            )
        )
    return MemoryTable(tuple(rows), sum([row.bytes + row.grad for row in rows]), sum(sizes))


def _cells(row: MemoryRow) -> tuple[str, ...]:
    return (
        *(show_path(row.path), str(tuple(row.shape)), str(row.dtype).removeprefix("torch."), str(row.device)),
        *(_number(row.bytes), _number(row.grad), _number(row.storage), "" if row.shares is None else f"shares with {show_path(row.shares)}"),
    )


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    """Return the cells of one line: words to the left, numbers to the right."""
    return "  ".join([f"{cell:>{n}}" if 4 <= i < 7 else f"{cell:<{n}}" for i, (cell, n) in enumerate(zip(cells, widths, strict=True))]).rstrip()


def _number(size: Any) -> str:
    return f"{size:,}" if isinstance(size, int) else str(size)  # of fake tensors it may be a symbol


# --- values -----------------------------------------------------------------------------------------------------------


def _values(tensor: Tensor, local: bool) -> int:
    """Return what the elements of a tensor's parts take."""
    return sum([_elements(part) for part in _parts(tensor, local)])


def _grad_values(leaf: Tensor, local: bool) -> int:
    grad = _grad(leaf)
    return 0 if grad is None else _values(grad, local)


def _grad(leaf: Tensor) -> Tensor | None:
    # Where nothing can be, torch warns of the look.
    return leaf.grad if leaf.is_leaf or leaf.retains_grad else None


def _elements(part: Tensor) -> int:
    if part.is_quantized:
        return -(-part.numel() // _PER_BYTE.get(part.dtype, 1)) * part.dtype.itemsize
    return part.numel() * part.dtype.itemsize


def _parts(tensor: Tensor, local: bool) -> list[Tensor]:
    """Return the tensors with memory of their own that a tensor is made of; a DTensor that counts globally stays whole."""
    inner: list[Any]
    if tensor.layout is torch.jagged:  # not by `__tensor_flatten__`, into which Dynamo does not look; that has no other memory
        nested: Any = tensor
        inner = [nested.values(), nested.offsets(), nested.lengths()]
    elif hasattr(type(tensor), "__tensor_flatten__"):
        if not local and _is_distributed(tensor):
            return [tensor]
        kind: Any = type(tensor)  # asked of the class, which is the way that Dynamo follows
        inner = [getattr(tensor, name) for name in kind.__tensor_flatten__(tensor)[0]]
    elif tensor.layout is torch.sparse_coo:
        inner = [tensor._indices(), tensor._values()]  # the public ones refuse duplicate indices
    elif tensor.layout in _ROWS:
        inner = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    elif tensor.layout in _COLUMNS:
        inner = [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    elif tensor.is_quantized and tensor.qscheme() in _PER_CHANNEL:
        return [tensor, tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()]
    else:
        return [tensor]
    return [part for one in inner if isinstance(one, Tensor) for part in _parts(one, local)]  # DTensor names its mesh, too


def _is_distributed(tensor: Tensor) -> bool:
    if not torch.distributed.is_available():
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


# --- memory held ------------------------------------------------------------------------------------------------------


class _Piece(NamedTuple):
    """A storage, as a stretch of some space."""

    space: str
    start: int
    stop: int
    owner: object
    """What keeps the memory, and the identity in the name of the space, as long as the piece lives."""


def _pieces(leaf: Tensor, local: bool) -> list[_Piece]:
    """Return the storages behind a leaf and its gradient."""
    grad = _grad(leaf)
    # Under torch.func a leaf is a wrapper without storage; only storages are read of what is in it.
    wrapped = [torch.func.debug_unwrap(tensor) for tensor in (leaf, grad) if tensor is not None]
    return [_piece(part) for tensor in wrapped for part in _parts(tensor, local)]


def _piece(part: Tensor) -> _Piece:
    """Return the storage of a part: by address where there is memory, else (meta, fake, empty) by identity."""
    if hasattr(type(part), "__tensor_flatten__"):  # a DTensor that counts globally, known by its shard
        shard: Any = part
        at = _piece(_parts(shard.to_local(), local=True)[0])
        return _Piece(f"global of {at.space} {at.start}", 0, _elements(part), at.owner)
    try:
        storage = part.untyped_storage()
        start, size = _address(part) if part.device.type in _ADDRESSED else 0, storage.nbytes()
    except RuntimeError:  # a tensor without a storage, as those of MKL-DNN
        return _Piece(f"tensor {id(part)}", 0, _elements(part), part)
    return _Piece(str(part.device), start, start + size, storage) if start else _Piece(f"storage {id(storage)}", 0, size, storage)


def _blocks(pieces: list[_Piece]) -> tuple[list[int], list[int]]:
    """Return for each piece the number of its block (the pieces that overlap), and the sizes of the blocks."""
    numbers = [0] * len(pieces)
    spans: list[_Piece] = []
    for i in sorted(range(len(pieces)), key=lambda i: pieces[i][:2]):
        piece, last = pieces[i], spans[-1] if spans else None
        if last is not None and piece.space == last.space and (piece.start == last.start or piece.start < last.stop):
            spans[-1] = last._replace(stop=max(last.stop, piece.stop))
        else:
            spans.append(piece)
        numbers[i] = len(spans) - 1
    return numbers, [span.stop - span.start for span in spans]
