"""References to modules and tensors that stand outside the registered ones: in lists, closures, bound methods.

A clone that shared them would silently run the original, or write to it. They are found in the attributes of each module
and pointed at the clones; what cannot be is an error that names the attribute.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections import deque
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from tdfunc._errors import BindError, describe, show_path
from tdfunc.module.clone import HOOKS, PLAIN, isolate
from tdfunc.structure import constant, traced_as

from ._memory import storage_of
from ._place import Place, path_of
from ._search import leads_to

_CONTAINERS = (list, tuple, dict, set, frozenset, deque)


class Follow:
    """What stands for what in one clone, and the walk that carries it into attributes."""

    def __init__(
        self, root: nn.Module, clones: dict[int, nn.Module], given: dict[int, Tensor], isolated: dict[int, Tensor], lists: dict[int, Any]
    ) -> None:
        self.root = root
        self._clones = clones
        self._given = given
        self._isolated = isolated
        self._memo = lists  # copies that were made already, and then all others
        self._handles: list[tuple[RemovableHandle, RemovableHandle]] = []
        self._wanted: frozenset[int] = frozenset()

    def wanted(self) -> frozenset[int]:
        """Return the identities of the modules and tensors that have another in their place."""
        self._wanted = self._wanted or frozenset(self._clones.keys() | self._given.keys())
        return self._wanted

    def attribute(self, value: Any, place: tuple[Place, str]) -> Any:
        """Return an attribute of a module for its clone: references followed, containers and tensors not shared."""
        if place[1] == "_compiled_call_impl":  # `m.compile()`: it would run the original; the clone is called as it is
            return None
        if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
            derived(self, value, place)
        return self._item(value, place)

    def finish(self) -> None:
        """Point the handles of hooks at the hooks of the clones, once these have theirs."""
        if not self._handles:
            return
        dicts: dict[int, Any] = {}
        for part in self.root.modules():
            clone = self._clones.get(id(part))
            if clone is not None:
                dicts |= {id(part.__dict__[name]): clone.__dict__[name] for name in HOOKS}
        for new, old in self._handles:
            hooks, number, *rest = old.__getstate__()
            extra = tuple([dicts.get(id(each), each) for each in rest[0]]) if rest else ()
            new.__setstate__((dicts.get(id(hooks), hooks), number, extra))

    def _value(self, value: Any, place: Place) -> Any:
        """Return a value with its references to modules of the tree pointed at the clones; itself if it has none."""
        if type(value) in PLAIN:
            return value
        if isinstance(value, nn.Module) and id(value) in self._clones:
            return self._clones[id(value)]
        if isinstance(value, Tensor):
            return self._given.get(id(value), self._isolated.get(id(value), value))
        if isinstance(value, _CONTAINERS):
            return self._container(value, place)
        if isinstance(value, types.MethodType):
            return self._method(value, place)
        if isinstance(value, functools.partial):
            return self._partial(value, place)
        if isinstance(value, types.FunctionType):
            return self._function(value, place)
        if isinstance(value, weakref.ref):
            return self._weak(value, place)
        if isinstance(value, RemovableHandle):
            return handle(self, value)
        if hasattr(value, "hook") and hasattr(value, "with_module"):
            return self._load_hook(value, place)
        if hides(self, value):
            raise BindError(
                describe(
                    "bind: an attribute refers to a module or a parameter of the tree from inside an object that bind cannot look through",
                    at=show_path(path_of(place)),
                    expected="the reference in a list, tuple, dict, set, partial, closure or bound method",
                    got=type(value).__name__,
                    fix="register what it refers to, or keep it in a list",
                )
            )
        return value

    def _tensor(self, value: Tensor) -> Tensor:
        """Return a tensor attribute: a parameter as it was given, another tensor as the clone's own."""
        if isinstance(value, nn.Parameter):
            return self._given.get(id(value), value)
        copy = self._isolated.get(id(value))
        if copy is None:
            copy = self._isolated[id(value)] = isolate(value)
        return copy

    def _container(self, value: Any, place: Place) -> Any:
        """Return a container of the clone's own, which its methods may write to."""
        if id(value) in self._memo:
            return self._memo[id(value)]
        if isinstance(value, tuple | frozenset):
            items: list[Any] = [self._item(item, place) for item in value]
            if all(new is old for new, old in zip(items, value, strict=True)):
                return value
            return value._make(items) if hasattr(value, "_make") else type(value)(items)  # type: ignore[union-attr]
        copy = value.copy() if type(value).copy in _OWN_COPY else _copied(value)
        self._memo[id(value)] = copy  # before the items: a list may hold itself
        if isinstance(value, list) and all(type(item) in PLAIN for item in value):
            return copy
        if isinstance(value, dict):
            pairs = [(self._value(key, place), self._item(item, place)) for key, item in value.items()]
            if any(new is not old for (new, _), old in zip(pairs, value, strict=True)):
                copy.clear()
            for key, item in pairs:
                copy[key] = item
        elif isinstance(value, set):
            copy.clear()
            copy.update([self._item(item, place) for item in value])
        else:
            for i, item in enumerate(value):
                copy[i] = self._item(item, place)
        return copy

    def _item(self, value: Any, place: Place) -> Any:
        return self._tensor(value) if isinstance(value, Tensor) else self._value(value, place)

    def _method(self, value: types.MethodType, place: Place) -> Any:
        if isinstance(value.__self__, type):
            return value
        owner = self._value(value.__self__, place)
        if owner is value.__self__:
            return value
        name = value.__func__.__name__
        # By name where that gives the same: Dynamo makes no bound methods.
        known = getattr(type(value.__self__), name, None) is value.__func__
        return getattr(owner, name) if known else types.MethodType(value.__func__, owner)

    def _partial(self, value: functools.partial[Any], place: Place) -> Any:
        fn = self._value(value.func, place)
        args = [self._value(arg, place) for arg in value.args]
        kwargs = {name: self._value(arg, place) for name, arg in value.keywords.items()}
        same = fn is value.func and all(a is b for a, b in zip(args, value.args, strict=True))
        same = same and all(kwargs[name] is arg for name, arg in value.keywords.items())
        return value if same else type(value)(fn, *args, **kwargs)

    def _function(self, value: types.FunctionType, place: Place) -> Any:
        if id(value) in self._memo:
            return self._memo[id(value)]
        if not leads(self, value):
            self._memo[id(value)] = value
            return value
        cells = [types.CellType() for _ in value.__closure__ or ()]
        copy = types.FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, tuple(cells) or None)
        self._memo[id(value)] = copy  # before the cells: a recursive function is in one of its own
        for new, old in zip(cells, value.__closure__ or (), strict=True):
            try:
                content = old.cell_contents
            except ValueError:  # not filled yet
                continue
            new.cell_contents = self._shared(content, place)
        defaults = tuple(self._shared(item, place) for item in value.__defaults__ or ())
        keywords = {name: self._shared(item, place) for name, item in (value.__kwdefaults__ or {}).items()}
        copy.__defaults__, copy.__kwdefaults__ = defaults or None, keywords or None
        copy.__qualname__, copy.__doc__ = value.__qualname__, value.__doc__
        copy.__dict__.update(value.__dict__)
        return copy

    def _shared(self, value: Any, place: Place) -> Any:
        """Return what a function closes over: a container stays shared unless it leads to the tree."""
        return value if isinstance(value, _CONTAINERS) and not hides(self, value) else self._value(value, place)

    def _load_hook(self, value: Any, place: Place) -> Any:
        """Return what torch keeps for a hook that runs before loading: the hook, and a weak reference to its module."""
        hook = self._value(value.hook, place)
        target = value.module() if value.with_module else None
        owner = self._value(target, place)
        return value if hook is value.hook and owner is target else type(value)(hook, owner)

    def _weak(self, value: weakref.ref[Any], place: Place) -> Any:
        target = value()
        if target is None:
            return value
        new = self._value(target, place)
        return value if new is target else type(value)(new)


@constant
def _constant_leads(root: nn.Module, fn: Any) -> tuple[str, ...]:
    """Return a tuple that is empty if a function leads nowhere into a tree: a constant that Dynamo unpacks."""
    wanted = {id(part) for part in root.modules()} | {id(param) for param in root.parameters()}
    return ("leads",) if leads_to(fn, wanted) else ()


def _traced_leads(follow: Follow, fn: Any) -> bool:
    return any(_constant_leads(follow.root, fn))


@traced_as(_traced_leads)
def leads(follow: Follow, fn: Any) -> bool:
    """Say whether a function leads to a module or a replaced tensor of the tree."""
    return leads_to(fn, follow.wanted())


def _traced_handle(_follow: Follow, value: RemovableHandle) -> RemovableHandle:
    return value  # no hook is removed in a trace


@traced_as(_traced_handle)
def handle(follow: Follow, value: RemovableHandle) -> RemovableHandle:
    """Return a handle of the clone's own for a hook, so that to remove it there leaves the original's."""
    if id(value) not in follow._memo:
        new = follow._memo[id(value)] = object.__new__(RemovableHandle)
        follow._handles.append((new, value))
    return follow._memo[id(value)]


def _traced_derived(_follow: Follow, _value: Tensor, _place: Place) -> None:
    """In a trace, `rehearse` has looked already."""


@traced_as(_traced_derived)
def derived(follow: Follow, value: Tensor, place: Place) -> None:
    """Raise if a tensor attribute is a view of a parameter: the clone would go on with the original's values."""
    storage = storage_of(value)
    if storage is None:
        return
    path = path_of(place)
    for name, param in follow.root.named_parameters():
        # `nn.utils.spectral_norm` keeps the parameter as `weight_orig` and computes `weight` before each call.
        if storage_of(param) == storage and tuple(name.split(".")) != (*path[:-1], f"{path[-1]}_orig"):
            raise BindError(
                describe(
                    "bind: an attribute is a view of a parameter, and would keep the original's values",
                    at=show_path(path_of(place)),
                    expected="the view taken in forward, where it is one of what is bound",
                    got=f"a tensor that shares storage with {show_path(tuple(name.split('.')))}",
                    fix=f"take it from the parameter in forward, or clear it before bind: module.{'.'.join(path)} = None",
                )
            )


def _traced_hides(_follow: Follow, _value: Any) -> bool:
    return False  # in a trace, `rehearse` has looked already


@traced_as(_traced_hides)
def hides(follow: Follow, value: Any) -> bool:
    """Say whether an object that cannot be followed leads to a module or a replaced tensor of the tree."""
    return leads_to(value, follow.wanted())


_OWN_COPY = frozenset({list.copy, dict.copy, set.copy, deque.copy})


def _copied(value: Any) -> Any:
    """Return a copy of a container of another class than Python's own."""
    import copy

    return copy.copy(value)
