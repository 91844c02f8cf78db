"""The errors of tdfunc: a small hierarchy over Python's own exceptions."""

from __future__ import annotations

from collections.abc import Iterable


class TdfuncError(Exception):
    """Base of every error that tdfunc raises on purpose."""


class StructureError(TdfuncError, ValueError):
    """Trees do not have the structure that an operation needs."""


class KeyPathError(TdfuncError, KeyError):
    """A key path is unknown, malformed, or leads through a leaf."""

    def __str__(self) -> str:
        # KeyError prints the repr of its argument, which would hide the line breaks.
        return str(self.args[0]) if self.args else ""


class BatchSizeError(TdfuncError, ValueError):
    """A shape does not start with the batch size, or an index leaves the batch dims."""


class BindError(TdfuncError, ValueError):
    """A module and a state do not fit together."""


class ImmutableError(TdfuncError, TypeError):
    """Something tried to change a TensorDict in place."""


class StorageError(TdfuncError, ValueError):
    """A file does not hold what was expected."""


def describe(what: str, *, expected: object = None, got: object = None, at: object = None, fix: str = "") -> str:
    """Return an error message in the one form that all errors of tdfunc have.

    Args:
        what: What failed, as a sentence without a full stop.
        expected: What would have been right.
        got: What was there.
        at: The key path, or anything that says where.
        fix: One call or edit that mends it.

    Returns:
        The message, one fact a line.
    """
    lines = [what]
    lines += [f"  {name}: {value}" for name, value in (("at", at), ("expected", expected), ("got", got)) if value is not None]
    if fix:
        lines.append(f"  fix: {fix}")
    return "\n".join(lines)


def show_path(path: Iterable[str]) -> str:
    """Return a key path as the user would write it in an index: `'a'` or `'a', 'b'`."""
    return ", ".join(map(repr, path)) or "the root"


def nearest(name: str, names: Iterable[str]) -> str:
    """Return ` (did you mean ...?)` for the known names that look like `name`, or an empty string."""
    import difflib

    close = difflib.get_close_matches(name, list(names), n=3)
    return f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
