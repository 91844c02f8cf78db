"""`to_flat` and `from_flat`, against plain dicts; `numpy`, against `Tensor.numpy`."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch._dynamo.testing import CompileCounter
from torch.utils import _pytree

import tdfunc
from tdfunc import BatchSizeError, KeyPathError, StructureError, TensorDict, from_flat, static
from tests.laws.strategies import assert_same, trees, walk

law = settings(deadline=None, derandomize=True, max_examples=80, database=None)


def tree():
    td = TensorDict({"x": torch.arange(6.0).view(3, 2), "s": "mode", "n": {"y": torch.arange(3), "none": None, "z": {"b": torch.zeros(3).bool()}}}, 3)
    return td.set("w", torch.zeros(3, 2)).tie("x", "w")


def is_flat_through(td):
    """Say whether a tree has nothing that a flat dict does not hold: numbers that are static, nodes of nothing or of another batch size."""
    numbers = any(isinstance(value, int | float | complex) and not isinstance(value, bool) for _, value in walk(td))
    return not numbers and td.structure is td.prune().structure and not td.structure.extras()


# --- flat dicts ------------------------------------------------------------------------------------------------------


def test_from_flat_takes_the_keys_apart():
    a, b, c = torch.ones(2), torch.zeros(2), torch.arange(2)
    td = from_flat({"a": a, "n.b": b, "n.m.c": c, "n.s": "static"}, batch_size=2)
    assert list(td.keys(True)) == ["a", "n", ("n", "b"), ("n", "m"), ("n", "m", "c"), ("n", "s")]
    assert td["a"] is a
    assert td["n", "b"] is b
    assert td["n", "m", "c"] is c
    assert td["n", "s"] == "static"
    assert td.batch_size == td["n", "m"].batch_size == (2,)


@law
@given(trees())
def test_from_flat_is_the_inverse_of_to_flat(td):
    if is_flat_through(td):
        assert_same(from_flat(td.to_flat("\0"), "\0", td.batch_size), td)


@law
@given(trees())
def test_to_flat_has_the_very_leaves_and_values_in_the_order_of_the_tree(td):
    want = {"\0".join(path): value for path, value in walk(td)}
    got = td.to_flat("\0")
    assert list(got) == list(want)
    assert all(got[key] is want[key] for key in want)


def test_a_state_dict_comes_back_as_it_was():
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    state = module.state_dict()
    td = from_flat(state)
    assert list(td) == ["0", "1"]
    assert td.to_flat().keys() == state.keys()
    assert all(td.to_flat()[key] is value for key, value in state.items())
    assert td.equal(tdfunc.state_of(module))


def test_a_tied_leaf_goes_and_comes_back_as_one():
    td = from_flat(tree().to_flat(), batch_size=3)
    assert td.ties == ((("x",), ("w",)),)
    assert td.structure is tree().structure


def test_equal_tensors_that_are_not_one_object_are_not_tied():
    one = torch.ones(2)
    assert from_flat({"a": one, "b": one.clone(), "c": one.view(2)}).ties == ()
    assert from_flat({"a.x": one, "b": one, "c": torch.zeros(2), "d": one}).ties == ((("a", "x"), ("b",), ("d",)),)


def test_another_separator_leaves_dots_alone():
    td = from_flat({"a.b/c": 1.0, "a.b/d": 2.0}, "/")
    assert list(td) == ["a.b"]
    assert td.to_flat("/").keys() == {"a.b/c", "a.b/d"}
    assert from_flat({"a::b": 1.0}, sep="::")["a", "b"] == 1.0


def test_a_tuple_is_a_path_and_is_not_taken_apart():
    assert list(from_flat({("a.b", "c"): 1.0, "d.e": 2.0}).keys(True, True)) == [("a.b", "c"), ("d", "e")]


def test_empty_names_survive():
    td = TensorDict({("a", ""): 1.0, "": 2.0})
    assert td.to_flat().keys() == {"a.", ""}
    assert from_flat(td.to_flat()).structure is td.structure


def test_a_nested_mapping_is_a_subtree_whose_keys_are_not_taken_apart():
    inner = {"c.d": 1.0}
    td = from_flat({"a.b": inner})
    assert list(td.keys(True, True)) == [("a", "b", "c.d")]
    assert inner == {"c.d": 1.0}


@pytest.mark.parametrize(
    ("mapping", "at"),
    [
        ({"a": 1.0, "a.b": 2.0}, r"'a', 'b'"),
        ({"a.b": 1.0, "a": 2.0}, r"'a', 'b'"),
        ({"a.b.c": 1.0, "a.b": 2.0}, r"'a', 'b', 'c'"),
        ({"a.b": 1.0, ("a", "b"): 2.0}, r"'a', 'b'"),
        ({"a": {"b": 1.0}, "a.b": 2.0}, r"'a', 'b'"),
        ({"a": {"b": 1.0}, "a.c": 2.0}, r"'a', 'c'"),
        ({"a": "static", "a.b": 2.0}, r"'a', 'b'"),
    ],
)
def test_keys_that_want_one_place_are_refused_by_path(mapping, at):
    with pytest.raises(KeyPathError, match=rf"from_flat: two entries want one place[\s\S]*at: {at}\n[\s\S]*fix: "):
        from_flat(mapping)


@pytest.mark.parametrize("sep", ["", None, 1])
def test_a_separator_that_separates_nothing_is_refused(sep):
    with pytest.raises(KeyPathError, match=r"from_flat: the separator[\s\S]*expected: a str such as '\.'"):
        from_flat({"a": 1.0}, sep)
    with pytest.raises(KeyPathError, match=r"to_flat: the separator[\s\S]*fix: to_flat"):
        tree().to_flat(sep)


def test_what_is_no_flat_mapping_is_refused():
    with pytest.raises(StructureError, match=r"from_flat: not a mapping[\s\S]*got: list[\s\S]*dict\(pairs\)"):
        from_flat([("a", 1.0)])
    with pytest.raises(KeyPathError, match=r"a key must be a str[\s\S]*got: 1 of type int"):
        from_flat({1: 1.0})
    with pytest.raises(BatchSizeError, match=r"does not start with the batch size[\s\S]*'a', 'b'"):
        from_flat({"a.b": torch.ones(2)}, batch_size=3)
    with pytest.raises(StructureError, match=r"can be no entry[\s\S]*'a', 'b'"):
        from_flat({"a.b": [1]})


def test_compiled_from_flat_is_one_graph_and_gives_what_eager_gives():
    def fn(td, x):
        return from_flat(
            {**{f"in.{key}": value * 2 for key, value in td.select("x", ("n", "y")).to_flat().items()}, "tied.a": x, "tied.b": x}, batch_size=3
        )

    counter = CompileCounter()
    compiled = torch.compile(fn, fullgraph=True, backend=counter)
    x = torch.ones(3)
    for _ in range(2):
        got, want = compiled(tree(), x), fn(tree(), x)
        assert got.structure is want.structure
        assert got.equal(want)
    assert got.ties == ((("tied", "a"), ("tied", "b")),)
    assert counter.frame_count == 1


def test_gradients_and_vmap_go_through_a_flat_dict():
    td = TensorDict({"a": torch.tensor([1.0, 2.0]), "n": {"b": torch.tensor([3.0, 4.0])}}, 2)
    loss = lambda td: sum((value**2).sum() for value in from_flat(td.to_flat()).to_flat().values())
    grads = tdfunc.grad(loss)(td)
    assert {key: value.tolist() for key, value in grads.to_flat().items()} == {"a": [2.0, 4.0], "n.b": [6.0, 8.0]}
    assert torch.vmap(lambda row: from_flat(row.to_flat()))(td).equal(td)


# --- numpy -----------------------------------------------------------------------------------------------------------


def test_numpy_is_nested_dicts_of_what_numpy_makes_of_each_leaf():
    td = tree()
    got = td.numpy()
    assert list(got) == ["x", "s", "n", "w"]
    assert list(got["n"]) == ["y", "none", "z"]
    assert (got["s"], got["n"]["none"]) == ("mode", None)
    for mine, leaf in ((got["x"], td["x"]), (got["n"]["y"], td["n", "y"]), (got["n"]["z"]["b"], td["n", "z", "b"])):
        want = leaf.numpy()
        assert type(mine) is np.ndarray
        assert mine.dtype == want.dtype
        np.testing.assert_array_equal(mine, want)


def test_arrays_share_the_memory_of_leaves_on_the_cpu_and_tied_leaves_are_one_array():
    td = tree()
    got = td.numpy()
    got["x"][0, 0] = 42.0
    assert td["x"][0, 0] == 42.0
    assert got["w"] is got["x"]
    assert np.shares_memory(got["n"]["y"], td["n", "y"].numpy())


@pytest.mark.parametrize(
    "leaf",
    [
        torch.ones(2, requires_grad=True),
        torch.ones(2, requires_grad=True) * 2,
        torch.complex(torch.ones(2), torch.ones(2)).conj(),
        torch.complex(torch.ones(2), torch.ones(2)).conj().imag,
        torch.arange(6).view(2, 3).T,
        torch.tensor(3.0),
        torch.zeros(2, 0),
        torch.tensor([1, 2], dtype=torch.uint16),
        torch.nn.Parameter(torch.ones(2)),
    ],
    ids=["a leaf of autograd", "in a graph", "conjugated", "negated", "transposed", "no dims", "no elements", "uint16", "a parameter"],
)
def test_any_leaf_with_values_in_a_dtype_of_numpy_becomes_an_array(leaf):
    got = TensorDict(x=leaf).numpy()["x"]
    want = leaf.detach().resolve_conj().resolve_neg().numpy()
    assert type(got) is np.ndarray
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_a_dtype_that_numpy_has_not_is_refused_by_path_with_the_cast_that_mends_it(dtype):
    td = TensorDict({"n": {"a.b": torch.ones(2, dtype=dtype)}, "i": torch.arange(2)}, 2)
    with pytest.raises(
        StructureError, match=r"numpy: numpy has no torch\.\w+\n  at: 'n', 'a\.b'[\s\S]*fix: td\.type\(torch\.float32, where=\('n', 'a\.b'\)\)"
    ):
        td.numpy()
    mended = td.type(torch.float32, where=("n", "a.b")).numpy()
    np.testing.assert_array_equal(mended["n"]["a.b"], np.ones(2, np.float32))
    assert mended["i"].dtype == np.int64


@pytest.mark.parametrize("leaf", [torch.zeros(2, device="meta"), torch.eye(2).to_sparse()], ids=["without values", "sparse"])
def test_a_leaf_that_cannot_be_an_array_is_refused_by_path(leaf):
    with pytest.raises(StructureError, match=r"numpy: this leaf cannot be an array[\s\S]*at: 'x'[\s\S]*fix: td\.exclude\(\('x',\)\)"):
        TensorDict(x=leaf).numpy()


def test_inside_a_transform_there_are_no_values_to_show():
    with pytest.raises(StructureError, match=r"numpy: this leaf cannot be an array[\s\S]*at: 'x'"):
        torch.vmap(lambda td: td.numpy() and td)(TensorDict({"x": torch.ones(2)}, 2))


def test_numpy_passes_on_leaves_that_are_no_tensors():
    td = _pytree.tree_map(str, TensorDict({"n": {"x": torch.tensor(1)}}))
    assert td.numpy() == {"n": {"x": "tensor(1)"}}


def test_compiled_numpy_gives_what_eager_gives():
    fn = lambda td: (td + 1).numpy()
    got, want = torch.compile(fn, fullgraph=True, backend="eager")(tree()), fn(tree())
    np.testing.assert_array_equal(got["x"], want["x"])
    np.testing.assert_array_equal(got["n"]["y"], want["n"]["y"])
    assert got["s"] == "mode"


def test_the_constructor_is_the_way_back_from_numpy():
    td = tree().untie("w")
    back = TensorDict(td.numpy(), 3)
    assert back.structure is td.structure
    assert back.equal(td)
    assert back["x"].data_ptr() == td["x"].data_ptr()


def test_to_dict_of_an_ordered_mapping_keeps_the_order():
    entries = collections.OrderedDict([("z", 1.0), ("a", 2.0)])
    assert list(TensorDict(entries).to_dict()) == ["z", "a"]
    assert TensorDict(n=static(5)).to_dict() == {"n": 5}
