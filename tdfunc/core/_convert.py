"""Out of the container: nested dicts, and one flat dict."""

from __future__ import annotations

from typing import Any

from tdfunc._errors import KeyPathError, describe, show_path

from ._access import kept_children
from ._slots import Slots


def dense(tree: Any) -> dict[str, Any]:
    """Return nested dicts of the leaves and static values."""
    return {name: dense(value) if isinstance(value, Slots) else value for name, value in kept_children(tree).items()}


def flat(tree: Any, sep: str) -> dict[str, Any]:
    """Return one dict of the leaves and static values under joined key paths."""
    structure, leaves = tree._structure, tree._leaves
    entries = [(path, leaves[i]) for path, i in structure.slots()] + list(structure.statics())
    bad = [path for path, _ in entries if any(sep in name for name in path)]
    if bad:
        raise KeyPathError(
            describe(
                f"to_flat: a key contains the separator {sep!r}, so the joined keys could not be told apart",
                at="; ".join(map(show_path, bad)),
                expected=f"keys without {sep!r}",
                fix="to_flat(sep='/'), or another separator that no key contains",
            )
        )
    return {sep.join(path): value for path, value in entries}
