"""What a notebook shows of a tree: nested lists that open and close, plain HTML without script or style; or treescope."""

from __future__ import annotations

import importlib
from html import escape
from typing import Any

from tdfunc import ops
from tdfunc.structure import KeyPath

from ._access import children
from ._repr import Line, facts, shortened, shown
from ._slots import Slots

_MOST = 200


def html(tree: Any) -> str:
    """Return a tree as HTML: one `<details>` a node, one item a leaf or static value, at most 200 of them."""
    return _node(tree, tree, (), [_MOST])


def _node(root: Any, tree: Any, at: KeyPath, left: list[int]) -> str:
    """Return a node as HTML; `left` holds how many items may still be written."""
    size = f"batch_size={tuple(ops.batch_size(tree))}"
    head = f"<b>{escape(shown(at[-1:]))}</b> {size}" if at else f"<b>{type(tree).__name__}</b> {size}"
    entries = list(children(tree).items())
    items: list[str] = []
    for name, value in entries[: left[0]]:
        if not left[0]:
            break
        left[0] -= 1
        inner = _node(root, value, (*at, name), left) if isinstance(value, Slots) else _item(root, (*at, name), value)
        items.append(f"<li>{inner}</li>")
    if len(items) < len(entries):
        items.append(f"<li>... {len(entries) - len(items)} more</li>")
    return f"<details{'' if at else ' open'}><summary>{head}</summary><ul>{''.join(items)}</ul></details>"


def _item(root: Any, path: KeyPath, value: Any) -> str:
    return f"{escape(shown(path[-1:]))}: <code>{escape(_told(root, path, value))}</code>"


def _told(root: Any, path: KeyPath, value: Any) -> str:
    """Return what is told of a leaf or a static value of a tree."""
    where = root._structure.find(path)
    if type(where) is not int:
        return shortened(value)
    first = root._structure.paths()[where]
    return " ".join(facts(value)).rstrip() + ("" if path == first else f" = {shown(first)}")


def treescope(tree: Any, path: str | None, subtree_renderer: Any) -> Any:
    """Return a tree as treescope draws mappings, with the batch size as a comment.

    Leaves are told and not drawn: treescope 0.1.10 reads `Tensor.names`, which torch 2.13 has not.
    """
    repr_lib, parts = importlib.import_module("treescope.repr_lib"), importlib.import_module("treescope.rendering_parts")
    entries = {name: value if isinstance(value, Slots) else Line(_told(tree, (name,), value)) for name, value in children(tree).items()}

    def render(value: Any, path: str | None = None) -> Any:
        return parts.build_one_line_tree_node(parts.text(value.line), path) if isinstance(value, Line) else subtree_renderer(value, path=path)

    drawn = repr_lib.render_dictionary_wrapper(object_type=type(tree), wrapped_dict=entries, path=path, subtree_renderer=render)
    size = parts.comment_color(parts.text(f"  # batch_size={tuple(ops.batch_size(tree))}"))
    return parts.siblings_with_annotations(drawn, extra_annotations=[size])
