"""Tables in files, against pandas and the csv and json modules of Python."""

from __future__ import annotations

import csv
import io
import json
import math
import sys

import pytest
import torch

from tdfunc import BatchSizeError, StructureError, TensorDict, interop
from tdfunc.interop import from_csv, from_json, from_parquet, to_csv, to_json, to_parquet
from tests.laws.strategies import assert_same

pytest.importorskip("pandas")


def tree():
    return TensorDict(
        {"date": torch.tensor([3, 2**60]), "n": {"0": torch.tensor([0.1, math.nan], dtype=torch.float64), "b": torch.tensor([True, False])}},
        2,
    )


def same(got, want):
    assert_same(got.map(torch.nan_to_num), want.map(torch.nan_to_num))
    assert got.isnan().equal(want.isnan())


def test_to_csv_writes_a_column_for_each_leaf(tmp_path):
    to_csv(tree(), tmp_path / "t.csv")
    assert list(csv.reader((tmp_path / "t.csv").read_text().splitlines())) == [
        ["date", "n.0", "n.b"],
        ["3", "0.1", "True"],
        [str(2**60), "", "False"],
    ]


def test_to_json_writes_an_object_for_each_row(tmp_path):
    to_json(tree(), tmp_path / "t.json", "/")
    want = [{"date": 3, "n/0": 0.1, "n/b": True}, {"date": 2**60, "n/0": None, "n/b": False}]
    assert json.loads((tmp_path / "t.json").read_text()) == want
    to_json(tree(), tmp_path / "t.jsonl", "/", lines=True)
    assert [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()] == want


@pytest.mark.parametrize("sep", [".", "/"])
@pytest.mark.parametrize(
    ("write", "read"),
    [
        (to_csv, from_csv),
        (to_json, from_json),
        (lambda *args: to_json(*args, lines=True), lambda *args: from_json(*args, lines=True)),
    ],
    ids=["csv", "json", "json lines"],
)
def test_what_is_written_comes_back(tmp_path, write, read, sep):
    write(tree(), tmp_path / "table", sep)
    same(read(tmp_path / "table", sep), tree())
    write(tree().float(), tmp_path / "table", sep)
    back = read(tmp_path / "table", sep)
    assert back["n", "0"].dtype is torch.float64  # a text has no dtypes
    same(back.select("n").float(), tree().select("n").float())


def test_options_reach_pandas_and_files_are_taken():
    file = io.StringIO()
    to_csv(tree(), file, header=False)
    file.seek(0)
    td = from_csv(file, names=["a", "n.b", "c"], usecols=["a", "n.b"], dtype={"n.b": "float32"})
    assert list(td.keys(True, True)) == ["a", ("n", "b")]
    assert td["n", "b"].dtype is torch.float32


def test_columns_of_text_are_refused_by_label():
    with pytest.raises(StructureError, match=r"columns that can be no tensors\n  at: 'name'"):
        from_csv(io.StringIO("x,name\n1,a\n2,b"))
    with pytest.raises(StructureError, match=r"columns that can be no tensors\n  at: 'name'"):
        from_json(io.StringIO('[{"name": "a"}]'))
    with pytest.raises(BatchSizeError, match="to_pandas: leaves with more than one number a row"):
        to_csv(TensorDict({"x": torch.ones(2, 2)}, 2), io.StringIO())


@pytest.mark.parametrize("name", ["to_parquet", "from_parquet"])
def test_without_pyarrow_the_error_names_it(name, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    args = (tree(), tmp_path / "t") if name == "to_parquet" else (tmp_path / "t",)
    with pytest.raises(ImportError, match=rf"{name} needs pyarrow, which is not installed\n  fix: pip install pyarrow"):
        getattr(interop, name)(*args)


def test_parquet_keeps_dtypes(tmp_path):
    pytest.importorskip("pyarrow")
    td = tree().set("f", torch.ones(2)).set("i", torch.ones(2).short())
    to_parquet(td, tmp_path / "t.parquet")
    same(from_parquet(tmp_path / "t.parquet"), td)
    assert list(from_parquet(tmp_path / "t.parquet", columns=["f"])) == ["f"]
