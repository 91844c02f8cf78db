"""diff and assert_close: every kind of change with its path and numbers, and torch's own verdict on values."""

from __future__ import annotations

import pytest
import torch

import tdfunc
from tdfunc import StructureError, TensorDict


def tree():
    return TensorDict({"a": torch.tensor([1.0, 2.0]), "b": {"c": torch.tensor([[1], [2]])}, "s": "x"}, 2)


def only(found):
    (change,) = found
    return change


def test_a_value_has_its_count_and_largest_errors():
    change = only(tdfunc.diff(tree(), tree().set("a", torch.tensor([1.5, 4.0]))))
    assert (change.kind, change.path, change.count) == ("value", ("a",), 2)
    assert (change.max_abs, change.max_rel) == (2.0, 0.5)
    assert str(change) == "value: 'a' 2 elements differ, at most by 2 (relative 0.5)"


def test_integers_are_compared_exactly():
    one, two = TensorDict(a=torch.tensor([2**60])), TensorDict(a=torch.tensor([2**60 + 1]))
    assert only(tdfunc.diff(one, two)).count == 1


@pytest.mark.parametrize(
    ("change", "kind", "path", "before", "after"),
    [
        (lambda td: td.exclude("a"), "removed", ("a",), "(2,) float32", None),
        (lambda td: td.set("z", torch.zeros(2, 3)), "added", ("z",), None, "(2, 3) float32"),
        (lambda td: td.rename_key("a", ("b", "q")), "moved", ("a",), ("a",), ("b", "q")),
        (lambda td: td.set("a", td["a"].double()), "dtype", ("a",), torch.float32, torch.float64),
        (lambda td: td.set("a", torch.zeros(2, 1)), "shape", ("a",), (2,), (2, 1)),
        (lambda td: td.set("s", "y"), "static", ("s",), "x", "y"),
        (lambda td: td.set("s", None), "static", ("s",), "x", None),
        (lambda td: td.exclude("s"), "removed", ("s",), "static 'x'", None),
        (lambda td: td.with_batch_size(()), "batch_size", (), (2,), ()),
    ],
)
def test_each_kind_of_change(change, kind, path, before, after):
    found = only(tdfunc.diff(tree(), change(tree())))
    assert (found.kind, found.path, found.before, found.after) == (kind, path, before, after)
    assert kind in str(found)


def test_ties_are_told_once_and_apart_from_values():
    td = TensorDict(a=torch.ones(2), b=torch.ones(2))
    change = only(tdfunc.diff(td, td.tie("a", "b")))
    assert (change.kind, change.before, change.after) == ("ties", (), (("a",), ("b",)))


def test_the_order_of_keys_does_not_matter_and_nan_is_itself():
    one = TensorDict(a=torch.tensor([float("nan")]), b=torch.ones(1))
    two = TensorDict(b=torch.ones(1), a=torch.tensor([float("nan")]))
    assert len(tdfunc.diff(one, two)) == 0
    assert len(tdfunc.diff(one, two, equal_nan=False)) == 1
    assert str(tdfunc.diff(one, two)) == "no difference"


def test_tolerances_forgive_and_of_selects_a_kind():
    found = tdfunc.diff(tree(), tree().set("a", torch.tensor([1.0, 2.1])).exclude(("b", "c")))
    assert [change.path for change in found.of("removed")] == [("b", "c")]
    assert len(tdfunc.diff(tree(), tree().set("a", torch.tensor([1.0, 2.1])), atol=0.2)) == 0


def test_a_long_list_of_changes_is_cut_in_text_only():
    many = TensorDict({f"k{i}": torch.zeros(1) for i in range(60)})
    found = tdfunc.diff(many, many + 1)
    assert len(found) == 60
    assert str(found).endswith("... and 20 more")


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.int64, torch.bool]
)
@pytest.mark.parametrize("relative", [0.0, 1e-9, 5e-8, 2e-7, 1e-6, 1.5e-6, 5e-4, 2e-3, 1e-2, 3e-2])
def test_assert_close_says_what_torch_says_of_each_leaf(dtype, relative):
    a = torch.tensor([1.0, 3.0], dtype=torch.float64)
    a, b = a.to(dtype), (a * (1 + relative)).to(dtype)

    def fails(check, *args):
        try:
            check(*args)
        except AssertionError:
            return True
        return False

    assert fails(tdfunc.assert_close, TensorDict(a=a), TensorDict(a=b)) is fails(torch.testing.assert_close, a, b)


def test_assert_close_lists_all_differences():
    with pytest.raises(AssertionError, match=r"2 differences[\s\S]*removed: 'b', 'c'[\s\S]*value: 'a'"):
        tdfunc.assert_close(tree(), tree().exclude(("b", "c")).set("a", torch.zeros(2)))
    tdfunc.assert_close(TensorDict(a=torch.ones(2)), TensorDict(a=torch.ones(2, dtype=torch.float64)), check_dtype=False)
    with pytest.raises(AssertionError, match="dtype: 'a'"):
        tdfunc.assert_close(TensorDict(a=torch.ones(2)), TensorDict(a=torch.ones(2, dtype=torch.float64)))


def test_structure_errors_speak_as_diff_does():
    a = tree().set("d", torch.zeros(2)).set("e", torch.zeros(2))
    b = a.rename_key(("b", "c"), "moved").tie("d", "e")
    with pytest.raises(StructureError) as error:
        a + b
    changes = [change for change in tdfunc.diff(a, b + 1) if change.kind in ("removed", "added", "ties")]  # + 1: nothing counts as moved
    assert len(changes) == 3
    for change in changes:
        assert str(change).removesuffix(" (2, 1) int64") in str(error.value)


def test_structure_errors_in_a_trace_name_the_same_paths():
    a, b = tree(), tree().exclude("a")
    with pytest.raises(Exception, match="removed: 'a'"):
        torch.compile(lambda x, y: x + y, fullgraph=True, backend="eager")(a, b)
