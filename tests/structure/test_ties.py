"""Ties: one leaf under several paths, through every transition of the structure."""

from __future__ import annotations

import pickle

import pytest
import torch

import tdfunc
from tdfunc import KeyPathError, StructureError, TensorDict
from tdfunc.structure import from_json, to_json

A, B, C, D = (torch.full((2,), float(i)) for i in range(4))
PAIR = ((("a",), ("n", "b")),)


def tied():
    """a and n.b are one leaf; n.c and d are their own."""
    return TensorDict({"a": A, "n": {"b": B, "c": C}, "d": D}, 2).tie("a", ("n", "b"))


def values(td):
    return {path: leaf.flatten()[0].item() for path, leaf in td.to_flat().items()}


def test_a_tie_makes_one_leaf_that_of_the_first_path():
    td = tied()
    assert len(td._leaves) == 3
    assert td.ties == PAIR
    assert td["n", "b"] is td["a"] is td["n"]["b"] is A
    assert values(td) == {"a": 0, "n.b": 0, "n.c": 2, "d": 3}
    assert td.numel() == 6
    assert TensorDict({"a": A, "n": {"b": B}}).tie(("n", "b"), "a")["a"] is B


def test_the_order_of_the_paths_chooses_the_value_and_not_the_structure():
    td = TensorDict({"a": A, "n": {"b": B}})
    assert td.tie(("n", "b"), "a").structure is td.tie("a", ("n", "b")).structure


def test_tying_what_is_tied_changes_nothing():
    td = tied()
    assert td.tie("a", ("n", "b")).structure is td.structure
    assert td.tie("a").structure is td.tie().structure is td.structure


def test_ties_join_to_larger_groups():
    td = tied().tie("a", "d")
    assert td.ties == ((("a",), ("n", "b"), ("d",)),)
    assert len(td._leaves) == 2
    two = TensorDict({k: torch.ones(1) for k in "abcd"}).tie("a", "b").tie("c", "d")
    assert two.ties == ((("a",), ("b",)), (("c",), ("d",)))
    assert two.tie("b", "c").ties == ((("a",), ("b",), ("c",), ("d",)),)


def test_untie_gives_each_path_its_own_leaf_with_the_value_it_had():
    td = tied()
    for key in ("a", ("n", "b")):
        got = td.untie(key)
        assert got.ties == ()
        assert got.structure is TensorDict({"a": A, "n": {"b": B, "c": C}, "d": D}, 2).structure
        assert values(got) == values(td)
        assert values(got.set("a", B + 8)) == {"a": 9, "n.b": 0, "n.c": 2, "d": 3}
    assert td.tie("a", "d").untie("d").ties == PAIR
    assert td.untie("d").structure is td.structure


@pytest.mark.parametrize("key", ["a", ("n", "b")])
@pytest.mark.parametrize("value", [torch.full((2,), 9.0), torch.full((2, 5), 9.0)], ids=["same rank", "another rank"])
def test_setting_one_path_sets_the_group(key, value):
    got = tied().set(key, value)
    assert got["a"] is got["n", "b"] is value
    assert got.ties == PAIR
    assert got.batch_size == got["n"].batch_size == (2,)
    assert values(got) == {"a": 9, "n.b": 9, "n.c": 2, "d": 3}


@pytest.mark.parametrize("how", [lambda td, new: td.set("n", new), lambda td, new: td.update({"n": new}), lambda td, new: td | {"n": new}])
@pytest.mark.parametrize("shape", [(2,), (2, 4)])
def test_setting_a_subtree_that_holds_a_path_sets_the_group(how, shape):
    value = torch.full(shape, 9.0)
    got = how(tied(), {"b": value, "c": C})
    assert got["a"] is got["n", "b"] is value
    assert got.ties == PAIR
    assert len(got._leaves) == 3


def test_a_path_that_becomes_something_else_leaves_the_group():
    for other in ("static", {"deeper": B}):
        got = tied().set(("n", "b"), other)
        assert got.ties == ()
        assert got["a"] is A
    without = tied().set("n", {"c": C})
    assert (without.ties, values(without)) == ((), {"a": 0, "n.c": 2, "d": 3})


SEVEN, EIGHT = torch.full((2,), 7.0), torch.full((2,), 8.0)


@pytest.mark.parametrize("new", [{"a": SEVEN, "n": {"b": EIGHT}}, {"a": SEVEN, ("n", "b"): EIGHT}, TensorDict({"a": SEVEN, "n": {"b": EIGHT}})])
@pytest.mark.parametrize("read", [False, True], ids=["fresh", "read before"])
def test_update_with_both_paths_keeps_one_leaf_and_the_last_value_wins(new, read):
    td = tied()
    td.structure.release()
    assert not read or td["n", "b"] is A
    got = td.update(new)
    assert got.ties == PAIR
    assert values(got) == {"a": 8, "n.b": 8, "n.c": 2, "d": 3}


def test_select_and_exclude_keep_the_tie_that_remains():
    td = tied().tie("a", "d")
    assert td.select("a", "d").ties == ((("a",), ("d",)),)
    assert td.exclude("a").ties == ((("n", "b"), ("d",)),)
    assert td.exclude("a", "d").ties == ()
    assert td.exclude("a")["d"] is td.select("n")["n", "b"] is A
    assert values(td.exclude("a")) == {"n.b": 0, "n.c": 2, "d": 0}
    assert td.pop("a")[0] is A
    assert td.pop("a")[1].structure is td.exclude("a").structure


def test_rename_keeps_the_tie():
    td = tied()
    assert td.rename_key("a", "z").ties == ((("z",), ("n", "b")),)
    assert td.rename_key("n", ("m", "o")).ties == ((("a",), ("m", "o", "b")),)
    assert td.rename_key(("n", "b"), "top").ties == ((("a",), ("top",)),)
    for got in (td.rename_key("a", "z"), td.rename_key("n", ("m", "o")), td.rename_key(("n", "b"), "top")):
        assert sorted(values(got).values()) == [0, 0, 2, 3]
        assert len(got._leaves) == 3


def test_a_subtree_that_a_tie_reaches_out_of_is_an_index_into_the_leaves():
    td = (
        TensorDict({"x": A, "n": {"c": C, "b": B, "m": {"e": D, "f": torch.full((2,), 4.0)}}, "y": D + 2})
        .tie("x", ("n", "b"))
        .tie("x", ("n", "m", "f"))
    )
    n, m = td["n"], td["n", "m"]
    for got, want in ((n["c"], td["n", "c"]), (n["b"], td["x"]), (n["m", "e"], td["n", "m", "e"]), (n["m", "f"], td["x"])):
        assert got is want
    assert n.ties == ((("b",), ("m", "f")),)
    assert m.ties == ()
    assert n["m"].structure is m.structure is TensorDict({"e": D, "f": D}).structure
    assert values(n) == {"c": 2, "b": 0, "m.e": 3, "m.f": 0}
    assert values(m) == values(n["m"]) == {"e": 3, "f": 0}
    assert td["n", "m", "f"] is td["x"]
    back = td.set("n", n * 10)
    assert values(back) == {"x": 0, "n.c": 20, "n.b": 0, "n.m.e": 30, "n.m.f": 0, "y": 5}


def test_a_tie_inside_a_subtree_is_the_subtrees_own():
    inner = TensorDict({"p": A, "q": B}).tie("p", "q")
    outer = TensorDict({"k": C, "s": inner})
    assert outer.ties == ((("s", "p"), ("s", "q")),)
    assert outer["s"].structure is inner.structure
    assert TensorDict({"k": C}).set("s", inner).structure is outer.structure


@pytest.mark.parametrize(
    "op",
    [
        lambda td: td.map(lambda t: t + 1),
        lambda td: td + 1,
        lambda td: td + td,
        lambda td: td[:1],
        lambda td: tdfunc.stack([td, td], 1),
        lambda td: tdfunc.stack([td, td]).unbind()[0],
        lambda td: td.to(torch.float64),
        lambda td: td.clone(),
        lambda td: td.detach().requires_grad(),
        torch.vmap(lambda row: row + 1),
        torch.func.grad(lambda t: (t["a"] * t["n", "b"]).sum()),
        lambda td: tdfunc.merge(*td.partition(lambda path, _: path == ("a",))),
        lambda td: td.filter(lambda path, _: path == ("a",)),
        lambda td: pickle.loads(pickle.dumps(td)),
    ],
)
def test_ties_survive(op):
    assert op(tied()).ties == PAIR


def test_predicates_and_paths_see_a_tied_leaf_once_under_its_first_path():
    seen = []
    tied().partition(lambda path, leaf: seen.append((path, leaf)) or True)
    tied().map_with_path(lambda path, leaf: (seen.append((path, leaf)), leaf)[1])
    assert [path for path, _ in seen] == [("a",), ("n", "c"), ("d",)] * 2
    assert seen[0][1] is A


def test_gradients_of_a_tied_leaf_are_summed():
    td = tied()
    grads = torch.func.grad(lambda t: (2 * t["a"] + 3 * t["n", "b"]).sum())(td)
    assert grads["a"].tolist() == [5.0, 5.0]
    assert grads["n", "b"] is grads["a"]


def test_json_and_pickle_give_the_identical_structure():
    for td in (tied(), tied().tie("a", "d"), TensorDict({"k": C, "s": TensorDict({"p": A, "q": B}).tie("p", "q")})):
        assert from_json(to_json(td.structure)) is td.structure
        assert pickle.loads(pickle.dumps(td.structure)) is td.structure


def test_trees_tied_differently_do_not_align():
    plain = tied().untie("a")
    assert not tied().equal(plain)
    assert not plain.equal(tied())
    for a, b in ((tied(), plain), (plain, tied())):
        with pytest.raises(StructureError, match="ties: "):
            a + b


def test_tie_refuses():
    with pytest.raises(KeyPathError, match=r"tie: no entry 'nope'"):
        tied().tie("a", "nope")
    with pytest.raises(KeyPathError, match="tie: not a leaf"):
        tied().tie("a", "n")
    with pytest.raises(StructureError, match="tie: leaves of different shapes"):
        tied().set("d", torch.ones(2, 3)).tie("a", "d")
    with pytest.raises(KeyPathError, match=r"untie: no entry 'nope'"):
        tied().untie("nope")
    with pytest.raises(KeyPathError, match="a key must be a str"):
        tied().tie(["a", "d"])


@pytest.mark.parametrize("other", [torch.zeros(2, dtype=torch.int64), torch.zeros(2, device="meta")], ids=["dtype", "device"])
def test_a_tie_of_leaves_of_different_kinds_takes_the_first(other):
    td = TensorDict({"a": A, "b": other})
    assert td.tie("a", "b")["b"] is A
    assert td.tie("b", "a")["a"] is other
