"""All leaves in one tensor and back, against torch.cat of the flattened leaves by hand."""

from __future__ import annotations

import copy
import pickle

import optree
import pytest
import torch
from hypothesis import given, settings
from torch._dynamo.testing import CompileCounter
from torch.utils import _pytree

import tdfunc
from tdfunc import BatchSizeError, StructureError, TensorDict
from tests.laws.strategies import DTYPES, assert_same, trees

law = settings(deadline=None, derandomize=True, max_examples=80, database=None)


def tree(n=3):
    td = TensorDict({"w": torch.randn(n, 2, 2), "n": {"b": torch.randn(n), "s": "static", "e": {}}, "tied": torch.randn(n, 2, 2)}, n)
    return td.tie("w", "tied")


def by_hand(td):
    return torch.cat([td["w"].reshape(-1, 4), td["n", "b"].reshape(-1, 1)], 1)


def test_pack_is_the_flattened_leaves_side_by_side_ties_once():
    td = tree()
    tensor, layout = td.pack()
    assert torch.equal(tensor, by_hand(td))
    assert (layout.paths, layout.shapes, layout.offsets, layout.sizes, layout.numel) == ((("w",), ("n", "b")), ((2, 2), ()), (0, 4), (4, 1), 5)


@law
@given(trees(dtypes=(torch.float32,)))
def test_unpack_is_the_inverse_at_every_dim(td):
    for dim in range(-td.batch_dims - 1, td.batch_dims + 1):
        tensor, layout = td.pack(dim)
        assert tensor.shape[dim] == layout.numel
        assert tensor.movedim(dim, -1).shape[:-1] == td.batch_size
        assert_same(layout.unpack(tensor), td)


@law
@given(trees(dtypes=DTYPES))
def test_unpack_casts_back_what_pack_has_cast(td):
    tensor, layout = td.pack(dtype=torch.complex128)
    assert tensor.dtype is torch.complex128
    assert_same(layout.unpack(tensor), td)


def test_without_a_dtype_the_leaves_have_that_of_the_tensor():
    tensor, layout = tree().pack()
    assert layout.unpack(tensor.double()).dtype is torch.float64
    assert tree().pack(dtype=torch.float64)[1].unpack(tensor.double()).dtype is torch.float32


def test_leaves_are_views_and_other_batch_dims_are_taken():
    tensor, layout = tree().pack()
    td = layout.unpack(tensor)
    assert td["w"].untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
    assert_same(layout.unpack(tensor[1]), td[1])
    assert_same(layout.unpack(tensor.expand(5, 3, 5)), td.expand(5, 3))
    assert layout.unpack(tensor[:0]).batch_size == (0,)


def test_the_dim_counts_from_the_end_so_that_rows_have_the_layout_of_their_tree():
    td = tree()
    assert td.pack(1)[1] == td.pack(-1)[1] == td[0].pack(0)[1]
    assert td.pack(0)[1] != td.pack(1)[1]
    assert torch.equal(td.pack(0)[0], by_hand(td).T)


def test_a_layout_is_frozen_hashable_and_compared_by_value():
    layout, same = tree().pack()[1], tree(5).pack()[1]
    assert layout == same
    assert {layout: 1}[same] == 1
    assert layout != tree().untie("w", "tied").pack()[1]
    assert layout != tree().pack(dtype=torch.float64)[1]
    for again in (pickle.loads(pickle.dumps(layout)), copy.deepcopy(layout)):
        assert again == layout
        assert hash(again) == hash(layout)
    with pytest.raises(AttributeError):
        layout.dim = 0


def test_a_layout_is_a_pytree_without_leaves():
    layout = tree().pack()[1]
    leaves, spec = _pytree.tree_flatten(layout)
    assert leaves == []
    assert _pytree.tree_unflatten([], spec) is layout
    assert optree.tree_leaves(layout) == []
    assert optree.tree_map(lambda leaf: leaf * 2, layout) == layout


def test_transforms_hand_a_layout_out():
    td = tree()
    tensor, layout = torch.vmap(lambda row: row.pack())(td)
    assert torch.equal(tensor, by_hand(td))
    assert layout == td.pack()[1]
    grads, aux = torch.func.grad(lambda row: ((packed := row.pack())[0].square().sum(), packed[1]), has_aux=True)(td)
    assert aux == layout
    assert_same(grads, td * 2)


def test_a_hessian_over_all_parameters_is_a_matrix():
    td = TensorDict(a=torch.randn(2), n={"b": torch.randn(2)}).double()
    flat, layout = td.pack()

    def loss(flat):
        td = layout.unpack(flat)
        return (td["a"] * td["n", "b"].square()).sum()

    want = torch.zeros(4, 4, dtype=torch.float64)
    for i in range(2):
        want[i, 2 + i] = want[2 + i, i] = 2 * td["n", "b"][i]
        want[2 + i, 2 + i] = 2 * td["a"][i]
    torch.testing.assert_close(torch.func.hessian(loss)(flat), want)


def test_a_tied_leaf_gets_the_sum_of_its_gradients():
    flat, layout = tree().pack()
    grad = torch.func.grad(lambda flat: (lambda td: (td["w"] + 2 * td["tied"]).sum())(layout.unpack(flat)))(flat)
    assert grad[0].tolist() == [3.0, 3.0, 3.0, 3.0, 0.0]


@pytest.mark.parametrize("how", ["made inside", "in a closure", "as an argument", "in vmap"])
def test_compiled_a_layout_is_a_constant(how):
    layout = tree().pack()[1]
    fns = {
        "made inside": lambda td: (lambda packed: packed[1].unpack(packed[0] * 2))(td.pack()),
        "in a closure": lambda td: layout.unpack(td.pack()[0] * 2),
        "in vmap": lambda td: torch.vmap(lambda row: layout.unpack(row.pack()[0] * 2))(td),
    }
    counter = CompileCounter()
    if how == "as an argument":
        given_layout = torch.compile(lambda tensor, layout: layout.unpack(tensor * 2), fullgraph=True, backend=counter)
        compiled = lambda td: given_layout(*td.pack())
    else:
        compiled = torch.compile(fns[how], fullgraph=True, backend=counter)
    for _ in range(3):
        td = tree()
        assert_same(compiled(td), td * 2)
    assert counter.frame_count == 1


def test_compiled_a_layout_comes_out_as_it_is_in_eager():
    compiled = torch.compile(lambda td: td.pack(), fullgraph=True, backend="eager")
    tensor, layout = compiled(td := tree())
    assert layout == td.pack()[1]
    assert_same(layout.unpack(tensor), td)


def test_a_tree_without_leaves_is_no_columns():
    td = TensorDict({"n": {"s": "static"}}, (2, 3))
    tensor, layout = td.pack(1)
    assert tensor.shape == (2, 0, 3)
    assert_same(layout.unpack(tensor), td)


def test_parameters_of_a_module_go_through_a_vector():
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1)).double()
    flat, layout = tdfunc.params_of(module).pack()
    assert torch.equal(flat, torch.nn.utils.parameters_to_vector(module.parameters()))
    x = torch.randn(5, 3, dtype=torch.float64)
    assert torch.equal(tdfunc.bind(module, layout.unpack(flat))(x), module(x))


def test_dtypes_that_differ_are_refused_by_path_with_the_call_that_mends_it():
    td = TensorDict({"a": torch.ones(2), "n": {"b": torch.ones(2).long()}})
    with pytest.raises(StructureError, match=r"pack: leaves of different dtypes\n  at: 'a': torch.float32; 'n', 'b': torch.int64") as caught:
        td.pack()
    tensor, layout = eval(str(caught.value).split("fix: ")[1].split(",")[0], {"td": td, "torch": torch})
    assert_same(layout.unpack(tensor), td)


@pytest.mark.parametrize(("leaf", "dtype"), [(torch.ones(2) + 1j, torch.float32), (torch.ones(2), torch.int64), (torch.ones(2).int(), torch.bool)])
def test_a_dtype_that_cannot_hold_a_leaf_is_refused_by_path(leaf, dtype):
    with pytest.raises(StructureError, match=rf"pack: leaves that {dtype} cannot hold\n  at: 'n', 'b': {leaf.dtype}"):
        TensorDict({"a": torch.zeros(2).bool(), "n": {"b": leaf}}).pack(dtype=dtype)


def test_devices_that_differ_are_refused_by_path():
    td = TensorDict(a=torch.ones(2), b=torch.ones(2, device="meta"))
    with pytest.raises(StructureError, match=r"pack: leaves on different devices\n  at: 'a': cpu; 'b': meta[\s\S]*fix: td\.to\('cpu'\)\.pack\(\)"):
        td.pack()


@pytest.mark.parametrize("dim", [2, -3, True, "x", None])
def test_a_dim_outside_the_batch_dims_is_refused(dim):
    with pytest.raises(BatchSizeError, match="pack: "):
        tree().pack(dim)


def test_a_tensor_that_does_not_fit_is_refused():
    layout = tree().pack()[1]
    for wrong in (torch.ones(3, 4), torch.ones(()), torch.ones(5, 3)):
        with pytest.raises(BatchSizeError, match=r"unpack: the tensor does not hold[\s\S]*expected: 5 elements along dim -1"):
            layout.unpack(wrong)
    with pytest.raises(BatchSizeError, match="expected: 5 elements along dim -2"):
        tree().pack(0)[1].unpack(torch.ones(5))
    with pytest.raises(StructureError, match=r"unpack: not a tensor[\s\S]*got: TensorDict"):
        layout.unpack(tree())
