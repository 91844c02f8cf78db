"""New leaves in the shapes of a tree: zeros, ones, one value, random ones; with its batch size or another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tdfunc._typing import Size, T

from ._batch import as_size, batch_dims, held_size
from ._foreach import each


def like(tree: T, fn: Callable[..., Tensor], op: str, *args: Any, **options: Any) -> T:
    """Return the tree of `fn(leaf, *args, **options)`, for one of torch's `*_like`; options that are None are left out."""
    given = {name: option for name, option in options.items() if option is not None}
    return tree._rebuild(each(tree, op, fn, tree._leaves, *args, **given), tree._structure)


def random_like(tree: T, fn: Callable[..., Tensor], op: str, generator: torch.Generator | None, **options: Any) -> T:
    """Return the tree of random leaves; with a generator by `torch.rand` or `torch.randn`, which take one."""
    if generator is None:
        return like(tree, getattr(torch, f"{op}"), op, **options)

    def drawn(leaf: Tensor) -> Tensor:
        given = {"dtype": leaf.dtype, "device": leaf.device} | {name: option for name, option in options.items() if option is not None}
        return fn(leaf.shape, generator=generator, **given)

    return tree._rebuild(each(tree, op, drawn, tree._leaves), tree._structure)


def new(tree: T, fn: Callable[..., Tensor], op: str, size: Size, *args: Any, **options: Any) -> T:
    """Return the tree of `fn((*size, *event), ...)` for each leaf: the event shapes under another batch size."""
    wanted, dims = as_size(size), batch_dims(tree)
    if not tree._leaves:
        return tree._rebuild((), tree._structure.sized(held_size(wanted)))
    given = {name: option for name, option in options.items() if option is not None}
    return tree._rebuild(each(tree, op, lambda leaf: fn(leaf, (*wanted, *leaf.shape[dims:]), *args, **given), tree._leaves), tree._structure)
