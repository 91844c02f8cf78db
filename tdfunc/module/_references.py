"""References to modules and tensors that stand outside the registered ones: in lists, closures, bound methods.

A clone that shared them would silently run the original, or write to it. They are found in the attributes of each module
and pointed at the clones; what cannot be is an error that names the attribute.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from typing import Any

from torch import Tensor, nn

from tdfunc._errors import BindError, describe, show_path
from tdfunc.structure import KeyPath

from ._attributes import PLAIN
from ._isolate import isolate

_CONTAINERS = (list, tuple, dict, OrderedDict, defaultdict, set, deque)


class Follow:
    """What stands for what in one clone, and the walk that carries it into attributes."""

    def __init__(self, clones: dict[int, nn.Module], given: dict[int, Tensor], isolated: dict[int, Tensor]) -> None:
        self._clones = clones
        self._given = given
        self._isolated = isolated
        self._memo: dict[int, Any] = {}

    def attribute(self, value: Any, path: KeyPath) -> Any:
        """Return an attribute of a module for its clone: references followed, containers and tensors not shared."""
        if isinstance(value, Tensor):
            return self._tensor(value)
        if type(value) in _CONTAINERS:
            return self._container(value, path)
        return self.value(value, path)

    def value(self, value: Any, path: KeyPath) -> Any:
        """Return a value with its references to modules of the tree pointed at the clones; itself if it has none."""
        if isinstance(value, nn.Module):
            return self._clones.get(id(value), value)
        if isinstance(value, types.MethodType):
            return self._method(value, path)
        if isinstance(value, functools.partial):
            return self._partial(value, path)  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(value, types.FunctionType):
            return self._function(value, path)
        if isinstance(value, weakref.ref):
            target: Any = value()  # pyright: ignore[reportUnknownVariableType]
            clone = self._clones.get(id(target))
            return value if clone is None else weakref.ref(clone)  # pyright: ignore[reportUnknownVariableType]
        if type(value) in _CONTAINERS:
            return self._container(value, path) if self._holds(value) else value
        if self._hides(value):
            raise BindError(
                describe(
                    "bind: an attribute refers to a module of the tree from inside an object that bind cannot look through",
                    at=show_path(path),
                    expected="the module in a list, tuple, dict, set, partial, closure or bound method",
                    got=type(value).__name__,
                    fix="register it as a sub-module, or keep it in a list",
                )
            )
        return value

    def _tensor(self, value: Tensor) -> Tensor:
        if isinstance(value, nn.Parameter):
            return self._given.get(id(value), value)
        copy = self._isolated.get(id(value))
        if copy is None:
            copy = self._isolated[id(value)] = isolate(value)
        return copy

    def _container(self, value: Any, path: KeyPath) -> Any:
        if id(value) in self._memo:
            return self._memo[id(value)]
        if isinstance(value, tuple):
            items: list[Any] = [self._inner(item, path) for item in value]  # pyright: ignore[reportUnknownVariableType]
            return tuple(items)
        copy = value.copy()
        self._memo[id(value)] = copy  # before the items: a list may hold itself
        if isinstance(value, dict):
            for key, item in value.items():  # pyright: ignore[reportUnknownVariableType]
                copy[key] = self._inner(item, path)
        elif isinstance(value, set):
            copy.clear()
            copy.update([self._inner(item, path) for item in value])  # pyright: ignore[reportUnknownVariableType]
        else:
            for i, item in enumerate(value):
                copy[i] = self._inner(item, path)
        return copy

    def _inner(self, item: Any, path: KeyPath) -> Any:
        return self._tensor(item) if isinstance(item, Tensor) else item if type(item) in PLAIN else self.value(item, path)

    def _holds(self, value: Any, depth: int = 4) -> bool:
        """Say whether a container holds a reference to follow, a few levels down."""
        items: Any = value.values() if isinstance(value, dict) else value
        for item in items:
            if type(item) in PLAIN:
                continue
            if type(item) in _CONTAINERS:
                if depth and self._holds(item, depth - 1):
                    return True
            elif isinstance(item, Tensor):
                if id(item) in self._given or id(item) in self._isolated:
                    return True
            elif self.value(item, ()) is not item:
                return True
        return False

    def _method(self, value: types.MethodType, path: KeyPath) -> Any:
        owner = self.value(value.__self__, path) if not isinstance(value.__self__, type) else value.__self__
        return value if owner is value.__self__ else types.MethodType(value.__func__, owner)

    def _partial(self, value: functools.partial[Any], path: KeyPath) -> Any:
        fn = self.value(value.func, path)
        args = [self._inner(arg, path) for arg in value.args]
        kwargs = {name: self._inner(arg, path) for name, arg in value.keywords.items()}
        same = fn is value.func and all(a is b for a, b in zip(args, value.args, strict=True))
        same = same and all(kwargs[name] is arg for name, arg in value.keywords.items())
        return value if same else type(value)(fn, *args, **kwargs)

    def _function(self, value: types.FunctionType, path: KeyPath) -> Any:
        if id(value) in self._memo:
            return self._memo[id(value)]
        self._memo[id(value)] = value  # while its cells are read: a recursive function is in its own
        cells: list[Any] = []
        for cell in value.__closure__ or ():
            try:
                old = cell.cell_contents
            except ValueError:  # not filled yet
                cells.append(cell)
                continue
            new = self.value(old, path)
            cells.append(cell if new is old else types.CellType(new))
        if all(a is b for a, b in zip(cells, value.__closure__ or (), strict=True)):
            return value
        copy = types.FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, tuple(cells))
        copy.__kwdefaults__, copy.__qualname__ = value.__kwdefaults__, value.__qualname__
        copy.__dict__.update(value.__dict__)
        self._memo[id(value)] = copy
        return copy

    def _hides(self, value: Any) -> bool:
        """Say whether a plain object has a module of the tree among its attributes."""
        if isinstance(value, type) or callable(getattr(value, "__torch_dispatch__", None)):
            return False
        inside: Any = getattr(value, "__dict__", None)
        return isinstance(inside, dict) and any(
            isinstance(item, nn.Module) and id(item) in self._clones  # pyright: ignore[reportUnknownArgumentType]
            for item in inside.values()  # pyright: ignore[reportUnknownVariableType]
        )
