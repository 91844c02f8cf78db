"""The container: a structure and its leaves. Everything else is a function in `ops`, called in one line."""

from __future__ import annotations

import copy
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, NoReturn, Self

from tdfunc import ops
from tdfunc._errors import ImmutableError, StructureError, describe
from tdfunc._typing import Key, Size
from tdfunc.ops import At
from tdfunc.structure import traced_as

from . import _access, _write
from ._build import TENSORS, make, quick_build
from ._pickle import reduce
from ._slots import construct
from ._torch_function import dispatch
from .methods import Arithmetic, Casts, Entries, Facts, Functions, Leaves, Out, Reductions, Shapes


class TensorDict(Facts, Entries, Leaves, Shapes, Functions, Arithmetic, Reductions, Casts, Out, Mapping[str, Any]):
    """An immutable tree of tensors under str keys, with a batch size that its leaves tell.

    A TensorDict is a structure (names, event ranks, ties, static values; static to torch.compile, one guard) and a flat
    tuple of leaves (tensors; what torch.func, autograd and pytrees see). It is a `collections.abc.Mapping`. No operation
    changes one: each gives a new TensorDict, which shares what stays the same.

    Args:
        source: A mapping, pairs of key and value, or a TensorDict. Nested mappings become subtrees; a tuple is a key
            path. Numbers and arrays become tensors; str, bytes, bool, None, dtypes, devices, sizes, enum members, frozen
            dataclasses and tuples of these become static values.
        batch_size: The leading shape that all leaves share, an int or a sequence. A nested TensorDict may have more
            batch dims. That of a TensorDict given as source is kept where none is given.
        **entries: More entries, by keyword.

    Raises:
        StructureError: If a value can be no entry.
        BatchSizeError: If a leaf's shape does not start with the batch size.
        KeyPathError: If a key is no str or tuple of str.

    Shapes:
        Each leaf is `(*batch, *event)`. Only the number of event dims is stored, per leaf: the batch size is derived,
        so it is right inside `torch.vmap`, and after any function of the leaves.

    Note:
        Leaves are the tensors given, not copies: gradients flow, and a tensor changed in place from outside shows.
        Under `torch.compile(fullgraph=True)` a fresh TensorDict of the same structure never recompiles. The order of
        insertion is part of the structure: the same keys in another order are another structure, one more compile.

    Example:
        >>> import torch, tdfunc
        >>> td = tdfunc.TensorDict({"x": torch.zeros(3, 4), "y": {"z": torch.ones(3)}}, batch_size=3)
        >>> td["y", "z"]
        tensor([1., 1., 1.])
        >>> (td + 1)[0].batch_size, td.set("w", torch.zeros(3, 2)).batch_size
        (torch.Size([]), torch.Size([3]))
    """

    __slots__ = ()

    @traced_as(make)
    def __new__(cls, /, source: Any = (), batch_size: Size = (), **entries: Any) -> Self:
        """Build the tree; see the class."""
        if type(source) is dict and not entries:
            flat = quick_build(source, batch_size)  # pyright: ignore[reportUnknownArgumentType]
            if flat is not None:
                return construct(cls, *flat)
        return make(cls, source, batch_size, **entries)

    # --- immutability ------------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise ImmutableError(_refusal(f"td.{name} = ...", "td.set(key, value)"))

    def __delattr__(self, name: str) -> NoReturn:
        raise ImmutableError(_refusal(f"del td.{name}", "td.exclude(key)"))

    def __setitem__(self, key: object, value: object) -> NoReturn:
        keys = isinstance(key, str) or (isinstance(key, tuple) and bool(key) and isinstance(key[0], str))  # pyright: ignore[reportUnknownMemberType]
        fix = f"td = td.set({key!r}, value)" if keys else "td = td.map(lambda leaf: ...), out of place"
        raise ImmutableError(_refusal("td[...] = value", fix))

    def __delitem__(self, key: object) -> NoReturn:
        raise ImmutableError(_refusal("del td[...]", f"td = td.exclude({key!r})"))

    def __bool__(self) -> NoReturn:
        raise StructureError(describe("the truth value of a TensorDict is ambiguous", fix="td.is_empty(), or a.equal(b)"))

    __array_ufunc__ = None  # numpy: an array on the left leaves the operation to the tree on the right

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._rebuild(tuple(copy.deepcopy(leaf, memo) for leaf in self._leaves), self._structure)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce(self)

    # --- reading -----------------------------------------------------------------------------------------------------

    # In eager, what stands in the tables is found at a glance; all else, and all of a trace, goes the general way.

    @traced_as(_access.getitem)
    def __getitem__(self, key: Any) -> Any:
        kind = type(key)
        if kind is str or kind is tuple:
            try:
                entry = self._structure._lookup[key]  # type: ignore[index]
                return self._leaves[entry] if type(entry) is int else self._views[key]
            except (KeyError, TypeError):  # not seen before, an index, or the table was released
                pass
        return _access.getitem(self, key)

    @traced_as(_access.get)
    def get(self, key: Key, default: Any = None) -> Any:
        """Return the entry under a key path, or the default."""
        try:
            entry = self._structure._lookup[key]  # type: ignore[index]
            return self._leaves[entry] if type(entry) is int else self._views[key]
        except (KeyError, TypeError):
            return _access.get(self, key, default)

    @traced_as(_access.contains)
    def __contains__(self, key: Any) -> bool:
        lookup = self._structure._lookup
        if lookup is not None and type(key) is str:
            return key in lookup
        try:
            return key in lookup or _access.contains(self, key)  # type: ignore[operator]
        except TypeError:
            return _access.contains(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._structure.entries())

    def __len__(self) -> int:
        return len(self._structure.entries())

    @traced_as(_access.keys)
    def keys(self, include_nested: bool = False, leaves_only: bool = False) -> KeysView[Any]:
        """Return the keys in order of insertion; with `include_nested` also the paths below, as tuples.

        `leaves_only` leaves out the subtrees themselves.
        """
        if not (include_nested or leaves_only):
            table = self._structure._table
            if table is not None:
                return table.entries.keys()
        return _access.keys(self, include_nested, leaves_only)

    @traced_as(_access.values)
    def values(self, include_nested: bool = False, leaves_only: bool = False) -> ValuesView[Any]:
        """Return the entries in order of insertion; see `keys`."""
        if not (include_nested or leaves_only):
            try:
                return self._views[None].values()
            except KeyError:
                pass
        return _access.values(self, include_nested, leaves_only)

    @traced_as(_access.items)
    def items(self, include_nested: bool = False, leaves_only: bool = False) -> ItemsView[Any, Any]:
        """Return the pairs of key and entry in order of insertion; see `keys`."""
        if not (include_nested or leaves_only):
            try:
                return self._views[None].items()
            except KeyError:
                pass
        return _access.items(self, include_nested, leaves_only)

    # --- entries -----------------------------------------------------------------------------------------------------

    @traced_as(_write.set_entry)
    def set(self, key: Key, value: Any) -> Self:
        """Return the tree with a value under a key path; missing subtrees are made. Sets all paths of a tie."""
        if type(value) in TENSORS:
            leaves, structure = self._leaves, self._structure
            try:
                at = structure._lookup.get(key)  # type: ignore[union-attr]
            except (AttributeError, TypeError):  # the table was released; no key
                return _write.set_entry(self, key, value)
            if at is None:
                if leaves:
                    shape, first = value.shape, leaves[0].shape
                    dims = len(first) - structure.rank
                    if dims == 0 or (dims > 0 and (shape == first or shape[:dims] == first[:dims])):
                        link = structure._links.get((key, len(shape) - dims, None))
                        grown = None if link is None else link()  # as it was grown before, if it is still there
                        if grown is not None:
                            return construct(type(self), leaves + (value,), grown)  # noqa: RUF005 - half the time of unpacking
            elif type(at) is int and value.shape == leaves[at].shape:
                return construct(type(self), leaves[:at] + (value,) + leaves[at + 1 :], structure)  # noqa: RUF005
        return _write.set_entry(self, key, value)

    @traced_as(_write.update)
    def update(self, other: Any = (), /, **entries: Any) -> Self:
        """Return the tree with all entries of another: subtrees merge, where a leaf meets a subtree `other` wins."""
        if type(other) is dict and not entries:
            made = _write.quick_update(self, other)  # pyright: ignore[reportUnknownArgumentType]
            if made is not None:
                return made
        return _write.update(self, other, **entries)

    def __or__(self, other: Any) -> Self:
        return _write.update(self, other) if isinstance(other, Mapping) else NotImplemented  # type: ignore[return-value]

    @property
    def at(self) -> At:
        """Rows to be written out of place: `td.at[index].set(value)`, `.add(value)`, `.mul(value)`, `.get()`.

        The index is one over batch dims, or a key path followed by one over that entry: `td.at["a", 0]`. The value is a
        tree with the same key paths, a tensor over the picked batch, or a number. Gradients flow to the tree and the value.
        """
        return At(self)

    # --- maps --------------------------------------------------------------------------------------------------------

    def map(self, fn: Callable[..., Any], *others: Any) -> Self:
        """Return the tree of `fn(leaf, *leaves of the others)`, others matched by key path.

        The batch dims stay as far as the results' leading dims still match (a raw `tree_map` keeps the event ranks).
        """
        return ops.tree_map(self, fn, *others)

    def map_with_path(self, fn: Callable[..., Any], *others: Any) -> Self:
        """Return the tree of `fn(path, leaf, *leaves of the others)`; a tied leaf is seen once, under its first path."""
        return ops.tree_map_with_path(self, fn, *others)

    def with_batch_size(self, size: Size) -> Self:
        """Return the tree with another batch size, over the same leaves."""
        return ops.with_batch_size(self, size)

    def auto_batch_size(self) -> Self:
        """Return the tree with the longest batch size that all shapes allow."""
        return ops.auto_batch_size(self)

    # --- comparing -----------------------------------------------------------------------------------------------------

    def equal(self, other: Any) -> bool:
        """Say whether the other has the same paths, ties, statics, shapes, dtypes and values, whatever the key order."""
        return ops.equal(self, other)

    def allclose(self, other: Any, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
        """Say whether the other has the same paths, ties, statics and shapes, and values within tolerance."""
        return ops.allclose(self, other, rtol=rtol, atol=atol, equal_nan=equal_nan)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})


def _refusal(what: str, fix: str) -> str:
    return describe(f"a TensorDict never changes: {what} is refused", expected="a pure form, which gives a new TensorDict", fix=fix)
