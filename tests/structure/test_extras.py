"""Nested nodes with more batch dims than their parent, and trees without leaves: each knows its own batch size."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch.utils import _pytree

import tdfunc
from tdfunc import BatchSizeError, TensorDict
from tdfunc.structure import from_json, to_json


def tree():
    """Batch size 3 at the root, (3, 4) at n, (3, 4, 5) at n.m."""
    deep = TensorDict({"z": torch.zeros(3, 4, 5, 6)}, (3, 4, 5))
    return TensorDict({"x": torch.zeros(3, 2), "n": TensorDict({"y": torch.zeros(3, 4, 7), "m": deep}, (3, 4))}, 3)


def sizes(td):
    return tuple(td.batch_size), tuple(td["n"].batch_size), tuple(td["n", "m"].batch_size), tuple(td["n"]["m"].batch_size)


FULL = ((3,), (3, 4), (3, 4, 5), (3, 4, 5))
KEEP = {
    "as built": lambda td: td,
    "map": lambda td: td.map(torch.exp),
    "map to another event shape": lambda td: td.map(lambda t: t.unsqueeze(-1)),
    "arithmetic": lambda td: td * 2 + td,
    "tensor over the batch": lambda td: td + torch.ones(3),
    "set": lambda td: td.set("w", torch.zeros(3)),
    "set below": lambda td: td.set(("n", "w"), torch.zeros(3, 4)).set(("n", "m", "w"), torch.zeros(3, 4, 5, 1)),
    "set of a mapping below": lambda td: td.set(("n", "m"), {"w": torch.zeros(3, 4, 5)}).set("n", td["n"]),
    "update": lambda td: td.update({"x": torch.zeros(3)}),
    "exclude": lambda td: td.exclude("x", ("n", "y")),
    "select": lambda td: td.select(("n", "m")),
    "partition": lambda td: tdfunc.merge(*td.partition(lambda path, _: len(path) == 2)),
    "stack and unbind": lambda td: tdfunc.stack([td, td]).unbind()[0],
    "json": lambda td: TensorDict._rebuild(td._leaves, from_json(to_json(td.structure))),
    "pickle": lambda td: pickle.loads(pickle.dumps(td)),
    "tree_map": lambda td: _pytree.tree_map(torch.exp, td),
    "of a TensorDict": TensorDict,
    "of a mapping": lambda td: TensorDict(dict(td), 3),
    "detour over batch size ()": lambda td: td.with_batch_size(()).with_batch_size(3),
    "out of vmap": torch.vmap(lambda row: row + 1),
    "rename in place": lambda td: td.rename_key("x", "w").rename_key(("n", "y"), ("n", "v")),
}


@pytest.mark.parametrize("op", KEEP.values(), ids=KEEP)
def test_nested_batch_dims_stay(op):
    assert sizes(op(tree())) == FULL


def test_a_dim_taken_off_the_root_comes_off_everywhere():
    want = ((), (4,), (4, 5), (4, 5))
    assert sizes(tree()[0]) == want
    assert sizes(tree().unbind()[2]) == want
    assert sizes(tree()[1:]) == ((2,), (2, 4), (2, 4, 5), (2, 4, 5))
    assert sizes(_pytree.tree_map(lambda t: t[0], tree())) == want
    assert sizes(tdfunc.stack([tree()] * 8)) == ((8, 3), (8, 3, 4), (8, 3, 4, 5), (8, 3, 4, 5))
    seen = []
    torch.vmap(lambda row: seen.append(sizes(row)) or row["x"])(tree())
    assert seen == [want]


def test_a_function_that_changes_the_leading_dims_takes_batch_dims_off():
    assert sizes(tree().map(lambda t: t.sum(0))) == ((), (), (), ())
    halved = tree().map(lambda t: t[:, :2])
    assert (halved.batch_size, halved["n"].batch_size) == ((3,), (3,))
    assert tree().map(torch.sum).batch_size == ()


def test_a_leaf_of_a_nested_node_is_indexed_over_the_nodes_own_batch_dims():
    td = tree().set(("n", "y"), torch.arange(84.0).reshape(3, 4, 7))
    assert torch.equal(td["n"][1, 2]["y"], td["n", "y"][1, 2])
    assert td["n"][:, 0].batch_size == (3,)
    with pytest.raises(BatchSizeError, match="past the batch dims"):
        td[1, 2]


def test_set_below_checks_the_nodes_own_batch_size():
    with pytest.raises(BatchSizeError, match=r"'n', 'w'[\s\S]*starts with \(3, 4\)"):
        tree().set(("n", "w"), torch.zeros(3, 5))
    with pytest.raises(BatchSizeError, match=r"starts with \(3, 4, 5\)"):
        tree().set(("n", "m", "w"), torch.zeros(3, 4))
    with pytest.raises(BatchSizeError, match=r"starts with \(3, 4\)"):
        tree().set(("n", "w"), {"v": torch.zeros(3)})


def test_flattened_ranks_count_from_the_root():
    assert tree().structure.ranks() == (1, 2, 3)
    assert [(path, extra) for path, extra, _ in tree().structure.extras()] == [(("n",), 1), (("n", "m"), 1)]
    assert tree()["n"].structure.ranks() == (1, 2)


MOVES = {
    "out of a node with more batch dims": lambda td: td.rename_key(("n", "y"), "y"),
    "the first leaf out": lambda td: td.exclude("x").rename_key(("n", "y"), "y"),
    "a subtree out": lambda td: td.rename_key(("n", "m"), "m"),
    "the only leaf out": lambda td: td.select(("n", "y")).rename_key(("n", "y"), "y"),
    "into a node with more batch dims": lambda td: td.set("w", torch.zeros(3, 4)).rename_key("w", ("n", "w")),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_a_key_moved_between_nodes_keeps_every_batch_size(move):
    got = move(tree())
    assert got.batch_size == (3,)
    assert all(got[0]._leaves[i].shape == leaf.shape[1:] for i, leaf in enumerate(got._leaves))
    for name in ("n", "m"):
        if name in got and not got[name].is_empty():
            assert got[name].batch_size[:1] == (3,)
    if "n" in got and "x" in got and not got["n"].is_empty():
        assert got["n"].batch_size == (3, 4)


def test_a_tied_leaf_counts_its_event_rank_per_node():
    td = tree().set("t", torch.zeros(3, 4, 7)).tie("t", ("n", "y"))
    assert td.ties == ((("n", "y"), ("t",)),)
    assert sizes(td) == FULL
    assert sizes(td.set("t", torch.zeros(3, 4))) == FULL
    assert td.set("t", torch.zeros(3, 4))["n", "y"].shape == (3, 4)
    assert from_json(to_json(td.structure)) is td.structure


LEAFLESS = {
    "nothing": {},
    "a static value": {"s": "v"},
    "empty nodes": {"a": {}, "b": {"c": {}}},
    "nodes of static values": {"a": {"s": None}, "t": True},
}


@pytest.mark.parametrize("entries", LEAFLESS.values(), ids=LEAFLESS)
@pytest.mark.parametrize("size", [(), (3,), (3, 0), (2, 3, 4)])
class TestLeafless:
    def test_it_holds_its_batch_size(self, entries, size):
        td = TensorDict(entries, size)
        assert td.batch_size == size
        assert (td.is_empty(), td.numel(), td.batch_dims) == (True, 0, len(size))
        for got in (td.map(torch.exp), td + 1, td + td, td.clone(), pickle.loads(pickle.dumps(td)), _pytree.tree_map(torch.exp, td)):
            assert got.structure is td.structure
        assert from_json(to_json(td.structure)) is td.structure
        assert td.with_batch_size((7,)).batch_size == (7,)
        assert td.auto_batch_size().batch_size == size

    def test_a_leaf_that_comes_and_goes_leaves_the_batch_size(self, entries, size):
        td = TensorDict(entries, size)
        full = td.set("x", torch.zeros(*size, 2))
        assert full.batch_size == size
        assert full.structure is TensorDict({**entries, "x": torch.zeros(*size, 2)}, size).structure
        for empty in (full.exclude("x"), full.pop("x")[1], full.set("x", "static").exclude("x"), full.filter(lambda *_: False)):
            assert empty.batch_size == size
        assert full.exclude("x").structure is td.structure
        with pytest.raises(BatchSizeError, match="does not start with the batch size") if size else pytest.raises(BatchSizeError):
            td.set("x", torch.zeros(9)) if size else td.with_batch_size("3")

    def test_it_is_indexed_and_stacked_like_a_leaf_of_its_shape(self, entries, size):
        td, oracle = TensorDict(entries, size), torch.zeros(size)
        assert tdfunc.stack([td] * 5, len(size)).batch_size == (*size, 5)
        for index in (..., None, slice(1, None), 0, -1, [0, 1], torch.tensor([True, False, True])):
            try:
                want = oracle[index]
            except IndexError:
                with pytest.raises((IndexError, BatchSizeError)):
                    td[index]
            else:
                assert td[index].batch_size == want.shape
        if size:
            assert [part.batch_size for part in td.unbind()] == [size[1:]] * size[0]


@pytest.mark.parametrize("size", [(), (3,), (3, 4)])
def test_a_leafless_node_has_its_parents_batch_size(size):
    td = TensorDict({"x": torch.zeros(*size, 2), "e": {"s": "v", "f": {}}}, size)
    assert td["e"].batch_size == td["e", "f"].batch_size == td["e"]["f"].batch_size == size
    assert TensorDict({"e": TensorDict({}, (9, 9)), "x": torch.zeros(size)}, size)["e"].batch_size == size
