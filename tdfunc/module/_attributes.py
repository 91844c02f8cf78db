"""The attributes of a clone: a module's `__dict__` without what the two must not share.

This runs for every module at every bind, so it goes by what `nn.Module.__init__` puts first into each `__dict__`: flags,
the registered tensors, eleven dicts of hooks, the sub-modules. Only what a class added after that is looked at.
"""

from __future__ import annotations

import functools
import types
from collections import OrderedDict
from typing import Any

import torch
from torch import nn

from tdfunc.structure import constant, traced_as

from ._own import Own

PLAIN = frozenset(
    {
        *(bool, int, float, complex, str, bytes, type(None), type, torch.dtype, torch.device, torch.Size, torch.layout),
        *(types.BuiltinFunctionType, types.ModuleType, torch.Generator, Own),
    }
)
"""Types of attributes that hold no reference to follow and have no state of their own."""

_STANDARD = list(nn.Module().__dict__)
_COUNT = len(_STANDARD)
_HOOKS = tuple(name for name, value in nn.Module().__dict__.items() if type(value) is OrderedDict)
_FIRST, _LAST = _STANDARD[0], _STANDARD[-1]
_copy = OrderedDict.copy
_PLAIN_SIZE = nn.Module.__basicsize__
_set = object.__setattr__


def _names(theirs: dict[str, Any]) -> tuple[str, ...]:
    own = [name for name, value in theirs.items() if name not in _STANDARD and type(value) not in PLAIN]
    return (*own, *[name for name in _HOOKS if theirs[name]])


@functools.cache
def _slots(cls: type) -> tuple[str, ...]:
    """Return the `__slots__` of a class of modules; almost none has any."""
    names = [vars(base).get("__slots__", ()) for base in cls.__mro__ if base is not object]
    return tuple(name for slots in names for name in ((slots,) if isinstance(slots, str) else slots) if name not in ("__dict__", "__weakref__"))


def _filled_slots(module: nn.Module) -> tuple[str, ...]:
    return tuple(name for name in _slots(type(module)) if hasattr(module, name))


@constant
def _traced_names(module: nn.Module, _count: int) -> tuple[tuple[str, ...], ...]:
    """Return the names of a module's attributes, those to follow, and its slots, as a constant of the trace.

    The count of attributes is guarded on.
    """
    return tuple(module.__dict__), _names(module.__dict__), _filled_slots(module)


def _traced_attributes(module: nn.Module, made: nn.Module) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]:
    mine, theirs = made.__dict__, module.__dict__
    everything, followed, slots = _traced_names(module, len(theirs))
    for name in everything:  # one by one: an update of the whole would guard on each of them, used or not
        mine[name] = theirs[name]
    return mine, followed, slots


@traced_as(_traced_attributes)
def attributes(module: nn.Module, made: nn.Module) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]:
    """Give a clone its attributes: hooks and flags its own, all else still shared.

    Returns:
        The `__dict__` of the clone, the names in it that may hold references to follow or state of their own, and the
        names of the slots to copy.
    """
    theirs = module.__dict__
    mine = theirs.copy()
    hooked = False
    for name in _HOOKS:
        hooks = theirs[name]
        if hooks:
            hooked = True
        mine[name] = _copy(hooks)
    mine["_non_persistent_buffers_set"] = theirs["_non_persistent_buffers_set"].copy()
    mine["_apply"] = mine["requires_grad_"] = mine["_load_from_state_dict"] = Own(made)
    _set(made, "__dict__", mine)
    # A dict keeps the order of insertion: with the first and the last standard name in place, all are between them.
    slots = _filled_slots(module) if type(module).__basicsize__ != _PLAIN_SIZE else ()
    names = list(theirs)
    if hooked or names[0] != _FIRST or names[_COUNT - 1] != _LAST:
        return mine, _names(theirs), slots
    for name in names[_COUNT:]:
        if type(theirs[name]) not in PLAIN:
            return mine, _names(theirs), slots
    return mine, (), slots
