"""Looking into objects of any kind for something that they refer to."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Set as AbstractSet
from typing import Any

from torch import Tensor

_MOST = 5_000
"""Objects that are looked at before the search gives up: what is that far away is no part of the module."""

_OPAQUE = (type, types.ModuleType, types.CodeType, types.FrameType, Tensor, str, bytes, int, float, complex, bool, type(None))


def leads_to(value: Any, wanted: AbstractSet[int]) -> bool:
    """Say whether an object with one of these identities can be reached from a value, through references of any kind.

    Classes, Python modules and the globals of functions are not entered: through them everything leads to everything.
    """
    seen: set[int] = set()
    waiting = [value]
    while waiting and len(seen) < _MOST:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if id(item) in wanted:
            return True
        waiting.extend(_referents(item))
    return False


def _referents(item: Any) -> list[Any]:
    if isinstance(item, _OPAQUE):
        return []
    if isinstance(item, types.FunctionType):
        return [item.__closure__, item.__defaults__, item.__kwdefaults__, item.__dict__]
    if isinstance(item, weakref.ref):
        return [item()]
    if isinstance(item, weakref.ProxyTypes):
        return [getattr(item, "__dict__", None)]  # that of the referent; it leads to its parts
    return gc.get_referents(item)
