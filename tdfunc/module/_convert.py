"""`bound.double()` and its kin on a bound module: they convert the clone, not the caller's tensors."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Apply(weakref.ref[nn.Module]):
    """The `_apply` of one bound module, kept among its attributes.

    `nn.Module._apply`, through which `to`, `double`, `cuda` and others go, writes `param.data` in place. In a bound
    module the parameters are the caller's own leaves, which must not change: they are replaced instead. A weak reference,
    because an attribute that held its module would keep it alive.
    """

    __slots__ = ()

    def __call__(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:  # type: ignore[override]
        module = super().__call__()
        assert module is not None, "its module runs this"
        converted: dict[int, Tensor] = {}
        for part in module.modules() if recurse else (module,):
            for kind in (part._parameters, part._buffers):
                for name, tensor in kind.items():
                    if tensor is not None:
                        if id(tensor) not in converted:
                            converted[id(tensor)] = fn(tensor)
                        kind[name] = converted[id(tensor)]  # type: ignore[assignment]
        return module

    def __reduce__(self) -> tuple[Any, ...]:
        return Apply, (super().__call__(),)
