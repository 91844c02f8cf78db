"""Back into a module: the one function that writes to one, in place, all or nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tdfunc._errors import BindError, KeyPathError, TdfuncError, describe, nearest, show_path
from tdfunc.structure import KeyPath

from ._bind import as_state, together
from ._unwrap import unwrap


def load_into(module: nn.Module, state: Any, *, strict: bool = True) -> None:
    """Write a state into a module: values are copied into its own tensors.

    This changes `module`. The Parameters and buffers stay the objects that they are, with their `requires_grad`, dtype
    and device, so optimizers and ties go on. All is checked first: if anything is wrong, nothing is written.

    Args:
        module: The module to write to.
        state: A tree as `params_of`, `buffers_of` or `state_of` give it, or a mapping, nested or with dotted names.
        strict: Refuse a missing parameter. Buffers may always be missing. An unknown name is an error all the same.

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
    tree = as_state((state,), "load_into")
    slots, needed = _targets(unwrap(module))
    problems: list[tuple[type[TdfuncError], str]] = []
    pairs: dict[int, tuple[Tensor, Tensor, KeyPath]] = {}
    given: set[int] = set()
    for path, at in tree.structure.slots():
        _match(slots, pairs, path, tree._leaves[at], problems)
        given.add(id(slots.get(path)))
    for path, _ in tree.structure.statics():
        problems.append((KeyPathError, describe("load_into: a static value is no tensor", at=show_path(path), fix=f"state.exclude({path!r})")))
    if strict:
        problems += [(KeyPathError, _missing(path, slots[path])) for path in needed if id(slots[path]) not in given]
    if problems:
        raise problems[0][0](together("load_into", problems))
    with torch.no_grad():
        # Read all before the first write: the state may share storage with the module.
        values = [new.detach().to(old.device, old.dtype, copy=True) for old, new, _ in pairs.values()]
        for (old, _, _), value in zip(pairs.values(), values, strict=True):
            old.copy_(value)


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
                visit(unwrap(child), (*path, name), above | {id(child)})

    visit(module, (), frozenset({id(module)}))
    return slots, needed


def _match(
    slots: dict[KeyPath, Tensor],
    pairs: dict[int, tuple[Tensor, Tensor, KeyPath]],
    path: KeyPath,
    new: Tensor,
    problems: list[tuple[type[TdfuncError], str]],
) -> None:
    old = slots.get(path)
    if old is None:
        near = nearest(".".join(path), [".".join(known) for known in slots])
        problems.append((KeyPathError, describe(f"load_into: the module has no {show_path(path)}{near}", fix=f"state.exclude({path!r})")))
    elif old.shape != new.shape:
        problems.append(
            (
                BindError,
                describe("load_into: wrong shape", at=show_path(path), expected=tuple(old.shape), got=tuple(new.shape), fix="reshape it"),
            )
        )
    elif pairs.setdefault(id(old), (old, new, path))[1] is not new:
        problems.append(
            (
                BindError,
                describe(
                    "load_into: two tensors given for one tied parameter",
                    at=f"{show_path(path)} and {show_path(pairs[id(old)][2])}",
                    expected="one tensor for both paths",
                    fix="state.tie(path, path), or give one of the paths only",
                ),
            )
        )


def _missing(path: KeyPath, old: Tensor) -> str:
    return describe(
        "load_into: missing parameter",
        at=show_path(path),
        expected=f"a tensor of shape {tuple(old.shape)}",
        got="no entry",
        fix="give it, or load_into(..., strict=False) to keep the module's own",
    )
