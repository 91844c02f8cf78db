"""Out of the container: into the types of Python and of other libraries, and onto the screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tdfunc.core import _convert, _html, _repr
from tdfunc.core._slots import Tree


class Out(Tree):
    """Conversions, which share the tensors wherever they can, and displays.

    No other library is imported before a conversion to it is called. The ways back are the constructor, `tdfunc.from_flat`,
    `tdfunc.from_tensordict` and the functions of `tdfunc.interop`, where dataclasses and tables are too.
    """

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return nested dicts of the leaves and static values."""
        return _convert.dense(self)

    def to_flat(self, sep: str = ".") -> dict[str, Any]:
        """Return one dict under joined key paths; a key that contains the separator is refused. `from_flat` is the inverse."""
        return _convert.flat(self, sep)

    def tolist(self) -> Any:
        """Return nested lists over the batch dims, of a dict for each row with its numbers and the static values.

        A node with more batch dims is a list in its row. Without batch dims it is one dict. `interop.from_list` is the
        inverse, but for what numbers of Python do not tell: dtypes, shapes of no elements, ties, and numbers that were static.

        Example:
            >>> import torch, tdfunc
            >>> tdfunc.TensorDict({"x": torch.arange(2), "s": "a"}, 2).tolist()
            [{'x': 0, 's': 'a'}, {'x': 1, 's': 'a'}]
        """
        return _convert.listed(self)

    def numpy(self) -> dict[str, Any]:
        """Return nested dicts of numpy arrays and static values.

        An array of a leaf on the CPU is a view: what is written to it shows in the tree. Leaves elsewhere are copied.
        Autograd does not follow. A tied leaf is one array. A dtype that numpy has not, such as bfloat16, is an error and no
        silent copy in another one. `TensorDict(arrays, batch_size)` is the way back.

        Example:
            >>> import torch, tdfunc
            >>> tdfunc.TensorDict(x=torch.arange(3), s="static").numpy()
            {'x': array([0, 1, 2]), 's': 'static'}
        """
        return _convert.dense(_convert.arrays(self, "numpy"))

    def to_namedtuple(self) -> Any:
        """Return nested namedtuples of the leaves and static values; every key must be an identifier.

        Trees with the same keys give the same classes, so the results are alike as pytrees. `interop.from_namedtuple` is
        the inverse.
        """
        return _convert.named(self)

    def to_tensordict(self) -> Any:
        """Return the `tensordict.TensorDict` with the same tensors; `tdfunc.from_tensordict` is the inverse.

        Nested batch sizes stay, static values become `NonTensorData`, and a tied leaf stands under all its paths. That
        library knows no ties: what changes one path there leaves the others. It runs in eager only.
        """
        return _convert.peer(self)

    def __repr__(self) -> str:
        return _repr.text(self)

    def _repr_html_(self) -> str:
        return _html.html(self)

    def __rich_repr__(self) -> Iterator[Any]:
        return _repr.rich_rows(self)

    def __treescope_repr__(self, path: str | None, subtree_renderer: Any) -> Any:
        return _html.treescope(self, path, subtree_renderer)
