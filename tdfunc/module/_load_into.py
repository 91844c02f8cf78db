"""Back into a module: the one function that writes to one, in place, all or nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tdfunc._errors import BindError, describe
from tdfunc.core import TensorDict
from tdfunc.structure import KeyPath

from . import _problems as problem
from ._bind import as_state, bound_by_hooks
from ._state_dict import as_state_dict, load
from ._unwrap import prefixes, unprefixed, unwrap
from .follow import same


def load_into(module: nn.Module, state: Any, *, strict: bool = True, use_state_dict: bool = False) -> None:
    """Write a state into a module: values are copied into its own tensors.

    This changes `module`. The Parameters and buffers stay the objects that they are, with their `requires_grad`, dtype
    and device, so optimizers and ties go on. All is checked first: if anything is wrong, nothing is written.

    Args:
        module: The module to write to.
        state: A tree as `params_of`, `buffers_of` or `state_of` give it, or a mapping, nested or with dotted names.
        strict: Refuse a missing parameter. Buffers may always be missing. An unknown name is an error all the same.
        use_state_dict: The state is what `module.state_dict()` gives; `module.load_state_dict` writes it, with its hooks,
            once a bound clone has read it without an error.

    Raises:
        KeyPathError: If a name is unknown or a parameter missing.
        BindError: If a shape is wrong or two different tensors are given for one tied parameter.

    Example:
        >>> import torch, tdfunc
        >>> model = torch.nn.Linear(1, 1)
        >>> tdfunc.load_into(model, tdfunc.params_of(model).map(torch.zeros_like))
        >>> model.weight.item()
        0.0
    """
    if not isinstance(module, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BindError(describe("load_into: expected a module first", got=type(module).__name__, fix="load_into(model, params)"))
    problem.refuse_unready("load_into", module)
    if use_state_dict:
        _load_state_dict(module, state, strict=strict)
        return
    tree = as_state((state,), "load_into")
    original = unwrap(module)
    if original is not module:
        tree = TensorDict._rebuild(*unprefixed(original, tree._leaves, tree._structure))
    slots, needed = _targets(original)
    problems: list[problem.Problem] = []
    pairs: dict[int, tuple[Tensor, Tensor]] = {}
    given: set[int] = set()
    for path, at in tree.structure.slots():
        old, new = slots.get(path), tree._leaves[at]
        given.add(id(old))
        if old is None:
            problems.append(problem.unknown("load_into", path, "a tensor", _beside(path, slots)))
        elif old.shape != new.shape:
            problems.append(problem.wrong_shape("load_into", path, tuple(old.shape), tuple(new.shape)))
        elif not same(pairs.setdefault(id(old), (old, new))[1], new):
            problems.append(problem.torn_tie("load_into", [known for known, tensor in slots.items() if tensor is old]))
    problems += [problem.unknown("load_into", path, "a static value", _beside(path, slots)) for path, _ in tree.structure.statics()]
    if strict:
        problems += [problem.missing("load_into", path, tuple(slots[path].shape)) for path in needed if id(slots[path]) not in given]
    problem.raise_all("load_into", problems)
    with torch.no_grad():
        # Read all before the first write: the state may share storage with the module.
        values = [new.detach().to(old.device, old.dtype, copy=True) for old, new in pairs.values()]
        for (old, _), value in zip(pairs.values(), values, strict=True):
            old.copy_(value)


def _load_state_dict(module: nn.Module, state: Any, *, strict: bool) -> None:
    """Let torch write a state dict into a module, after it was read by a clone that may fail."""
    values = as_state_dict((state,), module, "load_into")
    module = unwrap(module)
    bound_by_hooks(module, values, strict, "load_into")
    with torch.no_grad():
        # Copied before the first write: the state may share storage with the module.
        load(module, {key: value.detach().clone() if isinstance(value, Tensor) else value for key, value in values.items()}, assign=False)


def _beside(path: KeyPath, slots: dict[KeyPath, Tensor]) -> list[str]:
    """Return the names that the module has where a path ends."""
    above = path[:-1]
    return sorted({known[len(above)] for known in slots if known[: len(above)] == above and len(known) > len(above)})


def _targets(module: nn.Module) -> tuple[dict[KeyPath, Tensor], list[KeyPath]]:
    """Return the tensors of a module by path, a shared one under all its paths, and the paths of the parameters."""
    slots: dict[KeyPath, Tensor] = {}
    needed: list[KeyPath] = []

    def visit(part: nn.Module, path: KeyPath, above: frozenset[int]) -> None:
        for kind in ("_parameters", "_buffers"):
            for name, tensor in part.__dict__[kind].items():
                if tensor is not None:
                    slots[(*path, name)] = tensor
                    if kind == "_parameters":
                        needed.append((*path, name))
        for name, child in part._modules.items():
            if child is not None and id(child) not in above:
                at = (*path, name)
                visit(unwrap(child), at, above | {id(child)})
                prefixed = (*at, *prefixes(child))
                if prefixed != at:
                    slots.update({(*prefixed, *known[len(at) :]): tensor for known, tensor in slots.items() if known[: len(at)] == at})

    visit(module, (), frozenset({id(module)}))
    return slots, needed
