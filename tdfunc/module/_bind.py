"""A module with other tensors: a structural clone, and nothing else in the world is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from torch import nn

from tdfunc import ops
from tdfunc._errors import BindError, describe
from tdfunc.core import TensorDict
from tdfunc.structure import constant, traced_as

from . import _problems as problem
from ._binding import Binding
from ._extract import state_of
from ._state_dict import as_state_dict, read
from ._unwrap import unprefixed, unwrap

M = TypeVar("M", bound=nn.Module)


def bind(module: M, *states: Any, strict: bool = True, use_state_dict: bool = False) -> M:
    """Return a module of the same class that uses the tensors of a state; `module` and the state stay as they are.

    The result is a structural clone: new module objects with new dicts of parameters, buffers and sub-modules, which
    share everything else. Nothing is swapped into the original, so there is nothing to restore: it is right in several
    threads, after exceptions, nested, and when activation checkpointing runs it again in the backward pass.

    Args:
        module: The template. May be on the meta device if the states give all tensors.
        *states: Trees of parameters and buffers as `params_of`, `buffers_of` and `state_of` give them; nested mappings,
            or flat ones with dotted names. Of two that have a name, the later one counts. Buffers that are not given come
            from the module. One path of a tied parameter sets all its paths.
        strict: Refuse a missing parameter; False takes it from the module. An unknown name is an error all the same.
        use_state_dict: The states are what `module.state_dict()` gives, and go through the module's load hooks, its
            `_load_from_state_dict` and `set_extra_state`, all of them on the clone. Not under torch.compile: there, bind what
            `state_of(bind(module, state, use_state_dict=True))` gave before.

    Returns:
        The bound module. Call it, any of its methods (`bound.generate(x)`) or sub-modules (`bound.encoder(x)`).
        Parameters are plain tensors in it. Buffers are its own: what a call writes is read by `buffers_of(bound)`, and
        never reaches `module` or the state.

    Raises:
        KeyPathError: If a name is unknown or a parameter missing.
        BindError: If a shape is wrong, values for tied names differ, or the arguments are of the wrong kind. All problems
            are listed; nothing was changed.

    Shapes:
        Each leaf has the shape of the tensor that it stands for; a stacked state goes through `vmap` or `ensemble`.

    Note:
        Gradients flow to the leaves. Traces under torch.compile(fullgraph=True), vmap, grad and their nestings.

    Example:
        >>> import torch, tdfunc
        >>> model = torch.nn.Linear(3, 2)
        >>> zeros = tdfunc.params_of(model).map(torch.zeros_like)
        >>> tdfunc.bind(model, zeros)(torch.ones(1, 3))
        tensor([[0., 0.]])
    """
    if not isinstance(module, nn.Module):
        raise BindError(describe("bind: expected a module first", got=type(module).__name__, fix="bind(model, params)"))
    original = unwrap(module)
    rehearse(original)
    if use_state_dict:
        return bound_by_hooks(original, as_state_dict(states, module, "bind"), strict, "bind")
    state = as_state(states, "bind")
    if original is not module:
        state = TensorDict._rebuild(*unprefixed(original, state._leaves, state._structure))
    return _bound(original, state, strict, "bind")


def bound_by_hooks(module: nn.Module, state_dict: dict[str, Any], strict: bool, op: str) -> Any:
    """Return the module bound to what its hooks make of a state dict; they run on a clone."""
    clone = _bound(module, TensorDict(), False, op)
    state, problems = read(clone, state_dict, op)
    return _bound(clone, state, strict, op, problems)


def _bound(module: nn.Module, state: TensorDict, strict: bool, op: str, problems: Iterable[problem.Problem] = ()) -> Any:
    """Return the module bound to a state, or raise for all that is wrong, with what was known to be wrong before."""
    binding = Binding(strict, op)
    binding.problems.extend(problems)
    try:
        bound = binding.clone(module, state._leaves, state._structure, None)
        binding.finish(module)
    except (AttributeError, LookupError, RuntimeError, ValueError):
        problem.refuse_unready(op, module)
        raise
    return bound


def as_state(states: tuple[Any, ...], op: str) -> TensorDict:
    """Return the states as one tree."""
    if len(states) == 1 and type(states[0]) is TensorDict:
        return states[0]
    trees = [state if isinstance(state, TensorDict) else _from_mapping(state, op) for state in states]
    if not trees:
        return TensorDict()
    return trees[0] if len(trees) == 1 else ops.merge(*trees)


def _from_mapping(state: Any, op: str) -> TensorDict:
    if not isinstance(state, Mapping):
        raise problem.no_state(op, state)
    dotted: Any = state
    return TensorDict({tuple(key.split(".")) if isinstance(key, str) else key: value for key, value in dotted.items()})


@constant
def _rehearsed(module: nn.Module) -> tuple[str, ...]:
    try:
        bind(module, state_of(module))
    except BindError as error:
        return (str(error),)
    return ()


def _traced_rehearse(module: nn.Module) -> None:
    for text in _rehearsed(module):
        raise BindError(text)


@traced_as(_traced_rehearse)
def rehearse(module: nn.Module) -> None:
    """In a trace, bind the module once on the real objects: what cannot be followed is seen there only."""
