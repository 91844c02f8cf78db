"""Pickle, `torch.save` and `torch.load(weights_only=True)`: the leaves, and the structure as a text.

A text, because what unpickles safely knows no class of the user's; to read it imports nothing and runs no code but the
`from_json` of types that `register_static` was given.
"""

from __future__ import annotations

from typing import Any

import torch

from tdfunc.structure import from_json, to_json


def reduce(tree: Any) -> tuple[Any, ...]:
    """Return what pickle needs to build a tree again."""
    return rebuild_tensordict, (list(tree._leaves), to_json(tree._structure))


def rebuild_tensordict(leaves: list[Any], structure: str) -> Any:
    """Return the tree that was pickled."""
    from ._tensordict import TensorDict

    return TensorDict._rebuild(tuple(leaves), from_json(structure))


torch.serialization.add_safe_globals([rebuild_tensordict])
