"""Wrappers that torch puts around a module, and what is inside; the marks that sharding leaves on one."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from tdfunc.structure import KeyPath, Structure, Subtree

WRAPPED = "_orig_mod"
"""The name under which `torch.compile` keeps what it wraps."""

_REPLICATED = "module"
"""The name under which DataParallel and DistributedDataParallel keep what they wrap."""

_MANAGED = "__composable_api_state_key"
"""How the attributes begin in which `fully_shard` and its like keep their state of a module."""


def unwrap(module: nn.Module) -> nn.Module:
    """Return what `torch.compile`, DataParallel and DistributedDataParallel wrapped, or the module itself.

    Their names would have a prefix more; and a clone of a compiled module would still run the original, one of a
    DistributedDataParallel would reduce gradients that its parameters never get.
    """
    if not module.__dict__.get("_modules"):  # most have no sub-module: no more calls for them
        return module
    name = _prefix(module)
    return module if name is None else unwrap(module.__dict__["_modules"][name])


def prefixes(module: nn.Module) -> tuple[str, ...]:
    """Return the names that the wrappers around a module put before its own."""
    name = _prefix(module)
    return () if name is None else (name, *prefixes(module.__dict__["_modules"][name]))


def _prefix(module: nn.Module) -> str | None:
    parts: Any = module.__dict__.get("_modules")
    if not isinstance(parts, dict):  # TorchScript's, which wraps nothing
        return None
    if parts.get(WRAPPED) is not None:
        return WRAPPED
    return _REPLICATED if _REPLICATED in parts and isinstance(module, DataParallel | DistributedDataParallel) else None


def unprefixed(inner: nn.Module, leaves: tuple[Any, ...], structure: Structure) -> tuple[tuple[Any, ...], Structure]:
    """Return the part of a state for a wrapped module that is below the wrapper's name; all of it, if it has none."""
    entries = structure.entries()
    name = next(iter(entries), None)
    at = entries[name] if len(entries) == 1 and name in (WRAPPED, _REPLICATED) and name not in inner.__dict__["_modules"] else None
    if type(at) is not Subtree:
        return leaves, structure
    start, stop, picks, below, _ = at
    return unprefixed(inner, leaves[start:stop] if picks is None else tuple([leaves[i] for i in picks]), below)


def clean(module: nn.Module, key: str, *, own: bool = False) -> KeyPath:
    """Return the path of a dotted name without the names of wrappers.

    `own` names are those of the module's own `state_dict()`, which have them all. Others may have them or not, so there a
    sub-module that is called as the wrapper's own is taken for what is meant.
    """
    path: list[str] = []
    at: nn.Module | None = module
    for name in key.split("."):
        met = False
        if at is not None:
            at, met = _behind(at, name, own)
        if not met:
            path.append(name)
            at = None if at is None else at.__dict__["_modules"].get(name)
    return tuple(path)


def _behind(module: nn.Module, name: str, own: bool) -> tuple[nn.Module, bool]:
    """Return what is behind a module's wrappers, or behind the first that has a name, and whether one has it."""
    prefix = _prefix(module)
    if prefix is None:
        return module, False
    inner: nn.Module = module.__dict__["_modules"][prefix]
    if name == prefix and (own or name not in unwrap(inner).__dict__["_modules"]):
        return inner, True
    return _behind(inner, name, own)


def release(mine: dict[str, Any]) -> None:
    """Take out of a clone's attributes what `fully_shard` and its like left there: their state, and the hooks that use it.

    A bound module computes with the tensors that it was given; to gather and shard the original's is not its business.
    """
    managed = [name for name in mine if name.startswith(_MANAGED)]
    for name in managed:
        del mine[name]
    if managed:
        for hooks in [value for name, value in mine.items() if name.endswith("_hooks") and isinstance(value, dict)]:
            for key, hook in list(hooks.items()):
                if getattr(hook, "__module__", "").startswith("torch.distributed"):
                    del hooks[key]
