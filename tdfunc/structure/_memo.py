"""Memos of transitions: bounded, and forgotten together."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

Fn = TypeVar("Fn", bound=Callable[..., Any])
_memos: list[Any] = []


def memo(fn: Fn, *, most: int = 4096) -> Fn:
    """Keep the results of a pure function of hashable arguments, the latest ones."""
    kept = functools.lru_cache(maxsize=most)(fn)
    _memos.append(kept)
    return kept  # type: ignore[return-value]


def clear_caches() -> None:
    """Forget all memoised transitions; structures that nobody holds are then collected."""
    for kept in _memos:
        kept.cache_clear()
