"""TensorDicts in a DataLoader: as samples, as batches, as the data set; in this process and in workers."""

from __future__ import annotations

import collections
import pickle
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, StackDataset, Subset, default_collate, random_split
from torch.utils.data._utils.collate import default_collate_fn_map
from torch.utils.data._utils.pin_memory import pin_memory

import tdfunc
from tdfunc import BatchSizeError, StructureError, TensorDict
from tdfunc.interop import Rows, collate, rows

# From Python 3.12 on, a fork beside the threads of torch is warned of; that is how a DataLoader makes workers on Linux.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


def sample(i):
    td = TensorDict({"x": torch.full((2,), float(i)), "n": {"i": torch.tensor(i)}, "more": TensorDict({"z": torch.ones(4, 5) * i}, 4), "s": "mode"})
    return td.set("w", torch.zeros(2)).tie("x", "w")


class Samples(Dataset):
    def __len__(self):
        return 7

    def __getitem__(self, i):
        return sample(i)


class Pairs(Samples):
    def __getitem__(self, i):
        return {"td": sample(i), "label": i}


class Batches(Samples):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return tdfunc.stack([sample(3 * i + k) for k in range(3)])


class Stream(IterableDataset):
    def __iter__(self):
        return map(sample, range(7))


def assert_batch(got, numbers):
    """Hold a batch against the stack of its samples, and against torch's stack of one leaf."""
    want = tdfunc.stack([sample(i) for i in numbers])
    assert type(got) is TensorDict
    assert got.structure is want.structure
    assert got.equal(want)
    assert got.batch_size == (len(numbers),)
    assert got["more"].batch_size == (len(numbers), 4)
    assert torch.equal(got["x"], torch.stack([torch.full((2,), float(i)) for i in numbers]))
    assert got.ties == ((("x",), ("w",)),)
    assert got["s"] == "mode"


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [Samples(), Stream()], ids=["map", "stream"])
def test_samples_are_stacked_with_batch_sizes_ties_and_static_values(dataset, workers):
    if isinstance(dataset, IterableDataset) and workers:
        workers = 1  # each worker would yield the whole stream
    batches = list(DataLoader(dataset, batch_size=3, collate_fn=collate, num_workers=workers))
    for batch, numbers in zip(batches, ([0, 1, 2], [3, 4, 5], [6]), strict=True):
        assert_batch(batch, numbers)


@pytest.mark.parametrize("workers", [0, 2])
def test_trees_inside_other_samples_are_stacked_and_the_rest_is_collated_as_torch_does(workers):
    first, _, last = DataLoader(Pairs(), batch_size=3, collate_fn=collate, num_workers=workers)
    assert list(first) == ["td", "label"]
    assert_batch(first["td"], [0, 1, 2])
    assert torch.equal(first["label"], default_collate([0, 1, 2]))
    assert_batch(last["td"], [6])


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_go_through_as_they_are(workers):
    batches = list(DataLoader(Batches(), batch_size=None, collate_fn=collate, num_workers=workers))
    assert_batch(batches[0], [0, 1, 2])
    assert_batch(batches[1], [3, 4, 5])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_tree_is_a_data_set_of_its_rows(workers):
    td = tdfunc.stack([sample(i) for i in range(7)])
    batches = list(DataLoader(rows(td), batch_size=3, collate_fn=collate, num_workers=workers))
    for batch, numbers in zip(batches, ([0, 1, 2], [3, 4, 5], [6]), strict=True):
        assert_batch(batch, numbers)


def test_workers_that_start_afresh_get_the_tree_by_pickle():
    td = tdfunc.stack([sample(i) for i in range(4)])
    loader = DataLoader(rows(td), batch_size=2, collate_fn=collate, num_workers=1, multiprocessing_context="spawn")
    for batch, numbers in zip(loader, ([0, 1], [2, 3]), strict=True):
        assert_batch(batch, numbers)


class Pair(NamedTuple):
    td: Any
    label: Any


def test_collate_of_anything_else_is_that_of_torch():
    others = [
        [torch.ones(2), torch.zeros(2)],
        [1, 2],
        [0.5, 1.5],
        ["a", "b"],
        [{"a": 1, "b": (2, "c")}, {"a": 3, "b": (4, "d")}],
        [[1, 2], [3, 4]],
        [collections.OrderedDict(a=1), collections.OrderedDict(a=2)],
    ]
    for batch in others:
        got, want = collate(batch), default_collate(batch)
        assert repr(got) == repr(want)
        assert type(got) is type(want)


def test_collate_reaches_into_tuples_lists_and_namedtuples():
    got = collate([(sample(i), [sample(i + 1), i], Pair(sample(i), str(i))) for i in range(2)])
    assert_batch(got[0], [0, 1])
    assert_batch(got[1][0], [1, 2])
    assert_batch(got[2].td, [0, 1])
    assert (got[1][1].tolist(), list(got[2].label)) == ([0, 1], ["0", "1"])


def test_collate_follows_what_a_user_taught_torch_and_teaches_torch_nothing(monkeypatch):
    monkeypatch.setitem(default_collate_fn_map, bytes, lambda batch, *, collate_fn_map: b"".join(batch))
    before = dict(default_collate_fn_map)
    assert collate([{"b": b"x", "td": sample(0)}, {"b": b"y", "td": sample(1)}])["b"] == b"xy"
    assert default_collate_fn_map == before


def test_samples_that_do_not_fit_are_refused():
    with pytest.raises(StructureError, match=r"stack: the members have different static values[\s\S]*member 1"):
        collate([sample(0), sample(1).set("s", "other")])
    with pytest.raises(BatchSizeError, match=r"stack: the members have different shapes[\s\S]*'x'"):
        collate([{"td": sample(0)}, {"td": sample(1).set("x", torch.zeros(3))}])


def test_without_collate_torch_rebuilds_a_tree_from_a_dict_and_loses_what_a_dict_has_not():
    plain = sample(0).exclude("s")
    got = default_collate([plain, plain])
    assert type(got) is TensorDict
    assert torch.equal(got["n", "i"], torch.tensor([0, 0]))
    assert (got.batch_size, got.ties) == ((), ())
    assert got.with_batch_size(2).batch_size == (2,)
    with pytest.raises(StructureError, match=r"can be no entry[\s\S]*at: 's'"):
        default_collate([sample(0), sample(1)])


# --- rows ------------------------------------------------------------------------------------------------------------


def tree():
    return TensorDict({"x": torch.arange(10).view(5, 2), "n": {"y": torch.arange(5)}, "s": "v"}, 5)


def test_rows_are_a_sequence():
    td = tree()
    seq = rows(td)
    assert len(seq) == 5
    assert seq[1].equal(td[1])
    assert seq[-1].equal(td[4])
    assert isinstance(seq[1:3], Rows)
    assert [row["n", "y"].item() for row in seq[1:4:2]] == [1, 3]
    assert [row["n", "y"].item() for row in seq] == [row["n", "y"].item() for row in reversed(seq)][::-1] == [0, 1, 2, 3, 4]
    assert all(row.batch_size == () and row["s"] == "v" for row in seq)
    assert repr(seq).startswith("Rows(TensorDict(batch_size=(5,)")


@pytest.mark.parametrize("index", [5, -6])
def test_there_is_no_row_out_of_range(index):
    with pytest.raises(IndexError):
        rows(tree())[index]


@pytest.mark.parametrize("index", ["x", (0, "x"), None, 1.0], ids=repr)
def test_rows_have_positions_and_no_keys(index):
    with pytest.raises(TypeError):
        rows(tree())[index]


def test_rows_picked_at_once_are_those_picked_one_by_one():
    td = tree()
    picked = rows(td).__getitems__([3, 0, 3])
    assert collate(picked).equal(td[[3, 0, 3]])
    assert [row["n", "y"].item() for row in picked] == [3, 0, 3]
    assert collate(list(picked)).equal(td[[3, 0, 3]])
    assert len(rows(td).__getitems__([])) == 0


def test_other_data_sets_take_rows():
    td = tree()
    subset = Subset(rows(td), [4, 2, 0])
    assert [batch["n", "y"].tolist() for batch in DataLoader(subset, batch_size=2, collate_fn=collate)] == [[4, 2], [0]]
    parts = random_split(rows(td), [3, 2], generator=torch.Generator().manual_seed(0))
    seen = [y for part in parts for batch in DataLoader(part, batch_size=2, collate_fn=collate) for y in batch["n", "y"].tolist()]
    assert sorted(seen) == [0, 1, 2, 3, 4]
    both = next(iter(DataLoader(ConcatDataset([rows(td), rows(td)]), batch_size=10, collate_fn=collate)))
    assert both["n", "y"].tolist() == [0, 1, 2, 3, 4] * 2
    stacked = next(iter(DataLoader(StackDataset(rows(td), torch.arange(5)), batch_size=3, collate_fn=collate)))
    assert (stacked[0]["n", "y"].tolist(), stacked[1].tolist()) == ([0, 1, 2], [0, 1, 2])


def test_shuffled_and_in_order_without_collate_of_ours_rows_are_still_samples():
    batch = next(iter(DataLoader(rows(tree()), batch_size=5, shuffle=True, collate_fn=tdfunc.stack)))
    assert sorted(batch["n", "y"].tolist()) == [0, 1, 2, 3, 4]
    assert batch.batch_size == (5,)


def test_rows_can_be_pickled_and_keep_more_batch_dims():
    td = TensorDict({"x": torch.zeros(2, 3, 4)}, (2, 3))
    again = pickle.loads(pickle.dumps(rows(td)))
    assert again[0].batch_size == (3,)
    assert again.tree.equal(td)


def test_a_tree_without_batch_dims_has_no_rows():
    with pytest.raises(BatchSizeError, match=r"rows: the tree has no batch dim[\s\S]*auto_batch_size"):
        rows(TensorDict(x=torch.zeros(3)))
    assert len(rows(TensorDict(x=torch.zeros(3)).auto_batch_size())) == 3


# --- pinned memory ---------------------------------------------------------------------------------------------------


def test_pinning_asks_the_tree_and_keeps_its_structure(monkeypatch):
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda leaf: pinned.append(leaf) or leaf.clone())
    td = tdfunc.stack([sample(0), sample(1)])
    got = pin_memory({"td": td, "label": 1})["td"]
    assert_batch(got, [0, 1])
    assert len(pinned) == 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="pinning needs an accelerator")
def test_a_loader_pins_the_leaves():
    for batch in DataLoader(Samples(), batch_size=7, collate_fn=collate, pin_memory=True):
        assert_batch(batch, list(range(7)))
        assert all(leaf.is_pinned() for leaf in batch.values(True, True))
