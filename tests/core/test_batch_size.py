"""The batch size is derived from the leaves: right inside vmap, after any map, and by any way in or out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils import _pytree

import tdfunc
from tdfunc import BatchSizeError, TensorDict


def tree(*batch):
    return TensorDict({"a": torch.zeros(batch), "b": {"c": torch.zeros(*batch, 5), "d": torch.zeros(*batch, 2, 0)}}, batch)


SIZES = [(), (3,), (0,), (3, 4), (3, 0, 4), (1, 1, 1, 1)]


@pytest.mark.parametrize("size", SIZES)
def test_the_size_given_is_the_size_told(size):
    td = tree(*size)
    assert isinstance(td.batch_size, torch.Size)
    assert td.batch_size == td.shape == td["b"].batch_size == size
    assert td.batch_dims == td.ndim == len(size)


@pytest.mark.parametrize("size", [3, [3], (3,), torch.Size([3]), torch.zeros(3).shape], ids=repr)
def test_an_int_or_a_sequence_will_do(size):
    assert TensorDict({"a": torch.zeros(3, 2)}, size).batch_size == (3,)
    assert TensorDict({"a": torch.zeros(3, 2)}).with_batch_size(size).batch_size == (3,)


@pytest.mark.parametrize("size", ["3", 3.0, (3.0,), None, ("3",), {3}, torch.ones(1)], ids=repr)
def test_anything_else_is_refused(size):
    for call in (lambda: TensorDict({"a": torch.zeros(3)}, size), lambda: TensorDict({"s": "x"}, size), lambda: tree(3).with_batch_size(size)):
        with pytest.raises(BatchSizeError, match="an int or a sequence of ints"):
            call()


@pytest.mark.parametrize("size", [np.int64(3), (np.int64(3),)], ids=repr)
def test_a_numpy_integer_is_an_int(size):
    assert TensorDict({"a": torch.zeros(3, 2)}, size).batch_size == (3,)


@pytest.mark.parametrize("size", [-1, (3, -1)])
def test_a_negative_size_is_refused(size):
    with pytest.raises(BatchSizeError, match="batch size"):
        TensorDict({"s": "x"}, size)


def test_the_longest_common_prefix_is_told():
    raw = lambda *shapes: _pytree.tree_unflatten(
        [torch.zeros(s) for s in shapes], _pytree.tree_structure(TensorDict({"a": torch.zeros(3, 4), "b": torch.zeros(3, 4, 5)}, (3, 4)))
    )
    assert raw((3, 4), (3, 4, 5)).batch_size == (3, 4)
    assert raw((3, 4), (3, 9, 5)).batch_size == (3,)
    assert raw((3, 4), (2, 4, 5)).batch_size == ()
    assert raw((3, 4, 6), (3, 4, 5)).batch_size == (3, 4)
    assert raw((), (3, 4, 5)).batch_size == ()
    assert raw((3, 4), ()).batch_size == ()


def test_auto_batch_size_takes_the_longest_prefix_of_the_shapes():
    assert TensorDict({"a": torch.zeros(3, 4), "b": torch.zeros(3, 4, 5)}).auto_batch_size().batch_size == (3, 4)
    assert TensorDict({"a": torch.zeros(3, 4), "b": torch.zeros(3, 5)}).auto_batch_size().batch_size == (3,)
    assert TensorDict({"a": torch.zeros(3), "b": torch.zeros(4)}, ()).auto_batch_size().batch_size == ()
    assert TensorDict({"a": torch.zeros(3, 4)}, 3).auto_batch_size().batch_size == (3, 4)


@pytest.mark.parametrize("size", [(), (3,), (3, 4), (3, 4, 2)])
def test_with_batch_size_keeps_the_leaves(size):
    td = TensorDict({"a": torch.zeros(3, 4, 2), "b": {"c": torch.zeros(3, 4, 2, 5)}}, 3)
    got = td.with_batch_size(size)
    assert got.batch_size == got["b"].batch_size == size
    assert all(a is b for a, b in zip(got._leaves, td._leaves, strict=True))
    assert got.structure is TensorDict({"a": td["a"], "b": {"c": td["b", "c"]}}, size).structure


def test_with_batch_size_names_every_leaf_that_does_not_fit():
    with pytest.raises(
        BatchSizeError, match=r"'a': shape \(3,\); 'b', 'c': shape \(3, 5\)[\s\S]*start with \(3, 4\)[\s\S]*with_batch_size\(\(3,\)\)"
    ):
        tree(3).exclude(("b", "d")).with_batch_size((3, 4))


def test_inside_vmap_a_dim_is_off_and_outside_it_is_on_again():
    td, seen = tree(3, 4), []

    def body(row):
        seen.append((row.batch_size, row["b"].batch_size, row.set("n", row["a"] * 2).batch_size))
        return row.set("n", row["b", "c"].sum(-1)), row["b"]

    out, sub = torch.vmap(body)(td)
    assert seen == [((4,), (4,), (4,))]
    assert out.batch_size == sub.batch_size == (3, 4)
    out, _ = torch.vmap(torch.vmap(body))(td)
    assert seen[1:] == [((), (), ())]
    assert out.batch_size == (3, 4)
    assert out["n"].shape == (3, 4)


@pytest.mark.parametrize("dim", [0, 1])
def test_vmap_over_another_batch_dim_in_and_out(dim):
    td = tree(3, 4)
    out = torch.vmap(lambda row: row + 1, in_dims=dim, out_dims=dim)(td)
    assert out.batch_size == (3, 4)
    moved = torch.vmap(lambda row: row, in_dims=dim, out_dims=1 - dim)(td)
    assert moved.batch_size == (4, 3)


@pytest.mark.parametrize(
    ("fn", "raw", "own"),
    [
        (lambda t: t[0], (4,), ()),
        (lambda t: t.sum(0), (4,), ()),
        (lambda t: t.unsqueeze(0), (1, 3, 4), ()),
        (lambda t: t[:, :2], (3, 2), (3,)),
        (lambda t: t.transpose(0, 1), (4, 3), ()),
        (lambda t: t * 2, (3, 4), (3, 4)),
        (lambda t: torch.zeros(3, 4, 9), None, (3, 4)),
        (lambda t: t.sum(), (), ()),
    ],
)
def test_a_raw_tree_map_keeps_the_event_ranks_and_map_keeps_the_matching_dims(fn, raw, own):
    td = TensorDict({"a": torch.zeros(3, 4), "b": {"c": torch.zeros(3, 4, 5)}}, (3, 4))
    if raw is not None:
        assert _pytree.tree_map(fn, td).batch_size == raw
        assert _pytree.tree_map(fn, td).structure is td.structure
    assert td.map(fn).batch_size == td.map(fn)["b"].batch_size == own
    assert td.map_with_path(lambda _, t: fn(t)).batch_size == own


def test_map_may_give_leaves_more_and_less_event_dims():
    td = tree(3)
    got = td.map(lambda t: t.flatten(1).sum(-1) if t.ndim > 1 else t.unsqueeze(-1).expand(3, 7))
    assert got.batch_size == (3,)
    assert got["a"].shape == (3, 7)
    assert got[0]["a"].shape == (7,)
    assert got[0]["b", "c"].shape == ()


def test_stack_adds_and_unbind_takes_a_batch_dim():
    td = tree(3, 4)
    for dim, want in ((0, (6, 3, 4)), (1, (3, 6, 4)), (2, (3, 4, 6)), (-1, (3, 4, 6)), (-3, (6, 3, 4))):
        stacked = tdfunc.stack([td] * 6, dim)
        assert stacked.batch_size == stacked["b"].batch_size == want
        assert [part.batch_size for part in stacked.unbind(dim)] == [(3, 4)] * 6


JOINS = {"update": lambda a, b: a.update(b), "|": lambda a, b: a | b, "merge": tdfunc.merge}
RIGHT = {
    "no batch dims": (TensorDict({"z": torch.zeros(5)}), ()),
    "another size": (TensorDict({"z": torch.zeros(4, 3)}, 4), ()),
    "fewer batch dims": (TensorDict({"z": torch.zeros(3, 9)}, 3), (3,)),
    "more batch dims": (TensorDict({"z": torch.zeros(3, 4, 2)}, (3, 4, 2)), (3, 4)),
    "no leaf": (TensorDict({"s": "x"}, 9), (3, 4)),
}


@pytest.mark.parametrize("join", JOINS.values(), ids=JOINS)
@pytest.mark.parametrize(("right", "want"), RIGHT.values(), ids=RIGHT)
def test_joined_trees_have_the_batch_dims_on_which_all_agree_and_no_other(join, right, want):
    for got in (join(tree(3, 4), right), join(right, tree(3, 4))):
        assert got.batch_size == want
        assert got[(0,) * len(got.batch_size)].batch_size == ()
        with pytest.raises(BatchSizeError, match="past the batch dims"):
            got[(0,) * (len(got.batch_size) + 1)]
        assert got.set("new", torch.zeros(*got.batch_size, 1)).batch_size == got.batch_size


def test_facts_of_leaves():
    td = TensorDict({"a": torch.zeros(3, 2), "b": torch.zeros(3, dtype=torch.int8), "s": "x"}, 3)
    assert (td.numel(), td.dtype, td.device) == (9, None, torch.device("cpu"))
    assert td.exclude("b").dtype == torch.float32
    assert td.set("b", torch.zeros(3, device="meta")).device is None
    assert (TensorDict().device, TensorDict().dtype, TensorDict().numel()) == (None, None, 0)
    assert td.is_empty() is False
    assert td.select("s").is_empty() is True
    assert td.tie("a").numel() == 9
    assert TensorDict({"p": td["a"], "q": td["a"]}).tie("p", "q").numel() == 6


@pytest.mark.parametrize("leaf", [1, None, "x", object(), (2, 3)])
def test_a_tree_unflattened_with_anything_still_tells_a_batch_size_and_prints(leaf):
    td = _pytree.tree_unflatten([leaf] * 3, _pytree.tree_structure(tree(3)))
    assert td.batch_size == ()
    assert td["a"] is leaf
    assert td["b"]["c"] is leaf
    assert type(leaf).__name__ in repr(td)
