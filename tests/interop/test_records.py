"""Namedtuples and dataclasses, both ways, against hand-made instances."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any, Generic, NamedTuple, Optional, TypeVar, Union

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.utils import _pytree

import tdfunc
from tdfunc import BatchSizeError, KeyPathError, StructureError, TensorDict
from tdfunc.interop import from_dataclass, from_namedtuple, to_dataclass


def tree():
    td = TensorDict({"x": torch.arange(6.0).view(3, 2), "s": "mode", "n": {"y": torch.arange(3), "none": None}, "e": {}}, 3)
    return td.set("w", torch.zeros(3, 2)).tie("x", "w")


# --- namedtuples -----------------------------------------------------------------------------------------------------


def test_to_namedtuple_nests_and_holds_the_very_leaves():
    td = tree()
    got = td.to_namedtuple()
    assert isinstance(got, tuple)
    assert got._fields == ("x", "s", "n", "e", "w")
    assert got.x is td["x"]
    assert got.w is got.x
    assert got.n.y is td["n", "y"]
    assert (got.s, got.n.none, got.e) == ("mode", None, ())
    assert got.n._fields == ("y", "none")


def test_equal_keys_give_equal_classes_so_that_pytrees_fit():
    a, b = tree().to_namedtuple(), (tree() * 2).to_namedtuple()
    assert type(a) is type(b)
    summed = _pytree.tree_map(lambda p, q: p + q if isinstance(p, torch.Tensor) else p, a, b)
    assert torch.equal(summed.n.y, a.n.y * 3)


def test_a_namedtuple_of_a_tree_can_be_pickled_and_copied():
    got = tree().to_namedtuple()
    for again in (pickle.loads(pickle.dumps(got)), copy.deepcopy(got), copy.copy(got)):
        assert type(again) is type(got)
        assert torch.equal(again.n.y, got.n.y)
        assert again.s == "mode"
    assert got._replace(s="other").s == "other"


@pytest.mark.parametrize("key", ["0", "a.b", "class", "_private", "", "a b", "None"])
def test_keys_that_can_be_no_fields_are_refused_by_path(key):
    td = TensorDict({"ok": 1.0, "n": {key: 1.0, "fine": 2.0}, key: {}})
    with pytest.raises(KeyPathError) as caught:
        td.to_namedtuple()
    first, at, _, fix = str(caught.value).splitlines()
    assert first == "to_namedtuple: keys that can be no field names"
    assert at == f"  at: 'n', {key!r}; {key!r}"
    assert "td.to_dict()" in fix


def test_names_of_tuple_methods_and_of_other_alphabets_are_fields():
    got = TensorDict({"count": 1.0, "index": 2.0, "größe": 3.0}).to_namedtuple()
    assert (float(got.count), float(got.index), float(got.größe)) == (1.0, 2.0, 3.0)


def test_from_namedtuple_is_the_inverse():
    td = tree()
    assert from_namedtuple(td.to_namedtuple(), 3).structure is td.structure
    assert from_namedtuple(td.to_namedtuple(), 3).equal(td)
    assert from_namedtuple(td.to_namedtuple(), batch_size=3).ties == td.ties


class Pair(NamedTuple):
    left: Any
    right: Any = "r"


def test_from_namedtuple_reads_any_namedtuple_and_records_inside():
    a, b = torch.ones(2), torch.zeros(2)
    td = from_namedtuple(Pair(a, Pair({"deep": Pair(b, None)}, Point(a, b))), 2)
    assert list(td.keys(True, True)) == ["left", ("right", "left", "deep", "left"), ("right", "right", "x"), ("right", "right", "y")]
    assert td["right", "left", "deep", "left"] is b
    assert td["right", "left", "deep", "right"] is None
    assert td.batch_size == (2,)
    assert set(td.ties) == {(("left",), ("right", "right", "x")), (("right", "left", "deep", "left"), ("right", "right", "y"))}


@pytest.mark.parametrize("value", [(1, 2), {"a": 1}, Pair, None, torch.ones(2)], ids=repr)
def test_from_namedtuple_refuses_anything_else(value):
    with pytest.raises(StructureError, match=r"from_namedtuple: no namedtuple[\s\S]*expected: a namedtuple"):
        from_namedtuple(value)


def test_compiled_and_mapped_namedtuples_are_those_of_eager():
    counter = CompileCounter()
    compiled = torch.compile(lambda td: (td * 2).to_namedtuple(), fullgraph=True, backend=counter)
    for _ in range(2):
        got, want = compiled(tree()), (tree() * 2).to_namedtuple()
        assert type(got) is type(want)
        assert torch.equal(got.n.y, want.n.y)
    assert counter.frame_count == 1
    assert torch.equal(torch.vmap(lambda row: row.to_namedtuple().x.sum())(tree()), tree()["x"].sum(-1))


# --- dataclasses -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Point:
    x: torch.Tensor
    y: torch.Tensor


@dataclasses.dataclass(frozen=True)
class Config:
    rate: float = 0.5
    name: str = "c"


@dataclasses.dataclass(frozen=True)
class Frozen:
    t: torch.Tensor


T = TypeVar("T")


@dataclasses.dataclass
class Box(Generic[T]):
    inner: T


@dataclasses.dataclass
class Sample:
    image: torch.Tensor
    point: Point
    maybe: Optional[Point] = None  # noqa: UP045
    frozen: Frozen | None = None
    config: Config = Config()
    name: str = "sample"
    table: dict[str, Any] = dataclasses.field(default_factory=dict)
    pair: Pair | None = None
    total: Any = dataclasses.field(init=False, default="made")
    anything: Any = None
    box: Union[None, Box[int], int] = None  # noqa: UP007


def sample():
    t = torch.arange(3.0)
    return Sample(
        t, Point(t + 1, t + 2), None, Frozen(t + 3), Config(0.1), "s", {"a": t + 4, "deep": {"b": t + 5}}, Pair(t + 6), {"c": t + 7}, Box(t + 8)
    )


def test_from_dataclass_makes_a_subtree_of_each_dataclass():
    value = sample()
    td = from_dataclass(value, 3)
    assert list(td) == ["image", "point", "maybe", "frozen", "config", "name", "table", "pair", "anything", "box"]
    assert td.batch_size == td["point"].batch_size == (3,)
    assert td["image"] is value.image
    assert td["point", "y"] is value.point.y
    assert td["frozen", "t"] is value.frozen.t
    assert td["table", "deep", "b"] is value.table["deep"]["b"]
    assert td["pair", "left"] is value.pair.left
    assert (td["maybe"], td["name"], td["pair", "right"]) == (None, "s", "r")


def test_a_frozen_dataclass_without_tensors_is_a_static_value():
    assert from_dataclass(sample(), 3)["config"] == Config(0.1)
    assert isinstance(from_dataclass(Config())["rate"], torch.Tensor)


def test_to_dataclass_is_the_inverse():
    value = sample()
    got = to_dataclass(from_dataclass(value, 3), Sample)
    assert type(got) is Sample
    assert got.image is value.image
    assert type(got.point) is Point
    assert got.point.y is value.point.y
    assert type(got.frozen) is Frozen
    assert got.frozen.t is value.frozen.t
    assert got.config == value.config
    assert type(got.table["deep"]) is dict
    assert got.table["deep"]["b"] is value.table["deep"]["b"]
    assert type(got.pair) is Pair
    assert got.pair.left is value.pair.left
    assert (got.maybe, got.name, got.total) == (None, "s", "made")
    assert isinstance(got.anything, TensorDict)
    assert type(got.box) is Box
    assert got.box.inner is value.box.inner
    assert from_dataclass(got, 3).structure is from_dataclass(value, 3).structure


def test_what_happens_to_the_tree_shows_in_the_instance():
    got = to_dataclass(from_dataclass(sample(), 3)[1] * 2, Sample)
    assert got.point.y == 6.0
    assert got.image.shape == ()


def test_one_tensor_in_two_fields_is_tied_and_comes_back_as_one():
    t = torch.ones(2)
    td = from_dataclass(Point(t, t), 2)
    assert td.ties == ((("x",), ("y",)),)
    back = to_dataclass(td * 2, Point)
    assert back.x is back.y


def test_fields_with_defaults_may_be_missing():
    got = to_dataclass(TensorDict({"image": 1.0, "point": {"x": 2.0, "y": 3.0}}), Sample)
    assert (float(got.point.y), got.name, got.table, got.config) == (3.0, "sample", {}, Config())


def test_an_optional_field_takes_a_subtree_or_none():
    entries = {"image": 1.0, "point": {"x": 2.0, "y": 3.0}}
    assert to_dataclass(TensorDict({**entries, "maybe": None}), Sample).maybe is None
    assert type(to_dataclass(TensorDict({**entries, "maybe": {"x": 2.0, "y": 3.0}}), Sample).maybe) is Point


@pytest.mark.parametrize(
    ("entries", "cls", "says"),
    [
        ({"x": 1.0}, Point, r"not the fields of Point\n  at: the root[\s\S]*nothing for the field 'y'\n  fix: td\.set\(\('y',\), value\)"),
        ({"x": 1.0, "y": 2.0, "z": 3.0}, Point, r"no field 'z'[\s\S]*fix: td\.exclude\(\('z',\)\)"),
        ({"x": 1.0, "Y": 2.0, "y": 2.0, "xs": 1.0}, Point, r"no field 'Y'; no field 'xs' \(did you mean 'x'\?\)"),
        (
            {"image": 1.0, "point": {"x": 1.0}},
            Sample,
            r"not the fields of Point\n  at: 'point'[\s\S]*nothing for the field 'y'\n  fix: td\.set\(\('point', 'y'\), value\)",
        ),
        ({"image": 1.0, "point": {"x": 1.0, "y": 1.0}, "total": 1.0}, Sample, r"no field 'total'"),
        (
            {"image": 1.0, "point": {"x": 1.0, "y": 1.0}, "pair": {"right": 1.0}},
            Sample,
            r"not the fields of Pair\n  at: 'pair'[\s\S]*nothing for the field 'left'",
        ),
    ],
)
def test_entries_that_are_not_the_fields_are_refused_by_path(entries, cls, says):
    with pytest.raises(KeyPathError, match=rf"to_dataclass: the entries are[\s\S]*{says}"):
        to_dataclass(TensorDict(entries), cls)


@pytest.mark.parametrize("cls", [dict, Pair, Point(1, 2), None, "Point"], ids=repr)
def test_to_dataclass_refuses_what_is_no_dataclass(cls):
    with pytest.raises(StructureError, match=r"to_dataclass: no dataclass[\s\S]*fix: decorate it"):
        to_dataclass(tree(), cls)


@pytest.mark.parametrize("value", [Point, {"x": 1}, Pair(1), 3], ids=repr)
def test_from_dataclass_refuses_what_is_no_instance(value):
    with pytest.raises(StructureError, match=r"from_dataclass: no instance of a dataclass"):
        from_dataclass(value)


def test_annotations_that_cannot_be_read_are_an_error_only_where_they_are_needed():
    @dataclasses.dataclass
    class Inner:
        t: torch.Tensor

    @dataclasses.dataclass
    class Outer:
        inner: Inner

    assert float(to_dataclass(TensorDict(t=1.0), Inner).t) == 1.0
    with pytest.raises(StructureError, match=r"annotations of Outer cannot be read, name 'Inner'[\s\S]*top of a module"):
        to_dataclass(TensorDict(inner={"t": 1.0}), Outer)


def test_a_field_that_can_be_no_entry_is_refused_by_path():
    with pytest.raises(StructureError, match=r"can be no entry[\s\S]*at: 'y', 'left'"):
        from_dataclass(Point(torch.ones(1), Pair([1])))
    with pytest.raises(BatchSizeError, match=r"does not start with the batch size[\s\S]*at: 'y', 'left'"):
        from_dataclass(Point(torch.ones(3), Pair(torch.ones(2))), 3)


def test_compiled_and_mapped_dataclasses_are_those_of_eager():
    fn = lambda td: to_dataclass(td * 2, Point).x + to_dataclass(td, Point).y
    td = TensorDict({"x": torch.arange(3.0), "y": torch.ones(3)}, 3)
    want = torch.tensor([1.0, 3.0, 5.0])
    assert torch.equal(torch.vmap(fn)(td), want)
    assert torch.equal(fn(td), want)
    counter = CompileCounter()
    compiled = torch.compile(fn, fullgraph=True, backend=counter)
    assert torch.equal(compiled(td), want)
    assert torch.equal(compiled(td + 0), want)
    assert counter.frame_count == 1


def test_compiled_a_dataclass_or_namedtuple_given_becomes_a_tree():
    for make, kind in ((from_dataclass, Point), (from_namedtuple, Pair)):
        compiled = torch.compile(lambda value: make(value, 3) * 2, fullgraph=True, backend="eager")
        value = kind(torch.arange(3.0), torch.ones(3))
        assert compiled(value).equal(make(value, 3) * 2)


def test_gradients_flow_through_records():
    x, y = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0])
    (from_dataclass(Point(x, y), 2) * 3)["x"].sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    grads = tdfunc.grad(lambda td: (to_dataclass(td, Point).y ** 2).sum())(from_dataclass(Point(y, y + 0), 2))
    assert grads["y"].tolist() == [6.0, 8.0]
