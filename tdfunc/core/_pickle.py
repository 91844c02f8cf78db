"""Pickle, `torch.save` and `torch.load(weights_only=True)`: the leaves and the structure as plain data."""

from __future__ import annotations

from typing import Any

import torch

from tdfunc.structure import from_spec


def reduce(tree: Any) -> tuple[Any, ...]:
    """Return what pickle needs to build a tree again."""
    return rebuild_tensordict, (list(tree._leaves), tree._structure.__reduce__()[1][0])


def rebuild_tensordict(leaves: list[Any], spec: tuple[Any, ...]) -> Any:
    """Return the tree that was pickled."""
    from ._tensordict import TensorDict

    return TensorDict._rebuild(tuple(leaves), from_spec(spec))


torch.serialization.add_safe_globals([rebuild_tensordict])
