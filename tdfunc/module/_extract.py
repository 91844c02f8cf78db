"""Out of a module: its parameters and buffers as trees that follow its sub-modules."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tdfunc._errors import BindError, describe
from tdfunc.core import TensorDict
from tdfunc.structure import Spec, Structure, empty, traced_as

from . import _problems as problem
from ._state_dict import saved
from ._unwrap import unwrap


def params_of(module: nn.Module, *, detach: bool = True, use_state_dict: bool = False) -> TensorDict:
    """Return the parameters of a module as a tree.

    Args:
        module: Any module. One that `torch.compile` wrapped gives the names of what is inside.
        detach: Give aliases that are leaves of no graph (what torch.func wants); False gives the Parameters themselves.
        use_state_dict: Take the names and values of `module.state_dict()`, with its hooks, instead of the module's own. What
            is no buffer counts as a parameter.

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
    return _state(module, ("_parameters",), detach, use_state_dict, "params_of")


def buffers_of(module: nn.Module, *, use_state_dict: bool = False) -> TensorDict:
    """Return the buffers of a module as a tree: of a bound one, the state after the calls so far.

    Args:
        module: Any module, bound or not.
        use_state_dict: As for `params_of`: the persistent buffers and the extra state of `module.state_dict()`.

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
    return _state(module, ("_buffers",), True, use_state_dict, "buffers_of")


def state_of(module: nn.Module, *, use_state_dict: bool = False) -> TensorDict:
    """Return the parameters and buffers of a module as one tree.

    Args:
        module: Any module.
        use_state_dict: As for `params_of`: all of `module.state_dict()`.

    Returns:
        As `params_of`, with the buffers after the parameters of each sub-module; detached aliases.

    Raises:
        BindError: If `module` is no module.

    Example:
        >>> import torch, tdfunc
        >>> tdfunc.state_of(torch.nn.BatchNorm1d(3)).numel()
        13
    """
    return _state(module, ("_parameters", "_buffers"), True, use_state_dict, "state_of")


def _state(module: Any, kinds: tuple[str, ...], detach: bool, use_state_dict: bool, op: str) -> TensorDict:
    if not isinstance(module, nn.Module):
        raise BindError(describe(f"{op}: expected a module", got=type(module).__name__, fix=f"{op}(model)"))
    try:
        return _read(unwrap(module), kinds, detach, use_state_dict)
    except (AttributeError, LookupError, RuntimeError, ValueError):
        problem.refuse_unready(op, module)
        raise


def _read(module: nn.Module, kinds: tuple[str, ...], detach: bool, use_state_dict: bool) -> TensorDict:
    tensors: list[Tensor] = []
    if use_state_dict:
        tree = TensorDict(saved(module, params="_parameters" in kinds, buffers="_buffers" in kinds))
        tensors, structure = list(tree._leaves), tree._structure
        identities = [_identity(tensor, i) for i, tensor in enumerate(tensors)]
    else:
        structure = _collect(module, kinds, tensors, set())
        identities = [id(tensor) for tensor in tensors]
    first: dict[int, int] = {}
    groups: dict[int, list[int]] = {}
    for i, identity in enumerate(identities):
        at = first.setdefault(identity, i)
        if at != i:
            groups.setdefault(at, [at]).append(i)
    if groups:
        structure, index = structure.tying(tuple([tuple(group) for group in groups.values()]))
        tensors = [tensors[i] for i in index]
    return TensorDict._rebuild(tuple([alias(tensor) for tensor in tensors] if detach else tensors), structure)


def _traced_identity(tensor: Tensor, i: int) -> int:
    return id(tensor) if isinstance(tensor, nn.Parameter) else -1 - i  # what a hook computed has none in a trace


@traced_as(_traced_identity)
def _identity(tensor: Tensor, _i: int) -> int:
    """Return what tells an entry of a state dict from another."""
    return id(tensor)


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
    if not isinstance(children, dict):
        raise BindError("a TorchScript module")  # told with all that are
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
