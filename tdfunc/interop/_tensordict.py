"""Trees of the tensordict library; `td.to_tensordict()` is the way back."""

from __future__ import annotations

from typing import Any

from tdfunc import ops
from tdfunc._errors import StructureError, TdfuncError, describe, show_path
from tdfunc._typing import KeyPath
from tdfunc.core import TensorDict
from tdfunc.core._convert import imported, tie_shared
from tdfunc.structure import static


def from_tensordict(td: Any, /) -> TensorDict:
    """Build a tree from one of the tensordict library.

    Args:
        td: A `TensorDict`, tensorclass, `TensorDictParams` or lazy stack of that library.

    Returns:
        A tree over the same tensors, with the same batch sizes, nested ones too; tensors that are one and the same object
        are tied. `NonTensorData` becomes a static value, and so does a stack of equal ones. A lazy stack becomes a dense
        one, of copies. The names of dims, the device and the lock are left behind, for a TensorDict has none to store.

    Raises:
        StructureError: If it is no tree of tensordict, if rows have different non-tensor values or a value that cannot be
            static, or if the members of a lazy stack differ in keys or static values.
        BatchSizeError: If the members of a lazy stack differ in shapes.
        ImportError: If tensordict is not installed.

    Example:
        >>> import tensordict, torch, tdfunc  # doctest: +SKIP
        >>> tdfunc.from_tensordict(tensordict.TensorDict({"x": torch.ones(3, 2)}, batch_size=3))  # doctest: +SKIP
        TensorDict(batch_size=(3,),
          x  (3, 2)  float32)
    """
    tensordict = imported("tensordict", "from_tensordict")
    if not tensordict.is_tensor_collection(td) or tensordict.is_non_tensor(td):
        raise StructureError(
            describe(
                "from_tensordict: no tree of tensordict", expected="a tensordict.TensorDict", got=type(td).__name__, fix="tdfunc.TensorDict(mapping)"
            )
        )
    return tie_shared(_tree(tensordict, td, ()))


def _tree(tensordict: Any, td: Any, at: KeyPath) -> TensorDict:
    if isinstance(td, tensordict.LazyStackedTensorDict):
        return _stack(tensordict, td, at)
    entries: dict[str, Any] = {}
    for name, value in td.items():
        path = (*at, name)
        if tensordict.is_non_tensor(value):
            entries[name] = _static(tensordict, value, path)
        elif tensordict.is_tensor_collection(value):
            entries[name] = _tree(tensordict, value, path)
        elif isinstance(value, getattr(tensordict, "UnbatchedTensor", ())):
            raise StructureError(
                describe(
                    "from_tensordict: a tensor without batch dims",
                    at=show_path(path),
                    expected=f"a tensor whose shape starts with {tuple(td.batch_size)}",
                    got=type(value).__name__,
                    fix=f"td.exclude({path!r})",
                )
            )
        else:
            entries[name] = value
    return TensorDict(entries, tuple(td.batch_size))


def _stack(tensordict: Any, td: Any, at: KeyPath) -> TensorDict:
    """Return a lazy stack as a dense one: the keys that it shows are only those that all members have."""
    members = [_tree(tensordict, member, at) for member in td.tensordicts]
    try:
        return ops.stack(members, td.stack_dim)
    except TdfuncError as error:
        raise type(error)(f"from_tensordict: a lazy stack that no dense one can hold\n  at: {show_path(at)}\n{error}") from error


def _static(tensordict: Any, value: Any, at: KeyPath) -> Any:
    """Return a non-tensor value as a static one."""
    values = _values(tensordict, value)
    try:
        kept = list(dict.fromkeys([static(item) for item in values]))
    except StructureError as error:
        raise StructureError(f"from_tensordict: {error}\n  at: {show_path(at)}") from error
    if len(kept) != 1:
        raise StructureError(
            describe(
                "from_tensordict: rows with different non-tensor values",
                at=show_path(at),
                expected="one value, which describes the whole tree",
                got=f"{len(kept)} different ones, such as {', '.join(repr(item.get()) for item in kept[:3])}",
                fix=f"td.exclude({at!r}), or a tensor of codes in its place",
            )
        )
    return kept[0]


def _values(tensordict: Any, value: Any) -> list[Any]:
    """Return the values of all rows, or the one that stands for all of them."""
    if isinstance(value, tensordict.LazyStackedTensorDict):  # a NonTensorStack
        return [item for member in value.tensordicts for item in _values(tensordict, member)]
    return [value.data]
