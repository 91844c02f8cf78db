"""What a derivative is taken with respect to: the float leaves of some arguments, or of a part of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from tdfunc import ops
from tdfunc._errors import StructureError, describe
from tdfunc.core import TensorDict

from ._flat import Rebuild, flatten

Held = Callable[[Any], Any]


class Part(NamedTuple):
    """The leaves that are differentiated, and how arguments and results are made of such leaves."""

    floats: list[Tensor]
    fill: Callable[[list[Any]], list[Any]]
    """All arguments, with these leaves in the place of `floats`."""
    like: Callable[[list[Any], Held], Any]
    """What a result looks like: these leaves in the place of `floats`, `held(leaf)` for a tensor that is held constant."""


def part_of(args: tuple[Any, ...], argnums: int | tuple[int, ...], wrt: Any, op: str) -> Part:
    """Return what is differentiated.

    Args:
        args: The positional arguments of the function.
        argnums: Which of them, or several.
        wrt: Which leaves of these, as `TensorDict.filter` takes it; None for all.
        op: What the user called, for messages.

    Raises:
        StructureError: If an argument is not there, has no float leaf that is meant, or is no tree although `wrt` is given.
        KeyPathError: If a glob of `wrt` matches nothing.
    """
    wanted = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    found = [_argument(args, n, op) for n in wanted]
    leaves, rebuild = flatten(tuple(found))
    meant, narrow = _meant(found, wrt, op) if wrt is not None else ([True] * len(leaves), None)
    at = [i for i, leaf in enumerate(leaves) if meant[i] and is_float(leaf)]
    if leaves and not at:
        raise _nothing([leaf for leaf, hit in zip(leaves, meant, strict=True) if hit], wrt, op)

    def fill(floats: list[Any]) -> list[Any]:
        filled = list(leaves)
        for i, leaf in zip(at, floats, strict=True):
            filled[i] = leaf
        given = list(args)
        for n, target in zip(wanted, rebuild(filled), strict=True):
            given[n] = target
        return given

    def like(floats: list[Any], held: Held) -> Any:
        full: list[Any] = list(leaves)
        if len(at) < len(leaves):
            full = [held(leaf) if isinstance(leaf, Tensor) and hit else leaf for leaf, hit in zip(leaves, meant, strict=True)]
        for i, leaf in zip(at, floats, strict=True):
            full[i] = leaf
        made = rebuild(full) if narrow is None else narrow(full)
        return made[0] if isinstance(argnums, int) else made

    return Part([leaves[i] for i in at], fill, like)


def _meant(trees: list[Any], wrt: Any, op: str) -> tuple[list[bool], Rebuild]:
    """Return which leaves are meant, and the function that makes trees with only those."""
    meant: list[bool] = []
    parts: list[tuple[Any, list[int]]] = []
    for tree in trees:
        if type(tree) is not TensorDict:
            raise StructureError(
                describe(
                    f"{op}: wrt names leaves by their paths", expected="a TensorDict", got=type(tree).__name__, fix="TensorDict(...), or argnums"
                )
            )
        hits = ops.chosen(tree, wrt, op)
        structure, index = tree._structure.keeping(tuple([i for i, hit in enumerate(hits) if hit]), True)
        parts.append((structure, [len(meant) + i for i in index]))
        meant += hits
    return meant, lambda full: tuple([TensorDict._rebuild(tuple([full[i] for i in index]), structure) for structure, index in parts])


def _argument(args: tuple[Any, ...], n: int, op: str) -> Any:
    if not -len(args) <= n < len(args):
        raise StructureError(
            describe(f"{op}: argnums names no argument", expected=f"less than {len(args)}", got=n, fix="pass the argument by position")
        )
    return args[n]


def is_float(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def _nothing(leaves: list[Any], wrt: Any, op: str) -> StructureError:
    module = any(isinstance(leaf, nn.Module) for leaf in leaves)
    fix = "grad(fn)(params_of(module))" if module else "td.to(torch.float32), or another argnums" if wrt is None else "another wrt"
    return StructureError(
        describe(
            f"{op}: nothing to differentiate with respect to",
            expected="at least one float or complex leaf" + ("" if wrt is None else " that wrt names"),
            got=sorted({str(leaf.dtype) if isinstance(leaf, Tensor) else type(leaf).__name__ for leaf in leaves}),
            fix=fix,
        )
    )
