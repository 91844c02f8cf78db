"""docs/from-tensordict.md: every name of tensordict is there, and every name of tdfunc in it exists."""

from __future__ import annotations

import builtins
import pathlib
import re

import pytest

import tdfunc
from tdfunc import TensorDict, interop

PAGE = (pathlib.Path(__file__).parent.parent / "docs" / "from-tensordict.md").read_text()
HOMES = {"td": TensorDict, "tdfunc": tdfunc, "interop": interop}


def rows(text):
    """The pairs of cells of all tables, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("| ") and line != "| tensordict | tdfunc |"]
    return [tuple(cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]) for line in lines]


def spans(cell):
    return re.findall(r"`([^`]+)`", cell)


ALL = rows(PAGE)
BY_NAME = rows(PAGE.split("## Every method")[1])


def test_the_tables_are_read_whole():
    assert len(ALL) > len(BY_NAME) > 40
    assert all(len(row) == 2 for row in ALL)


def test_every_public_name_of_tensordict_stands_in_the_table_once():
    tensordict = pytest.importorskip("tensordict")
    named = [name for theirs, _ in BY_NAME for name in spans(theirs)]
    assert len(named) == len(set(named))
    assert set(named) == {name for name in dir(tensordict.TensorDictBase) if not name.startswith("_")}


@pytest.mark.parametrize(("theirs", "ours"), BY_NAME, ids=[theirs[:40] for theirs, _ in BY_NAME])
def test_each_name_has_a_form_or_a_reason(theirs, ours):
    same = "the same names" in ours
    home = interop if "in `tdfunc.interop`" in ours else TensorDict
    missing = [name for name in spans(theirs) if not hasattr(home, name)]
    assert not missing or not same
    assert same or spans(ours) or ours.startswith(("none", "not here yet: ")) or len(ours.split()) > 5
    if ours.startswith("not here yet"):
        assert [name for name in spans(theirs) if hasattr(TensorDict, name)] == []


@pytest.mark.parametrize(("theirs", "ours"), ALL, ids=[theirs[:40] for theirs, _ in ALL])
def test_each_name_of_tdfunc_exists(theirs, ours):
    del theirs
    for span in spans(ours):
        for home, path in re.findall(r"\b(td|tdfunc|interop)\.(\w+)", span):
            assert hasattr(HOMES[home], path), span
        for called in re.findall(r"(?<![\w.])([a-z]\w*)\(", span):
            known = (*HOMES.values(), builtins)
            assert called in ("bind", "fn", "td") or any(hasattr(home, called) for home in known), span


def test_the_test_finds_names_that_do_not_exist():
    for wrong in ("`td.nope()`", "`nope_of(m)`", "`interop.nope`"):
        with pytest.raises(AssertionError):
            test_each_name_of_tdfunc_exists("x", wrong)
