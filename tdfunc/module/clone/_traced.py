"""The class of a clone: that of the module, or a subclass where torch.compile could not follow it."""

from __future__ import annotations

import dis
import functools
import inspect
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

_BUILDERS = frozenset({"__init__", "__setstate__", "__getstate__", "reset_parameters", "extra_repr", "__init_subclass__"})
_subclasses: weakref.WeakKeyDictionary[type, type] = weakref.WeakKeyDictionary()


def traceable(cls: type[nn.Module]) -> type[nn.Module]:
    """Return a class whose `self.n = self.n + 1` Dynamo traces; the class itself if its methods assign nothing.

    On a module that was made inside the trace, Dynamo follows `nn.Module.__setattr__` into `inspect.signature` and gives
    up (seen in torch 2.13; without that, this file could go). The subclass is made once per class.
    """
    found = _subclasses.get(cls)
    if found is None:
        guarded = _guarded(cls)
        found = _subclasses[cls] = _subclass(cls, guarded) if guarded or _assigns(cls) else cls
    return found


_MODES: dict[type, Callable[[], Any]] = {
    torch.no_grad: lambda: torch.no_grad(),  # noqa: PLW0108 - Dynamo follows a function, not the class in a cell
    torch.enable_grad: lambda: torch.enable_grad(),  # noqa: PLW0108
}


def _guarded(cls: type[nn.Module]) -> dict[str, Any]:
    """Return the methods decorated with `@torch.no_grad()` and the like, in a form that Dynamo traces.

    torch's own wrapper holds a bound method in its closure, which Dynamo cannot take over from a class whose instance was
    made inside the trace (torch 2.13).
    """
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__[: cls.__mro__.index(nn.Module)]):
        for name, member in vars(base).items():
            found.pop(name, None)
            cells = getattr(member, "__closure__", None) or ()
            factory = next((cell.cell_contents for cell in cells if isinstance(cell.cell_contents, types.MethodType)), None)
            mode = _MODES.get(type(getattr(factory, "__self__", None)))
            if mode is not None and hasattr(member, "__wrapped__"):
                found[name] = _within(mode, member.__wrapped__)
    return found


def _within(mode: Callable[[], Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with mode():
            return fn(*args, **kwargs)

    return call


def _assigns(cls: type[nn.Module]) -> bool:
    """Say whether some method of a class, other than those that build it, assigns an attribute."""
    for base in cls.__mro__[: cls.__mro__.index(nn.Module)]:
        if "__setattr__" in vars(base):
            return False
        if any(_stores(code) for code in _codes(base)):
            return True
    return False


def _codes(cls: type) -> list[types.CodeType]:
    """Return the code of the methods of a class, decorated or not, other than those that build it."""
    members = [inspect.unwrap(member) for name, member in vars(cls).items() if callable(member) and name not in _BUILDERS]
    return [member.__code__ for member in members if isinstance(member, types.FunctionType)]


def _stores(code: types.CodeType) -> bool:
    return any(step.opname == "STORE_ATTR" for step in dis.get_instructions(code))


@functools.cache
def handed_on(cls: type[nn.Module]) -> tuple[str, ...]:
    """Return the names of the methods that a class's own methods take as values, `call(self.chunk, x)`, rather than call.

    On a module that was made inside the trace, Dynamo does not know where such a method comes from, and gives up where
    `inspect.signature` is asked about it (transformers does, in BERT); a partial of the function it knows (torch 2.13).
    """
    bases = cls.__mro__[: cls.__mro__.index(nn.Module)]
    methods = {name for base in bases for name, member in vars(base).items() if isinstance(member, types.FunctionType)}
    loaded: set[str] = set()
    for base in bases:
        for code in _codes(base):
            loaded |= _loads(code)
    return tuple(sorted(name for name in methods & loaded if not name.startswith("__")))


def _loads(code: types.CodeType) -> set[str]:
    """Return the names of attributes that code loads without calling them as methods."""
    steps = [step for step in dis.get_instructions(code) if step.opname == "LOAD_ATTR" and not step.argrepr.startswith("NULL|self")]
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return {str(step.argval) for step in steps}.union(*map(_loads, inner))


def _subclass(cls: type[nn.Module], methods: dict[str, Any]) -> type[nn.Module]:
    body = {**methods, "__setattr__": _set_attribute, "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls,), body)


def _set_attribute(self: nn.Module, name: str, value: Any) -> None:
    """Assign as `nn.Module.__setattr__` does, in terms that Dynamo follows."""
    own = self.__dict__
    if isinstance(value, nn.Parameter) or name in own["_parameters"]:
        if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
            raise TypeError(f"cannot assign a tensor as parameter '{name}' (torch.nn.Parameter or None expected)")
        own["_parameters"][name] = value
    elif isinstance(value, nn.Module) or name in own["_modules"]:
        own["_modules"][name] = value
    elif name in own["_buffers"]:
        own["_buffers"][name] = value
    else:
        object.__setattr__(self, name, value)
