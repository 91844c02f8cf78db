"""Data frames of pandas, both ways."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tdfunc import BatchSizeError, KeyPathError, StructureError, TensorDict
from tdfunc.interop import from_pandas, to_pandas

pd = pytest.importorskip("pandas")


def tree():
    return TensorDict({"a": torch.tensor([1, 2]), "n": {"b": torch.tensor([0.5, 1.5]), "m": {"c": torch.tensor([True, False])}}}, 2)


def test_to_pandas_has_a_column_for_each_leaf_and_a_row_for_each_row():
    want = pd.DataFrame({"a": np.array([1, 2]), "n.b": np.array([0.5, 1.5], np.float32), "n.m.c": [True, False]})
    pd.testing.assert_frame_equal(to_pandas(tree()), want, check_index_type=False)
    assert list(to_pandas(tree(), "/").columns) == ["a", "n/b", "n/m/c"]


def test_from_pandas_reads_the_columns():
    td = from_pandas(pd.DataFrame({"a": [1, 2], "n.b": np.array([0.5, 1.5], np.float32), "n.m.c": [True, False]}))
    assert td.structure is tree().structure
    assert td.equal(tree())
    assert from_pandas(pd.DataFrame({"a.b": [1.0]}), "/")["a.b"].tolist() == [1.0]


@pytest.mark.parametrize("sep", [".", "/", "::"])
def test_from_pandas_is_the_inverse_of_to_pandas(sep):
    back = from_pandas(to_pandas(tree(), sep), sep)
    assert back.structure is tree().structure
    assert back.equal(tree())


@pytest.mark.parametrize("n", [0, 3])
def test_the_number_of_rows_is_the_batch_size(n):
    assert len(to_pandas(TensorDict({}, n))) == n
    assert from_pandas(to_pandas(TensorDict({}, n))).batch_size == (n,)
    assert from_pandas(to_pandas(TensorDict({"x": torch.zeros(n)}, n))).batch_size == (n,)


def test_neither_way_shares_memory():
    td = tree()
    frame = to_pandas(td)
    frame.loc[0, "a"] = 9
    assert td["a"].tolist() == [1, 2]
    back = from_pandas(frame)
    back["a"][1] = 8
    assert frame["a"].tolist() == [9, 2]


def test_labels_that_are_tuples_are_paths():
    frame = pd.DataFrame(np.array([[1.0, 2.0]]), columns=pd.MultiIndex.from_tuples([("a.x", "b"), ("a.x", "c")]))
    assert list(from_pandas(frame).keys(True, True)) == [("a.x", "b"), ("a.x", "c")]


def test_the_index_is_no_column_until_it_is_made_one():
    frame = pd.DataFrame({"x": [1.0, 2.0]}, index=pd.Index([7, 8], name="id"))
    assert list(from_pandas(frame)) == ["x"]
    assert from_pandas(frame.reset_index())["id"].tolist() == [7, 8]


def test_nullable_columns_are_what_their_to_numpy_gives():
    frame = pd.DataFrame({"full": pd.array([1, 2], dtype="Int64"), "gap": pd.array([1, None], dtype="Int64")})
    td = from_pandas(frame)
    assert (td["full"].dtype, td["gap"].dtype) == (torch.int64, torch.float64)
    assert td["gap"].isnan().tolist() == [False, True]


def test_gradients_stop_at_the_frame_and_ties_become_two_columns():
    td = TensorDict({"a": torch.ones(2, requires_grad=True), "b": torch.ones(2)}, 2).tie("a", "b")
    assert to_pandas(td).to_dict("list") == {"a": [1.0, 1.0], "b": [1.0, 1.0]}
    assert from_pandas(to_pandas(td)).ties == ()


def test_more_or_fewer_batch_dims_than_one_are_refused():
    for td in (TensorDict(x=1.0), TensorDict({"x": torch.zeros(2, 3)}, (2, 3))):
        with pytest.raises(BatchSizeError, match=r"to_pandas: the batch dims are not one[\s\S]*fix: td\.flatten\(\)"):
            to_pandas(td)
    assert len(to_pandas(TensorDict({"x": torch.zeros(2, 3)}, (2, 3)).flatten())) == 6


def test_leaves_with_event_dims_are_refused_by_path_with_the_call_that_splits_them():
    td = TensorDict({"x": torch.arange(4).view(2, 2), "more": TensorDict({"y": torch.zeros(2, 3)}, (2, 3)), "ok": torch.zeros(2)}, 2)
    with pytest.raises(BatchSizeError) as caught:
        to_pandas(td.exclude("more"))
    assert "at: 'x': shape (2, 2)" in str(caught.value)
    td = eval(str(caught.value).split("fix: ")[1], {"td": td.exclude("more")})
    assert to_pandas(td).to_dict("list") == {"x.0": [0, 2], "x.1": [1, 3], "ok": [0.0, 0.0]}
    with pytest.raises(BatchSizeError, match=r"at: 'more', 'y': shape \(2, 3\)"):
        to_pandas(TensorDict({"more": TensorDict({"y": torch.zeros(2, 3)}, (2, 3))}, 2))


def test_static_values_dtypes_and_keys_that_do_not_fit_are_refused_by_path():
    with pytest.raises(StructureError, match=r"to_pandas: static values[\s\S]*at: 's'"):
        to_pandas(TensorDict({"x": torch.zeros(2), "s": "v"}, 2))
    with pytest.raises(StructureError, match=r"to_pandas: numpy has no torch\.bfloat16\n  at: 'x'"):
        to_pandas(TensorDict({"x": torch.zeros(2).bfloat16()}, 2))
    with pytest.raises(KeyPathError, match=r"contains the separator '\.'[\s\S]*'a\.b'"):
        to_pandas(TensorDict({"a.b": torch.zeros(2)}, 2))


COLUMNS = {
    "str": pd.Series(["a", "b"]),
    "object": pd.Series([None, 1], dtype=object),
    "date": pd.Series(pd.to_datetime(["2020", "2021"])),
    "category": pd.Series(["u", "v"], dtype="category"),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_columns_that_can_be_no_tensors_are_refused_by_label(column):
    frame = pd.DataFrame({"ok": [1.0, 2.0], "n.bad": column})
    with pytest.raises(
        StructureError, match=r"from_pandas: columns that can be no tensors\n  at: 'n\.bad': [\s\S]*fix: frame\.drop\(columns=\['n\.bad'\]\)"
    ):
        from_pandas(frame)
    assert list(from_pandas(frame.drop(columns=["n.bad"]))) == ["ok"]


def test_labels_that_are_no_keys_stand_twice_or_collide_are_refused():
    with pytest.raises(KeyPathError, match=r"a key must be a str[\s\S]*got: 0 of type int"):
        from_pandas(pd.DataFrame([[1.0]]))
    with pytest.raises(KeyPathError, match=r"from_pandas: labels that stand twice\n  at: \['a'\]"):
        from_pandas(pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]))
    with pytest.raises(KeyPathError, match=r"two entries want one place[\s\S]*at: 'a', 'b'"):
        from_pandas(pd.DataFrame([[1.0, 2.0]], columns=["a", "a.b"]))
    with pytest.raises(StructureError, match=r"from_pandas: no data frame[\s\S]*got: Series"):
        from_pandas(pd.Series([1.0]))
