"""TensorDict as a pytree of torch and of optree: flatten is `(leaves, structure)`, unflatten one constructor.

A `Layout` is a node without leaves, so that `torch.vmap` and the like hand it out as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import optree
import optree.registry
from torch.utils import _pytree

from tdfunc.ops import Layout
from tdfunc.structure import KeyPath, Structure, from_json, to_json

from ._slots import construct
from ._tensordict import TensorDict


class PathKey(_pytree.MappingKey[KeyPath, Any]):
    """The key of a leaf in torch's key paths: its whole path, since a TensorDict is flat to a pytree.

    A MappingKey, because torch.export takes no keys of other kinds.
    """

    @property
    def path(self) -> KeyPath:
        """The names from the root to the leaf."""
        return self.key

    def __str__(self) -> str:
        return "".join(f"[{name!r}]" for name in self.key)


def _flatten(tree: TensorDict) -> tuple[list[Any], Structure]:
    return list(tree._leaves), tree._structure


def _flatten_with_keys(tree: TensorDict) -> tuple[list[tuple[Any, Any]], Structure]:
    keys = [PathKey(path) for path in tree._structure.paths()]
    return list(zip(keys, tree._leaves, strict=True)), tree._structure


def _unflatten(leaves: Iterable[Any], structure: Structure) -> TensorDict:
    return construct(TensorDict, tuple(leaves), structure)


def _optree_flatten(tree: TensorDict) -> tuple[tuple[Any, ...], Structure, tuple[KeyPath, ...]]:
    return tree._leaves, tree._structure, tree._structure.paths()


def _optree_unflatten(structure: Structure, leaves: Iterable[Any]) -> TensorDict:
    return construct(TensorDict, tuple(leaves), structure)


def _flatten_layout(layout: Layout) -> tuple[list[Any], Layout]:
    return [], layout


def _flatten_layout_with_keys(layout: Layout) -> tuple[list[tuple[Any, Any]], Layout]:
    return [], layout


def _unflatten_layout(_leaves: Iterable[Any], layout: Layout) -> Layout:
    return layout


def _optree_flatten_layout(layout: Layout) -> tuple[tuple[Any, ...], Layout]:
    return (), layout


def _optree_unflatten_layout(layout: Layout, _leaves: Iterable[Any]) -> Layout:
    return layout


def _optree_namespace() -> Any:
    """Return optree's global namespace, for which optree 0.20 has no public name (it refuses the empty str).

    Without it, `optree.tree_map(f, td, namespace="tdfunc")` still works.
    """
    return getattr(optree.registry, "__GLOBAL_NAMESPACE", "tdfunc")


def _once(register: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Register a class unless it is, as after a reload of this module."""
    try:
        register(*args, **kwargs)
    except ValueError as error:
        if "already registered" not in str(error):
            raise


def register() -> None:
    """Register TensorDict and Layout with both pytree libraries; called at import."""
    _once(
        _pytree.register_pytree_node,
        TensorDict,
        _flatten,
        _unflatten,
        serialized_type_name="tdfunc.TensorDict",
        to_dumpable_context=to_json,
        from_dumpable_context=from_json,
        flatten_with_keys_fn=_flatten_with_keys,
    )
    _once(
        optree.register_pytree_node,
        TensorDict,
        _optree_flatten,
        _optree_unflatten,
        path_entry_type=optree.MappingEntry,
        namespace=_optree_namespace(),
    )
    _once(
        _pytree.register_pytree_node,
        Layout,
        _flatten_layout,
        _unflatten_layout,
        serialized_type_name="tdfunc.Layout",
        flatten_with_keys_fn=_flatten_layout_with_keys,
    )
    _once(optree.register_pytree_node, Layout, _optree_flatten_layout, _optree_unflatten_layout, namespace=_optree_namespace())


register()
