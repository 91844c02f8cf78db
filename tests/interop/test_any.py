"""Lists of rows and values of any type, against the trees built by hand; `tolist` is the way back."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from tdfunc import BatchSizeError, KeyPathError, StructureError, TensorDict
from tdfunc.interop import from_any, from_dataclass, from_list, from_struct_array
from tests.laws.strategies import assert_same, full_sizes, trees

law = settings(deadline=None, derandomize=True, max_examples=60, database=None)


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = "named"


@dataclasses.dataclass(frozen=True)
class Config:
    rate: float = 0.5


# --- lists -----------------------------------------------------------------------------------------------------------


@law
@given(trees(size=full_sizes, dtypes=(torch.float32, torch.int64, torch.bool), ties=False))
def test_from_list_is_the_inverse_of_tolist(td):
    numbers = [path for path, value in td.structure.statics() if isinstance(value, bool | int | float)]
    no_shape = [path for path, leaf in zip(td.structure.paths(), td._leaves) if not leaf.numel()]
    td = td.exclude(*numbers, *no_shape)
    if not td.is_empty():
        assert_same(from_list(td.tolist()), td)


def test_tolist_nests_dicts_of_numbers_in_lists():
    more = TensorDict({"z": torch.arange(4).view(2, 2)}, (2, 2))
    td = TensorDict({"x": torch.tensor([[0.5, 1.0], [1.5, 2.0]]), "s": "a", "more": more, "n": {"b": torch.tensor([True, False])}}, 2)
    assert td.tolist() == [
        {"x": [0.5, 1.0], "s": "a", "more": [{"z": 0}, {"z": 1}], "n": {"b": True}},
        {"x": [1.5, 2.0], "s": "a", "more": [{"z": 2}, {"z": 3}], "n": {"b": False}},
    ]
    assert from_list(td.tolist())["more"].batch_size == (2, 2)
    assert TensorDict({"x": torch.arange(4).view(2, 2)}, (2, 2)).tolist() == [[{"x": 0}, {"x": 1}], [{"x": 2}, {"x": 3}]]
    assert TensorDict(x=1.0, s="a").tolist() == {"x": 1.0, "s": "a"}
    assert TensorDict({"x": torch.zeros(2, 0)}, (2, 0)).tolist() == [[], []]


def test_from_list_stacks_rows_of_any_kind():
    want = TensorDict({"x": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "y": "named"}, 2)
    rows = [[1.0, 2.0], torch.tensor([1.0, 2.0]), np.array([1.0, 2.0], np.float32), [torch.tensor(1.0), torch.tensor(2.0)]]
    for row in rows:
        for make in (lambda x: {"x": x, "y": "named"}, Point):
            assert_same(from_list([make(row), make([3.0, 4.0])]), want)


def test_gradients_flow_through_lists_of_tensors():
    leaves = [torch.tensor(1.0, requires_grad=True), torch.tensor(2.0, requires_grad=True)]
    (from_list([{"x": leaves}, {"x": leaves}])["x"] * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert [leaf.grad.item() for leaf in leaves] == [4.0, 6.0]


@pytest.mark.parametrize(
    ("rows", "error", "says"),
    [
        ([], StructureError, r"from_list: no rows[\s\S]*fix: TensorDict\(\{\}, batch_size=0\)"),
        (({"x": 1},), StructureError, r"from_list: no list[\s\S]*got: tuple"),
        ([{"x": 1}, 2], StructureError, r"from_list: row 1 tells no entries[\s\S]*got: int"),
        ([1, 2], StructureError, r"from_list: row 0 tells no entries"),
        ([{"x": 1}, {"y": 1}], StructureError, r"from_list: rows that cannot be stacked[\s\S]*member 1"),
        ([{"x": "a"}, {"x": "b"}], StructureError, r"from_list: rows that cannot be stacked[\s\S]*different static values"),
        ([{"x": [1]}, {"x": [1, 2]}], BatchSizeError, r"from_list: rows that cannot be stacked[\s\S]*'x': \(2,\) for \(1,\)"),
        ([{"n": {"x": [[1], [1, 2]]}}], StructureError, r"from_list: a list that can be no tensor[\s\S]*at: 'n', 'x'"),
        ([{"x": ["a"]}], StructureError, r"from_list: a list that can be no tensor[\s\S]*got: \['a'\]"),
        ([{1: 2}], KeyPathError, r"a key must be a str"),
    ],
)
def test_rows_that_are_none_are_refused_by_path(rows, error, says):
    with pytest.raises(error, match=says):
        from_list(rows)


# --- any -------------------------------------------------------------------------------------------------------------


def test_from_any_takes_what_tells_its_entries():
    x, y = torch.ones(2), torch.zeros(2, 1)
    want = TensorDict({"left": x, "right": y}, 2)
    for value in ({"left": x, "right": y}, collections.OrderedDict(left=x, right=y), Pair(x, y), want):
        assert_same(from_any(value, 2), want)
    assert from_any(want) is want
    assert from_any(Pair(x, y)).batch_size == ()
    records = np.array([(1, 0.5), (2, 1.5)], dtype=[("a", "i8"), ("b", "f4")])
    assert_same(from_any(records), from_struct_array(records))
    assert_same(from_any([{"a": 1}, {"a": 2}]), TensorDict({"a": torch.tensor([1, 2])}, 2))
    assert_same(from_any(Point(x), 2), from_dataclass(Point(x), 2))
    assert_same(from_any(records, ()), from_struct_array(records).with_batch_size(()))


def test_from_any_takes_the_same_inside():
    x = torch.ones(2)
    td = from_any({"p": Point(x, Config()), ("n", "k"): Pair([1, 2], None), "rows": [{"a": 1}, {"a": 2}], "e": {}, "l": [[0.5], [1.5]]}, 2)
    want = TensorDict(
        {
            "p": {"x": x, "y": Config()},
            "n": {"k": {"left": torch.tensor([1, 2]), "right": None}},
            "rows": TensorDict({"a": torch.tensor([1, 2])}, 2),
            "e": {},
            "l": torch.tensor([[0.5], [1.5]]),
        },
        2,
    )
    assert_same(td, want)
    assert from_any(Config(0.25))["rate"].item() == 0.25


def test_from_any_takes_trees_and_frames_of_other_libraries():
    pd = pytest.importorskip("pandas")
    tensordict = pytest.importorskip("tensordict")
    frame, peer = pd.DataFrame({"a.b": [1, 2]}), tensordict.TensorDict(c=torch.ones(2, 1), batch_size=2)
    assert_same(from_any(frame), TensorDict({"a": {"b": torch.tensor([1, 2])}}, 2))
    assert_same(from_any(peer), TensorDict({"c": torch.ones(2, 1)}, 2))
    assert_same(from_any({"f": frame, "p": peer}, 2), TensorDict({"f": {"a": {"b": torch.tensor([1, 2])}}, "p": {"c": torch.ones(2, 1)}}, 2))
    assert_same(from_any([peer, peer]), TensorDict({"c": torch.ones(2, 2, 1)}, (2, 2)))

    @tensordict.tensorclass
    class Record:
        c: torch.Tensor

    record = Record(torch.ones(2, 1), batch_size=[2])
    assert_same(from_any({"r": {"in": record}}), TensorDict({"r": {"in": TensorDict({"c": torch.ones(2, 1)}, 2)}}))


def test_one_tensor_in_two_places_is_tied():
    x = torch.ones(2)
    assert from_any({"a": x, "b": Pair(x, x + 1)}).ties == ((("a",), ("b", "left")),)


@pytest.mark.parametrize("value", [3, "s", None, torch.ones(2), np.ones(2), Point, {1, 2}], ids=repr)
def test_what_tells_no_entries_is_refused(value):
    with pytest.raises(StructureError, match=r"from_any: a value that tells no entries[\s\S]*fix: TensorDict"):
        from_any(value)


def test_a_tuple_may_mean_two_things_and_is_refused():
    with pytest.raises(StructureError, match=r"got: tuple[\s\S]*fix: from_list\(list\(value\)\) for rows"):
        from_any(({"a": 1}, {"a": 2}))
    with pytest.raises(BatchSizeError, match="does not start with the batch size"):
        from_any({"a": [1, 2]}, 3)
