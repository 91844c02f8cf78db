"""Structured numpy arrays, both ways, against numpy's own records."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from tdfunc import StructureError, TensorDict
from tdfunc.interop import from_struct_array, to_struct_array
from tests.laws.strategies import assert_same, trees

law = settings(deadline=None, derandomize=True, max_examples=60, database=None)
NUMPY_HAS = (torch.float32, torch.float64, torch.float16, torch.complex64, torch.int8, torch.int64, torch.uint8, torch.bool)


def tree():
    more = TensorDict({"z": torch.arange(6, dtype=torch.int16).view(2, 3)}, (2, 3))
    return TensorDict({"a": torch.tensor([1, 2]), "n": {"b": torch.tensor([[0.5, 1.5], [2.5, 3.5]])}, "more": more}, 2)


def test_to_struct_array_is_the_array_that_numpy_makes_of_the_records():
    want = np.array(
        [(1, ((0.5, 1.5),), [(0,), (1,), (2,)]), (2, ((2.5, 3.5),), [(3,), (4,), (5,)])],
        dtype=[("a", "i8"), ("n", [("b", "f4", (2,))]), ("more", [("z", "i2")], (3,))],
    )
    got = to_struct_array(tree())
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_from_struct_array_reads_the_records():
    array = np.array(
        [(1, ((0.5, 1.5),), [(0,), (1,), (2,)]), (2, ((2.5, 3.5),), [(3,), (4,), (5,)])],
        dtype=[("a", "i8"), ("n", [("b", "f4", (2,))]), ("more", [("z", "i2")], (3,))],
    )
    td = from_struct_array(array)
    assert_same(td, tree())
    assert td["more"].batch_size == (2, 3)


@law
@given(trees(dtypes=NUMPY_HAS, statics=False, ties=False))
def test_from_struct_array_is_the_inverse_of_to_struct_array(td):
    for align in (False, True):
        assert_same(from_struct_array(to_struct_array(td, align=align)), td)


@pytest.mark.parametrize("size", [(), (2,), (2, 3), (0,), (2, 0)])
def test_the_batch_size_is_the_shape_of_the_array(size):
    td = TensorDict({"x": torch.zeros(*size, 4), "e": {}}, size)
    assert to_struct_array(td).shape == size
    assert from_struct_array(to_struct_array(td)).batch_size == size
    assert to_struct_array(TensorDict({}, size)).shape == size
    assert from_struct_array(np.zeros(size, np.dtype([]))).batch_size == size


def test_to_struct_array_copies_and_from_struct_array_shares_what_torch_can_view():
    td = tree()
    array = to_struct_array(td, align=True)
    array["a"][0] = 9
    assert td["a"].tolist() == [1, 2]
    back = from_struct_array(array)
    array["a"][1] = 8
    array["n"]["b"][0, 0] = -1.0
    assert back["a"].tolist() == [9, 8]
    assert back["n", "b"][0].tolist() == [-1.0, 1.5]


@pytest.mark.parametrize(
    "array",
    [
        np.array([(1.0, 2), (3.0, 4)], dtype=[("a", "f4"), ("b", "i1")]),
        np.array([(1.0, 2), (3.0, 4)], dtype=[("a", ">f4"), ("b", ">i2")]),
        np.array([(3.0, 4), (1.0, 2)], dtype=[("a", "f4"), ("b", "i1")])[::-1],
        np.array([(1.0, 2), (3.0, 4)], dtype=[("a", "f4"), ("b", "i1")]).view(np.recarray),
        np.frombuffer(np.array([(1.0, 2), (3.0, 4)], dtype=[("a", "f4"), ("b", "i4")]).tobytes(), dtype=[("a", "f4"), ("b", "i4")]),
    ],
    ids=["not aligned", "another byte order", "backwards", "recarray", "read-only"],
)
def test_what_torch_cannot_view_is_copied(array):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        td = from_struct_array(array)
    assert td["a"].tolist() == [1.0, 3.0]
    assert td["b"].tolist() == [2, 4]
    (td["a"] + 1).sum()


@pytest.mark.parametrize("dtype", ["U3", "S3", "O", "M8[s]", "m8[s]", np.longdouble])
def test_fields_that_can_be_no_tensors_are_refused_by_path(dtype):
    array = np.zeros(2, dtype=[("ok", "f4"), ("n", [("bad", dtype)])])
    with pytest.raises(StructureError, match=r"from_struct_array: fields that can be no tensors\n  at: 'n', 'bad': [\s\S]*fix: leave them out"):
        from_struct_array(array)


@pytest.mark.parametrize("array", [np.zeros(3), [1, 2], torch.zeros(3), None], ids=["no fields", "list", "tensor", "None"])
def test_what_has_no_fields_is_refused(array):
    with pytest.raises(StructureError, match=r"from_struct_array: an array without fields[\s\S]*TensorDict\(\{'name': array\}\)"):
        from_struct_array(array)


def test_static_values_and_dtypes_that_numpy_has_not_are_refused_by_path():
    td = TensorDict({"a": torch.ones(2), "s": "x", "n": {"t": None}}, 2)
    with pytest.raises(
        StructureError, match=r"to_struct_array: static values[\s\S]*at: 's'; 'n', 't'[\s\S]*fix: td\.exclude\(\('s',\), \('n', 't'\)\)"
    ):
        to_struct_array(td)
    assert to_struct_array(td.exclude(("s",), ("n", "t")).prune()).dtype.names == ("a",)
    with pytest.raises(StructureError, match=r"to_struct_array: numpy has no torch\.bfloat16\n  at: 'a'"):
        to_struct_array(td.exclude("s", "n").bfloat16())


def test_odd_names_are_fields():
    td = TensorDict({"a.b": torch.ones(2), "": torch.zeros(2), "new\nline": torch.ones(2), "日本": {"": torch.zeros(2)}}, 2)
    assert to_struct_array(td).dtype.names == ("a.b", "", "new\nline", "日本")
    assert_same(from_struct_array(to_struct_array(td)), td)


def test_a_tied_leaf_is_written_to_all_its_fields_and_gradients_stop():
    td = TensorDict({"a": torch.ones(2, requires_grad=True), "b": torch.ones(2)}, 2).tie("a", "b")
    got = from_struct_array(to_struct_array(td))
    assert (got["a"].tolist(), got["b"].tolist(), got.ties) == ([1.0, 1.0], [1.0, 1.0], ())
    assert not got["a"].requires_grad
