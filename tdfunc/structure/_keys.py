"""Key paths: what a user may write for a key, and its one normal form."""

from __future__ import annotations

from typing import Any, TypeAlias

from tdfunc._errors import KeyPathError, describe

KeyPath: TypeAlias = "tuple[str, ...]"
"""The normal form of a key: a non-empty tuple of exact `str`."""


def as_key(name: object) -> str:
    """Return `name` as an exact `str`; a str-enum member becomes its value."""
    if type(name) is str:
        return name
    if isinstance(name, str):
        return str.__str__(name)
    raise KeyPathError(
        describe(
            "a key must be a str",
            expected="a str such as 'weight'",
            got=f"{name!r} of type {type(name).__name__}",
            fix=f"use {str(name)!r}",
        )
    )


def as_path(key: Any) -> KeyPath:
    """Return a key as a path.

    Args:
        key: A str, or a tuple of str and such tuples: `("a", ("b", "c"))` is `("a", "b", "c")`.
            A str is one key whatever it contains: `"a.b"` is not nested.

    Returns:
        A non-empty tuple of exact str.

    Raises:
        KeyPathError: For anything else.
    """
    if not isinstance(key, tuple):
        return (as_key(key),)
    path: list[str] = []
    for part in key:  # pyright: ignore[reportUnknownVariableType]
        if type(part) is tuple:  # pyright: ignore[reportUnknownArgumentType]
            path.extend(as_path(part))
        else:
            path.append(as_key(part))
    if not path:
        raise KeyPathError(describe("a key path must not be empty", expected="at least one key", got="()", fix="use the tree itself"))
    return tuple(path)


def is_path(key: object) -> bool:
    """Say whether `key` is written as a key path, and not as an index over batch dims."""
    if isinstance(key, str):
        return True
    return isinstance(key, tuple) and bool(key) and all(is_path(part) for part in key)  # pyright: ignore[reportUnknownVariableType]
