"""`group_by`, against a mask for each value."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tdfunc import BatchSizeError, KeyPathError, StructureError, TensorDict
from tdfunc.interop import group_by
from tests.laws.strategies import assert_same

law = settings(deadline=None, derandomize=True, max_examples=60, database=None)


def tree(ids):
    ids = torch.as_tensor(ids)
    n = len(ids)
    td = TensorDict({"id": ids, "n": {"x": torch.randn(n, 2), "s": "static", "e": {}}, "w": torch.randn(n)}, n)
    return td.set("v", td["w"]).tie("w", "v")


@law
@given(st.lists(st.integers(-2, 3), max_size=8))
def test_the_groups_are_the_rows_with_each_value_in_their_order(ids):
    td = tree(torch.tensor(ids, dtype=torch.long))
    values, groups = group_by(td, "id")
    assert values.tolist() == sorted(set(ids))
    assert len(groups) == len(values)
    for value, group in zip(values, groups):
        assert_same(group, td[td["id"] == value])


def test_a_leaf_with_more_numbers_a_row_is_compared_row_by_row():
    keys = torch.tensor([[1, 0], [0, 1], [1, 0], [0, 0]])
    td = TensorDict({"n": {"k": keys}, "x": torch.arange(4)}, 4)
    values, groups = group_by(td, ("n", "k"))
    assert values.tolist() == [[0, 0], [0, 1], [1, 0]]
    assert [group["x"].tolist() for group in groups] == [[3], [1], [0, 2]]


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.uint8, torch.float64])
def test_values_of_other_dtypes(dtype):
    values, groups = group_by(tree(torch.tensor([1, 0, 1]).to(dtype)), "id")
    assert (values.dtype, values.tolist()) == (dtype, [0, 1])
    assert [group.batch_size[0] for group in groups] == [1, 2]


def test_more_batch_dims_stay_and_gradients_flow():
    x = torch.randn(3, 2, requires_grad=True)
    td = TensorDict({"id": torch.tensor([[1, 1], [0, 0], [1, 1]]), "x": x}, (3, 2))
    values, groups = group_by(td, "id")
    assert [group.batch_size for group in groups] == [(1, 2), (2, 2)]
    (groups[1]["x"] * 2).sum().backward()
    assert x.grad.tolist() == [[2.0, 2.0], [0.0, 0.0], [2.0, 2.0]]
    assert group_by(TensorDict({"x": x[:, 0]}, 3), "x")[0].requires_grad is False


def test_in_a_trace_and_under_vmap_it_is_refused_by_name():
    td = tree([1, 0, 1])
    with pytest.raises(Exception, match="group_by: how many groups there are depends on data"):
        torch.compile(lambda td: group_by(td, "id"), fullgraph=True, backend="eager")(td)
    with pytest.raises(StructureError, match="group_by: how many groups there are depends on data"):
        torch.vmap(lambda td: group_by(td, "id")[0])(td.expand(2, 3))


def test_what_has_no_rows_or_is_no_leaf_is_refused():
    with pytest.raises(BatchSizeError, match=r"group_by: the tree has no rows[\s\S]*auto_batch_size"):
        group_by(TensorDict(x=torch.ones(2)), "x")
    with pytest.raises(KeyPathError, match=r"no entry 'q'"):
        group_by(tree([1]), "q")
    with pytest.raises(KeyPathError, match=r"group_by: no leaf\n  at: 'n'\n[\s\S]*got: a subtree"):
        group_by(tree([1]), "n")
    with pytest.raises(KeyPathError, match=r"group_by: no leaf\n  at: 'n', 's'\n[\s\S]*the static value 'static'"):
        group_by(tree([1]), ("n", "s"))
