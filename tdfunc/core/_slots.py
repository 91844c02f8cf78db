"""How an immutable object comes to be: the slots of a TensorDict, filled once.

In eager an open object is filled by plain slot stores and then closed by its final class: a third of the time of
`object.__setattr__`, which is what Dynamo follows.
"""

from __future__ import annotations

from typing import Any, Self, TypeVar

from torch import Tensor

from tdfunc.structure import Structure, traced_as


class Slots:
    """The open form of a container: what its slots are, before `__setattr__` refuses."""

    __slots__ = ("_leaves", "_structure", "_views")

    _leaves: tuple[Tensor, ...]
    _structure: Structure
    _views: dict[Any, Any]
    """Children that were handed out already, in eager. Filled lazily, see `children`."""


class Tree(Slots):
    """What the methods build on: a container that can be made anew from leaves and a structure."""

    __slots__ = ()

    @classmethod
    def _rebuild(cls, leaves: tuple[Tensor, ...], structure: Structure) -> Self:
        return construct(cls, leaves, structure)


_NO_VIEWS: dict[Any, Any] = {}
_S = TypeVar("_S", bound=Slots)

_set_views = Slots.__dict__["_views"].__set__


def _traced_construct(cls: type[_S], leaves: tuple[Any, ...], structure: Structure) -> _S:
    made = object.__new__(cls)
    object.__setattr__(made, "_leaves", leaves)
    object.__setattr__(made, "_structure", structure)
    object.__setattr__(made, "_views", _NO_VIEWS)
    return made


@traced_as(_traced_construct)
def construct(cls: type[_S], leaves: tuple[Any, ...], structure: Structure) -> _S:
    """Return a container of a class with these leaves; checks nothing."""
    made: Any = Slots()
    made._leaves = leaves
    made._structure = structure
    made._views = _NO_VIEWS
    made.__class__ = cls
    return made


def _no_views(_tree: Slots) -> dict[Any, Any]:
    return {}


@traced_as(_no_views)
def views(tree: Slots) -> dict[Any, Any]:
    """Return the dict in which a tree keeps the children that it handed out.

    A container never changes, so a child may be made once. Under torch.compile nothing is kept: a slot that is full
    in one call and empty in the next would be a guard.
    """
    found = tree._views
    if found is _NO_VIEWS:
        found = {}
        _set_views(tree, found)
    return found
