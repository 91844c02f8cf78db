"""States as `module.state_dict()` gives them: through the hooks that modules have for saving and loading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from tdfunc._errors import BindError, describe, show_path
from tdfunc.core import TensorDict
from tdfunc.structure import KeyPath, is_static, static, traced_as

from . import _problems as problem
from ._unwrap import clean, unwrap

EXTRA = "_extra_state"
"""The name under which torch keeps what `get_extra_state` returns."""


def saved(module: nn.Module, *, params: bool, buffers: bool) -> dict[KeyPath, Any]:
    """Return the entries of a module's state dict by path, tensors not detached; what is no buffer counts as a parameter."""
    names = {name for name, _ in module.named_buffers(remove_duplicate=False)}
    known = list(module.buffers())
    found: dict[KeyPath, Any] = {}
    for key, value in module.state_dict(keep_vars=True).items():
        path = clean(module, key, own=True)
        of_buffers = path[-1] == EXTRA or key in names or any(value is buffer for buffer in known)
        if buffers if of_buffers else params:
            found[path] = _entry(value, path)
    return found


def _entry(value: Any, path: KeyPath) -> Any:
    """Return a value as an entry of a tree; numbers of an extra state stay numbers."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Mapping):
        inner: Any = value
        return {name: _entry(item, (*path, str(name))) for name, item in inner.items()}
    if isinstance(value, bool | int | float | complex) or is_static(value):
        return static(value)
    if hasattr(value, "__array__"):
        return value
    kind = type(value).__name__
    raise BindError(
        describe(
            "state_dict: an entry is neither a tensor nor a static value",
            at=show_path(path),
            expected="a tensor, an array, a number, a static value, or a dict of these",
            got=kind,
            fix="leave use_state_dict out" if kind in ("list", "tuple") else f"tdfunc.register_static({kind}, to_json, from_json)",
        )
    )


def as_state_dict(states: tuple[Any, ...], module: nn.Module, op: str) -> dict[str, Any]:
    """Return states for a module, nested or flat, as one state dict; of two that have a key, the later one counts."""
    flat: dict[str, Any] = {}
    for state in states:
        if not isinstance(state, Mapping):
            raise problem.no_state(op, state)
        flat.update({".".join(clean(module, key)): value for key, value in _flat(state, "")})
    return flat


def _flat(state: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in state.items():
        if str(key).endswith(EXTRA):
            yield f"{prefix}{key}", value.to_dict() if isinstance(value, TensorDict) else value
        elif isinstance(value, Mapping):
            inner: Any = value
            yield from _flat(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


class Keys(NamedTuple):
    """What a hook that runs after loading is given."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def _traced_read(_clone: nn.Module, _state_dict: dict[str, Any], op: str) -> tuple[TensorDict, list[problem.Problem]]:
    fix = "params = params_of(bind(module, state, use_state_dict=True)) before, and bind(module, params) in the compiled function"
    raise BindError(describe(f"{op}: use_state_dict runs the module's load hooks, which torch.compile does not trace", fix=fix))


@traced_as(_traced_read)
def read(clone: nn.Module, state_dict: dict[str, Any], op: str) -> tuple[TensorDict, list[problem.Problem]]:
    """Let a clone's load hooks read a state dict: return which tensor they took for which name, and what is wrong.

    As `load_state_dict(assign=True)` does, but a parameter stands among the buffers meanwhile: there a tensor is taken as it
    is, with its graph, where among parameters it would be wrapped in a new `nn.Parameter`. The clone's tensors stay its own;
    what else the hooks write, and the extra state, is the clone's from then on.
    """
    parts = list(clone.modules())
    own = [(part, part.__dict__["_parameters"], part.__dict__["_buffers"]) for part in parts]
    stands = [{name: None if tensor is None else tensor.detach() for name, tensor in (params | buffers).items()} for _, params, buffers in own]
    for part, stand in zip(parts, stands, strict=True):
        part.__dict__["_parameters"], part.__dict__["_buffers"] = {}, dict(stand)
        part.__dict__.pop("_load_from_state_dict", None)  # a bound module's own, which copies first
    taken: dict[int, dict[str, Tensor]] = {}
    try:
        keys, wrong = load(clone, state_dict, assign=True)
        for part, stand in zip(parts, stands, strict=True):
            now = part.__dict__["_buffers"].items()
            taken[id(part)] = {name: tensor for name, tensor in now if tensor is not None and tensor is not stand.get(name)}
    finally:
        for part, params, buffers in own:
            part.__dict__["_parameters"], part.__dict__["_buffers"] = params, buffers
    found: dict[KeyPath, Tensor] = {}
    for name, part in clone.named_modules(remove_duplicate=False):
        at = tuple(name.split(".")) if name else ()
        found |= {(*at, key): tensor for key, tensor in taken[id(part)].items()}
    problems: list[problem.Problem] = []
    for text in wrong:
        key = _named_in(text)
        if key != text and key in state_dict:
            found[tuple(key.split("."))] = state_dict[key]  # bind says what its shape should be
        else:
            problems.append((BindError, describe(f"{op}: {text}", fix="give what state_dict() of the module gives")))
    known = sorted(clone.state_dict(keep_vars=True)) if keys.unexpected_keys else []
    problems += [problem.unknown_key(op, key, known) for key in keys.unexpected_keys]
    return TensorDict(found), problems


def _named_in(text: str) -> str:
    """Return the key that torch's message about a wrong shape names."""
    return text.removeprefix("size mismatch for ").partition(":")[0]


def load(module: nn.Module, state_dict: dict[str, Any], *, assign: bool) -> tuple[Keys, list[str]]:
    """Run what a module and those below it have for loading: torch's `load_state_dict`, under the clean names.

    Returns:
        The keys that found no partner, and what torch says of those that do not fit.
    """
    keys = Keys([], [])
    wrong: list[str] = []

    def visit(part: nn.Module, state: dict[str, Any], prefix: str) -> None:
        metadata = {"version": part._version, "assign_to_params_buffers": assign}
        part._load_from_state_dict(state, prefix, metadata, True, *keys, wrong)
        for name, child in part._modules.items():
            if child is not None:
                below = f"{prefix}{name}."
                visit(unwrap(child), {key: value for key, value in state.items() if key.startswith(below)}, below)
        for hook in part._load_state_dict_post_hooks.values():
            hook(part, keys)

    visit(module, dict(state_dict), "")
    return keys, wrong
