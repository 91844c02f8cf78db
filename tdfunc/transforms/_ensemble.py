"""Ensembles: many parameter sets of one module, made one by one and run at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import nn

from tdfunc import ops
from tdfunc._errors import BatchSizeError, StructureError, describe, show_path
from tdfunc.core import TensorDict
from tdfunc.module import bind, buffers_of, params_of


def ensemble(module: nn.Module, *, in_dims: Any = None, randomness: str = "different", chunk_size: int | None = None) -> Callable[..., Any]:
    """Give a function that runs a module with many states at once.

    Args:
        module: The template, on any device; on meta it costs no memory.
        in_dims: Which arguments differ from member to member. None: all are shared. An int or a tuple: for positional
            arguments, as in `vmap`. A dict from argument name to dim: for keyword arguments.
        randomness: "different" gives each member dropout masks of its own, "same" one for all, "error" refuses.
        chunk_size: Run this many members at a time, to bound memory.

    Returns:
        `fn(state, *args, **kwargs)`, which gives what the module gives, stacked over members. `state` is one tree with
        batch size `(n,)`: of parameters, or of parameters and buffers (`params | buffers`).

    Raises:
        BatchSizeError: When called with a state that has no member dim.

    Shapes:
        `state` leaves `(members, *shape)`, results `(members, *shape)`.

    Note:
        What a call writes to buffers is dropped. To keep it, map a function that returns it:
        `vmap(lambda p, b, x: ((m := bind(module, p, b))(x), buffers_of(m)), in_dims=(0, 0, None))`.

    Example:
        >>> import torch, tdfunc
        >>> net = torch.nn.Linear(3, 2)
        >>> params = tdfunc.stack([tdfunc.params_of(torch.nn.Linear(3, 2)) for _ in range(4)])
        >>> tdfunc.ensemble(net)(params, torch.ones(5, 3)).shape
        torch.Size([4, 5, 2])
    """

    def run(state: TensorDict, *args: Any, **kwargs: Any) -> Any:
        if not ops.batch_dims(state):
            raise BatchSizeError(
                describe(
                    "ensemble: the state has no member dim",
                    expected="batch size (members,)",
                    got=tuple(state.batch_size),
                    fix="stack([params_of(m) for m in members]), or init_ensemble(factory, n)",
                )
            )

        state = _with_buffers(state, module)

        def member(state: TensorDict, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return bind(module, state)(*args, **kwargs)

        dims = _dims(in_dims, args, kwargs)
        return torch.vmap(member, (0, *dims), randomness=randomness, chunk_size=chunk_size)(state, args, kwargs)

    return run


def _with_buffers(state: TensorDict, module: nn.Module) -> TensorDict:
    """Return the state with the module's own buffers where it has none, one for each member, so that each may write to its."""
    missing = buffers_of(module).filter(lambda path, leaf: path not in state and not leaf.is_meta)
    if missing.is_empty():
        return state
    n = state.batch_size[0]
    return ops.merge(missing.map(lambda leaf: leaf.expand(n, *leaf.shape)), state)


def _dims(in_dims: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return the in_dims of the positional and of the keyword arguments."""
    if isinstance(in_dims, dict):
        unknown = [name for name in in_dims if name not in kwargs]  # pyright: ignore[reportUnknownVariableType]
        if unknown:
            raise StructureError(
                describe("ensemble: in_dims names no keyword argument of the call", expected=list(kwargs), got=unknown, fix="pass it by keyword")
            )
        return None, {name: in_dims.get(name) for name in kwargs} or None  # pyright: ignore[reportUnknownMemberType]
    if in_dims is None:
        return None, None
    if isinstance(in_dims, int):
        return (in_dims,) * len(args), None
    if len(in_dims) != len(args):
        raise StructureError(
            describe("ensemble: in_dims does not match the arguments", expected=f"{len(args)} entries", got=in_dims, fix="one int or None each")
        )
    return tuple(in_dims), None


def init_ensemble(factory: Callable[[], nn.Module], n: int, *, seed: int | None = None) -> tuple[nn.Module, TensorDict, TensorDict]:
    """Make the states of an ensemble, each member initialised differently.

    Args:
        factory: Makes a module, in the same way each time.
        n: The number of members.
        seed: Makes it reproducible; member i depends on `seed` and `i` alone. None: another ensemble each time.

    Returns:
        The skeleton (a module on the meta device, a template for `bind` and `ensemble`), the parameters and the buffers,
        both with batch size `(n,)`. At no time is there more than one member beside them. The global random generators
        are left as they were.

    Raises:
        StructureError: If `n` is not positive, or the factory makes modules of different structure.
        BatchSizeError: If it makes tensors of different shapes.

    Example:
        >>> import torch, tdfunc
        >>> net, params, buffers = tdfunc.init_ensemble(lambda: torch.nn.Linear(3, 2), 4, seed=0)
        >>> params.batch_size, net.weight.device.type
        (torch.Size([4]), 'meta')
    """
    if n < 1:
        raise StructureError(describe("init_ensemble: an ensemble has members", expected="n >= 1", got=n, fix="init_ensemble(factory, 1)"))
    if isinstance(factory, nn.Module):
        raise StructureError(
            describe("init_ensemble: expected a factory", got=f"a module, {type(factory).__name__}", fix="init_ensemble(lambda: Net(...), n)")
        )
    with _forked():
        source = torch.Generator()
        source.seed() if seed is None else source.manual_seed(seed)
        skeleton = _make(factory, source)
        params, buffers = _first(params_of(skeleton), n), _first(buffers_of(skeleton), n)
        for i in range(1, n):
            member = _make(factory, source)
            if member is skeleton:
                raise StructureError(
                    describe(
                        "init_ensemble: the factory gave the same module twice",
                        expected="a new module at each call",
                        got=f"one {type(member).__name__}",
                        fix="init_ensemble(lambda: Net(...), n)",
                    )
                )
            _fill(params, params_of(member), i)
            _fill(buffers, buffers_of(member), i)
    return _on_meta(skeleton), params, buffers


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


def _make(factory: Callable[[], nn.Module], source: torch.Generator) -> nn.Module:
    torch.manual_seed(int(torch.randint(2**62, (), generator=source)))
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
