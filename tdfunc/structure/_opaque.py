"""The one file that speaks to torch.compile.

A Structure is registered as a value-typed opaque object: to Dynamo it is a constant with an equality guard, and its
methods run at trace time, on the real object. So a whole structure costs one guard (equality of interned objects is
identity), and new structures may be made inside a trace, also inside vmap.

That registration is private torch API (`torch._library.opaque_object`, seen in torch 2.13). Where a torch release lacks
it, the methods are left out of graphs (`torch.compiler.disable`): compiled functions give the same results in several
graphs, and `fullgraph=True` says what is missing. tests/compile/test_fallback.py runs it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

try:
    from torch._library.opaque_object import MemberType, register_opaque_type
except ImportError:  # pragma: no cover - run in a subprocess by tests/compile/test_fallback.py
    MemberType = register_opaque_type = None  # type: ignore[assignment, misc]

Fn = TypeVar("Fn", bound=Callable[..., Any])


def register_value(cls: type, methods: tuple[str, ...]) -> None:
    """Let torch.compile treat instances as constants whose methods are called at trace time.

    Args:
        cls: A class with value equality, a hash and `__fx_repr__`.
        methods: Names of its pure methods; they take and give constants and instances of such classes.
    """
    if register_opaque_type is not None and MemberType is not None:
        register_opaque_type(cls, typ="value", members=dict.fromkeys(methods, MemberType.USE_REAL))
        return
    for name in methods:
        setattr(cls, name, torch.compiler.disable(getattr(cls, name), reason="torch has no opaque objects"))


def traced_as(in_graph: Callable[..., Any]) -> Callable[[Fn], Fn]:
    """Let torch.compile trace another function in the place of the decorated one, which runs in eager.

    For the few places where the quick way in eager is none that Dynamo follows: both do the same. Dynamo reads the name of
    the other function from an attribute (as it does for its own wrappers), so eager pays nothing; the public
    `torch.compiler.substitute_in_graph` would import all of Dynamo with tdfunc, and a look at
    `torch.compiler.is_dynamo_compiling`, the fallback, costs as much as a key look-up.
    """

    def mark(fn: Fn) -> Fn:
        if register_opaque_type is not None:
            fn._torchdynamo_inline = in_graph  # type: ignore[attr-defined]
            return fn

        @functools.wraps(fn)
        def either(*args: Any, **kwargs: Any) -> Any:
            return in_graph(*args, **kwargs) if torch.compiler.is_dynamo_compiling() else fn(*args, **kwargs)

        return either  # type: ignore[return-value]

    return mark


def constant(fn: Fn) -> Fn:
    """Let torch.compile call a function at trace time, on the real objects, and take its result for a constant.

    Modules among the arguments are guarded by identity. This is `torch.compiler.assume_constant_result` without the
    import of all of Dynamo, which takes longer than importing everything else of tdfunc together.
    """
    fn._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return fn


def _as_it_is(_fn: Callable[..., Any], call: Fn) -> Fn:
    return call


@traced_as(_as_it_is)
def named_after(fn: Callable[..., Any], call: Fn) -> Fn:
    """Return `call` with the name and the docstring of `fn`; in a trace, where nobody reads them, as it is."""
    return functools.update_wrapper(call, fn) if hasattr(fn, "__name__") else call  # type: ignore[return-value]


def whole(call: Fn) -> Fn:
    """Return a transform of functions so that torch.compile takes it whole or not at all.

    As it is where structures can be traced. Where not, the graph would break inside the transform, which torch 2.13 does
    not survive (the gradients of the pieces are lost): then all of it runs outside of graphs.
    """
    return call if register_opaque_type is not None else torch.compiler.disable(call)  # type: ignore[return-value]
