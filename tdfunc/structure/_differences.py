"""What two structures differ in: the part of `diff` that needs no tensors, and so works in a trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tdfunc._errors import show_path

from ._keys import KeyPath
from ._static import Static

if TYPE_CHECKING:
    from ._structure import Structure

_MOST = 10
Kind = Literal["removed", "added", "static", "ties"]


class Difference(NamedTuple):
    """One thing that one structure has and another has not, or has in another form."""

    kind: Kind
    path: KeyPath
    before: Any = None
    after: Any = None

    @property
    def of_leaf(self) -> bool:
        """Whether it is a leaf's path that only one of the two has."""
        return self.kind in ("removed", "added") and self.before is None and self.after is None

    def __str__(self) -> str:
        return in_words(*self)


def in_words(kind: str, path: KeyPath, before: Any, after: Any) -> str:
    """Return a change as a line of text; an end that is None goes without saying."""
    ends = (
        f" {before} became {after}" if before is not None and after is not None else "".join(f" {end}" for end in (before, after) if end is not None)
    )
    return f"{kind}: {show_path(path)}{ends}"


def differences(structure: Structure, other: Structure) -> tuple[Difference, ...]:
    """Return how the leaves, the ties and the static values of two structures differ, from the first to the second."""
    return (*_leaves(structure, other), *_statics(structure, other), *_ties(structure, other))


def distinction(structure: Structure, other: Structure) -> str:
    """Return in words how the leaves and the ties differ: what keeps an operation from meeting leaf with leaf."""
    lines = [str(difference) for difference in (*_leaves(structure, other), *_ties(structure, other))]
    return "; ".join(lines[:_MOST]) + (f"; and {len(lines) - _MOST} more" if len(lines) > _MOST else "")


def _leaves(structure: Structure, other: Structure) -> Iterator[Difference]:
    ours, theirs = dict(structure.slots()), dict(other.slots())
    for path in ours:
        if path not in theirs:
            yield Difference("removed", path)
    for path in theirs:
        if path not in ours:
            yield Difference("added", path)


def _statics(structure: Structure, other: Structure) -> Iterator[Difference]:
    ours, theirs = dict(structure.statics()), dict(other.statics())
    for path, value in ours.items():
        if path not in theirs:
            yield Difference("removed", path, before=f"static {value!r}")
        elif Static(value) != Static(theirs[path]):
            yield Difference("static", path, value, theirs[path])
    for path, value in theirs.items():
        if path not in ours:
            yield Difference("added", path, after=f"static {value!r}")


def _ties(structure: Structure, other: Structure) -> Iterator[Difference]:
    """Yield the groups of one structure that the other has not, among the paths that both have."""
    both = dict(structure.slots()).keys() & dict(other.slots()).keys()
    left, right = ({frozenset(group) & both for group in each.ties()} for each in (structure, other))
    for group in sorted(map(sorted, left ^ right)):
        if len(group) > 1:
            tied = frozenset(group) in left
            yield Difference("ties", group[0], *((tuple(group), ()) if tied else ((), tuple(group))))
