"""The class of a clone: that of the module, or a subclass where torch.compile could not follow it."""

from __future__ import annotations

import dis
import types
import weakref
from typing import Any

from torch import Tensor, nn

from tdfunc.structure import constant, traced_as

_BUILDERS = frozenset({"__init__", "__setstate__", "__getstate__", "reset_parameters", "extra_repr", "__init_subclass__"})
_subclasses: weakref.WeakKeyDictionary[type, type] = weakref.WeakKeyDictionary()


@constant
def _traceable(cls: type[nn.Module]) -> type[nn.Module]:
    """Return a class whose `self.n = self.n + 1` Dynamo traces; the class itself if its methods assign nothing.

    On a module that was made inside the trace, Dynamo follows `nn.Module.__setattr__` into `inspect.signature` and gives
    up (seen in torch 2.13; without that, this file could go). The subclass is made once per class.
    """
    found = _subclasses.get(cls)
    if found is None:
        found = _subclasses[cls] = _subclass(cls) if _assigns(cls) else cls
    return found


@traced_as(_traceable)
def class_of(cls: type[nn.Module]) -> Any:
    """Return the class for clones of modules of a class."""
    return cls


def _assigns(cls: type[nn.Module]) -> bool:
    """Say whether some method of a class, other than those that build it, assigns an attribute."""
    for base in cls.__mro__[: cls.__mro__.index(nn.Module)]:
        if "__setattr__" in vars(base):
            return False
        for name, member in vars(base).items():
            code = getattr(member, "__code__", None)
            if isinstance(code, types.CodeType) and name not in _BUILDERS and _stores(code):
                return True
    return False


def _stores(code: types.CodeType) -> bool:
    return any(step.opname == "STORE_ATTR" for step in dis.get_instructions(code))


def _subclass(cls: type[nn.Module]) -> type[nn.Module]:
    body = {"__setattr__": _set_attribute, "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
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
