"""What can be wrong with a state for a module, in words: shared by `bind` and `load_into`."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from tdfunc._errors import BindError, KeyPathError, TdfuncError, describe, nearest, show_path
from tdfunc.structure import KeyPath

Problem = tuple[type[TdfuncError], str]


def raise_all(op: str, problems: list[Problem]) -> None:
    """Raise one error for all problems, of the class of the first; do nothing if there is none."""
    if len(problems) == 1:
        raise problems[0][0](problems[0][1])
    if problems:
        raise problems[0][0](f"{op}: {len(problems)} problems\n" + "\n".join(f"- {text}" for _, text in problems))


def wrong_shape(op: str, path: KeyPath, expected: tuple[int, ...], got: tuple[int, ...]) -> Problem:
    """Describe a tensor of another shape than the module's."""
    stacked = len(got) > len(expected) and got[len(got) - len(expected) :] == expected
    fix = "a stacked state goes through ensemble(module), or vmap over bind" if stacked else f"reshape it, or {op} the module it belongs to"
    return BindError, describe(f"{op}: wrong shape", at=show_path(path), expected=expected, got=got, fix=fix)


def torn_tie(op: str, paths: Iterable[KeyPath]) -> Problem:
    """Describe different tensors given for what is one tensor in the module."""
    return BindError, describe(
        f"{op}: several tensors given for one tied parameter",
        at=" and ".join(map(show_path, paths)),
        expected="one tensor for all its paths",
        got="different ones",
        fix="state.tie(path, path), or give one of the paths only",
    )


def missing(op: str, path: KeyPath, shape: tuple[int, ...]) -> Problem:
    """Describe a parameter that was not given."""
    return KeyPathError, describe(
        f"{op}: missing parameter",
        at=show_path(path),
        expected=f"a tensor of shape {tuple(shape)}",
        got="no entry",
        fix=f"give it, or {op}(..., strict=False) to keep the module's own",
    )


def refuse_unready(op: str, module: nn.Module) -> None:
    """Raise if a module is of a kind that has no tensors to take or to replace: compiled to TorchScript, or not initialised."""
    scripted = [name for name, part in module.named_modules() if isinstance(part, torch.jit.ScriptModule)]
    if scripted:
        raise BindError(
            describe(
                f"{op}: a TorchScript module cannot be bound: its tensors are inside compiled code",
                at="; ".join(show_path(name.split(".") if name else ()) for name in scripted),
                expected="Python modules",
                got="ScriptModule",
                fix="use the module that was scripted; torch.compile it afterwards",
            )
        )
    waiting = [
        name
        for named in (module.named_parameters(), module.named_buffers())
        for name, tensor in named
        if isinstance(tensor, nn.UninitializedParameter | nn.UninitializedBuffer)
    ]
    if waiting:
        raise BindError(
            describe(
                f"{op}: parameters that are not initialised yet",
                at="; ".join(show_path(name.split(".")) for name in waiting),
                expected="tensors",
                got="uninitialised parameters of a lazy module",
                fix=f"call the module once with a batch of inputs, then {op}",
            )
        )


def unknown(op: str, path: KeyPath, kind: str, known: list[str]) -> Problem:
    """Describe an entry that the module has no place for; `known` are the names it has at that level."""
    shown = ", ".join(map(repr, known[:12])) + (", ..." if len(known) > 12 else "")
    wrapped = path[-1] in ("module", "_orig_mod") and kind == "a subtree"
    return KeyPathError, describe(
        f"{op}: the module has no {show_path(path)} that takes {kind}{nearest(path[-1], known)}",
        at=show_path(path[:-1]),
        expected=f"names among {shown}" if known else "no entry: there is nothing registered",
        got=repr(path[-1]),
        fix=f"state[{path!r}] is the state of what was wrapped" if wrapped else f"state.exclude({path!r}), or rename_key",
    )


def unknown_key(op: str, key: str, known: list[str]) -> Problem:
    """Describe a key of a state dict that the module's own has not."""
    return KeyPathError, describe(
        f"{op}: the module's state dict has no {key!r}{nearest(key, known)}",
        expected="keys among " + ", ".join(map(repr, known[:12])) + (", ..." if len(known) > 12 else ""),
        got=repr(key),
        fix=f"leave it out: {{k: v for k, v in state.items() if k != {key!r}}}",
    )


def no_state(op: str, state: object) -> TdfuncError:
    """Return the error for something that is no state at all."""
    if isinstance(state, nn.Module):
        what, expected, fix = "got a module where a state is meant", "a TensorDict", f"{op}(model, params_of(other))"
    else:
        what, expected, fix = "a state is a TensorDict or a mapping", None, f"{op}(model, params_of(model))"
    return BindError(describe(f"{op}: {what}", expected=expected, got=type(state).__name__, fix=fix))


def proxy(op: str, path: KeyPath) -> Problem:
    """Describe a weak proxy among the sub-modules, which does not tell what it stands for."""
    return BindError, describe(
        f"{op}: a weak proxy stands among the sub-modules",
        at=show_path(path),
        expected="a module",
        got="a weakref.proxy",
        fix="keep a weakref.ref, which bind follows",
    )
