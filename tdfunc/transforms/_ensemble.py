"""One module with many states at once."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import Tensor, nn

from tdfunc import ops
from tdfunc._errors import BatchSizeError, StructureError, describe
from tdfunc.core import TensorDict
from tdfunc.module import bind, buffers_of

from ._flat import flatten
from ._loop import looped


def ensemble(
    module: nn.Module,
    *,
    in_dims: Any = None,
    randomness: str = "different",
    chunk_size: int | None = None,
    fallback: str = "error",
    buffers: bool = False,
) -> Callable[..., Any]:
    """Give a function that runs a module with many states at once.

    Args:
        module: The template, on any device; on meta it costs no memory.
        in_dims: Which arguments differ from member to member. None: all are shared. An int or a tuple: for positional
            arguments, as in `vmap`. A dict: from the name of a keyword argument, or the position of a positional one, to
            its dim; arguments that it does not name are shared.
        randomness: "different" gives each member dropout masks of its own, "same" one for all, "error" refuses.
        chunk_size: Run this many members at a time, to bound memory.
        fallback: What runs a module that vmap cannot run: one with `.item()`, with an `if` on a tensor, with sizes that
            depend on values. "error": nothing does, an error names this argument. "loop": the members run one after the
            other, whether vmap could run them or not, so that it depends on nothing but this argument.
        buffers: Return `(out, buffers)`, the buffers after the call, stacked. False: what a call writes to them is dropped.

    Returns:
        `fn(state, *args, **kwargs)`, which gives what the module gives, stacked over members. `state` is one tree with
        batch size `(n,)`: of parameters, or of parameters and buffers (`params | buffers`). Buffers that it lacks are the
        module's own, for each member a copy.

    Raises:
        StructureError: If `randomness` or `fallback` is an unknown word. When called: if `in_dims` does not fit the
            arguments, vmap cannot run the module, or the members of a loop give results of different form.
        BatchSizeError: When called with a state that has no member dim, or an argument mapped over a dim of another size.

    Shapes:
        `state` leaves `(members, *shape)`, results `(members, *shape)`.

    Note:
        Gradients flow; traces under torch.compile(fullgraph=True), the loop too (unrolled) with randomness "different".
        Loop and vmap draw from the global generator in a different order: dropout masks agree for "same" only.

    Example:
        >>> import torch, tdfunc
        >>> net = torch.nn.Linear(3, 2)
        >>> params = tdfunc.stack([tdfunc.params_of(torch.nn.Linear(3, 2)) for _ in range(4)])
        >>> tdfunc.ensemble(net)(params, torch.ones(5, 3)).shape
        torch.Size([4, 5, 2])
    """
    _check_word("randomness", randomness, ("different", "same", "error"))
    _check_word("fallback", fallback, ("error", "loop"))

    def member(state: TensorDict, args: tuple[Any, ...], kwargs: dict[str, Any], _number: Tensor | None) -> Any:
        bound = bind(module, state)
        out = bound(*args, **kwargs)
        return (out, buffers_of(bound)) if buffers else out

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
        n = state.batch_size[0]
        state = _with_buffers(state, module, n)
        dims = _dims(in_dims, args, kwargs)
        _check_sizes(n, (args, kwargs), dims)
        number = torch.arange(n) if state.is_empty() else None  # something to map over, where the state has nothing
        given, given_dims = (state, args, kwargs, number), (0, *dims, None if number is None else 0)
        if fallback == "loop":
            result = looped(member, n, given, given_dims, randomness)
        else:
            result = _vmapped(member, given, given_dims, randomness, chunk_size)
        if buffers and result[1].is_empty():
            return result[0], TensorDict(batch_size=(n,))
        return result

    return run


def _check_word(name: str, value: Any, words: tuple[str, ...]) -> None:
    if value not in words:
        raise StructureError(
            describe(f"ensemble: unknown {name}", expected=" or ".join(map(repr, words)), got=repr(value), fix=f"{name}={words[0]!r}")
        )


def _vmapped(member: Callable[..., Any], given: tuple[Any, ...], dims: tuple[Any, ...], randomness: str, chunk_size: int | None) -> Any:
    """Run the members at once; where torch says that it cannot, say what can."""
    try:
        return torch.vmap(member, dims, randomness=randomness, chunk_size=chunk_size)(*given)
    except RuntimeError as error:
        text = str(error)
        if "randomness" in text or not any(word in text for word in _OF_VMAP):
            raise
        raise StructureError(
            describe(
                "ensemble: vmap cannot run this module",
                expected="no .item(), no `if` on a tensor, no sizes that depend on values, nothing written to a tensor that all members share",
                got=text,
                fix='ensemble(module, fallback="loop"), which runs the members one after the other',
            )
        ) from error


_OF_VMAP = ("vmap", "functorch", "atching rule", "doesn't have storage", "the broadcast shape")
"""How torch 2.13 says that vmap cannot do something: these words are in its messages."""


def _with_buffers(state: TensorDict, module: nn.Module, n: int) -> TensorDict:
    """Return the state with the module's own buffers where it has none, one for each member, so that each may write to its."""
    missing = buffers_of(module).filter(lambda path, leaf: path not in state and not leaf.is_meta)
    if missing.is_empty():
        return state
    return ops.merge(missing.map(lambda leaf: leaf.expand(n, *leaf.shape)), state)


def _dims(in_dims: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return the in_dims of the positional and of the keyword arguments."""
    if in_dims is None:
        return None, None
    if isinstance(in_dims, dict):
        named: dict[Any, Any] = in_dims
        unknown = [name for name in named if name not in kwargs and name not in range(len(args))]
        if unknown:
            raise StructureError(
                describe(
                    "ensemble: in_dims names no keyword argument of the call, and no position",
                    expected=[*range(len(args)), *kwargs],
                    got=unknown,
                    fix="pass it by keyword",
                )
            )
        return _or_none(tuple([named.get(i) for i in range(len(args))])), _or_none({name: named.get(name) for name in kwargs})
    if isinstance(in_dims, int):
        return _or_none((in_dims,) * len(args)), None
    if len(in_dims) != len(args):
        raise StructureError(
            describe("ensemble: in_dims does not match the arguments", expected=f"{len(args)} entries", got=in_dims, fix="one int or None each")
        )
    return _or_none(tuple(in_dims)), None


def _or_none(dims: Any) -> Any:
    """Return None where nothing is mapped: torch.vmap then asks for nothing."""
    values = dims.values() if isinstance(dims, dict) else dims
    return dims if any(dim is not None for dim in values) else None


def _check_sizes(n: int, given: tuple[tuple[Any, ...], dict[str, Any]], dims: tuple[Any, Any]) -> None:
    """Raise where an argument has another number of members than the state."""
    named = [(f"argument {i}", arg, dim) for i, (arg, dim) in enumerate(zip(given[0], dims[0] or (), strict=False))]
    named += [(f"keyword {name!r}", given[1][name], dim) for name, dim in (dims[1] or {}).items()]
    for where, argument, dim in named:
        for leaf, at in _mapped(argument, dim):
            if not isinstance(leaf, Tensor) or not -leaf.dim() <= at < leaf.dim() or leaf.shape[at] != n:
                raise BatchSizeError(
                    describe(
                        "ensemble: an argument has no entry for each member",
                        at=where,
                        expected=f"size {n} along dim {at}",
                        got=f"shape {tuple(leaf.shape)}" if isinstance(leaf, Tensor) else type(leaf).__name__,
                        fix="in_dims=None for what all members share",
                    )
                )


def _mapped(argument: Any, dim: Any) -> Generator[tuple[Any, int]]:
    """Give each mapped leaf of an argument and its dim; what no int or None says is left to torch.vmap."""
    if isinstance(dim, int):
        for leaf in flatten(argument)[0]:
            yield leaf, dim
