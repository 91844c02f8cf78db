"""The trained ensemble as a file, and back."""

import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tdfunc import TensorDict, init_ensemble
from tdfunc._errors import StorageError, describe

from ._files import make_folder, replacing
from ._net import make_net

FORMAT = "tdfunc.demo/1"
SUFFIX = ".pt"
_MADE = "a file made with --save"


def check_target(path: Path) -> None:
    """Raise if a file could not be saved under a path, before there is anything to lose. Makes its folder.

    Raises:
        StorageError: If the name does not end in `.pt`, is that of a folder, or the folder cannot be written to.
    """
    _check_suffix("save", path, f"{path.stem}{SUFFIX}")
    if path.is_dir():
        raise StorageError(describe("save: expected the name of a file", got="a folder", at=path, fix=f"{path / 'ensemble'}{SUFFIX}"))
    make_folder(path.parent)


def save(path: Path, params: TensorDict, buffers: TensorDict, about: dict[str, Any]) -> None:
    """Write an ensemble with `torch.save`, whole or not at all; `about` says how it was trained."""
    with replacing(path) as part:
        torch.save({"format": FORMAT, "about": about, "params": params, "buffers": buffers}, part)


def load(path: Path) -> tuple[nn.Module, TensorDict, TensorDict]:
    """Read an ensemble; nothing in the file is run.

    Returns:
        The skeleton, the parameters and the buffers, as `init_ensemble` gives them.

    Raises:
        StorageError: If there is no such file, it holds no ensemble of this demo, or one of another network.
    """
    _check_suffix("load", path, _MADE)
    if not path.is_file():
        raise StorageError(describe("load: there is no such file", at=path, fix=_MADE))
    found = _read(path)
    params, buffers = found.get("params"), found.get("buffers")
    if found.get("format") != FORMAT or not isinstance(params, TensorDict) or not isinstance(buffers, TensorDict):
        raise StorageError(describe("load: the file holds no ensemble of this demo", at=path, expected=f"format {FORMAT!r}", fix=_MADE))
    net, *templates = init_ensemble(make_net, 1, seed=0)
    for tree, template in zip((params, buffers), templates, strict=True):
        _check(path, _facts(tree), _facts(template, params.batch_size[:1]))
    return net, params, buffers


def _check_suffix(op: str, path: Path, fix: str) -> None:
    if path.suffix != SUFFIX:
        raise StorageError(describe(f"{op}: the file of an ensemble is named otherwise", expected=f"*{SUFFIX}", got=path.name, fix=fix))


def _read(path: Path) -> dict[str, Any]:
    """Return the dict in a file, an empty one if it holds something else."""
    try:
        # torch would take older formats too, with warnings; this demo never wrote them.
        found: Any = torch.load(path, weights_only=True) if zipfile.is_zipfile(path) else None
    except Exception as error:
        raise StorageError(describe("load: the file is damaged, or holds more than tensors", at=path, got=type(error).__name__, fix=_MADE)) from error
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]


_Facts = dict[tuple[str, ...], tuple[tuple[int, ...], torch.dtype]]


def _facts(tree: TensorDict, members: tuple[int, ...] | None = None) -> _Facts:
    """Return the shape and dtype of each leaf, with another member dim if one is given."""
    leaves: dict[tuple[str, ...], Any] = dict(tree.items(include_nested=True, leaves_only=True))
    return {
        path: (tuple(leaf.shape) if members is None else (*members, *leaf.shape[1:]), leaf.dtype)
        for path, leaf in leaves.items()
        if isinstance(leaf, Tensor)
    }


def _check(path: Path, got: _Facts, expected: _Facts) -> None:
    for key in {**expected, **got}:
        if got.get(key) != expected.get(key):
            raise StorageError(
                describe(
                    "load: the file holds the ensemble of another network",
                    at=f"{path}, {'.'.join(key)}",
                    expected=expected.get(key, "no such leaf"),
                    got=got.get(key, "no such leaf"),
                    fix=_MADE,
                )
            )
