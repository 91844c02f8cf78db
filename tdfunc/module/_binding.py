"""The walk of `bind`: a module is cloned from the top down, what was given is put in place, and all that is wrong is told."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor, nn

from tdfunc._errors import BindError
from tdfunc.core import TensorDict
from tdfunc.structure import KeyPath, Structure, Subtree, empty

from . import _problems as problem
from ._unwrap import clean, unprefixed, unwrap
from .clone import Known, blank, identities, isolate_all, known, sizes
from .follow import Follow, Place, path_of, same


def _paths(module: nn.Module, identity: int) -> list[KeyPath]:
    """Return all paths of a tensor of a module."""
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return [clean(module, name, own=True) for name, tensor in named if id(tensor) == identity]


_size = Tensor.size


class Binding:
    """One call of `bind`: the clones made so far, what was given for which tensor, and what is wrong."""

    __slots__ = ("buffers", "clones", "follow", "lists", "missing", "new", "old", "op", "problems", "slots", "strict", "written")

    def __init__(self, strict: bool, op: str) -> None:
        self.strict = strict
        self.op = op
        self.clones: dict[int, nn.Module] = {}
        self.lists: dict[int, Any] = {}  # copies of lists of plain values
        self.old: list[Known] = []  # the module's tensors,
        self.new: list[Tensor] = []  # and what was given for each
        self.buffers: list[tuple[dict[str, Any], str, Known | None]] = []  # each with the module's own
        self.written: list[Known] = []  # parameters of the module that its forward writes to
        self.missing: list[tuple[dict[str, Any], str, Known, Place]] = []
        self.follow: list[tuple[dict[str, Any], tuple[str, ...], Place]] = []
        self.slots: list[tuple[nn.Module, nn.Module, tuple[str, ...], Place]] = []
        self.problems: list[problem.Problem] = []

    def clone(self, module: nn.Module, leaves: tuple[Tensor, ...], structure: Structure, place: Place) -> nn.Module:
        """Return the clone of a module and all below it, with the leaves in place of its tensors."""
        made = self.clones.get(id(module))
        if made is not None:
            self.check_shared(module, leaves, structure, place)
            return made
        made, mine, ours, names, slots = blank(module, self.lists)
        self.clones[id(module)] = made
        if names:
            self.follow.append((mine, names, place))
        if slots:
            self.slots.append((made, module, slots, place))
        entries = structure.entries()
        used = 0
        bound: dict[str, Any] = {}
        params = ours["_parameters"]
        for name, old in params.items():
            at = entries.get(name)
            if type(at) is int and old is not None:  # a Linear without bias has a place for one, and takes none
                bound[name] = leaves[at]
                used += 1
            else:
                bound[name] = mine["_parameters"][name]
        if used == len(params):
            self.old += params.values()
            self.new += bound.values()
        else:
            self.some_parameters(params, bound, entries, place)
        mine["_parameters"] = bound
        if mine.get("max_norm") is not None and isinstance(module, nn.Embedding | nn.EmbeddingBag):
            self.written.append(params["weight"])
        if mine["_buffers"]:
            used += self.some_buffers(ours["_buffers"], mine, leaves, entries)
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

    def some_buffers(self, buffers: dict[str, Any], mine: dict[str, Any], leaves: tuple[Tensor, ...], entries: dict[str, Any]) -> int:
        """Put the given or the module's own buffers in place, to be copied at the end; return how many were given."""
        used = 0
        bound: dict[str, Any] = {}
        for name, old in buffers.items():
            at = entries.get(name)
            new: Any = None
            if type(at) is not int:
                new = mine["_buffers"][name]
            else:
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
        if [*map(_size, self.new)] != sizes(self.old):
            self.wrong_shapes(module)
        self.check_ties(module)
        given = self.given() if self.missing or self.follow or self.slots or self.written else {}
        for bound, name, old, place in self.missing:
            tied: Tensor | None = given.get(identities([old])[0])
            if tied is not None:
                bound[name] = tied
            elif self.strict:
                self.problems.append(problem.missing(self.op, path_of(place), *sizes([old])))
        problem.raise_all(self.op, self.problems)
        if self.written:
            given |= self.copy_written()
        isolated = self.isolate() if self.buffers else {}
        if self.follow or self.slots:
            follow = Follow(module, self.clones, given, isolated, self.lists)
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
        known = iter(identities([old for _, _, old in self.buffers if old is not None]))
        keys = [-i if old is None else next(known) for i, (_, _, old) in enumerate(self.buffers, 1)]
        sources = {key: bound[name] for key, (bound, name, _) in zip(keys, self.buffers, strict=True)}
        copies = dict(zip(sources, isolate_all([*sources.values()]), strict=True))
        for key, (bound, name, _) in zip(keys, self.buffers, strict=True):
            bound[name] = copies[key]
        return copies

    def copy_written(self) -> dict[int, Tensor]:
        """Put copies in the place of the parameters that forward writes to, one for all names, and return them by identity."""
        copies: dict[int, Tensor] = {}
        written = identities(self.written)
        for old, new in zip(identities(self.old), self.new, strict=True):
            if old in written and old not in copies:
                copies[old] = new.clone()
                for clone in self.clones.values():
                    params = clone.__dict__["_parameters"]
                    params.update({name: copies[old] for name, param in params.items() if param is new})
        return copies

    def given(self) -> dict[int, Tensor]:
        """Return what was given for each tensor of the module, by identity."""
        return dict(zip(identities(self.old), self.new, strict=True))

    def wrong_shapes(self, module: nn.Module) -> None:
        """Note the tensors of another shape than the module's; a buffer that is not persistent is a cache, and may have grown."""
        caches = {id(part._buffers[name]) for part in module.modules() for name in part._non_persistent_buffers_set if name in part._buffers}
        for old, size, new in zip(identities(self.old), sizes(self.old), self.new, strict=True):
            if size != new.shape and old not in caches:
                self.problems.append(problem.wrong_shape(self.op, _paths(module, old)[0], tuple(size), tuple(new.shape)))

    def check_ties(self, module: nn.Module) -> None:
        """Note a problem where one tensor of the module, reached under several names, was given several values."""
        olds = identities(self.old)
        if len(set(olds)) == len(olds):
            return
        first: dict[int, Tensor] = {}
        for old, new in zip(olds, self.new, strict=True):
            if not same(first.setdefault(old, new), new):
                self.problems.append(problem.torn_tie(self.op, _paths(module, old)))

    def check_shared(self, module: nn.Module, leaves: tuple[Tensor, ...], structure: Structure, place: Place) -> None:
        """Take note of what is given for a module that is reached a second time."""
        state = TensorDict._rebuild(leaves, structure)
        for name, value in state.items():
            old = known(module)["_parameters"].get(name)
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
