"""A TensorDict reads like a dict and never changes."""

from __future__ import annotations

import collections.abc
import operator

import pytest
import torch

from tdfunc import ImmutableError, KeyPathError, StructureError, TensorDict

A, C, D = torch.zeros(3), torch.ones(3, 2), torch.full((3,), 2.0)


def tree():
    return TensorDict({"a": A, "n": {"c": C, "m": {"d": D, "s": "deep"}}, "s": None, "e": {}}, 3)


def oracle():
    return {"a": A, "n": {"c": C, "m": {"d": D, "s": "deep"}}, "s": None, "e": {}}


def test_it_is_a_mapping_of_its_top_level():
    td = tree()
    assert isinstance(td, collections.abc.Mapping)
    assert not isinstance(td, collections.abc.MutableMapping)
    assert list(td) == list(td.keys()) == list(oracle())
    assert len(td) == 4
    assert len(TensorDict()) == 0
    assert list(reversed(td.keys())) == ["e", "s", "n", "a"]
    assert td.keys() & {"a", "s", "z"} == {"a", "s"}


def test_a_mapping_pattern_and_star_star_work():
    match tree():
        case {"a": found, "n": {"c": inner}}:
            assert found is A
            assert inner is C
        case _:
            pytest.fail("no match")
    found, rest = (lambda a, **rest: (a, sorted(rest)))(**tree())
    assert found is A
    assert rest == ["e", "n", "s"]
    assert dict(tree()).keys() == oracle().keys()


def flat_entries(node, at=()):
    for name, value in node.items():
        yield (*at, name), value
        if isinstance(value, dict):
            yield from flat_entries(value, (*at, name))


def as_key(path):
    return path if len(path) > 1 else path[0]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("times", [1, 2])
def test_keys_values_and_items_list_what_a_walk_over_dicts_lists(nested, leaves, times):
    td = tree()
    want = [(as_key(p), v) for p, v in flat_entries(oracle()) if (nested or len(p) == 1) and (not leaves or isinstance(v, torch.Tensor))]
    for _ in range(times):
        keys, values, items = (list(getattr(td, name)(include_nested=nested, leaves_only=leaves)) for name in ("keys", "values", "items"))
    assert keys == [key for key, _ in want] == [key for key, _ in items]
    assert len(values) == len(items) == len(want)
    for value, (_, item), (key, expected) in zip(values, items, want, strict=True):
        for got in (value, item, td[key], td.get(key)):
            if isinstance(expected, dict):
                assert got.to_dict().keys() == expected.keys()
            else:
                assert got is expected


def test_views_are_views_of_a_tree_that_never_changes():
    td = tree()
    before = list(td.items(include_nested=True))
    keys = td.keys()
    td.set("new", A)
    td.exclude("a")
    assert list(keys) == list(oracle())
    assert [k for k, _ in td.items(include_nested=True)] == [k for k, _ in before]
    with pytest.raises(TypeError):
        td.values().mapping["a"] = 1
    with pytest.raises(TypeError):
        td.keys().mapping["a"] = 1


@pytest.mark.parametrize("key", [("n", "c"), ("n", ("c",)), (("n",), "c"), (("n", "c"),)])
def test_every_way_to_write_a_path_reads_the_leaf(key):
    td = tree()
    for _ in range(2):
        assert td[key] is td.get(key) is td["n"]["c"] is C
        assert key in td
    assert td.set(key, D)["n", "c"] is D


def test_a_path_of_one_is_its_key():
    assert tree()[("a",)] is A
    assert tree()[("n",)].structure is tree()["n"].structure
    assert tree()[("s",)] is None
    assert ("a",) in tree()


def test_a_subtree_is_the_same_object_each_time_and_shares_the_leaves():
    td = tree()
    assert td["n"] is td["n"] is td.get("n") is dict(td.items())["n"]
    assert td["n", "m"] is td["n", "m"]
    assert td["n"]["m"]["d"] is td["n", "m", "d"] is D


@pytest.mark.parametrize("key", ["z", "A", ("n", "z"), ("z", "a"), ("n", "m", "d", "deeper"), ("a", "b"), ("s", "x"), ("e", "x"), "n.c"])
def test_get_gives_the_default_for_what_is_missing(key):
    td = tree()
    assert td.get(key) is None
    assert td.get(key, 7) == 7
    assert td.get(key, default=A) is A
    assert key not in td
    with pytest.raises(KeyPathError, match="get: no entry"):
        td[key]


def test_get_gives_a_static_none_and_not_the_default():
    assert tree().get("s", 7) is None
    assert "s" in tree()


@pytest.mark.parametrize("thing", [1, None, 1.5, b"a", ["a"], A, object(), (), (1,), ("n", 1), slice(None), ...])
def test_what_is_no_key_is_not_in_it(thing):
    assert (thing in tree()) is False


def _assign(td):
    td["a"] = A


def _assign_path(td):
    td["n", "c"] = A


def _assign_index(td):
    td[0] = A


def _delete(td):
    del td["a"]


def _attribute(td):
    td.x = 1


def _leaves(td):
    td._leaves = ()


def _batch_size(td):
    td.batch_size = (3,)


def _delete_attribute(td):
    del td.x


def _delete_slot(td):
    del td._leaves


def _add_to_subtree(td):
    td["n"] += 1


def _or_into_subtree(td):
    td["n"] |= {"x": A}


CHANGES = [
    (_assign, r"td = td\.set\('a', value\)"),
    (_assign_path, r"td = td\.set\(\('n', 'c'\), value\)"),
    (_assign_index, r"td = td\.map"),
    (_delete, r"td = td\.exclude\('a'\)"),
    (_attribute, r"td\.x = \.\.\. is refused[\s\S]*td\.set\(key, value\)"),
    (_leaves, r"td\._leaves = \.\.\. is refused"),
    (_batch_size, r"td\.batch_size = \.\.\. is refused"),
    (_delete_attribute, r"del td\.x is refused[\s\S]*td\.exclude\(key\)"),
    (_delete_slot, r"del td\._leaves is refused"),
    (_add_to_subtree, r"td = td\.set\('n', value\)"),
    (_or_into_subtree, r"td = td\.set\('n', value\)"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES, ids=[change.__name__ for change, _ in CHANGES])
def test_every_change_is_refused_with_the_pure_form(change, message):
    td = tree()
    with pytest.raises(ImmutableError, match=message) as caught:
        change(td)
    assert isinstance(caught.value, TypeError)
    assert td.equal(tree())
    assert td["a"] is A
    assert torch.equal(A, torch.zeros(3))
    assert torch.equal(td["n", "c"], torch.ones(3, 2))


@pytest.mark.parametrize("op", [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ior])
def test_augmented_assignment_rebinds_and_leaves_the_old_tree(op):
    td = old = TensorDict({"a": torch.ones(3)})
    td = op(td, {"b": torch.ones(1)} if op is operator.ior else 2)
    assert td is not old
    assert old.to_dict()["a"].tolist() == [1.0] * 3


@pytest.mark.parametrize("name", ["clear", "setdefault", "popitem", "add_", "zero_", "update_", "set_", "__iadd__"])
def test_there_are_no_mutating_methods(name):
    assert not hasattr(TensorDict, name)


def test_no_public_name_ends_in_an_underscore():
    assert [name for name in dir(TensorDict) if name.endswith("_") and not name.startswith("_")] == []


def test_truth_is_refused_and_hash_is_by_identity():
    td = tree()
    with pytest.raises(StructureError, match=r"is_empty\(\)[\s\S]*equal"):
        bool(td)
    with pytest.raises(StructureError, match="truth value"):
        td == td and None  # noqa: B015
    assert {td: 1}[td] == 1
    assert hash(td) != hash(td + 0)


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nope"):
        tree().nope
