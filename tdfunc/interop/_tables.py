"""What structured arrays and data frames have in common: columns, for which a tree must be nothing but leaves."""

from __future__ import annotations

from tdfunc._errors import StructureError, describe, show_path
from tdfunc.core import TensorDict


def refuse_statics(td: TensorDict, op: str) -> None:
    """Raise if a tree holds static values, which describe all rows and so have no place in a row."""
    paths = [path for path, _ in td.structure.statics()]
    if paths:
        raise StructureError(
            describe(
                f"{op}: static values have no place in a row",
                at="; ".join(map(show_path, paths)),
                expected="leaves only",
                fix=f"td.exclude({', '.join(map(repr, paths))})",
            )
        )
