"""Indexing over 1 to 3 batch dims, against the same index on each leaf; past the batch dims it is refused."""

from __future__ import annotations

import itertools
import pathlib

import numpy as np
import pytest
import torch

from tdfunc import BatchSizeError, TensorDict

SIZE = (4, 3, 2)


def tree(dims):
    batch = SIZE[:dims]
    make = lambda *event: torch.arange(torch.Size((*batch, *event)).numel()).reshape((*batch, *event))
    inner = TensorDict({"d": make(7)}, (*batch, 7))
    return TensorDict({"a": make(), "b": {"c": make(5), "e": make(0, 2)}, "more": inner, "s": "x"}, batch)


MASK = torch.tensor([True, False, True, True])
ONE = {
    "int": 1,
    "negative int": -1,
    "slice": slice(1, 3),
    "step": slice(None, None, 2),
    "empty slice": slice(2, 2),
    "all": slice(None),
    "None": None,
    "Ellipsis": ...,
    "()": (),
    "mask": MASK,
    "mask of none": torch.zeros(4, dtype=torch.bool),
    "int tensor": torch.tensor([3, 0, 0]),
    "0-dim int tensor": torch.tensor(2),
    "2-dim int tensor": torch.tensor([[0, 1], [2, 3]]),
    "int32 tensor": torch.tensor([1, 2], dtype=torch.int32),
    "list": [2, 0],
    "list of lists": [[0, 1], [2, 3]],
    "list of bools": [True, False, True, True],
    "range": range(1, 4, 2),
    "empty list": [],
    "numpy ints": np.array([1, 1]),
    "numpy int": np.int64(2),
    "numpy bools": np.array([True, False, True, True]),
    "numpy 2-dim": np.array([[0], [3]]),
    "True": True,
    "False": False,
    "0-dim bool tensor": torch.tensor(True),
}
PAIRS = {
    "int, int": (1, 2),
    "slice, int": (slice(1, None), 0),
    "int, None": (1, None),
    "None, int": (None, 1),
    "Ellipsis, int": (..., 1),
    "int, Ellipsis": (1, ...),
    "Ellipsis, None": (..., None),
    "None, Ellipsis, slice": (None, ..., slice(1)),
    "tensor, tensor": (torch.tensor([0, 3]), torch.tensor([1, 1])),
    "tensor, int": (torch.tensor([0, 3]), 1),
    "int, tensor": (1, torch.tensor([0, 2])),
    "mask, int": (MASK, 0),
    "slice, mask": (slice(None), torch.tensor([True, False, True])),
    "mask of two dims": torch.tensor([[True, False, True]] * 3 + [[False] * 3]),
    "list, slice": ([1, 2], slice(1, 3)),
    "lists": ([1, 2], [0, 1]),
    "ranges": (range(2), range(2)),
    "broadcast": (torch.tensor([[0], [3]]), torch.tensor([0, 2])),
    "slice, slice": (slice(0, 2), slice(None, None, 2)),
    "Ellipsis, list": (..., [0, 1]),
    "True, int": (True, 1),
}
TRIPLES = {
    "ints": (1, 2, 0),
    "slices": (slice(1), slice(2), slice(1)),
    "int, Ellipsis, int": (1, ..., 1),
    "tensors apart": (torch.tensor([0, 1]), slice(None), torch.tensor([1, 0])),
    "int, slice, tensor": (0, slice(None), torch.tensor([1, 0])),
    "tensor, None, tensor": (torch.tensor([0, 1]), None, torch.tensor([1, 0])),
    "mask of three dims": torch.arange(24).reshape(SIZE) % 3 == 0,
    "Ellipsis, mask of two": (..., torch.tensor([[True, False]] * 3)),
    "slice, lists": (slice(None), [0, 2], [1, 1]),
    "None, None, list": (None, None, [0, 1]),
    "Ellipsis alone": (...,),
}
CASES = [
    *((dims, *case) for case, dims in itertools.product(ONE.items(), (1, 2, 3))),
    *((dims, *case) for case, dims in itertools.product(PAIRS.items(), (2, 3))),
    *((3, *case) for case in TRIPLES.items()),
]


def to_torch(part):
    return (
        torch.tensor(list(part), dtype=None if len(part) else torch.long)
        if isinstance(part, list | range)
        else torch.as_tensor(part)
        if isinstance(part, np.ndarray | np.generic)
        else part
    )


def oracle(leaf, index, dims):
    """Index each batch position: what the index does to the positions is what it does to the leaf."""
    batch = leaf.shape[:dims]
    where = torch.arange(batch.numel()).reshape(batch)
    index = tuple(map(to_torch, index)) if isinstance(index, tuple) else to_torch(index)
    picked = where[index]
    return leaf.reshape(batch.numel(), *leaf.shape[dims:])[picked]


@pytest.mark.parametrize(("dims", "name", "index"), CASES, ids=[f"{dims} dims-{name}" for dims, name, _ in CASES])
def test_an_index_does_to_each_leaf_what_it_does_to_the_positions(dims, name, index):
    td = tree(dims)
    got = td[index]
    for path, leaf in td.to_flat().items():
        if isinstance(leaf, torch.Tensor):
            assert torch.equal(got[tuple(path.split("."))], oracle(leaf, index, dims)), path
    want = oracle(td["a"], index, dims).shape
    assert got.batch_size == got["b"].batch_size == want
    assert got["more"].batch_size == (*want, 7)
    assert got.structure is td.structure
    assert got["s"] == "x"


@pytest.mark.parametrize("index", [1, slice(1, 3), None, ..., (slice(1, 2), None)], ids=str)
def test_basic_indices_give_views(index):
    td = tree(2)
    assert all(a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for a, b in zip(td[index]._leaves, td._leaves, strict=True))


def test_a_trees_rows_are_had_by_iterating_over_a_range():
    td = tree(1)
    assert [td[i]["a"].item() for i in range(4)] == [0, 1, 2, 3]
    for row, same in zip(td.unbind(), [td[i] for i in range(4)], strict=True):
        assert row.equal(same)


PAST = [
    (0, 0),
    (1, (0, 0)),
    (1, (slice(None), 0)),
    (1, (..., 0, 0)),
    (1, (None, 0, 0)),
    (1, torch.ones(4, 3, dtype=torch.bool)),
    (1, ([0], [0])),
    (2, (0, 0, 0)),
    (2, (MASK, 0, slice(None))),
    (2, (torch.ones(4, 3, dtype=torch.bool), 0)),
    (0, slice(None)),
    (0, [0]),
    (0, MASK),
    (3, (0, 0, 0, 0)),
]


@pytest.mark.parametrize(("dims", "index"), PAST, ids=str)
def test_an_index_past_the_batch_dims_is_refused(dims, index):
    with pytest.raises(BatchSizeError, match=rf"past the batch dims[\s\S]*at most {dims} dims[\s\S]*td\['key'\]"):
        tree(dims)[index]


@pytest.mark.parametrize("index", [None, ..., (), (None, None)], ids=str)
def test_an_index_that_takes_no_dim_works_without_batch_dims(index):
    td = tree(0)
    assert td[index].batch_size == td["a"][index].shape
    assert torch.equal(td[index]["b", "c"], td["b", "c"][index] if index is not ... else td["b", "c"])


@pytest.mark.parametrize("index", [4, -5, [0, 4], torch.tensor([7]), (0, 3)], ids=str)
def test_an_index_out_of_range_is_an_index_error(index):
    with pytest.raises(IndexError, match="out of (range|bounds)"):
        tree(2)[index]


@pytest.mark.parametrize("mask", [torch.ones(3, dtype=torch.bool), [True] * 5, np.ones(3, dtype=bool)], ids=type)
def test_a_mask_of_another_size_is_an_index_error(mask):
    with pytest.raises(IndexError, match="mask"):
        tree(1)[mask]


@pytest.mark.parametrize("index", [1.5, b"a", {1}, {"a": 1}, object(), pathlib.Path("a"), (0, "a"), ("a", 0), ("a", slice(None)), 1j], ids=type)
def test_what_is_neither_index_nor_key_says_what_both_are(index):
    with pytest.raises(BatchSizeError, match=r"not an index over batch dims, nor a key path[\s\S]*td\[key\]\[index\]"):
        tree(2)[index]
