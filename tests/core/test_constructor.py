"""All that the constructor takes, against the nested dict that it stands for."""

from __future__ import annotations

import collections
import types

import numpy as np
import pytest
import torch

from tdfunc import BatchSizeError, KeyPathError, TensorDict, static

A, B, C = torch.zeros(3), torch.ones(3, 2), torch.arange(3)


def dense(td):
    return {k: dense(v) if isinstance(v, TensorDict) else v for k, v in td.items()}


def assert_same(got, want):
    assert list(got) == list(want)
    for key, value in want.items():
        if isinstance(value, dict):
            assert_same(got[key], value)
        elif isinstance(value, torch.Tensor):
            assert got[key] is value
        else:
            assert type(got[key]) is type(value)
            assert got[key] == value


WANT = {"a": A, "n": {"b": B, "c": C}, "s": "x"}
FORMS = {
    "a dict": lambda: TensorDict({"a": A, "n": {"b": B, "c": C}, "s": "x"}),
    "an ordered dict": lambda: TensorDict(collections.OrderedDict(a=A, n=collections.OrderedDict(b=B, c=C), s="x")),
    "a mapping proxy": lambda: TensorDict(types.MappingProxyType({"a": A, "n": types.MappingProxyType({"b": B, "c": C}), "s": "x"})),
    "a chain map": lambda: TensorDict(collections.ChainMap({"s": "x"}, {"a": A, "n": {"b": B, "c": C}})),
    "pairs": lambda: TensorDict([("a", A), ("n", {"b": B, "c": C}), ("s", "x")]),
    "lists of two": lambda: TensorDict([["a", A], ["n", {"b": B, "c": C}], ["s", "x"]]),
    "a generator of pairs": lambda: TensorDict((k, v) for k, v in WANT.items()),
    "dict items": lambda: TensorDict(WANT.items()),
    "keywords": lambda: TensorDict(a=A, n={"b": B, "c": C}, s="x"),
    "a dict and keywords": lambda: TensorDict({"a": A, "n": {"b": B, "c": C}}, s="x"),
    "a TensorDict": lambda: TensorDict(TensorDict(WANT)),
    "a TensorDict and keywords": lambda: TensorDict(TensorDict(a=A, n={"b": B, "c": C}), s="x"),
    "a nested TensorDict": lambda: TensorDict({"a": A, "n": TensorDict(b=B, c=C), "s": "x"}),
    "tuple keys": lambda: TensorDict({"a": A, ("n", "b"): B, ("n", "c"): C, "s": "x"}),
    "tuple pairs": lambda: TensorDict([(("a",), A), (("n", "b"), B), (("n", ("c",)), C), ("s", "x")]),
    "a tuple key that continues a dict": lambda: TensorDict({"a": A, "n": {"b": B}, ("n", "c"): C, "s": "x"}),
    "a dict that continues a tuple key": lambda: TensorDict({"a": A, ("n", "b"): B, "n": {"c": C}, "s": "x"}),
    "a tuple key that continues a TensorDict": lambda: TensorDict({"a": A, "n": TensorDict(b=B), ("n", "c"): C, "s": "x"}),
}


@pytest.mark.parametrize("size", [(), 3, [3], (3,), torch.Size([3])], ids=repr)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_gives_the_same_tree(form, size):
    td = TensorDict(form(), size)
    assert_same(td, WANT)
    assert td.structure is TensorDict(WANT, size).structure
    assert td.batch_size == (torch.Size([3]) if size != () else ())


def test_source_is_positional_or_by_name_and_entries_may_have_any_other_name():
    assert list(TensorDict(source={"a": A}, batch_size=3, self=A, cls=A)) == ["a", "self", "cls"]
    assert list(TensorDict({"source": A, "batch_size": B}, 3)) == ["source", "batch_size"]


def test_nothing_gives_an_empty_tree():
    for td in (TensorDict(), TensorDict({}), TensorDict([]), TensorDict(()), TensorDict(TensorDict())):
        assert dense(td) == {}
        assert td.structure is TensorDict().structure


def test_keywords_win_over_the_source_and_later_pairs_over_earlier():
    assert TensorDict({"a": A, "b": B}, a=C)["a"] is C
    assert list(TensorDict({"a": A, "b": B}, a=C)) == ["a", "b"]
    assert TensorDict([("a", A), ("a", C)])["a"] is C
    assert TensorDict({"n": {"b": B}}, n={"c": C}).to_dict().keys() == {"n"}


def test_a_tuple_key_inside_a_nested_mapping_is_a_path_there():
    td = TensorDict({"r": {("x", "y"): A, "z": {("v", "w"): B}}})
    assert_same(td, {"r": {"x": {"y": A}, "z": {"v": {"w": B}}}})


def test_dotted_keys_stay_flat():
    assert_same(TensorDict({"a.b": A, "c/d": B}), {"a.b": A, "c/d": B})


NUMBERS = {
    "int": 5,
    "float": 0.5,
    "complex": 1 + 2j,
    "numpy int": np.int16(5),
    "numpy float": np.float64(0.5),
    "numpy bool": np.bool_(True),
    "numpy array": np.arange(6, dtype=np.int8).reshape(3, 2),
    "numpy 0-dim": np.array(1.5, dtype=np.float32),
}


@pytest.mark.parametrize("value", NUMBERS.values(), ids=NUMBERS)
def test_numbers_and_arrays_become_the_tensors_torch_makes_of_them(value):
    want = torch.as_tensor(value)
    for td in (TensorDict(x=value), TensorDict().set("x", value), TensorDict().update(x=value), TensorDict({"n": {"x": value}})["n"]):
        assert isinstance(td["x"], torch.Tensor)
        assert td["x"].dtype == want.dtype
        assert torch.equal(td["x"], want)


def test_an_array_is_shared_as_torch_shares_it():
    array = np.zeros(3)
    td = TensorDict(x=array)
    array[0] = 7
    assert td["x"][0] == 7


def test_bool_str_and_none_are_static_and_a_marked_number_too():
    td = TensorDict(b=True, s="x", n=None, i=static(5), f=static(0.5))
    assert dense(td) == {"b": True, "s": "x", "n": None, "i": 5, "f": 0.5}
    assert type(td["i"]) is int
    assert td.is_empty()


class Sub(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "leaf", [torch.nn.Parameter(torch.ones(3, 2)), torch.ones(3, 2).as_subclass(Sub), torch.ones(3, 2, device="meta")], ids=lambda t: type(t).__name__
)
def test_a_leaf_is_the_very_tensor_given(leaf):
    for td in (TensorDict({"x": leaf}, 3), TensorDict(x=leaf), TensorDict({"n": {"x": leaf}}, 3)["n"], TensorDict({}, 3).set("x", leaf)):
        assert td["x"] is leaf


NESTED = [
    # parent's size, child's size, child's leaf shape, what the child says of itself in there
    ((3,), (3,), (3, 4, 5), (3,)),
    ((3,), (3, 4), (3, 4, 5), (3, 4)),
    ((3,), (3, 4, 5), (3, 4, 5), (3, 4, 5)),
    ((3, 4), (3,), (3, 4, 5), (3, 4)),
    ((3, 4), (), (3, 4, 5), (3, 4)),
    ((), (3,), (3, 4, 5), (3,)),
    ((), (), (3, 4, 5), ()),
]


@pytest.mark.parametrize(("outer", "inner", "shape", "want"), NESTED)
def test_a_nested_tensordict_keeps_more_batch_dims_and_gets_missing_ones(outer, inner, shape, want):
    child = TensorDict({"x": torch.zeros(shape), "d": {"y": torch.zeros(shape)}}, inner)
    base = TensorDict({"top": torch.zeros(outer)}, outer)
    for td in (TensorDict({"top": base["top"], "n": child}, outer), base.set("n", child), base.update({"n": child}), base | {"n": child}):
        assert td.batch_size == outer
        assert td["n"].batch_size == td["n", "d"].batch_size == want
        assert td["n"]["x"] is child["x"]
    assert child.batch_size == inner


@pytest.mark.parametrize(("outer", "inner", "shape"), [((3,), (4,), (4, 3)), ((3, 4), (3,), (3, 5)), ((3,), (), (2,)), ((3, 4), (3,), (3,))])
def test_a_nested_tensordict_that_does_not_fit_is_refused(outer, inner, shape):
    child = TensorDict({"x": torch.zeros(shape)}, inner)
    with pytest.raises(BatchSizeError, match="does not start with the batch size"):
        TensorDict({"n": child}, outer)
    with pytest.raises(BatchSizeError, match="does not start with the batch size"):
        TensorDict({"top": torch.zeros(outer)}, outer).set("n", child)


def test_a_source_keeps_its_batch_size_unless_one_is_given():
    td = TensorDict({"x": torch.zeros(3, 4, 5)}, (3, 4))
    assert TensorDict(td).batch_size == (3, 4)
    assert TensorDict(td, 3).batch_size == (3,)
    assert TensorDict(td, (3, 4, 5)).batch_size == (3, 4, 5)
    assert TensorDict(td, y=torch.zeros(3, 4)).batch_size == (3, 4)


CLASHES = [{"a": A, ("a", "b"): B}, {("a", "b"): B, "a": A}, {"n": {"a": A, ("a", "b"): B}}, [(("a", "b", "c"), A), (("a", "b"), B)]]


@pytest.mark.parametrize("source", CLASHES)
def test_a_leaf_and_a_subtree_under_one_key_are_refused(source):
    with pytest.raises(KeyPathError, match="as a leaf and one as a subtree"):
        TensorDict(source)


def test_the_source_is_not_kept():
    source = {"a": A, "n": {"b": B}}
    td = TensorDict(source)
    source["a"] = C
    source["n"]["b"] = C
    source["new"] = C
    assert_same(td, {"a": A, "n": {"b": B}})


def test_deep_nesting_works():
    source, path = {"leaf": A}, ("leaf",)
    for i in range(60):
        source, path = {f"d{i}": source}, (f"d{i}", *path)
    td = TensorDict(source, 3)
    assert td[path] is A
    assert td.structure.paths() == (path,)
    assert (td + 1)[path].tolist() == [1.0] * 3
    assert td.set(path, B)[path] is B
