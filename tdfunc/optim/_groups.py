"""Groups of parameters: an optimizer for some leaves, others for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from tdfunc import ops
from tdfunc._errors import StructureError, describe, nearest, show_path
from tdfunc.core import TensorDict
from tdfunc.structure import Structure

from ._base import Optimizer, count_of, init_state


def masked(opt: Optimizer, where: Any) -> Optimizer:
    """Let an optimizer step some leaves; the others stay as they are, bit for bit.

    Args:
        opt: The optimizer.
        where: Which leaves it steps: a key, a pattern such as `("**", "weight")`, several of these in a list, or a predicate
            of `(path, leaf)`. A tied leaf is meant if one of its paths is.

    Returns:
        An `Optimizer` whose state is that of `opt` for these leaves. Frozen leaves have no state and need no gradient: a
        tree of the trained leaves' gradients will do.

    Raises:
        KeyPathError: In `init` and `step`, if a pattern names nothing.

    Note:
        What stands inside sees only the trained leaves: `masked(chain(clip_by_global_norm(1.0), adamw()), where)` clips by
        their norm. A predicate is asked in each step, and inside `vmap` sees leaves without the mapped dims: go by the path.

    Example:
        >>> import torch, tdfunc
        >>> opt = tdfunc.optim.masked(tdfunc.optim.sgd(0.5), "head")
        >>> params = tdfunc.TensorDict(body=torch.ones(1), head=torch.ones(1))
        >>> opt.step(params, tdfunc.TensorDict(head=torch.ones(1)), opt.init(params))[0].to_dict()
        {'body': tensor([1.]), 'head': tensor([0.5000])}
    """

    def trained(params: Any) -> tuple[Structure, tuple[int, ...]]:
        return _kept(params, ops.chosen(params, where, "masked"))

    def init(params: TensorDict) -> TensorDict:
        _check_params(params)
        return opt.init(part(params, *trained(params)))

    def step(params: TensorDict, grads: TensorDict, state: TensorDict) -> tuple[TensorDict, TensorDict]:
        count_of(params, grads, state)
        structure, index = trained(params)
        after, state = opt.step(part(params, structure, index), _gradients(params, grads, structure, index), state)
        return _with(params, after, index), state

    return Optimizer(init, step)


Labels = Mapping[str, Any] | Callable[[tuple[str, ...], Tensor], str]
"""For each label which leaves it means; or a function of `(path, leaf)` that gives the label."""


def labelled(opts: Mapping[str, Optimizer | None], labels: Labels) -> Optimizer:
    """Let each of several optimizers step a group of leaves.

    Args:
        opts: An optimizer for each label; None freezes the group: its leaves stay as they are, bit for bit, have no state
            and need no gradient.
        labels: For each label a key, a pattern, several of these in a list, or a predicate of `(path, leaf)`; a leaf that
            several mean goes to the first. Or a function of `(path, leaf)` that gives the label.

    Returns:
        An `Optimizer` whose state has `step`, and the optimizers' states under `groups`, by label.

    Raises:
        StructureError: If a label has no optimizer, or there is none; in `init` and `step`, if a leaf has no label.
        KeyPathError: In `init` and `step`, if a pattern names nothing.

    Example:
        >>> import torch, tdfunc
        >>> from tdfunc import optim
        >>> opts = {"decayed": optim.adamw(1e-3), "rest": optim.adamw(1e-3, weight_decay=0.0)}
        >>> opt = optim.labelled(opts, {"decayed": ("**", "weight"), "rest": "**"})
        >>> state = opt.init(tdfunc.params_of(torch.nn.Linear(3, 2)))
        >>> sorted(state["groups", "decayed", "exp_avg"]), sorted(state["groups", "rest", "exp_avg"])
        (['weight'], ['bias'])
    """
    opts = dict(opts)
    _check_labels(opts, labels)

    def groups(params: TensorDict) -> list[tuple[str, Optimizer, Structure, tuple[int, ...]]]:
        given = _labels(params, labels, opts)
        return [(name, opt, *_kept(params, tuple([label == name for label in given]))) for name, opt in opts.items() if opt is not None]

    def init(params: TensorDict) -> TensorDict:
        _check_params(params)
        states = {name: opt.init(part(params, structure, index)) for name, opt, structure, index in groups(params)}
        return init_state(params).set("groups", TensorDict(states, batch_size=tuple(params.batch_size)))

    def step(params: TensorDict, grads: TensorDict, state: TensorDict) -> tuple[TensorDict, TensorDict]:
        count, new = count_of(params, grads, state), params
        for name, opt, structure, index in groups(params):
            given = _gradients(params, grads, structure, index)
            after, inner = opt.step(part(params, structure, index), given, state["groups", name])
            new, state = _with(new, after, index), state.set(("groups", name), inner)
        return new, state.set("step", count + 1)

    return Optimizer(init, step)


def part(tree: TensorDict, structure: Structure, index: tuple[int, ...]) -> TensorDict:
    """Return the tree of some leaves, given as `Structure.keeping` gives them."""
    if not index:
        structure = structure.sized(ops.held_size(tree.batch_size))
    return tree._rebuild(tuple([tree._leaves[i] for i in index]), structure)


def _kept(params: TensorDict, hits: tuple[bool, ...]) -> tuple[Structure, tuple[int, ...]]:
    return params._structure.keeping(tuple([i for i, hit in enumerate(hits) if hit]), False)


def _gradients(params: TensorDict, grads: TensorDict, structure: Structure, index: tuple[int, ...]) -> TensorDict:
    """Return the gradients of some leaves, out of a tree that may have more of them."""
    if grads._structure is structure:
        return grads
    if grads._structure is params._structure:
        return part(grads, structure, index)
    return part(grads, *_kept(grads, tuple([structure.find(path) is not None for path in grads._structure.paths()])))


def _with(params: TensorDict, after: TensorDict, index: tuple[int, ...]) -> TensorDict:
    """Return the parameters with some leaves replaced."""
    leaves = list(params._leaves)
    for i, leaf in zip(index, after._leaves, strict=True):
        leaves[i] = leaf
    return params._rebuild(tuple(leaves), params._structure)


def _labels(params: TensorDict, labels: Labels, opts: dict[str, Optimizer | None]) -> list[str]:
    """Return the label of each leaf."""
    paths = params._structure.paths()
    if callable(labels):
        given: list[Any] = [labels(path, leaf) for path, leaf in zip(paths, params._leaves, strict=True)]
    else:
        columns = [ops.chosen(params, where, "labelled") for where in labels.values()]
        given = [next((name for name, column in zip(labels, columns, strict=True) if column[i]), None) for i in range(len(paths))]
    if not all([label in opts for label in given]):  # noqa: C419 - Dynamo follows a list
        raise _no_label(paths, given, opts)
    return given


def _no_label(paths: tuple[tuple[str, ...], ...], given: list[Any], opts: dict[str, Optimizer | None]) -> StructureError:
    wrong = [(path, label) for path, label in zip(paths, given, strict=True) if label not in opts]
    return StructureError(
        describe(
            "labelled: a leaf has no label" if wrong[0][1] is None else "labelled: a label has no optimizer",
            at="; ".join(show_path(path) + ("" if label is None else f": {label!r}") for path, label in wrong),
            expected=f"one of {', '.join(map(repr, opts))}",
            fix="a last label for all that is left: {..., 'rest': '**'}; its optimizer may be None, which freezes it",
        )
    )


def _check_labels(opts: dict[str, Any], labels: Any) -> None:
    """Raise if an optimizer is none, or a label has none."""
    for name, opt in opts.items():
        if opt is not None and not isinstance(opt, Optimizer):
            raise StructureError(
                describe(
                    "labelled: not an optimizer", at=repr(name), expected="an Optimizer or None", got=type(opt).__name__, fix="{'all': sgd(0.1)}"
                )
            )
    if isinstance(labels, Mapping):
        unknown = [name for name in labels if name not in opts]
        if unknown:
            raise StructureError(
                describe(
                    f"labelled: a label has no optimizer{nearest(str(unknown[0]), opts)}",
                    at=", ".join(map(repr, unknown)),
                    expected=f"one of {', '.join(map(repr, opts))}",
                    fix="the same labels in both; None freezes a group",
                )
            )
    elif not callable(labels):
        raise StructureError(
            describe(
                "labelled: the labels are no mapping and no function",
                expected="{label: pattern or predicate}, or a function of (path, leaf)",
                got=type(labels).__name__,
                fix="{'decayed': ('**', 'weight'), 'rest': '**'}",
            )
        )


def _check_params(params: Any) -> None:
    if not isinstance(params, TensorDict):
        init_state(params)  # raises, with the words that all optimizers have
