"""The states of an ensemble, made one member at a time."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Generator

import torch
from torch import nn

from tdfunc import ops
from tdfunc._errors import BatchSizeError, StructureError, describe, show_path
from tdfunc.core import TensorDict
from tdfunc.module import bind, buffers_of, params_of


def init_ensemble(factory: Callable[[], nn.Module], n: int, *, seed: int | None = None, start: int = 0) -> tuple[nn.Module, TensorDict, TensorDict]:
    """Make the states of an ensemble, each member initialised differently.

    Args:
        factory: Makes a module, in the same way each time.
        n: The number of members.
        seed: Makes it reproducible; member i depends on `seed` and `i` alone. None: another ensemble each time.
        start: The number of the first member: `init_ensemble(factory, 2, seed=0, start=4)` gives members 4 and 5 of
            `init_ensemble(factory, 6, seed=0)`, to be added later.

    Returns:
        The skeleton (a module on the meta device, a template for `bind` and `ensemble`), the parameters and the buffers,
        both with batch size `(n,)`. At no time is there more than one member beside them: a member is made, copied to
        its row and dropped. The global random generators are left as they were.

    Raises:
        StructureError: If `n` is not positive, `start` is negative or has no seed to count from, or the factory makes
            modules of different structure.
        BatchSizeError: If it makes tensors of different shapes.

    Example:
        >>> import torch, tdfunc
        >>> net, params, buffers = tdfunc.init_ensemble(lambda: torch.nn.Linear(3, 2), 4, seed=0)
        >>> params.batch_size, net.weight.device.type
        (torch.Size([4]), 'meta')
        >>> more = tdfunc.init_ensemble(lambda: torch.nn.Linear(3, 2), 2, seed=0, start=4)[1]
        >>> tdfunc.cat([params, more]).batch_size
        torch.Size([6])
    """
    if n < 1:
        raise StructureError(describe("init_ensemble: an ensemble has members", expected="n >= 1", got=n, fix="init_ensemble(factory, 1)"))
    if isinstance(factory, nn.Module):
        raise StructureError(
            describe("init_ensemble: expected a factory", got=f"a module, {type(factory).__name__}", fix="init_ensemble(lambda: Net(...), n)")
        )
    if start < 0 or (start and seed is None):
        raise StructureError(
            describe(
                "init_ensemble: start counts members of a seed",
                expected="start >= 0, and a seed",
                got=f"start={start}, seed={seed}",
                fix="init_ensemble(factory, 2, seed=0, start=4)",
            )
        )
    with _forked():
        source = torch.Generator()
        source.seed() if seed is None else source.manual_seed(seed)
        for _ in range(start):
            _draw(source)
        first = _make(factory, source)
        seen, skeleton = weakref.ref(first), _on_meta(first)
        params, buffers = _first(params_of(first), n), _first(buffers_of(first), n)
        del first  # before the next is made: one at a time
        for i in range(1, n):
            _next(factory, source, seen, (params, buffers), i)
    return skeleton, params, buffers


def _next(
    factory: Callable[[], nn.Module], source: torch.Generator, seen: Callable[[], object], rooms: tuple[TensorDict, TensorDict], i: int
) -> None:
    """Make member i and copy it to its row; it is gone when this returns."""
    member = _make(factory, source)
    if member is seen():
        raise StructureError(
            describe(
                "init_ensemble: the factory gave the same module twice",
                expected="a new module at each call",
                got=f"one {type(member).__name__}",
                fix="init_ensemble(lambda: Net(...), n)",
            )
        )
    _fill(rooms[0], params_of(member), i)
    _fill(rooms[1], buffers_of(member), i)


def _on_meta(module: nn.Module) -> nn.Module:
    """Return a copy of a module on the meta device; the module stays: it may be somebody's."""
    copy = bind(module, strict=False)
    moved: dict[int, torch.Tensor] = {}  # a tensor under several names stays one
    for part in copy.modules():
        for name, param in part._parameters.items():
            if param is not None:
                part._parameters[name] = moved.setdefault(id(param), nn.Parameter(param.detach().to("meta"), param.requires_grad))  # type: ignore[assignment]
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = moved.setdefault(id(buffer), buffer.to("meta"))
    return copy


@contextlib.contextmanager
def _forked() -> Generator[None]:
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        yield


def _draw(source: torch.Generator) -> int:
    return int(torch.randint(2**62, (), generator=source))


def _make(factory: Callable[[], nn.Module], source: torch.Generator) -> nn.Module:
    torch.manual_seed(_draw(source))
    module = factory()
    if not isinstance(module, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise StructureError(
            describe("init_ensemble: the factory must return a module", got=type(module).__name__, fix="init_ensemble(lambda: Net(...), n)")
        )
    return module


def _first(state: TensorDict, n: int) -> TensorDict:
    """Return room for n members, the first filled."""
    if state.is_empty():
        return TensorDict(batch_size=(n,))
    room = state.map(lambda leaf: leaf.new_empty((n, *leaf.shape)))
    room = TensorDict._rebuild(room._leaves, state.structure)  # event ranks as for one member: (members, *shape)
    _fill(room, state, 0)
    return room


def _fill(room: TensorDict, state: TensorDict, i: int) -> None:
    """Write one member into the room made for it: the only owner so far, so in place."""
    if state.is_empty() and room.is_empty():
        return
    leaves = ops.aligned(room, state, f"init_ensemble (member {i})")
    for path, into, leaf in zip(room.structure.paths(), room._leaves, leaves, strict=True):
        if into.shape[1:] != leaf.shape:
            raise BatchSizeError(
                describe(
                    "init_ensemble: the factory makes tensors of different shapes",
                    at=f"member {i}, {show_path(path)}",
                    expected=tuple(into.shape[1:]),
                    got=tuple(leaf.shape),
                    fix="a factory without random sizes",
                )
            )
        into[i].copy_(leaf)
