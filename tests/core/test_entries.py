"""set, update, select, exclude, pop, rename, filter, partition and merge, against plain nested dicts."""

from __future__ import annotations

import pytest
import torch

import tdfunc
from tdfunc import KeyPathError, StructureError, TensorDict

LEAVES = {name: torch.full((3,), float(i)) for i, name in enumerate("abcdefgh")}
A, B, C, D, E, F, G, H = LEAVES.values()
NEW = torch.full((3, 2), 9.0)


def source():
    return {"a": A, "n": {"b": B, "m": {"c": C, "s": "x"}}, "d": D, "t": None}


def put(node, path, value):
    *above, last = path
    for name in above:
        node = node.setdefault(name, {})
    node[last] = value


def drop(node, path):
    *above, last = path
    for name in above:
        node = node.get(name, {})
        if not isinstance(node, dict):
            return
    node.pop(last, None)


def union(left, right):
    out = dict(left)
    for key, value in right.items():
        out[key] = union(out[key], value) if isinstance(out.get(key), dict) and isinstance(value, dict) else value
    return out


def assert_same(td, want):
    """The very same objects in the same order, and the structure that a fresh build has."""
    got = td.to_dict()

    def walk(a, b):
        assert list(a) == list(b)
        for key in a:
            if isinstance(b[key], dict):
                walk(a[key], b[key])
            else:
                assert a[key] is b[key] or (isinstance(b[key], str) and a[key] == b[key]), key  # statics are interned

    walk(got, want)
    assert td.structure is TensorDict(want, 3).structure
    assert td.batch_size == (3,)


PATHS = ["a", "d", "z", ("n", "b"), ("n", "z"), ("n", "m", "c"), ("n", "m", "z"), ("p", "q", "r"), "n", ("n", "m"), "t", ("n", "m", "s")]
VALUES = {"same shape": E, "another shape": NEW, "static": "y", "subtree": {"x": E, "y": {"z": NEW}}, "empty subtree": {}}


@pytest.mark.parametrize("key", PATHS, ids=str)
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("times", [1, 2])
def test_set_puts_a_value_under_a_path(key, value, times):
    path = key if isinstance(key, tuple) else (key,)
    want = source()
    put(want, path, value)
    td = TensorDict(source(), 3)
    for _ in range(times):
        got = td.set(key, value)
    assert_same(got, want)
    assert_same(td, source())


@pytest.mark.parametrize("key", [("a", "x"), ("n", "b", "x"), ("t", "x"), ("a", "x", "y")])
@pytest.mark.parametrize("value", [E, "static", {"x": E}])
def test_set_through_a_leaf_is_refused(key, value):
    with pytest.raises(KeyPathError, match=r"set: the key path leads through a leaf or a static value"):
        TensorDict(source(), 3).set(key, value)


OTHERS = {
    "a leaf": {"a": E},
    "another shape": {"a": NEW, "n": {"b": NEW}},
    "new ones": {"z": E, "n": {"z": F, "m": {"z": G}}},
    "a leaf for a subtree": {"n": E},
    "a subtree for a leaf": {"a": {"x": E}},
    "statics": {"t": "y", "a": "now static", "n": {"m": {"s": E}}},
    "nothing": {},
    "empty nodes": {"n": {}, "e": {}},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize(
    "how",
    [
        lambda td, other: td.update(other),
        lambda td, other: td.update(TensorDict(other, 3)),
        lambda td, other: td.update(other.items()),
        lambda td, other: td.update(**other),
        lambda td, other: td | other,
        lambda td, other: td | TensorDict(other, 3),
        lambda td, other: tdfunc.merge(td, TensorDict(other, 3)),
    ],
    ids=["update dict", "update tree", "update pairs", "update keywords", "| dict", "| tree", "merge"],
)
def test_update_is_the_union_where_the_right_one_wins(how, other):
    td = TensorDict(source(), 3)
    assert_same(how(td, other), union(source(), other))
    assert_same(td, source())


@pytest.mark.parametrize("read", [False, True], ids=["fresh", "read before"])
def test_update_takes_key_paths(read):
    td = TensorDict(source(), 3)
    td.structure.release()
    assert not read or td["n", "m", "c"] is C
    assert_same(td.update({("n", "m", "c"): E, "d": F}), union(source(), {"n": {"m": {"c": E}}, "d": F}))


@pytest.mark.parametrize("name", ["self", "tree", "cls", "path", "key", "value"])
def test_update_takes_any_name_by_keyword(name):
    assert TensorDict(a=A).update(**{name: B})[name] is B


def test_merge_of_many_and_of_one():
    td = tdfunc.merge(TensorDict(a=A, b=B), TensorDict(b=C, c=C), TensorDict(c=D))
    assert all(td[k] is v for k, v in (("a", A), ("b", C), ("c", D)))
    assert tdfunc.merge(td).structure is td.structure
    with pytest.raises(StructureError, match="merge: expected TensorDicts"):
        tdfunc.merge(td, {"a": A})


def test_or_with_no_mapping_is_a_type_error():
    with pytest.raises(TypeError, match="unsupported operand"):
        TensorDict(a=A) | 1


CHOICES = [("a",), ("d", "a"), ("n",), (("n", "b"),), (("n", "m", "c"), "t"), (("n", "m"), ("n", "b")), ("n", ("n", "b")), (), (("n", "m", "s"),)]


def chosen(node, paths, at=()):
    out = {}
    for name, value in node.items():
        if (*at, name) in paths:
            out[name] = value
        elif isinstance(value, dict) and (inner := chosen(value, paths, (*at, name))):
            out[name] = inner
    return out


@pytest.mark.parametrize("keys", CHOICES, ids=str)
def test_select_keeps_what_is_named_in_the_order_of_the_tree(keys):
    paths = {key if isinstance(key, tuple) else (key,) for key in keys}
    assert_same(TensorDict(source(), 3).select(*keys), chosen(source(), paths))
    assert_same(TensorDict(source(), 3).select(*keys, "nope", ("n", "nope"), strict=False), chosen(source(), paths))


@pytest.mark.parametrize("keys", CHOICES, ids=str)
def test_exclude_drops_what_is_named_and_keeps_the_nodes(keys):
    want = source()
    for key in keys:
        drop(want, key if isinstance(key, tuple) else (key,))
    assert_same(TensorDict(source(), 3).exclude(*keys, "nope", ("n", "nope"), ("a", "nope")), want)


@pytest.mark.parametrize("key", ["a", "n", ("n", "b"), ("n", "m"), "t", ("n", "m", "s")], ids=str)
def test_pop_gives_the_entry_and_the_rest(key):
    td = TensorDict(source(), 3)
    value, rest = td.pop(key)
    assert value is td[key] or value.structure is td[key].structure
    assert rest.structure is td.exclude(key).structure
    assert key not in rest
    assert all(a is b for a, b in zip(rest._leaves, td.exclude(key)._leaves, strict=True))


def test_pop_of_what_is_missing_gives_the_default_or_raises():
    td = TensorDict(source(), 3)
    assert td.pop("nope", 7)[0] == 7
    assert td.pop("nope", None)[0] is None
    assert td.pop("nope", None)[1] is td
    with pytest.raises(KeyPathError, match="pop: no entry 'nope'"):
        td.pop("nope")


RENAMES = {
    "in place": ("a", "z", {"z": A, "n": {"b": B, "m": {"c": C, "s": "x"}}, "d": D, "t": None}),
    "a subtree in place": ("n", "z", {"a": A, "z": {"b": B, "m": {"c": C, "s": "x"}}, "d": D, "t": None}),
    "below, in place": (("n", "b"), ("n", "z"), {"a": A, "n": {"z": B, "m": {"c": C, "s": "x"}}, "d": D, "t": None}),
    "up": (("n", "b"), "z", {"a": A, "n": {"m": {"c": C, "s": "x"}}, "d": D, "t": None, "z": B}),
    "down": ("a", ("n", "z"), {"n": {"b": B, "m": {"c": C, "s": "x"}, "z": A}, "d": D, "t": None}),
    "into a new node": ("a", ("p", "q"), {"n": {"b": B, "m": {"c": C, "s": "x"}}, "d": D, "t": None, "p": {"q": A}}),
    "a subtree up": (("n", "m"), "m", {"a": A, "n": {"b": B}, "d": D, "t": None, "m": {"c": C, "s": "x"}}),
    "a static": ("t", "z", {"a": A, "n": {"b": B, "m": {"c": C, "s": "x"}}, "d": D, "z": None}),
    "to itself": ("a", "a", {"a": A, "n": {"b": B, "m": {"c": C, "s": "x"}}, "d": D, "t": None}),
    "below itself": ("a", ("a", "z"), {"n": {"b": B, "m": {"c": C, "s": "x"}}, "d": D, "t": None, "a": {"z": A}}),
}


@pytest.mark.parametrize(("old", "new", "want"), RENAMES.values(), ids=RENAMES)
def test_rename_moves_an_entry(old, new, want):
    assert_same(TensorDict(source(), 3).rename_key(old, new), want)


@pytest.mark.parametrize("new", ["d", "n", ("n", "b"), ("d", "x"), ("t", "x")])
def test_rename_onto_or_through_another_entry_is_refused(new):
    with pytest.raises(KeyPathError, match="the new key is taken, or leads through a leaf"):
        TensorDict(source(), 3).rename_key("a", new)


def pruned(node, keep, at=()):
    out = {}
    for name, value in node.items():
        if isinstance(value, dict):
            if inner := pruned(value, keep, (*at, name)):
                out[name] = inner
        elif not isinstance(value, torch.Tensor) or keep((*at, name), value):
            out[name] = value
    return out


PREDICATES = {
    "by name": lambda path, _: path[-1] in "ac",
    "by depth": lambda path, _: len(path) > 1,
    "by value": lambda _, leaf: leaf.sum() > 3,
    "all": lambda *_: True,
    "none": lambda *_: False,
    "a tensor": lambda _, leaf: (leaf > 0).any(),
}


@pytest.mark.parametrize("pred", PREDICATES.values(), ids=PREDICATES)
def test_filter_and_partition_split_the_leaves_and_copy_the_statics(pred):
    td = TensorDict(source(), 3)
    yes, no = td.partition(pred)
    assert_same(yes, pruned(source(), pred))
    assert_same(no, pruned(source(), lambda path, leaf: not pred(path, leaf)))
    assert_same(td.filter(pred), pruned(source(), pred))
    joined = tdfunc.merge(yes, no)
    assert joined.equal(td)
    assert joined.batch_size == (3,)


def test_predicates_and_maps_get_paths_of_exact_str_and_the_leaf():
    seen = {}
    TensorDict(source(), 3).map_with_path(lambda path, leaf, other: seen.update({path: (leaf, other)}) or leaf, TensorDict(source(), 3))
    assert [*seen] == [("a",), ("n", "b"), ("n", "m", "c"), ("d",)]
    assert all(type(name) is str for path in seen for name in path)
    assert all(leaf is other for leaf, other in seen.values())
