"""Keys moved between levels: flattened into joined names and back, sorted, or left without leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._draft import Branch, Leaf, fold, reach, unfold
from ._keys import KeyPath
from ._memo import memo
from ._static import Static

if TYPE_CHECKING:
    from ._structure import Structure

Items = dict[str, Leaf | Branch | Static]


@memo
def flattening(structure: Structure, sep: str) -> tuple[Structure, tuple[int, ...]]:
    """Return the structure with all entries at the root under joined names; a node without entries stays one."""
    items: Items = {}

    def visit(node: Branch, prefix: str, extra: int) -> None:
        for name, item in node.items.items():
            if isinstance(item, Branch) and item.items:
                visit(item, f"{prefix}{name}{sep}", extra + item.extra)
            else:
                if isinstance(item, Leaf):
                    item.rank += extra  # an event rank counts from the node that holds the leaf
                items[prefix + name] = item

    visit(unfold(structure), "", 0)
    return fold(Branch(0, items), structure.size)


@memo
def unflattening(structure: Structure, sep: str) -> tuple[Structure | None, Any]:
    """Return the structure with the names of the root taken apart; None and the path where two entries want one place."""
    draft = Branch(0, {})
    for name, item in unfold(structure).items.items():
        path: KeyPath = tuple(name.split(sep))
        node = reach(draft, path)
        old = node.items.get(path[-1]) if node is not None else None
        if node is None or (old is not None and not (isinstance(old, Branch) and isinstance(item, Branch))):
            return None, path
        if isinstance(old, Branch) and isinstance(item, Branch):
            both = old.items.keys() & item.items.keys()
            if both:
                return None, (*path, min(both))
            item.items = {**old.items, **item.items}
            item.extra = max(old.extra, item.extra)
        node.items[path[-1]] = item
    return fold(draft, structure.size)


@memo
def sorting(structure: Structure) -> tuple[Structure, tuple[int, ...]]:
    """Return the structure with the keys of each node in order."""

    def ordered(node: Branch) -> Branch:
        return Branch(node.extra, {name: ordered(item) if isinstance(item, Branch) else item for name, item in sorted(node.items.items())})

    return fold(ordered(unfold(structure)), structure.size)


@memo
def emptying(structure: Structure) -> Structure:
    """Return the structure without leaves: the nodes and the static values stay."""

    def bare(node: Branch) -> Branch:
        items: Items = {}
        for name, item in node.items.items():
            if isinstance(item, Branch):
                items[name] = bare(item)
            elif not isinstance(item, Leaf):
                items[name] = item
        return Branch(0, items)

    return fold(bare(unfold(structure)), structure.size)[0]


@memo
def pruning(structure: Structure) -> tuple[Structure, tuple[int, ...]]:
    """Return the structure without the nodes that hold nothing."""

    def kept(node: Branch) -> Branch:
        items: Items = {}
        for name, item in node.items.items():
            inner = kept(item) if isinstance(item, Branch) else item
            if not isinstance(inner, Branch) or inner.items:
                items[name] = inner
        return Branch(node.extra, items)

    return fold(kept(unfold(structure)), structure.size)
