"""Moves of batches by Lightning and Accelerate: with the libraries where they are installed, and restated where not."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import pytest
import torch

from tdfunc import TensorDict


def tree():
    td = TensorDict({"x": torch.zeros(3, 2), "n": {"y": torch.ones(3)}, "more": TensorDict({"z": torch.zeros(3, 4)}, (3, 4)), "s": "mode"}, 3)
    return td.set("w", torch.zeros(3, 2)).tie("x", "w")


def lightning_restated(batch, device):
    """What lightning 2.6 does: `move_data_to_device`, over `apply_to_collection`."""
    if hasattr(type(batch), "to"):
        kwargs = {"non_blocking": True} if isinstance(batch, torch.Tensor) and torch.device(device).type not in ("cpu", "mps") else {}
        return batch.to(torch.device(device), **kwargs)
    if isinstance(batch, Mapping):
        return type(batch)({key: lightning_restated(value, device) for key, value in batch.items()})
    return type(batch)(lightning_restated(item, device) for item in batch) if isinstance(batch, tuple | list) else batch


def accelerate_restated(batch, device):
    """What accelerate 1.15 does: `send_to_device`."""
    if hasattr(batch, "to"):
        return batch.to(device, non_blocking=False)
    if isinstance(batch, tuple | list):
        return type(batch)(accelerate_restated(item, device) for item in batch)
    return type(batch)({key: accelerate_restated(value, device) for key, value in batch.items()}) if isinstance(batch, Mapping) else batch


def of_library(name, path):
    def load():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of their imports, which are not what is tested
            pytest.importorskip(name)
            module, _, attribute = path.rpartition(".")
            return getattr(pytest.importorskip(module), attribute)

    return load


MOVES = {
    "lightning restated": lambda: lightning_restated,
    "accelerate restated": lambda: accelerate_restated,
    "lightning": of_library("lightning", "lightning.fabric.utilities.move_data_to_device"),
    "accelerate": of_library("accelerate", "accelerate.utils.send_to_device"),
}


@pytest.fixture(params=MOVES.values(), ids=list(MOVES))
def move(request):
    return request.param()


def assert_moved(got, td):
    assert type(got) is TensorDict
    assert got.structure is td.structure
    assert got.device == torch.device("meta")
    assert (got.batch_size, got["more"].batch_size, got.ties, got["s"]) == (td.batch_size, td["more"].batch_size, td.ties, "mode")
    assert got["x"].shape == td["x"].shape


@pytest.mark.parametrize("device", ["meta", torch.device("meta")], ids=repr)
def test_a_tree_moves_as_one_and_keeps_its_structure(move, device):
    td = tree()
    assert_moved(move(td, torch.device(device)), td)


def test_trees_move_inside_of_tuples_lists_and_dicts(move):
    td = tree()
    got = move((td, [td, torch.zeros(2)], {"td": td, "i": 1}), torch.device("meta"))
    assert_moved(got[0], td)
    assert_moved(got[1][0], td)
    assert_moved(got[2]["td"], td)
    assert (got[1][1].device.type, got[2]["i"]) == ("meta", 1)


def test_a_tree_that_is_there_already_shares_its_leaves(move):
    td = tree()
    got = move(td, torch.device("cpu"))
    assert got.structure is td.structure
    assert all(a is b for a, b in zip(got._leaves, td._leaves, strict=True))


def test_lightning_reads_the_batch_size_of_the_leaves():
    extract = of_library("lightning", "lightning.pytorch.utilities.data.extract_batch_size")()
    assert extract(tree().exclude("s")) == 3  # a str counts as a batch of one, of which Lightning warns


def test_accelerate_reads_the_batch_size_and_slices_but_rebuilds_from_dicts():
    find = of_library("accelerate", "accelerate.utils.operations.find_batch_size")()
    cut = of_library("accelerate", "accelerate.utils.operations.slice_tensors")()
    td = tree().exclude("s")
    assert find(td) == 3
    got = cut(td, slice(0, 2))
    assert torch.equal(got["n", "y"], td["n", "y"][:2])
    assert (got.batch_size, got.ties) == ((), ())  # a plain dict has neither; `with_batch_size(2)` gives it back
    assert got.with_batch_size(2).batch_size == (2,)
