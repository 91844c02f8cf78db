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

from tdfunc.module._unwrap import release
from tdfunc.structure import constant, traced_as

from ._forward import Forward, form_of, give_form
from ._known import known
from ._own import Own
from ._traced import handed_on, traceable

PLAIN = frozenset(
    {
        *(bool, int, float, complex, str, bytes, type(None), type, torch.dtype, torch.device, torch.Size, torch.layout),
        *(types.BuiltinFunctionType, types.ModuleType, torch.Generator, Own, Forward),
    }
)
"""Types of attributes that hold no reference to follow and have no state of their own."""

_STANDARD = list(nn.Module().__dict__)
_COUNT = len(_STANDARD)
HOOKS = tuple(name for name, value in nn.Module().__dict__.items() if type(value) is OrderedDict)
"""The attributes in which a module keeps its hooks."""

_FIRST, _LAST = _STANDARD[0], _STANDARD[-1]
_copy = OrderedDict.copy
_PLAIN_SIZE = nn.Module.__basicsize__
_set = object.__setattr__


def plain(value: Any) -> bool:
    """Say whether there is nothing to follow in an attribute: a plain value, a tuple of them (a kernel size), a bare function."""
    kind = type(value)
    if kind in PLAIN:
        return True
    if kind is tuple:
        return PLAIN.issuperset(map(type, value))
    if kind is types.FunctionType:
        return not (value.__closure__ or value.__kwdefaults__ or value.__dict__) and PLAIN.issuperset(map(type, value.__defaults__ or ()))
    return False


def _names(theirs: dict[str, Any]) -> tuple[str, ...]:
    own = [name for name, value in theirs.items() if name not in _STANDARD and not plain(value)]
    return (*own, *[name for name in HOOKS if theirs[name]])


@functools.cache
def _slots(cls: type) -> tuple[str, ...]:
    """Return the `__slots__` of a class of modules; almost none has any."""
    names = [vars(base).get("__slots__", ()) for base in cls.__mro__ if base is not object]
    return tuple(name for slots in names for name in ((slots,) if isinstance(slots, str) else slots) if name not in ("__dict__", "__weakref__"))


def _filled_slots(module: nn.Module) -> tuple[str, ...]:
    return tuple(name for name in _slots(type(module)) if hasattr(module, name))


@constant
def _plan(module: nn.Module, _count: int) -> tuple[tuple[str, ...], ...]:
    """Return, as a constant of the trace, what the clone of a module needs; the count of attributes is guarded on.

    Returns:
        The names of its attributes, those to follow, those of its slots, a tuple that is empty if its class will not do, the
        names of the hooks that it has none of, which are not among its attributes here, and of the methods to be partials.
    """
    own_class = ("own class",) if traceable(type(module)) is type(module) else ()
    theirs = module.__dict__
    unhooked = tuple(name for name in HOOKS if not theirs[name])
    everything = tuple([name for name, value in theirs.items() if name not in unhooked and type(value) not in (Own, Forward)])
    methods = tuple([name for name in handed_on(type(module)) if name not in theirs])
    return everything, _names(theirs), _filled_slots(module), own_class, unhooked, methods


_traceable_class = constant(traceable)
Blank = tuple[nn.Module, dict[str, Any], dict[str, Any], tuple[str, ...], tuple[str, ...]]


def _traced_blank(module: nn.Module, _lists: dict[int, Any]) -> Blank:
    theirs = module.__dict__
    everything, followed, slots, own_class, unhooked, methods = _plan(module, len(theirs))
    # The class itself where it will do: Dynamo knows where it comes from, and so its methods' closures.
    made = object.__new__(type(module) if len(own_class) else _traceable_class(type(module)))
    mine = made.__dict__
    for name in everything:  # one by one: an update of the whole would guard on each of them, used or not
        mine[name] = theirs[name]
    for name in unhooked:  # new ones: to read the module's own, Dynamo would look into each
        mine[name] = {}
    for name in methods:
        mine[name] = functools.partial(getattr(type(module), name), made)
    return made, mine, known(module), followed, slots


@traced_as(_traced_blank)
def blank(module: nn.Module, lists: dict[int, Any]) -> Blank:
    """Return a clone that has still the module's own tensors and sub-modules: hooks and flags its own, all else shared.

    Args:
        module: What to clone.
        lists: The copies of lists of plain values made so far, by the identity of the list; a list keeps one copy.

    Returns:
        The clone, its `__dict__`, what is known of the module's own tensors, the names of attributes that may hold references
        to follow or state of their own, and the names of the slots to copy.
    """
    theirs = module.__dict__
    made = object.__new__(type(module))
    mine = theirs.copy()
    hooked: list[str] = []
    for name in HOOKS:
        hooks = theirs[name]
        if hooks:
            hooked.append(name)
        mine[name] = _copy(hooks)
    mine["_non_persistent_buffers_set"] = theirs["_non_persistent_buffers_set"].copy()
    mine["_apply"] = mine["requires_grad_"] = mine["_load_from_state_dict"] = Own(made)
    if form_of(type(module)) is not None:
        give_form(made, mine)
    _set(made, "__dict__", mine)
    # A dict keeps the order of insertion: with the first and the last standard name in place, all are between them.
    slots = _filled_slots(module) if type(module).__basicsize__ != _PLAIN_SIZE else ()
    names = list(theirs)
    if names[0] != _FIRST or names[_COUNT - 1] != _LAST:
        release(mine)
        return made, mine, theirs, _names(mine), slots
    follow: list[str] = []
    for name in names[_COUNT:]:
        value = theirs[name]
        if type(value) in PLAIN or plain(value):
            continue
        if type(value) is list and PLAIN.issuperset(map(type, value)):
            mine[name] = lists.get(id(value)) or lists.setdefault(id(value), value.copy())
        else:
            follow.append(name)
    if not (follow or hooked):
        return made, mine, theirs, (), slots
    release(mine)
    return made, mine, theirs, tuple([name for name in (*follow, *hooked) if name in mine]), slots
