"""States of optimizers out of torch.optim and back, by the names of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tdfunc import ops
from tdfunc._errors import StructureError, describe, show_path
from tdfunc.core import TensorDict
from tdfunc.module import params_of
from tdfunc.structure import KeyPath

from ._base import init_state

Group = dict[str, Any]


def _adams(group: Group) -> tuple[str, ...]:
    return ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group.get("amsgrad") else []))


def _rmsprop(group: Group) -> tuple[str, ...]:
    return ("square_avg", *(["grad_avg"] if group["centered"] else []), *(["momentum_buffer"] if group["momentum"] else []))


_MOMENTS: dict[type, Callable[[Group], tuple[str, ...]]] = {
    torch.optim.SGD: lambda group: ("momentum_buffer",) if group["momentum"] else (),
    torch.optim.Adam: _adams,
    torch.optim.AdamW: _adams,
    torch.optim.RAdam: _adams,
    torch.optim.Adamax: lambda _group: ("exp_avg", "exp_inf"),
    torch.optim.RMSprop: _rmsprop,
    torch.optim.Adagrad: lambda _group: ("sum",),
    torch.optim.Adadelta: lambda _group: ("square_avg", "acc_delta"),
}
"""The trees in the state of each rule, by the names that both have, from the options of a group."""


def from_torch(optimizer: torch.optim.Optimizer, params: TensorDict, module: nn.Module | None = None, *, step: int | None = None) -> TensorDict:
    """Return the state of an optimizer of torch, for the rule of the same name here.

    Args:
        optimizer: An SGD, Adam, AdamW, RAdam, Adamax, RMSprop, Adagrad or Adadelta of torch.
        params: The parameters, as `params_of` gives them, with paths for the names.
        module: Whose parameters the optimizer has: needed where it was built without names. It tells them by identity.
        step: The step count, where the optimizer keeps none, as SGD: what a schedule goes by. Default: 1 if it has taken a
            step with momentum, else 0.

    Returns:
        A state as `init` of the rule gives it, with values of its own: torch steps in place.

    Raises:
        StructureError: If the optimizer is of another kind, its parameters have no names, or they are not those of `params`;
            or if its parameters have taken different numbers of steps.

    Example:
        >>> import torch, tdfunc
        >>> model = torch.nn.Linear(2, 1)
        >>> theirs = torch.optim.Adam(model.named_parameters())
        >>> model(torch.ones(1, 2)).sum().backward()
        >>> theirs.step()
        >>> state = tdfunc.optim.from_torch(theirs, tdfunc.params_of(model))
        >>> state["step"], sorted(state["exp_avg"])
        (tensor(1), ['bias', 'weight'])
    """
    moments, named = _moments(optimizer, "from_torch"), _named(optimizer, module, "from_torch")
    states = [optimizer.state.get(tensor, {}) for tensor in _matched(params, named, "from_torch")]
    state = init_state(params, *moments)
    counts = {_count(kept, step) for kept in states}
    if len(counts) > 1:
        raise StructureError(
            describe(
                "from_torch: the parameters have taken different numbers of steps",
                expected="one step count",
                got=sorted(counts),
                fix="a state for each group, and optim.labelled",
            )
        )
    state = state.set("step", torch.full_like(state["step"], counts.pop() if counts else 0))
    for name in moments:
        leaves = [_value(kept.get(name), zeros) for kept, zeros in zip(states, state[name]._leaves, strict=True)]
        state = state.set(name, params._rebuild(tuple(leaves), params._structure))
    return state


def to_torch(state: TensorDict, optimizer: torch.optim.Optimizer, module: nn.Module | None = None) -> dict[str, Any]:
    """Return the state dict that an optimizer of torch goes on from: `optimizer.load_state_dict(to_torch(state, optimizer))`.

    Args:
        state: The state of the rule of the same name, of parameters that are not stacked.
        optimizer: Where it is to go, with its own options; it stays as it is.
        module: As in `from_torch`.

    Returns:
        A state dict with the optimizer's groups, and values of its own: `load_state_dict` keeps the tensors that it is given.

    Raises:
        StructureError: As in `from_torch`; and if the state has not the trees that the optimizer's options ask for.

    Example:
        >>> import torch, tdfunc
        >>> model = torch.nn.Linear(2, 1)
        >>> opt, params = tdfunc.optim.adam(), tdfunc.params_of(model)
        >>> params, state = opt.step(params, params, opt.init(params))
        >>> theirs = torch.optim.Adam(model.named_parameters())
        >>> theirs.load_state_dict(tdfunc.optim.to_torch(state, theirs))
        >>> theirs.state[model.weight]["step"]
        tensor(1.)
    """
    moments, named = _moments(optimizer, "to_torch"), _named(optimizer, module, "to_torch")
    if set(state) != {"step", *moments}:
        raise StructureError(
            describe(
                "to_torch: the state is not one of this optimizer",
                expected=f"{sorted(('step', *moments))}, by the options of {type(optimizer).__name__}",
                got=sorted(state),
                fix="the rule of the same name with the same options",
            )
        )
    step, given = state["step"], {}
    at = {id(tensor): i for i, tensor in enumerate(tensor for group in optimizer.param_groups for tensor in group["params"])}
    if moments:
        matched = _matched(state[moments[0]], named, "to_torch")
        columns = zip(*[ops.aligned(state[moments[0]], state[name], "to_torch")[: len(matched)] for name in moments], strict=True)
        for tensor, column in zip(matched, columns, strict=True):
            kept: dict[str, Any] = {} if isinstance(optimizer, torch.optim.SGD) else {"step": step.to("cpu", torch.float32, copy=True)}
            given[at[id(tensor)]] = kept | {name: leaf.detach().clone() for name, leaf in zip(moments, column, strict=True)}
    return {**optimizer.state_dict(), "state": given}


def _count(kept: dict[str, Any], step: int | None) -> int:
    """Return the number of steps of a parameter: the one it keeps, the one given, or whether it has taken any."""
    if "step" in kept:
        return int(kept["step"])
    return int(any(value is not None for value in kept.values())) if step is None else step


def _value(kept: Any, zeros: Tensor) -> Tensor:
    return zeros if kept is None else kept.detach().clone().reshape(zeros.shape)


def _moments(optimizer: torch.optim.Optimizer, op: str) -> tuple[str, ...]:
    """Return the names of the trees that an optimizer's state has; all its groups must agree."""
    found = _MOMENTS.get(type(optimizer))
    if found is None:
        known = ", ".join(sorted(cls.__name__ for cls in _MOMENTS))
        raise StructureError(describe(f"{op}: an optimizer of another kind", expected=known, got=type(optimizer).__name__, fix="one of these"))
    kinds = {found(group) for group in optimizer.param_groups}
    if len(kinds) > 1:
        raise StructureError(
            describe(
                f"{op}: groups whose options ask for different states",
                expected="one set of trees",
                got=sorted(kinds),
                fix="an optimizer for each group, and optim.labelled",
            )
        )
    return kinds.pop()


def _named(optimizer: torch.optim.Optimizer, module: nn.Module | None, op: str) -> dict[KeyPath, Tensor]:
    """Return the parameters of an optimizer by path."""
    tensors = {id(tensor): tensor for group in optimizer.param_groups for tensor in group["params"]}
    if module is not None:
        tree = params_of(module, detach=False)
        named = {path: tree._leaves[i] for path, i in tree.structure.slots() if id(tree._leaves[i]) in tensors}
        strangers = len(tensors) - len({id(tensor) for tensor in named.values()})
        if strangers:
            raise StructureError(
                describe(
                    f"{op}: parameters of the optimizer that are not in the module", got=f"{strangers} of {len(tensors)}", fix="the module it steps"
                )
            )
        return named
    if not all("param_names" in group for group in optimizer.param_groups):
        raise StructureError(
            describe(
                f"{op}: the optimizer does not know the names of its parameters, and their order may be any",
                expected="names, or the module",
                fix=f"{op}(..., module=model), or torch.optim.{type(optimizer).__name__}(model.named_parameters())",
            )
        )
    pairs = [pair for group in optimizer.param_groups for pair in zip(group["param_names"], group["params"], strict=True)]
    return {tuple(name.split(".")): tensor for name, tensor in pairs}


def _matched(tree: TensorDict, named: dict[KeyPath, Tensor], op: str) -> list[Tensor]:
    """Return, for each leaf of a tree, the parameter of one of its names."""
    paths: list[list[KeyPath]] = [[] for _ in tree._leaves]
    for path, i in tree._structure.slots():
        paths[i].append(path)
    found = [next((named[path] for path in each if path in named), None) for each in paths]
    known = {path for each in paths for path in each}
    wrong = [f"{show_path(each[0])}: not in the optimizer" for each, tensor in zip(paths, found, strict=True) if tensor is None]
    wrong += [f"{show_path(path)}: not in the tree" for path in named if path not in known]
    wrong += [
        f"{show_path(each[0])}: {tuple(leaf.shape)} for {tuple(tensor.shape)}"
        for each, leaf, tensor in zip(paths, tree._leaves, found, strict=True)
        if tensor is not None and leaf.shape != tensor.shape
    ]
    if wrong:
        raise StructureError(
            describe(
                f"{op}: the parameters are not those of the optimizer",
                at="; ".join(wrong),
                expected="the same names and shapes",
                fix="params_of(model) of the model that the optimizer steps; stacked members one by one",
            )
        )
    return [tensor for tensor in found if tensor is not None]
