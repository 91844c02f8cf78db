"""A structure taken apart into plain mutable nodes, to be edited and folded back: what all rare transitions share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tdfunc._errors import StructureError, describe, show_path

from ._keys import KeyPath
from ._static import Static
from ._table import Subtree
from ._trie import empty

if TYPE_CHECKING:
    from ._structure import Structure


@dataclasses.dataclass(slots=True)
class Leaf:
    """A leaf of a draft: its event rank seen from its own node, and a label that tied leaves share."""

    rank: int
    label: int


@dataclasses.dataclass(slots=True)
class Branch:
    """A node of a draft."""

    extra: int
    items: dict[str, Leaf | Branch | Static]


def unfold(structure: Structure, labels: Sequence[int] | None = None) -> Branch:
    """Return a structure as a draft whose labels are the positions of the leaves, or those given for them."""
    labels = range(structure.leaf_count) if labels is None else labels
    ranks = structure.ranks()
    items: dict[str, Leaf | Branch | Static] = {}
    for name, entry in structure.entries().items():
        if type(entry) is int:
            items[name] = Leaf(ranks[entry], labels[entry])
        elif type(entry) is Subtree:
            inner = unfold(entry.structure, [labels[entry.leaf(i)] for i in range(entry.structure.leaf_count)])
            items[name] = Branch(entry.extra, inner.items)
        else:
            assert type(entry) is Static
            items[name] = entry
    return Branch(0, items)


def fold(draft: Branch, size: tuple[int, ...] = ()) -> tuple[Structure, tuple[int, ...]]:
    """Return the structure of a draft, and the label of each of its leaves.

    Args:
        draft: The tree of names; leaves with one label become one leaf with several paths.
        size: The batch size to hold if there is no leaf.

    Returns:
        The structure, and the labels in the order of its leaves.

    Raises:
        StructureError: If tied leaves differ in event rank.
    """
    structure, labels = _fold(draft, ())
    return structure.sized(size), labels


def _fold(draft: Branch, at: KeyPath) -> tuple[Structure, tuple[int, ...]]:
    structure = empty()
    seen: dict[int, tuple[int, int]] = {}  # label -> (position, event rank)
    for name, item in draft.items.items():
        if isinstance(item, Leaf):
            here = [(item.label, item.rank)]
            spec = item.rank
        elif isinstance(item, Branch):
            child, labels = _fold(item, (*at, name))
            extra = item.extra if labels else 0  # without a leaf it has its parent's batch size
            here = [(label, rank + extra) for label, rank in zip(labels, child.ranks(), strict=True)]
            spec = (child, extra)
        else:
            structure = structure.append(name, item)
            continue
        where = tuple(seen.get(label, (-1, 0))[0] for label, _ in here)
        for label, rank in here:
            if seen.setdefault(label, (len(seen), rank))[1] != rank:
                raise StructureError(
                    describe(
                        "tied leaves must have one event rank",
                        at=show_path((*at, name)),
                        expected=seen[label][1],
                        got=rank,
                        fix="give both paths the same number of batch dims",
                    )
                )
        structure = structure.append(name, spec, where if max(where, default=-1) >= 0 else None)
    return structure, tuple(seen)


def reach(draft: Branch, path: KeyPath) -> Branch | None:
    """Return the node that holds the last key of a path, making nodes on the way; None where the way meets a leaf."""
    for name in path[:-1]:
        node = draft.items.setdefault(name, Branch(0, {}))
        if not isinstance(node, Branch):
            return None
        draft = node
    return draft


def has_leaf(node: Branch) -> bool:
    """Say whether there is a leaf at or below a node."""
    return any(isinstance(item, Leaf) or (isinstance(item, Branch) and has_leaf(item)) for item in node.items.values())
