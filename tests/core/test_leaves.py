"""Leaves joined to a tensor or an entry, jagged leaves padded, single entries: against torch on the leaves."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from tdfunc import BatchSizeError, KeyPathError, StructureError, TensorDict

X, Y, Z = torch.arange(6.0).view(3, 2), torch.arange(6.0, 12.0).view(3, 2), torch.randn(3, 4)


def tree():
    return TensorDict({"x": X, "n": {"y": Y, "s": "static"}, "z": Z}, 3)


def test_stack_leaves_and_cat_leaves_take_the_leaves_in_order():
    td = tree().exclude("z")
    for dim in (0, 1, 2, -1, -2, -3):
        assert torch.equal(td.stack_leaves(dim), torch.stack([X, Y], dim))
    assert torch.equal(tree().cat_leaves(1), torch.cat([X, Y, Z], 1))
    assert torch.equal(tree().cat_leaves(-1), torch.cat([X, Y, Z], 1))
    assert torch.equal(td.cat_leaves(), torch.cat([X, Y]))
    assert torch.equal(td.set("a", Y).sort_keys().cat_leaves(), torch.cat([Y, Y, X]))


def test_a_tied_leaf_is_joined_once_and_dtypes_promote():
    td = TensorDict(a=torch.ones(2), b=torch.ones(2), c=torch.ones(2).long()).tie("a", "b")
    assert td.stack_leaves().shape == (2, 2)
    assert td.cat_leaves().dtype is torch.float32


def test_stack_tensors_and_cat_tensors_put_one_entry_in_the_place_of_several():
    stacked = tree().stack_tensors("x", ("n", "y"), out_key=("n", "xy"), dim=1)
    assert list(stacked.keys(True, True)) == [("n", "xy"), "z"]
    assert torch.equal(stacked["n", "xy"], torch.stack([X, Y], 1))
    assert (stacked["n", "s"], stacked.batch_size) == ("static", (3,))
    catted = tree().cat_tensors("x", "z", out_key="xz", dim=-1)
    assert list(catted) == ["n", "xz"]
    assert torch.equal(catted["xz"], torch.cat([X, Z], -1))


def test_entries_stay_if_asked_and_an_entry_may_give_its_name():
    kept = tree().cat_tensors("x", "z", out_key="xz", dim=1, keep_entries=True)
    assert list(kept) == ["x", "n", "z", "xz"]
    assert kept["x"] is X
    named = tree().cat_tensors("x", "z", out_key="x", dim=1)
    assert list(named) == ["x", "n"]
    assert torch.equal(named["x"], torch.cat([X, Z], 1))


def test_without_batch_dims_the_first_dim_is_free():
    td = TensorDict(a=torch.zeros(1), b=torch.ones(2))
    assert td.cat_tensors("a", "b", out_key="c")["c"].tolist() == [0.0, 1.0, 1.0]
    assert TensorDict(a=0.0, b=1.0).stack_tensors("a", "b", out_key="c")["c"].tolist() == [0.0, 1.0]


def test_dims_that_would_move_the_batch_are_refused_before_any_work():
    for dim in (0, -3, 3, True, None):
        with pytest.raises(BatchSizeError, match="stack_tensors: "):
            tree().stack_tensors("x", ("n", "y"), out_key="k", dim=dim)
    with pytest.raises(BatchSizeError, match=r"cat_tensors: dim 0 is no event dim[\s\S]*expected: a dim in \[1, 1\][\s\S]*with 1 batch dims"):
        tree().cat_tensors("x", ("n", "y"), out_key="k")
    with pytest.raises(BatchSizeError, match=r"expected: leaves with event dims[\s\S]*fix: td\.stack_tensors"):
        TensorDict({"a": torch.ones(2), "b": torch.ones(2)}, 2).cat_tensors("a", "b", out_key="k")
    with pytest.raises(BatchSizeError, match="cat_leaves: dim 2 is no dim of the leaves"):
        tree().cat_leaves(2)


def test_shapes_that_differ_are_refused_by_path():
    with pytest.raises(BatchSizeError, match=r"stack_leaves: leaves of different shapes\n  at: 'z': \(3, 4\)\n  expected: \(3, 2\)[\s\S]*td\.pack"):
        tree().stack_leaves()
    with pytest.raises(BatchSizeError, match=r"cat_leaves: leaves of different shapes\n  at: 'z': \(3, 4\)\n  expected: \(3, 2\), but for dim 0"):
        tree().cat_leaves()


def test_keys_that_name_no_leaf_are_refused():
    with pytest.raises(KeyPathError, match=r"stack_tensors: no entry 'q'"):
        tree().stack_tensors("x", "q", out_key="k", dim=1)
    for key in ("n", ("n", "s")):
        with pytest.raises(KeyPathError, match="cat_tensors: no leaf"):
            tree().cat_tensors("x", key, out_key="k", dim=1)
    for fn in (TensorDict().stack_leaves, TensorDict().cat_leaves, lambda: tree().stack_tensors(out_key="k")):
        with pytest.raises(StructureError, match="no leaves to join"):
            fn()


# --- jagged leaves ---------------------------------------------------------------------------------------------------


def jagged(values):
    nested = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 2, 6]), min_seqlen=2, max_seqlen=4)
    return TensorDict({"j": nested, "x": torch.zeros(2), "s": "static"}, 2)


def test_to_padded_tensor_fills_up_the_rows():
    values = torch.arange(12.0).view(6, 2)
    td = jagged(values).to_padded_tensor(-1.0)
    want = torch.full((2, 4, 2), -1.0)
    want[0, :2], want[1] = values[:2], values[2:]
    assert torch.equal(td["j"], want)
    assert td.batch_size == (2,)
    assert td["s"] == "static"
    mask = jagged(values).map(torch.ones_like).to_padded_tensor()["j"]
    assert mask[..., 0].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]


def test_gradients_flow_to_what_is_data():
    values = torch.ones(6, 2, requires_grad=True)
    (jagged(values) * 3).to_padded_tensor(5.0)["j"].sum().backward()
    assert values.grad.tolist() == [[3.0, 3.0]] * 6


def test_compiled_it_pads_as_in_eager():
    td = jagged(torch.arange(12.0).view(6, 2))
    counter = CompileCounter()
    compiled = torch.compile(lambda td: (td * 2).to_padded_tensor(5.0), fullgraph=True, backend=counter)
    assert compiled(td).equal((td * 2).to_padded_tensor(5.0))
    assert counter.frame_count == 1


def test_dense_leaves_stay_the_very_tensors():
    assert tree().to_padded_tensor()["x"] is X


# --- single entries --------------------------------------------------------------------------------------------------


def test_get_at_indexes_what_stands_under_a_key():
    td = tree()
    assert torch.equal(td.get_at("x", (0, 1)), X[0, 1])
    assert torch.equal(td.get_at(("n", "y"), slice(1)), Y[:1])
    assert td.get_at("n", 0).equal(td["n"][0])
    assert td.get_at("q", 0, None) is None
    with pytest.raises(KeyPathError, match="no entry 'q'"):
        td.get_at("q", 0)
    with pytest.raises(KeyPathError, match=r"get_at: a static value has no rows\n  at: 'n', 's'"):
        td.get_at(("n", "s"), 0, None)


def test_entry_class_and_sorted_keys_and_data_ptr():
    td = TensorDict({"p": torch.nn.Parameter(torch.ones(2)), "a": {"t": torch.ones(2)}, "s": "v"})
    assert [td.entry_class(key) for key in ("p", "a", ("a", "t"), "s")] == [torch.nn.Parameter, TensorDict, torch.Tensor, str]
    with pytest.raises(KeyPathError, match="no entry 'q'"):
        td.entry_class("q")
    assert td.sorted_keys == ["a", "p", "s"]
    assert td.data_ptr()["a", "t"].item() == td["a", "t"].data_ptr()


def test_where_the_leaves_are():
    td = tree()
    assert (td.is_cpu, td.is_cuda, td.is_meta) == (True, False, False)
    assert (td.to("meta").is_cpu, td.to("meta").is_meta) == (False, True)
    mixed = td.set("m", torch.ones(3, device="meta"))
    assert (mixed.is_cpu, mixed.is_meta) == (False, False)
    assert not TensorDict().is_cpu


def test_param_count_counts_a_tied_leaf_under_each_path_or_once():
    td = TensorDict(a=torch.ones(4), b=torch.ones(4), c=torch.ones(2)).tie("a", "b")
    assert (td.param_count(), td.param_count(count_duplicates=False), td.numel()) == (10, 6, 6)


@pytest.mark.parametrize("name", "float16 float32 float64 int8 int16 int32 int64 uint8 complex64 complex128".split())
def test_casts_by_the_name_of_the_dtype(name):
    got = getattr(tree(), name)()
    assert got.dtype is getattr(torch, name)
    assert torch.equal(got["n", "y"], Y.to(getattr(torch, name)))
    assert got.structure is tree().structure
