"""How an immutable object comes to be: the slots of a TensorDict, filled once.

In eager an open object is filled by plain slot stores and then closed by its final class: a third of the time of
`object.__setattr__`. Dynamo follows the latter only, and takes the branch on `tracing()` for a constant.
"""

from __future__ import annotations

from typing import Any, TypeVar

from torch import Tensor

from tdfunc.structure import Structure, tracing


class Slots:
    """The open form of a container: what its slots are, before `__setattr__` refuses."""

    __slots__ = ("_leaves", "_structure", "_views")

    _leaves: tuple[Tensor, ...]
    _structure: Structure
    _views: dict[str, Any]
    """Children that were handed out already, in eager. Filled lazily, see `children`."""


_NO_VIEWS: dict[str, Any] = {}
_S = TypeVar("_S", bound=Slots)

_set_leaves = Slots.__dict__["_leaves"].__set__
_set_structure = Slots.__dict__["_structure"].__set__
_set_views = Slots.__dict__["_views"].__set__


def construct(cls: type[_S], leaves: tuple[Any, ...], structure: Structure) -> _S:
    """Return a container of a class with these leaves; checks nothing."""
    if tracing():
        made: Any = object.__new__(cls)
        object.__setattr__(made, "_leaves", leaves)
        object.__setattr__(made, "_structure", structure)
        object.__setattr__(made, "_views", _NO_VIEWS)
        return made
    made = Slots()
    made._leaves = leaves
    made._structure = structure
    made._views = _NO_VIEWS
    made.__class__ = cls
    return made


def fill(made: Slots, leaves: tuple[Any, ...], structure: Structure) -> None:
    """Fill the slots of a container inside its `__init__`."""
    if tracing():
        object.__setattr__(made, "_leaves", leaves)
        object.__setattr__(made, "_structure", structure)
        object.__setattr__(made, "_views", _NO_VIEWS)
    else:
        _set_leaves(made, leaves)
        _set_structure(made, structure)
        _set_views(made, _NO_VIEWS)


def views(tree: Slots) -> dict[str, Any]:
    """Return the dict in which a tree keeps the children that it handed out.

    A container never changes, so a child may be made once. Under torch.compile nothing is kept: a slot that is full
    in one call and empty in the next would be a guard.
    """
    if tracing():
        return {}
    found = tree._views
    if found is _NO_VIEWS:
        found = {}
        _set_views(tree, found)
    return found
