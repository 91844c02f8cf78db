"""Bound modules of classes that run in another form inside transforms, since torch's own does not run there."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from torch import nn

from tdfunc.ops import in_transform

from . import _recurrent, _statistics


class Forward(weakref.ref[nn.Module]):
    """What such a bound module has in the place of `forward`: torch's own outside of transforms, the other form inside.

    A weak reference, because an attribute that held its module would keep it alive.
    """

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = super().__call__()
        assert module is not None, "its module runs this"
        form = form_of(type(module))
        if form is None or not in_transform():
            return type(module).forward(module, *args, **kwargs)
        return form(module, *args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return Forward, (super().__call__(),)


def give_form(made: nn.Module, mine: dict[str, Any]) -> None:
    """Put one among the attributes of a clone, unless it has a `forward` there already; a normalisation needs it in transforms only."""
    if type(mine.get("forward")) is Forward:  # that of the bound module that is cloned
        del mine["forward"]
    if "forward" not in mine and (form_of(type(made)) not in _LIGHT or in_transform()):
        mine["forward"] = Forward(made)


@functools.cache
def form_of(cls: type[nn.Module]) -> Callable[..., Any] | None:
    """Return what runs a class of modules inside transforms; None for all whose `forward` is not one of torch's known ones."""
    return _FORMS.get(cls.forward)


_FORMS = {**_recurrent.FORMS, **_statistics.FORMS}
_LIGHT = frozenset(_statistics.FORMS.values())
"""Forms of modules so quick that one more call would show where no transform is."""
