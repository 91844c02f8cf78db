"""The methods by which torch writes into a module in place, for a bound module: they change it, not the caller's tensors."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor, nn

NAMES = ("_apply", "requires_grad_", "_load_from_state_dict")
"""What a bound module has among its attributes, in the place of its class's methods of these names."""


class Own(weakref.ref[nn.Module]):
    """One object for the three methods of one bound module, told apart by what they are called with.

    `nn.Module._apply` (`to`, `double`, `cuda` ...) writes `param.data`, `requires_grad_` flags the parameters, and
    `_load_from_state_dict` copies into them. In a bound module they are the caller's own leaves: here they are replaced
    first. A weak reference, because an attribute that held its module would keep it alive.
    """

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = super().__call__()
        assert module is not None, "its module runs this"
        if len(args) > 2:
            _replace([module], Tensor.clone)
            return type(module)._load_from_state_dict(module, *args, **kwargs)
        if args and callable(args[0]):
            fn, *recurse = args
            return _replace(module.modules() if all([*recurse, *kwargs.values()]) else [module], fn) or module
        flag = all([*args, *kwargs.values()])
        _replace(module.modules(), lambda tensor: tensor.detach().requires_grad_(flag), buffers=False)
        return module

    def __reduce__(self) -> tuple[Any, ...]:
        return Own, (super().__call__(),)


def _replace(parts: Any, fn: Any, *, buffers: bool = True) -> None:
    """Replace the tensors of modules, one that is under several names once, and so in the lists that hold them."""
    new: dict[int, Tensor] = {}
    held: list[Tensor] = []  # so that no identity is used twice
    parts = list(parts)
    for part in parts:
        for registered in (part._parameters, part._buffers) if buffers else (part._parameters,):
            for name, tensor in registered.items():
                if tensor is not None:
                    if id(tensor) not in new:
                        held.append(tensor)
                        new[id(tensor)] = fn(tensor)
                    registered[name] = new[id(tensor)]
    for part in parts:
        for name, value in list(part.__dict__.items()):
            if isinstance(value, list | tuple | dict) and name not in ("_parameters", "_buffers", "_modules"):
                part.__dict__[name] = _in_container(value, new)


def _in_container(value: Any, new: dict[int, Tensor]) -> Any:
    if isinstance(value, Tensor):
        return new.get(id(value), value)
    if type(value) in (list, tuple):
        return type(value)(_in_container(item, new) for item in value)
    if type(value) is dict:
        return {key: _in_container(item, new) for key, item in value.items()}
    return value
