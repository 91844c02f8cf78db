"""Static values: kept by type and value, told apart where Python's == would not, written and read as they were."""

from __future__ import annotations

import dataclasses
import enum
import fractions
import json
import pickle
import subprocess
import sys

import pytest
import torch

from tdfunc import StorageError, StructureError, TensorDict, register_static, static
from tdfunc.structure import Static, from_json, is_static, to_json


class Mode(enum.StrEnum):
    A = "a"


class Level(enum.IntEnum):
    ONE = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass(frozen=True)
class Config:
    width: int
    rate: float = 0.1
    inner: tuple[str, ...] = ("x",)


@dataclasses.dataclass(frozen=True)
class Settings:
    width: int
    rate: float = 0.1
    inner: tuple[str, ...] = ("x",)


@dataclasses.dataclass(frozen=True)
class Derived:
    """Its __init__ takes other arguments than its fields."""

    total: int = dataclasses.field(init=False)
    parts: dataclasses.InitVar[tuple[int, ...]]

    def __post_init__(self, parts):
        object.__setattr__(self, "total", sum(parts))


@dataclasses.dataclass
class Mutable:
    width: int


class Version:
    def __init__(self, text):
        self.text = text

    def __eq__(self, other):
        return isinstance(other, Version) and self.text == other.text

    def __hash__(self):
        return hash(self.text)


register_static(Version, lambda v: v.text, Version)
register_static(fractions.Fraction, str, fractions.Fraction)

NAN, INF = float("nan"), float("inf")
VALUES = [
    *("", "a", "1", "None", "\x00ü", b"", b"a", b"\xff", True, False, None, 0, 1, -1, 2**70, 0.0, -0.0, 1.0, 0.1, NAN, INF, -INF),
    *(0j, complex(-0.0, 0.0), 1 + 0j, complex(NAN, 1), Mode.A, Level.ONE, Access.READ, Access.READ | Access.WRITE, Access(0)),
    *(torch.float32, torch.int64, torch.bool, torch.device("cpu"), torch.device("cuda:1"), torch.device("cuda"), torch.Size([1]), torch.Size([])),
    *(torch.strided, torch.sparse_coo, torch.channels_last, torch.contiguous_format),
    *((), (1,), (True,), (1.0,), ("a",), (Mode.A,), ((1,),), ("a", (None, b"a")), (torch.Size([1]),)),
    *(
        Config(1),
        Config(2),
        Config(1, 1),
        Config(1, 1.0),
        Settings(1),
        Derived((1, 2)),
        Version("1"),
        fractions.Fraction(1),
        fractions.Fraction(1, 3),
    ),
]
IDS = [f"{i}-{type(value).__name__}" for i, value in enumerate(VALUES)]


def tree(value):
    return TensorDict({"x": torch.ones(2), "s": static(value)})


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a is b or a == b or a != a  # noqa: PLR0124 - nan


def test_all_values_are_told_apart_as_values_and_in_structures():
    for i, a in enumerate(VALUES):
        for j, b in enumerate(VALUES):
            assert (Static(a) == Static(b)) is (i == j), (a, b)
            assert (tree(a).structure is tree(b).structure) is (i == j), (a, b)
            assert tree(a).equal(tree(b)) is (i == j), (a, b)
        assert hash(Static(a)) == hash(Static(a))


@pytest.mark.parametrize("value", VALUES, ids=IDS)
def test_a_value_comes_back_as_it_went_in(value):
    td = tree(value)
    assert same(td["s"], value)
    assert same(dict(td.items())["s"], value)
    assert same(td.map(torch.neg).to_dict()["s"], value)
    assert same(tree(0).set("s", static(value))["s"], value)
    assert td.structure.statics()[0][0] == ("s",)
    assert list(td.keys(leaves_only=True)) == ["x"]


@pytest.mark.parametrize("value", VALUES, ids=IDS)
def test_json_gives_the_identical_structure(value):
    structure = tree(value).structure
    text = to_json(structure)
    json.loads(text)
    assert from_json(text) is structure


# torch itself cannot pickle a memory format.
@pytest.mark.parametrize("value", [v for v in VALUES if not isinstance(v, torch.memory_format)], ids=lambda v: type(v).__name__)
def test_pickle_gives_the_identical_structure(value):
    structure = tree(value).structure
    assert pickle.loads(pickle.dumps(structure)) is structure
    assert pickle.loads(pickle.dumps(Static(value))) == Static(value)


def test_json_is_read_by_another_process_as_the_same_value():
    td = TensorDict({"a": "s", "b": static(-0.0), "c": torch.bfloat16, "d": {"e": (1, None, b"x")}}, 4)
    code = f"from tdfunc.structure import from_json, to_json; s = from_json({to_json(td.structure)!r}); print(to_json(s)); print(s.statics())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{to_json(td.structure)}\n{td.structure.statics()}\n"


NOT_BARE = [1, 1.5, 2j]


@pytest.mark.parametrize("value", NOT_BARE)
def test_a_bare_number_is_a_tensor_and_a_marked_one_is_static(value):
    assert not is_static(value)
    bare, marked = TensorDict(n=value)["n"], TensorDict(n=static(value))["n"]
    assert isinstance(bare, torch.Tensor)
    assert bare.dtype == torch.as_tensor(value).dtype
    assert bare.item() == value
    assert type(marked) is type(value)
    assert marked == value


REFUSED = {
    "list": [1],
    "dict": {"a": 1},
    "set": {1},
    "object": object(),
    "mutable dataclass": Mutable(1),
    "tensor": torch.ones(1),
    "a tuple with a list": (1, [2]),
    "a frozen dataclass with a list": Config([1]),
    "class": Config,
    "function": len,
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_static_refuses_what_is_no_constant(value):
    with pytest.raises(StructureError, match=r"cannot be static[\s\S]*register_static"):
        static(value)


@pytest.mark.parametrize("value", [Mutable(1), object(), [1], {1}, (1, [2]), Config([1])], ids=lambda v: type(v).__name__)
def test_a_tree_refuses_what_is_no_constant_by_path(value):
    with pytest.raises(StructureError):
        TensorDict({"deep": {"er": value}})
    with pytest.raises(StructureError, match="'deep', 'er'"):
        TensorDict({"deep": {"er": value}})


def test_static_of_static_is_itself():
    assert static(static(5)) == static(5)
    assert repr(static("a")) == "static('a')"
    assert Static(5).get() == 5


def test_statics_describe_the_whole_tree_and_follow_every_operation():
    td = TensorDict({"x": torch.arange(6.0).reshape(3, 2), "in": {"s": "v"}, "n": static(2)}, 3)
    for got in (td[0], td + 1, td.map(torch.exp), td.select("x", "n", "in"), *td.unbind(), td.to(torch.float64), td.clone()):
        assert got["n"] == 2
        assert got["in", "s"] == got["in"]["s"] == "v"


def test_reading_imports_nothing_and_takes_no_other_class():
    known = to_json(TensorDict(s="x").structure)
    for name in ("this:s", "os:system", "builtins:int", "enum:Enum.nope", "not_there:Colour"):
        text = known.replace('"x"', f'["enum","{name}","RED"]')
        with pytest.raises(StorageError, match=r"not known here[\s\S]*import"):
            from_json(text)
    assert "this" not in sys.modules
