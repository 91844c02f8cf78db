"""A TensorDict among pytrees (torch's, the C++ one, optree), in pickles and in torch.save."""

from __future__ import annotations

import copy
import io
import pickle

import optree
import pytest
import torch
from torch.utils import _cxx_pytree, _pytree

from tdfunc import TensorDict, static


def tree():
    td = TensorDict({"a": torch.ones(2), "b": {"c": torch.zeros(2, 3), "d": torch.arange(2)}, "s": "x", "n": static(2.5)}, 2)
    return td.set("t", torch.ones(2)).tie("a", "t")


EMPTY = TensorDict({"s": None, "e": {"f": {}}}, (3, 0))
NESTED = TensorDict({"x": torch.ones(2), "more": TensorDict({"y": torch.zeros(2, 3, 4)}, (2, 3))}, 2)
TREES = {"a tied tree": tree(), "no leaf": EMPTY, "more batch dims below": NESTED, "nothing": TensorDict()}
LIBRARIES = {"torch": _pytree, "C++": _cxx_pytree}


@pytest.fixture(params=TREES.values(), ids=list(TREES))
def td(request):
    return request.param


def assert_same(got, want):
    assert type(got) is TensorDict
    assert got.structure is want.structure
    assert got.batch_size == want.batch_size
    assert got.equal(want)
    assert got.ties == want.ties


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
class TestTorch:
    def test_flatten_gives_the_leaves_and_unflatten_the_tree(self, library, td):
        leaves, spec = library.tree_flatten(td)
        assert all(a is b for a, b in zip(leaves, td._leaves, strict=True))
        assert_same(library.tree_unflatten(leaves, spec), td)
        assert library.tree_structure(td) == library.tree_structure(td + 0 if not td.is_empty() else td)

    def test_it_nests_in_other_containers(self, library, td):
        whole = {"x": [td, 1], "y": (td,)}
        got = library.tree_map(lambda leaf: leaf * 2, whole)
        assert_same(got["x"][0], td * 2)
        assert_same(got["y"][0], td * 2)
        assert got["x"][1] == 2

    @pytest.mark.parametrize("leaf", [1, None, (2, 3), "x", [1, 2], torch.Size([1])], ids=repr)
    def test_unflatten_takes_anything(self, library, leaf):
        spec = library.tree_structure(tree())
        thing = object() if leaf == "x" else leaf
        got = library.tree_unflatten([thing] * 3, spec)
        assert got["a"] is got["b"]["c"] is got["t"] is thing
        assert got.structure is tree().structure

    def test_trees_of_two_are_mapped_together(self, library, td):
        assert_same(library.tree_map(torch.add, td, td), td + td)


def test_key_paths_lead_to_the_leaves(td):  # the C++ one has none yet, torch 2.13
    pairs, _ = _pytree.tree_flatten_with_path(td)
    assert [path[0].path for path, _ in pairs] == list(td.structure.paths())
    assert all(path[0].get(td) is leaf for path, leaf in pairs)
    assert all(len(path) == 1 for path, _ in pairs)


def test_key_paths_print_as_indices():
    (path, _), *_ = _pytree.tree_flatten_with_path({"k": tree()})[0]
    assert _pytree.keystr(path) == "['k']['a']"
    assert [_pytree.keystr(p) for p, _ in _pytree.tree_flatten_with_path(tree())[0]] == ["['a']", "['b']['c']", "['b']['d']"]


def test_treespecs_of_equal_structures_are_equal_and_of_others_not():
    spec = _pytree.tree_structure
    assert spec(tree()) == spec(tree() * 3)
    assert spec(tree()) != spec(tree().untie("t"))
    assert spec(tree()) != spec(tree().set("s", "y"))


def test_a_treespec_is_dumped_and_loaded(td):
    spec = _pytree.tree_structure([td, {"k": td}])
    text = _pytree.treespec_dumps(spec)
    assert isinstance(text, str)
    assert "tdfunc.TensorDict" in text
    assert _pytree.treespec_loads(text) == spec
    got = _pytree.tree_unflatten(_pytree.tree_leaves([td, {"k": td}]), _pytree.treespec_loads(text))
    assert_same(got[1]["k"], td)


class TestOptree:
    def test_no_namespace_is_needed(self, td):
        assert_same(optree.tree_map(lambda leaf: leaf * 2, td), td * 2)
        leaves, spec = optree.tree_flatten({"k": td})
        assert_same(optree.tree_unflatten(spec, leaves)["k"], td)
        assert all(a is b for a, b in zip(leaves, td._leaves, strict=True))

    def test_paths_and_accessors_lead_to_the_leaves(self, td):
        paths, leaves, _ = optree.tree_flatten_with_path(td)
        assert [path[0] for path in paths] == list(td.structure.paths())
        accessors, _, _ = optree.tree_flatten_with_accessor(td)
        for accessor, leaf in zip(accessors, leaves, strict=True):
            assert accessor(td) is leaf
        assert_same(optree.tree_map_with_path(lambda path, leaf: leaf if path[0] in td else None, td), td)

    @pytest.mark.parametrize("leaf", [1, (2,), "x", object()], ids=type)
    def test_unflatten_takes_anything(self, leaf):
        got = optree.tree_unflatten(optree.tree_structure(tree()), [leaf] * 3)
        assert got["a"] is got["b", "d"] is leaf

    def test_structures_compare(self):
        assert optree.tree_structure(tree()) == optree.tree_structure(tree() + 1)
        assert optree.tree_structure(tree()) != optree.tree_structure(tree().exclude("s"))
        with pytest.raises(ValueError, match=r"[Mm]ismatch|Expected"):
            optree.tree_map(torch.add, tree(), tree().exclude("s"))


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_keeps_everything(td, protocol):
    td = td if td.is_empty() else td.set("extra", torch.randn(2, dtype=torch.float64))
    assert_same(pickle.loads(pickle.dumps(td, protocol)), td)


def saved(thing):
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return buffer


def test_torch_save_and_load_with_weights_only(td):
    assert_same(torch.load(saved(td), weights_only=True), td)
    whole = torch.load(saved({"step": 3, "params": td, "list": [td]}), weights_only=True)
    assert_same(whole["params"], td)
    assert_same(whole["list"][0], td)


SAFE = ["s", b"x", True, None, 5, 2.5, 1j, torch.float32, torch.device("cpu"), torch.Size([2]), (1, ("a", None)), float("inf")]


@pytest.mark.parametrize("value", SAFE, ids=repr)
def test_plain_static_values_are_safe_to_load(value):
    td = TensorDict({"a": torch.ones(1), "s": static(value)})
    got = torch.load(saved(td), weights_only=True)
    assert got.structure is td.structure
    assert type(got["s"]) is type(value)


def test_shared_storage_stays_shared_through_torch_save():
    base = torch.arange(4.0)
    got = torch.load(saved(TensorDict(a=base[:2], b=base[2:])), weights_only=True)
    assert got["a"].untyped_storage().data_ptr() == got["b"].untyped_storage().data_ptr()


def test_gradient_flags_and_parameters_survive():
    td = TensorDict(a=torch.ones(2, requires_grad=True), b=torch.nn.Parameter(torch.ones(2)), c=torch.ones(2))
    for got in (pickle.loads(pickle.dumps(td)), torch.load(saved(td), weights_only=True), copy.deepcopy(td)):
        assert [leaf.requires_grad for leaf in got._leaves] == [True, True, False]
        assert type(got["b"]) is torch.nn.Parameter


def test_copy_is_the_tree_itself_and_deepcopy_copies_each_tensor_once(td):
    assert copy.copy(td) is td
    both = copy.deepcopy([td, td])
    assert both[0] is both[1]
    assert_same(both[0], td)
    assert all(a.data_ptr() != b.data_ptr() for a, b in zip(both[0]._leaves, td._leaves, strict=True))
    shared = torch.ones(3)
    got = copy.deepcopy(TensorDict(p=shared, q=shared))
    assert got["p"] is got["q"]


def test_handed_out_subtrees_are_not_part_of_a_pickle():
    fresh, read = tree(), tree()
    assert read["b"]["c"] is not None
    assert list(read.items(include_nested=True))
    assert len(pickle.dumps(fresh)) == len(pickle.dumps(read))
    assert_same(pickle.loads(pickle.dumps(read)), fresh)
