"""A module with other tensors: a structural clone, and nothing else in the world is changed."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from torch import Tensor, nn

from tdfunc import ops
from tdfunc._errors import BindError, describe
from tdfunc.core import TensorDict
from tdfunc.structure import KeyPath, Structure, Subtree, constant, empty, traced_as

from . import _problems as problem
from ._attributes import blank
from ._extract import state_of
from ._isolate import isolate_all
from ._memory import same
from ._place import Place, path_of
from ._references import Follow
from ._state_dict import as_state_dict, read
from ._unwrap import unprefixed, unwrap

M = TypeVar("M", bound=nn.Module)


def bind(module: M, *states: Any, strict: bool = True, use_state_dict: bool = False) -> M:
    """Return a module of the same class that uses the tensors of a state; `module` and the state stay as they are.

    The result is a structural clone: new module objects with new dicts of parameters, buffers and sub-modules, which
    share everything else. Nothing is swapped into the original, so there is nothing to restore: it is right in several
    threads, after exceptions, nested, and when activation checkpointing runs it again in the backward pass.

    Args:
        module: The template. May be on the meta device if the states give all tensors.
        *states: Trees of parameters and buffers as `params_of`, `buffers_of` and `state_of` give them; nested mappings,
            or flat ones with dotted names. Of two that have a name, the later one counts. Buffers that are not given come
            from the module. One path of a tied parameter sets all its paths.
        strict: Refuse a missing parameter; False takes it from the module. An unknown name is an error all the same.
        use_state_dict: The states are what `module.state_dict()` gives, and go through the module's load hooks, its
            `_load_from_state_dict` and `set_extra_state`, all of them on the clone. Not under torch.compile: there, bind what
            `state_of(bind(module, state, use_state_dict=True))` gave before.

    Returns:
        The bound module. Call it, any of its methods (`bound.generate(x)`) or sub-modules (`bound.encoder(x)`).
        Parameters are plain tensors in it. Buffers are its own: what a call writes is read by `buffers_of(bound)`, and
        never reaches `module` or the state.

    Raises:
        KeyPathError: If a name is unknown or a parameter missing.
        BindError: If a shape is wrong, values for tied names differ, or the arguments are of the wrong kind. All problems
            are listed; nothing was changed.

    Shapes:
        Each leaf has the shape of the tensor that it stands for; a stacked state goes through `vmap` or `ensemble`.

    Note:
        Gradients flow to the leaves. Traces under torch.compile(fullgraph=True), vmap, grad and their nestings.

    Example:
        >>> import torch, tdfunc
        >>> model = torch.nn.Linear(3, 2)
        >>> zeros = tdfunc.params_of(model).map(torch.zeros_like)
        >>> tdfunc.bind(model, zeros)(torch.ones(1, 3))
        tensor([[0., 0.]])
    """
    if not isinstance(module, nn.Module):
        raise BindError(describe("bind: expected a module first", got=type(module).__name__, fix="bind(model, params)"))
    original = unwrap(module)
    rehearse(original)
    if use_state_dict:
        return bound_by_hooks(original, as_state_dict(states, module, "bind"), strict, "bind")
    state = as_state(states, "bind")
    if original is not module:
        state = TensorDict._rebuild(*unprefixed(original, state._leaves, state._structure))
    return _bound(original, state, strict, "bind")


def bound_by_hooks(module: nn.Module, state_dict: dict[str, Any], strict: bool, op: str) -> Any:
    """Return the module bound to what its hooks make of a state dict; they run on a clone."""
    clone = _bound(module, TensorDict(), False, op)
    state, problems = read(clone, state_dict, op)
    return _bound(clone, state, strict, op, problems)


def _bound(module: nn.Module, state: TensorDict, strict: bool, op: str, problems: Iterable[problem.Problem] = ()) -> Any:
    """Return the module bound to a state, or raise for all that is wrong, with what was known to be wrong before."""
    binding = _Binding(strict, op)
    binding.problems.extend(problems)
    try:
        bound = binding.clone(module, state._leaves, state._structure, None)
        binding.finish(module)
    except (AttributeError, LookupError, RuntimeError, ValueError):
        problem.refuse_unready(op, module)
        raise
    return bound


def as_state(states: tuple[Any, ...], op: str) -> TensorDict:
    """Return the states as one tree."""
    if len(states) == 1 and type(states[0]) is TensorDict:
        return states[0]
    trees = [state if isinstance(state, TensorDict) else _from_mapping(state, op) for state in states]
    if not trees:
        return TensorDict()
    return trees[0] if len(trees) == 1 else ops.merge(*trees)


def _from_mapping(state: Any, op: str) -> TensorDict:
    if not isinstance(state, Mapping):
        raise problem.no_state(op, state)
    dotted: Any = state
    return TensorDict({tuple(key.split(".")) if isinstance(key, str) else key: value for key, value in dotted.items()})


@constant
def _rehearsed(module: nn.Module) -> tuple[str, ...]:
    try:
        bind(module, state_of(module))
    except BindError as error:
        return (str(error),)
    return ()


def _traced_rehearse(module: nn.Module) -> None:
    for text in _rehearsed(module):
        raise BindError(text)


@traced_as(_traced_rehearse)
def rehearse(module: nn.Module) -> None:
    """In a trace, bind the module once on the real objects: what cannot be followed is seen there only."""


def _paths(module: nn.Module, tensor: Tensor) -> list[KeyPath]:
    """Return all paths of a tensor of a module."""
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return [tuple([part for part in name.split(".") if part != "_orig_mod"]) for name, known in named if known is tensor]


_size = Tensor.size


class _Binding:
    """One call of `bind`: the clones made so far, what was given for which tensor, and what is wrong."""

    __slots__ = ("buffers", "clones", "follow", "missing", "new", "old", "op", "problems", "slots", "strict", "written")

    def __init__(self, strict: bool, op: str) -> None:
        self.strict = strict
        self.op = op
        self.clones: dict[int, nn.Module] = {}
        self.old: list[Tensor] = []  # the module's tensors,
        self.new: list[Tensor] = []  # and what was given for each
        self.buffers: list[tuple[dict[str, Any], str, Tensor | None]] = []  # each with the module's own
        self.written: list[Tensor] = []  # parameters of the module that its forward writes to
        self.missing: list[tuple[dict[str, Any], str, Tensor, Place]] = []
        self.follow: list[tuple[dict[str, Any], tuple[str, ...], Place]] = []
        self.slots: list[tuple[nn.Module, nn.Module, tuple[str, ...], Place]] = []
        self.problems: list[problem.Problem] = []

    def clone(self, module: nn.Module, leaves: tuple[Tensor, ...], structure: Structure, place: Place) -> nn.Module:
        """Return the clone of a module and all below it, with the leaves in place of its tensors."""
        made = self.clones.get(id(module))
        if made is not None:
            self.check_shared(module, leaves, structure, place)
            return made
        made, mine, names, slots = blank(module)
        self.clones[id(module)] = made
        if names:
            self.follow.append((mine, names, place))
        if slots:
            self.slots.append((made, module, slots, place))
        entries = structure.entries()
        used = 0
        bound: dict[str, Any] = {}
        params = mine["_parameters"]
        for name, old in params.items():
            at = entries.get(name)
            if type(at) is int and old is not None:  # a Linear without bias has a place for one, and takes none
                bound[name] = leaves[at]
                used += 1
            else:
                bound[name] = old
        if used == len(params):
            self.old += params.values()
            self.new += bound.values()
        else:
            self.some_parameters(params, bound, entries, place)
        mine["_parameters"] = bound
        if mine.get("max_norm") is not None and isinstance(module, nn.Embedding | nn.EmbeddingBag):
            self.written.append(params["weight"])
        if mine["_buffers"]:
            used += self.some_buffers(mine, leaves, entries)
        else:
            mine["_buffers"] = {}
        if mine["_modules"]:
            used += self.modules(mine, leaves, entries, place)
        else:
            mine["_modules"] = {}
        if used != len(entries):
            self.unknown(mine, structure, place)
        return made

    def some_parameters(self, params: dict[str, Any], bound: dict[str, Any], entries: dict[str, Any], place: Place) -> None:
        """Note which parameters of a module were given, and which were not."""
        for name, old in params.items():
            if old is None:
                continue
            if isinstance(old, nn.UninitializedParameter):
                raise BindError(f"{self.op}: {name} is not initialised")  # told with all that are not
            if type(entries.get(name)) is int:
                self.old.append(old)
                self.new.append(bound[name])
            else:
                self.missing.append((bound, name, old, (place, name)))

    def some_buffers(self, mine: dict[str, Any], leaves: tuple[Tensor, ...], entries: dict[str, Any]) -> int:
        """Put the given or the module's own buffers in place, to be copied at the end; return how many were given."""
        used = 0
        bound: dict[str, Any] = {}
        for name, old in mine["_buffers"].items():
            at = entries.get(name)
            new = old
            if type(at) is int:
                used += 1
                new = leaves[at]
                if old is not None:
                    self.old.append(old)
                    self.new.append(new)
            bound[name] = new
            if new is not None:
                self.buffers.append((bound, name, old))
        mine["_buffers"] = bound
        return used

    def modules(self, mine: dict[str, Any], leaves: tuple[Tensor, ...], entries: dict[str, Any], place: Place) -> int:
        """Put clones in the place of the sub-modules, and return how many of them had entries."""
        used = 0
        bound: dict[str, Any] = {}
        for name, child in mine["_modules"].items():
            if child is None:
                bound[name] = None
                continue
            if type(child) in weakref.ProxyTypes:
                self.problems.append(problem.proxy(self.op, (*path_of(place), name)))
                continue
            at = entries.get(name)
            if type(at) is Subtree:
                used += 1
                start, stop, picks, structure, _ = at
                inner = leaves[start:stop] if picks is None else tuple([leaves[i] for i in picks])
            else:
                inner, structure = (), empty()
            part = unwrap(child)
            if part is not child:
                inner, structure = unprefixed(part, inner, structure)
            bound[name] = self.clone(part, inner, structure, (place, name))
        mine["_modules"] = bound
        return used

    # --- after the walk -----------------------------------------------------------------------------------------

    def finish(self, module: nn.Module) -> None:
        """Fill what was not given, point stray references at the clones, and raise if anything is wrong."""
        if [*map(_size, self.new)] != [*map(_size, self.old)]:
            self.wrong_shapes(module)
        self.check_ties(module)
        given = self.given() if self.missing or self.follow or self.slots or self.written else {}
        for bound, name, old, place in self.missing:
            tied = given.get(id(old))
            if tied is not None:
                bound[name] = tied
            elif self.strict:
                self.problems.append(problem.missing(self.op, path_of(place), old))
        problem.raise_all(self.op, self.problems)
        if self.written:
            given |= self.copy_written()
        isolated = self.isolate() if self.buffers else {}
        if self.follow or self.slots:
            follow = Follow(module, self.clones, given, isolated)
            for mine, names, place in self.follow:
                for name in names:
                    mine[name] = follow.attribute(mine[name], (place, name))
            for made, theirs, names, place in self.slots:
                for name in names:
                    object.__setattr__(made, name, follow.attribute(getattr(theirs, name), (place, name)))
            follow.finish()

    def isolate(self) -> dict[int, Tensor]:
        """Put copies in the place of the buffers, one copy for a buffer that has several names, and return them by identity."""
        # By the identity of the module's tensor: that of the given one would be a guard, another at each step.
        keys = [-i if old is None else id(old) for i, (_, _, old) in enumerate(self.buffers, 1)]
        sources = {key: bound[name] for key, (bound, name, _) in zip(keys, self.buffers, strict=True)}
        copies = dict(zip(sources, isolate_all([*sources.values()]), strict=True))
        for key, (bound, name, _) in zip(keys, self.buffers, strict=True):
            bound[name] = copies[key]
        return copies

    def copy_written(self) -> dict[int, Tensor]:
        """Put copies in the place of the parameters that forward writes to, one for all names, and return them by identity."""
        copies: dict[int, Tensor] = {}
        for old, new in zip(self.old, self.new, strict=True):
            if any(old is written for written in self.written) and id(old) not in copies:
                copies[id(old)] = new.clone()
                for clone in self.clones.values():
                    params = clone.__dict__["_parameters"]
                    params.update({name: copies[id(old)] for name, param in params.items() if param is new})
        return copies

    def given(self) -> dict[int, Tensor]:
        """Return what was given for each tensor of the module, by identity."""
        return {id(old): new for old, new in zip(self.old, self.new, strict=True)}

    def wrong_shapes(self, module: nn.Module) -> None:
        """Note the tensors of another shape than the module's; a buffer that is not persistent is a cache, and may have grown."""
        caches = {id(part._buffers[name]) for part in module.modules() for name in part._non_persistent_buffers_set if name in part._buffers}
        for old, new in zip(self.old, self.new, strict=True):
            if old.shape != new.shape and id(old) not in caches:
                self.problems.append(problem.wrong_shape(self.op, _paths(module, old)[0], old, new))

    def check_ties(self, module: nn.Module) -> None:
        """Note a problem where one tensor of the module, reached under several names, was given several values."""
        if len({id(old) for old in self.old}) == len(self.old):
            return
        first: dict[int, Tensor] = {}
        for old, new in zip(self.old, self.new, strict=True):
            if not same(first.setdefault(id(old), new), new):
                self.problems.append(problem.torn_tie(self.op, _paths(module, old)))

    def check_shared(self, module: nn.Module, leaves: tuple[Tensor, ...], structure: Structure, place: Place) -> None:
        """Take note of what is given for a module that is reached a second time."""
        state = TensorDict._rebuild(leaves, structure)
        for name, value in state.items():
            old: Any = module.__dict__["_parameters"].get(name)
            if isinstance(value, Tensor) and old is not None:
                self.old.append(old)
                self.new.append(value)
            child: Any = module.__dict__["_modules"].get(name)
            if isinstance(value, TensorDict) and child is not None:
                self.check_shared(unwrap(child), *unprefixed(unwrap(child), value._leaves, value._structure), (place, name))

    def unknown(self, mine: dict[str, Any], structure: Structure, place: Place) -> None:
        """Note the entries that found no place in a module."""
        tensors = [*mine["_buffers"], *[name for name, param in mine["_parameters"].items() if param is not None]]
        modules = [name for name, child in mine["_modules"].items() if child is not None]
        for name, entry in structure.entries().items():
            kind, places = "a static value", []
            if type(entry) is int:
                kind, places = "a tensor", tensors
            elif type(entry) is Subtree:
                kind, places = "a subtree", modules
            if name not in places:
                self.problems.append(problem.unknown(self.op, (*path_of(place), name), kind, tensors + modules))
