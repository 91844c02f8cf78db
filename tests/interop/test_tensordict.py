"""The tensordict library's trees, both ways, against trees that it makes itself."""

from __future__ import annotations

import dataclasses
import enum

import pytest
import torch
from hypothesis import given, settings
from torch.utils import _pytree

import tdfunc
from tdfunc import BatchSizeError, StructureError, TensorDict, from_tensordict, static
from tests.laws.strategies import assert_same, nodes, trees, walk

tensordict = pytest.importorskip("tensordict")

law = settings(deadline=None, derandomize=True, max_examples=60, database=None)


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Config:
    rate: float = 0.5


def tree():
    td = TensorDict(
        {
            "x": torch.zeros(3, 2),
            "n": {"y": torch.ones(3), "e": {}},
            "more": TensorDict({"z": torch.zeros(3, 4, 5)}, (3, 4)),
            "s": "mode",
        },
        3,
    )
    return td.set("w", torch.zeros(3, 2)).tie("x", "w")


def test_to_tensordict_has_the_very_tensors_batch_sizes_and_values():
    td = tree()
    got = td.to_tensordict()
    assert type(got) is tensordict.TensorDict
    assert list(got.keys()) == ["x", "n", "more", "s", "w"]
    assert (got.batch_size, got["n"].batch_size, got["n", "e"].batch_size, got["more"].batch_size) == ((3,), (3,), (3,), (3, 4))
    for key in ("x", ("n", "y"), ("more", "z"), "w"):
        assert got[key] is td[key]
    assert got["s"] == "mode"
    assert isinstance(got.get("s"), tensordict.NonTensorData)


def test_from_tensordict_has_the_very_tensors_batch_sizes_and_values():
    x, y, z = torch.zeros(3, 2), torch.ones(3), torch.zeros(3, 4, 5)
    more = tensordict.TensorDict({"z": z}, batch_size=(3, 4))
    theirs = tensordict.TensorDict({"x": x, "n": {"y": y, "e": {}}, "more": more, "s": tensordict.NonTensorData("mode"), "w": x}, batch_size=3)
    got = from_tensordict(theirs)
    assert got.structure is tree().structure
    assert (got.batch_size, got["n"].batch_size, got["more"].batch_size) == ((3,), (3,), (3, 4))
    for key in ("x", ("n", "y"), ("more", "z"), "w"):
        assert got[key] is theirs[key]
    assert got.ties == ((("x",), ("w",)),)


@law
@given(trees())
def test_from_tensordict_is_the_inverse_of_to_tensordict(td):
    theirs = td.to_tensordict()
    assert {path: tuple(theirs[path].batch_size) if path else tuple(theirs.batch_size) for path, _ in nodes(td)} == dict(nodes(td))
    back = from_tensordict(theirs)
    assert_same(back, td)
    ours = dict(walk(td))
    assert all(leaf is ours[path] for path, leaf in walk(back) if isinstance(leaf, torch.Tensor))


@pytest.mark.parametrize(
    "value",
    ["v", b"v", None, True, torch.float32, torch.device("cpu"), torch.Size([2]), (1, "z"), Colour.RED, Config(0.1), static(5), static(1.5)],
    ids=repr,
)
def test_static_values_are_non_tensor_data_and_back(value):
    td = TensorDict({"x": torch.zeros(3), "n": {"s": value}}, 3)
    theirs = td.to_tensordict()
    want = value.get() if hasattr(value, "get") else value
    assert theirs["n", "s"] == want
    assert type(theirs["n", "s"]) is type(want)
    assert theirs.get(("n", "s")).batch_size == (3,)
    assert from_tensordict(theirs).structure is td.structure


def test_what_theirs_computes_comes_back():
    theirs = (tree().to_tensordict() + 1)[:2].reshape(2, 1)
    assert from_tensordict(theirs).equal((tree() + 1)[:2].reshape(2, 1).untie("w"))


def test_dim_names_device_and_lock_are_left_behind():
    theirs = tensordict.TensorDict({"x": torch.zeros(3)}, batch_size=3, names=["rows"], device="cpu").lock_()
    assert_same(from_tensordict(theirs), TensorDict({"x": torch.zeros(3)}, 3))


def test_a_lazy_stack_becomes_a_dense_one():
    members = [tensordict.TensorDict({"x": torch.full((2, 3), float(i)), "n": {"y": torch.zeros(2)}, "s": "same"}, batch_size=2) for i in range(3)]
    for dim in (0, 1):
        theirs = tensordict.lazy_stack(members, dim)
        got = from_tensordict(theirs)
        assert got.batch_size == theirs.batch_size
        assert torch.equal(got["x"], theirs["x"])
        assert got["s"] == "same"
    inside = from_tensordict(tensordict.TensorDict({"lazy": tensordict.lazy_stack(members), "a": torch.zeros(3)}, batch_size=3))
    assert (inside.batch_size, inside["lazy"].batch_size) == ((3,), (3, 2))


@pytest.mark.parametrize(
    ("members", "error", "says"),
    [
        ([{"x": torch.zeros(2)}, {"x": torch.zeros(2), "only": torch.zeros(2)}], StructureError, "only"),
        ([{"x": torch.zeros(2)}, {"x": torch.zeros(3)}], BatchSizeError, r"member 1, 'x': \(3,\) for \(2,\)"),
        ([{"x": torch.zeros(2), "s": "a"}, {"x": torch.zeros(2), "s": "b"}], StructureError, "different static values"),
    ],
    ids=["keys", "shapes", "values"],
)
def test_a_lazy_stack_that_no_dense_one_can_hold_is_refused(members, error, says):
    lazy = tensordict.lazy_stack([tensordict.TensorDict(member) for member in members])
    with pytest.raises(error, match=rf"from_tensordict: a lazy stack that no dense one can hold\n  at: the root[\s\S]*{says}"):
        from_tensordict(lazy)
    with pytest.raises(error, match=rf"a lazy stack that no dense one can hold\n  at: 'n', 'lazy'[\s\S]*{says}"):
        from_tensordict(tensordict.TensorDict({"n": {"lazy": lazy}}))


def test_a_stack_of_equal_values_is_one_static_value():
    rows = [tensordict.TensorDict({"x": torch.zeros(2), "s": "same"}) for _ in range(3)]
    theirs = torch.stack([torch.stack(rows)] * 2)
    assert isinstance(theirs.get("s"), tensordict.NonTensorStack)
    assert from_tensordict(theirs)["s"] == "same"


def test_rows_with_different_values_are_refused_by_path():
    rows = [tensordict.TensorDict({"n": {"s": value}, "x": torch.zeros(2)}) for value in ("a", "b", "a")]
    with pytest.raises(
        StructureError,
        match=r"rows with different non-tensor values\n  at: 'n', 's'[\s\S]*got: 2 different ones[\s\S]*fix: td\.exclude\(\('n', 's'\)\)",
    ):
        from_tensordict(torch.stack(rows))


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, object(), {1}], ids=type)
def test_a_value_that_cannot_be_static_is_refused_by_path(value):
    theirs = tensordict.TensorDict({"n": {"s": tensordict.NonTensorData(value)}})
    with pytest.raises(StructureError, match=r"from_tensordict: this value cannot be static[\s\S]*at: 'n', 's'"):
        from_tensordict(theirs)


@tensordict.tensorclass
class Record:
    x: torch.Tensor
    name: str
    inner: tensordict.TensorDict


def test_a_tensorclass_is_a_tree_of_its_fields():
    record = Record(torch.zeros(3, 2), "n", tensordict.TensorDict({"y": torch.zeros(3)}, batch_size=3), batch_size=3)
    want = TensorDict({"x": torch.zeros(3, 2), "name": "n", "inner": {"y": torch.zeros(3)}}, 3)
    assert_same(from_tensordict(record), want)
    assert_same(from_tensordict(tensordict.TensorDict({"r": record}, batch_size=3)), TensorDict({"r": want}, 3))


def test_parameters_stay_parameters_and_gradients_flow():
    theirs = tensordict.TensorDictParams(tensordict.TensorDict({"w": torch.ones(2)}))
    td = from_tensordict(theirs)
    assert type(td["w"]) is torch.nn.Parameter
    (td * 3)["w"].sum().backward()
    assert theirs["w"].grad.tolist() == [3.0, 3.0]
    live = TensorDict(x=torch.ones(2, requires_grad=True))
    live.to_tensordict()["x"].sum().backward()
    assert live["x"].grad.tolist() == [1.0, 1.0]


def test_an_unbatched_tensor_is_refused_by_path():
    theirs = tensordict.TensorDict({"n": {"u": tensordict.UnbatchedTensor(torch.zeros(7))}, "x": torch.zeros(3)}, batch_size=3)
    with pytest.raises(
        StructureError, match=r"a tensor without batch dims\n  at: 'n', 'u'[\s\S]*starts with \(3,\)[\s\S]*fix: td\.exclude\(\('n', 'u'\)\)"
    ):
        from_tensordict(theirs)


@pytest.mark.parametrize("value", [{"a": 1}, tree(), torch.ones(2), None, tensordict.NonTensorData("x")], ids=type)
def test_anything_else_is_refused(value):
    with pytest.raises(StructureError, match=r"from_tensordict: no tree of tensordict[\s\S]*tdfunc\.TensorDict\(mapping\)"):
        from_tensordict(value)


def test_leaves_that_are_no_tensors_are_refused_by_path():
    td = _pytree.tree_map(str, TensorDict({"n": {"x": 1.0}}))
    with pytest.raises(StructureError, match=r"to_tensordict: a leaf that is no tensor\n  at: 'n', 'x'\n  got: str"):
        td.to_tensordict()


def test_odd_keys_go_and_come_back():
    td = TensorDict({"a.b": torch.zeros(2), "": {"new\nline": torch.ones(2)}, "batch_size": torch.zeros(2), "data": "static"}, 2)
    assert_same(from_tensordict(td.to_tensordict()), td)


def test_inside_vmap_the_batch_sizes_are_those_of_a_row():
    seen = []

    def row(td):
        theirs = td.to_tensordict()
        seen.append((theirs.batch_size, theirs["more"].batch_size))
        return from_tensordict(theirs)["x"] * 2

    assert torch.equal(torch.vmap(row)(tree()), tree()["x"] * 2)
    assert seen == [((), (4,))]


def test_without_the_library_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensordict", None)
    with pytest.raises(ImportError, match=r"to_tensordict needs tensordict, which is not installed\n  fix: pip install tensordict"):
        tree().to_tensordict()
    with pytest.raises(ImportError, match=r"from_tensordict needs tensordict"):
        tdfunc.from_tensordict({})
