"""Equal structures are one object, by whatever route they come to be; unequal ones never are."""

from __future__ import annotations

import copy
import enum
import gc
import pickle
import threading

import pytest
import torch
from torch.utils import _pytree

import tdfunc
from tdfunc import TensorDict
from tdfunc.structure import clear_caches, from_json, from_spec, to_json


class Name(enum.StrEnum):
    A = "a"
    B = "b"


class Plain(str):
    """A str that is no exact str."""

    __slots__ = ()


def leaf(*shape):
    return torch.zeros(3, *shape)


def target():
    return TensorDict({"a": leaf(), "b": {"c": leaf(2), "d": leaf()}, "mode": "train"}, 3)


ROUTES = {
    "the constructor": lambda: TensorDict({"a": leaf(), "b": {"c": leaf(2), "d": leaf()}, "mode": "train"}, 3),
    "pairs": lambda: TensorDict([("a", leaf()), ("b", {"c": leaf(2), "d": leaf()}), ("mode", "train")], 3),
    "keywords": lambda: TensorDict(batch_size=3, a=leaf(), b={"c": leaf(2), "d": leaf()}, mode="train"),
    "key paths": lambda: TensorDict({"a": leaf(), ("b", "c"): leaf(2), ("b", "d"): leaf(), "mode": "train"}, 3),
    "another TensorDict": lambda: TensorDict(target(), 3),
    "a TensorDict as a plain mapping": lambda: TensorDict(dict(target()), 3),
    "a nested TensorDict": lambda: TensorDict({"a": leaf(), "b": TensorDict({"c": leaf(2), "d": leaf()}, 3), "mode": "train"}, 3),
    "a nested TensorDict without batch size": lambda: TensorDict({"a": leaf(), "b": TensorDict({"c": leaf(2), "d": leaf()}), "mode": "train"}, 3),
    "sets": lambda: TensorDict({}, 3).set("a", leaf()).set(("b", "c"), leaf(2)).set(("b", "d"), leaf()).set("mode", "train"),
    "sets of subtrees": lambda: TensorDict({}, 3).set("a", leaf()).set("b", {"c": leaf(2), "d": leaf()}).set("mode", "train"),
    "a set back and forth": lambda: target().set("a", leaf(7)).set("a", leaf()).set("mode", "eval").set("mode", "train"),
    "update": lambda: TensorDict(batch_size=3, a=leaf()).update({"b": {"c": leaf(2), "d": leaf()}}, mode="train"),
    "|": lambda: TensorDict(batch_size=3, a=leaf()) | TensorDict({"b": {"c": leaf(2), "d": leaf()}, "mode": "train"}, 3),
    "select": lambda: target().set("z", leaf()).set(("b", "z"), leaf()).select("a", ("b", "c"), ("b", "d"), "mode"),
    "exclude": lambda: target().set("z", leaf()).set(("b", "z"), leaf()).exclude("z", ("b", "z")),
    "pop": lambda: target().set("z", leaf()).pop("z")[1],
    "rename": lambda: target().rename_key("a", "z").rename_key("z", "a"),
    "tie and untie": lambda: target().tie("a", ("b", "d")).untie(("b", "d")),
    "partition and merge": lambda: tdfunc.merge(*target().exclude("mode").partition(lambda path, _: path[0] == "a")).set("mode", "train"),
    "map": lambda: target().map(lambda t: t * 2),
    "index": lambda: target()[:2],
    "stack and unbind": lambda: tdfunc.stack([target(), target()]).unbind()[1],
    "with_batch_size": lambda: target().with_batch_size(()).with_batch_size(3),
    "json": lambda: _with(from_json(to_json(target().structure))),
    "plain data": lambda: _with(from_spec(target().structure.__reduce__()[1][0])),
    "pickle of the tree": lambda: pickle.loads(pickle.dumps(target())),
    "pickle of the structure": lambda: _with(pickle.loads(pickle.dumps(target().structure))),
    "copy": lambda: copy.copy(target()),
    "deepcopy": lambda: copy.deepcopy(target()),
    "treespec": lambda: _with(_pytree.treespec_loads(_pytree.treespec_dumps(_pytree.tree_structure(target()))).context),
}


def _with(structure):
    return TensorDict._rebuild(target()._leaves, structure)


@pytest.mark.parametrize("fresh", [False, True], ids=["memo", "no memo"])
@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
def test_every_route_leads_to_one_object(route, fresh):
    want = target()
    if fresh:
        clear_caches()
    got = route()
    assert got.structure is want.structure
    assert got.equal(want if len(got._leaves[0]) == 3 else want[:2])
    assert got.batch_size == got["b"].batch_size == got["a"].shape


DIFFERENT = {
    "another name": {"A": leaf(), "b": leaf(2)},
    "another order": {"b": leaf(2), "a": leaf()},
    "another event rank": {"a": leaf(2), "b": leaf()},
    "one more": {"a": leaf(), "b": leaf(2), "c": leaf()},
    "one less": {"a": leaf()},
    "nested": {"a": leaf(), "b": {"b": leaf(2)}},
    "static": {"a": leaf(), "b": "leaf"},
    "an empty node": {"a": leaf(), "b": {}},
    "a dotted name": {"a": leaf(), "b.c": leaf(2)},
}


@pytest.mark.parametrize("entries", DIFFERENT.values(), ids=DIFFERENT)
def test_what_differs_is_another_object(entries):
    base, other = TensorDict({"a": leaf(), "b": leaf(2)}, 3).structure, TensorDict(entries, 3).structure
    assert base is not other
    assert base != other
    assert list(other.entries()) == list(entries)


def test_sizes_dtypes_and_devices_are_no_part_of_a_structure():
    one = TensorDict({"a": torch.zeros(3, 2)}, 3)
    two = TensorDict({"a": torch.zeros(5, 7, dtype=torch.int8, device="meta")}, 5)
    assert one.structure is two.structure
    assert (one.batch_size, two.batch_size) == ((3,), (5,))


def test_threads_that_race_for_a_new_structure_get_one_object():
    threads, rounds = 6, 40
    found = [[] for _ in range(threads)]
    barrier = threading.Barrier(threads)

    def work(i):
        for n in range(rounds):
            barrier.wait()
            td = TensorDict({f"race{n}": leaf(), "x": {"y": leaf(2), "s": f"{n}"}}, 3).set("z", leaf()).tie("z", f"race{n}")
            found[i].append(td.structure)
            if n % 20 == i:
                gc.collect()

    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [len(made) for made in found] == [rounds] * threads
    for made in zip(*found, strict=True):
        assert len(set(map(id, made))) == 1
    assert len({id(s) for s in found[0]}) == rounds


KEYS = {"str-enum": (Name.A, Name.B), "subclass of str": (Plain("a"), Plain("b")), "plain": ("a", "b")}


@pytest.mark.parametrize("first", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("second", KEYS.values(), ids=KEYS)
def test_keys_become_exact_str_whichever_kind_comes_first(first, second):
    clear_caches()
    made = []
    for a, b in (first, second):
        for td in (TensorDict({a: leaf(), b: {a: leaf()}}, 3), TensorDict({}, 3).set(a, leaf()).set((b, a), leaf())):
            made.append(td.structure)
            assert [type(name) for name in td] == [str, str]
            assert list(td.keys(include_nested=True, leaves_only=True)) == ["a", ("b", "a")]
            assert td[b, a] is td["b"]["a"]
            assert td[Name.A] is td["a"] is td.get(Plain("a"))
            assert Name.B in td
    assert len(set(map(id, made))) == 1


@pytest.mark.parametrize("first", KEYS.values(), ids=KEYS)
def test_a_flat_dict_of_tensors_takes_every_kind_of_str_before_and_after_plain_ones(first):
    clear_caches()
    odd = TensorDict({first[0]: leaf(), first[1]: leaf()})
    plain = TensorDict({"a": leaf(), "b": leaf()})
    assert odd.structure is plain.structure
    assert [type(name) for name in odd] == [str, str]


def test_a_key_is_one_key_whatever_it_contains():
    td = TensorDict({"a.b": leaf(), "": leaf(), "ü \n": leaf()}, 3)
    assert list(td) == ["a.b", "", "ü \n"]
    assert ("a", "b") not in td
    assert td["a.b"].shape == td[""].shape == td["ü \n"].shape == (3,)
    assert from_json(to_json(td.structure)) is td.structure


@pytest.mark.parametrize("op", [lambda a, b: a + b, lambda a, b: a.map(torch.add, b), lambda a, b: tdfunc.stack([a, b]).map(lambda t: t.sum(0))])
def test_trees_with_keys_in_another_order_are_matched_by_path(op):
    one = TensorDict({"a": torch.ones(3), "b": {"c": torch.full((3, 2), 2.0), "d": torch.full((3,), 3.0)}})
    two = TensorDict({"b": {"d": torch.full((3,), 30.0), "c": torch.full((3, 2), 20.0)}, "a": torch.full((3,), 10.0)})
    assert one.structure is not two.structure
    got = op(one, two)
    assert got.structure.paths() == one.structure.paths()
    assert {path: leaf.flatten()[0].item() for path, leaf in got.to_flat().items()} == {"a": 11.0, "b.c": 22.0, "b.d": 33.0}
    assert one.equal(TensorDict({"b": {"d": one["b", "d"], "c": one["b", "c"]}, "a": one["a"]}))
