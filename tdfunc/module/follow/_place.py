"""Where a walk through a module is, at the cost of a tuple a step: only an error makes a key path of it."""

from __future__ import annotations

from typing import Any

from tdfunc.structure import KeyPath

Place = tuple[Any, str] | None
"""The place of the parent, and a name; None at the root."""


def path_of(place: Place) -> KeyPath:
    """Return the key path of a place."""
    return () if place is None else (*path_of(place[0]), place[1])
