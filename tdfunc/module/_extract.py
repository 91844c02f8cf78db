"""Out of a module: its parameters and buffers as trees that follow its sub-modules."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tdfunc._errors import BindError, describe
from tdfunc.core import TensorDict
from tdfunc.structure import Spec, Structure, empty

from ._unwrap import unwrap


def params_of(module: nn.Module, *, detach: bool = True) -> TensorDict:
    """Return the parameters of a module as a tree.

    Args:
        module: Any module. One that `torch.compile` wrapped gives the names of what is inside.
        detach: Give aliases that are leaves of no graph (what torch.func wants); False gives the Parameters themselves.

    Returns:
        A tree with batch size `()` whose nested keys are the names of sub-modules, without those that hold no
        parameter. A parameter reached under several names is one leaf with several paths (`td.ties`).

    Raises:
        BindError: If `module` is no module.

    Note:
        No value is copied: the leaves share storage with the module. Integer and frozen parameters are included.

    Example:
        >>> import torch, tdfunc
        >>> tdfunc.params_of(torch.nn.Linear(3, 2))
        TensorDict(batch_size=(),
          weight  (2, 3)  float32
          bias    (2,)    float32)
    """
    return _state(module, ("_parameters",), detach, "params_of")


def buffers_of(module: nn.Module) -> TensorDict:
    """Return the buffers of a module as a tree: of a bound one, the state after the calls so far.

    Args:
        module: Any module, bound or not.

    Returns:
        As `params_of`, for buffers, persistent or not. The leaves are fresh aliases, out of the autograd graph: a step
        that gets them and gives them back compiles once.

    Raises:
        BindError: If `module` is no module.

    Example:
        >>> import torch, tdfunc
        >>> sorted(tdfunc.buffers_of(torch.nn.BatchNorm1d(3)))
        ['num_batches_tracked', 'running_mean', 'running_var']
    """
    return _state(module, ("_buffers",), True, "buffers_of")


def state_of(module: nn.Module) -> TensorDict:
    """Return the parameters and buffers of a module as one tree.

    Args:
        module: Any module.

    Returns:
        As `params_of`, with the buffers after the parameters of each sub-module; detached aliases.

    Raises:
        BindError: If `module` is no module.

    Example:
        >>> import torch, tdfunc
        >>> tdfunc.state_of(torch.nn.BatchNorm1d(3)).numel()
        13
    """
    return _state(module, ("_parameters", "_buffers"), True, "state_of")


def _state(module: Any, kinds: tuple[str, ...], detach: bool, op: str) -> TensorDict:
    if not isinstance(module, nn.Module):
        raise BindError(describe(f"{op}: expected a module", got=type(module).__name__, fix=f"{op}(model)"))
    tensors: list[Tensor] = []
    structure = _collect(unwrap(module), kinds, tensors, set())
    first: dict[int, int] = {}
    groups: dict[int, list[int]] = {}
    for i, tensor in enumerate(tensors):
        at = first.setdefault(id(tensor), i)
        if at != i:
            groups.setdefault(at, [at]).append(i)
    if groups:
        structure, index = structure.tying(tuple([tuple(group) for group in groups.values()]))
        tensors = [tensors[i] for i in index]
    return TensorDict._rebuild(tuple([alias(tensor) for tensor in tensors] if detach else tensors), structure)


def _collect(module: nn.Module, kinds: tuple[str, ...], tensors: list[Tensor], above: set[int]) -> Structure:
    """Add the tensors of a module and its sub-modules to a list, and return their structure, ties aside."""
    names: list[str] = []
    specs: list[Spec] = []
    here = module.__dict__
    for kind in kinds:
        for name, tensor in here[kind].items():
            if tensor is not None:
                names.append(name)
                specs.append(tensor.dim())
                tensors.append(tensor)
    children = here["_modules"]
    if children:
        above = above | {id(module)}
        for name, child in children.items():
            if child is not None and id(child) not in above:  # a module that contains itself is listed once
                inner = _collect(unwrap(child), kinds, tensors, above)
                if inner.count():
                    names.append(name)
                    specs.append((inner, 0))
    structure = empty().compose(tuple(names), tuple(specs))
    assert structure is not None, "names of parameters and sub-modules are str"
    return structure


def alias(tensor: Tensor) -> Tensor:
    """Return a fresh tensor over the same storage, out of the autograd graph."""
    return tensor.detach()
