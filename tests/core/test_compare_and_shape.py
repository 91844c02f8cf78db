"""equal and allclose; stack and unbind; casts and moves; to_dict and to_flat; repr."""

from __future__ import annotations

import pytest
import torch

import tdfunc
from tdfunc import BatchSizeError, KeyPathError, StructureError, TensorDict, static


def tree():
    return TensorDict({"a": torch.tensor([1.0, 2.0]), "b": {"c": torch.tensor([[1], [2]]), "s": "x"}, "n": static(5)}, 2)


CHANGES = {
    "a value": lambda td: td.set("a", torch.tensor([1.0, 3.0])),
    "a dtype": lambda td: td.set("a", td["a"].double()),
    "a shape": lambda td: td.set("a", td["a"].unsqueeze(-1)),
    "a name": lambda td: td.rename_key("a", "z"),
    "one more": lambda td: td.set("z", td["a"]),
    "one less": lambda td: td.exclude("a"),
    "a static value": lambda td: td.set(("b", "s"), "y"),
    "a static's type": lambda td: td.set("n", static(5.0)),
    "a static less": lambda td: td.exclude("n"),
    "a static more": lambda td: td.set("m", None),
    "a leaf that is static": lambda td: td.set("a", "now static"),
    "another size": lambda td: td[:1],
}
SAME = {
    "itself": lambda td: td,
    "a clone": lambda td: td.clone(),
    "another order": lambda td: TensorDict({"n": static(5), "b": {"s": "x", "c": td["b", "c"]}, "a": td["a"]}, 2),
    "back and forth": lambda td: td.set("a", td["b", "c"]).set("a", td["a"]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_equal_sees_every_difference_from_both_sides(change):
    td = tree()
    assert td.equal(change(td)) is False
    assert change(td).equal(td) is False


@pytest.mark.parametrize("same", SAME.values(), ids=SAME)
def test_equal_holds_for_the_same_content_whatever_the_order(same):
    td = tree()
    assert td.equal(same(td)) is True
    assert same(td).equal(td) is True
    assert td.allclose(same(td)) is True


@pytest.mark.parametrize("other", [None, 1, {"a": 1}, torch.ones(2), "x", tree().to_dict()], ids=type)
def test_equal_to_anything_else_is_false(other):
    assert tree().equal(other) is False
    assert tree().allclose(other) is False


def test_nan_is_unlike_itself_unless_asked():
    td = TensorDict(a=torch.tensor([float("nan"), 1.0]))
    assert td.equal(td) is False
    assert td.allclose(td) is False
    assert td.allclose(td, equal_nan=True) is True


@pytest.mark.parametrize(
    ("delta", "kwargs", "want"), [(1e-9, {}, True), (1e-3, {}, False), (1e-3, {"atol": 1e-2}, True), (1e-3, {"rtol": 1e-2}, True)]
)
def test_allclose_has_torchs_tolerances(delta, kwargs, want):
    td = TensorDict(a=torch.ones(2, dtype=torch.float64), b=torch.ones(3, dtype=torch.float64))
    assert td.allclose(td + delta, **kwargs) is want is torch.allclose(td["a"], td["a"] + delta, **kwargs)


def test_allclose_compares_values_of_different_dtypes():
    td = TensorDict(a=torch.tensor([0.5, 2.0]))
    assert td.allclose(td.to(torch.float64)) is True
    assert td.allclose(td.to(torch.float64) + 1) is False


@pytest.mark.parametrize("other", [torch.tensor([1.5, 2.5]), torch.tensor([1.0, 2.0 + 1e-4])])
def test_allclose_is_symmetric_in_dtype(other):
    whole, frac = TensorDict(a=torch.tensor([1, 2])), TensorDict(a=other)
    assert whole.allclose(frac) is False
    assert frac.allclose(whole) is False


@pytest.mark.parametrize("dim", [0, 1, -1, -2])
@pytest.mark.parametrize("n", [1, 3])
def test_stack_is_torch_stack_of_each_leaf_and_unbind_undoes_it(dim, n):
    trees = [tree() + i for i in range(n)]
    got = tdfunc.stack(trees, dim)
    at = dim % 2
    assert torch.equal(got["a"], torch.stack([td["a"] for td in trees], at))
    assert torch.equal(got["b", "c"], torch.stack([td["b", "c"] for td in trees], at))
    assert got["b", "s"] == "x"
    assert got.structure is trees[0].structure
    back = got.unbind(dim)
    assert len(back) == n
    assert all(a.equal(b) for a, b in zip(back, trees, strict=True))
    assert torch.stack(trees, dim).equal(got)
    assert [td.equal(want) for td, want in zip(torch.unbind(got, dim), back, strict=True)] == [True] * n


def test_stack_takes_any_sequence_and_the_order_of_the_first():
    first, other = TensorDict(a=torch.zeros(1), b=torch.ones(1)), TensorDict(b=torch.full((1,), 2.0), a=torch.full((1,), 3.0))
    for trees in ([first, other], (first, other)):
        got = tdfunc.stack(trees)
        assert got.structure is first.structure
        assert (got["a"].flatten().tolist(), got["b"].flatten().tolist()) == ([0, 3], [1, 2])


def test_unbind_gives_views():
    td = tree()
    assert [row["a"].data_ptr() for row in td.unbind()] == [td["a"][i].data_ptr() for i in range(2)]


@pytest.mark.parametrize("dim", [2, -3, 7])
def test_a_dim_that_is_no_batch_dim_is_refused(dim):
    with pytest.raises(BatchSizeError, match=rf"stack: dim {dim} is no batch dim[\s\S]*\[-2, 1\][\s\S]*with_batch_size"):
        tdfunc.stack([tree()], dim)
    with pytest.raises(BatchSizeError, match=rf"unbind: dim {dim} is no batch dim[\s\S]*\[-1, 0\]"):
        tree().unbind(dim)
    with pytest.raises(BatchSizeError, match="a tree with batch dims"):
        TensorDict(a=torch.zeros(3)).unbind()


STACK_ERRORS = [
    (lambda: [], StructureError, "stack: no trees given"),
    (lambda: [tree(), {"a": 1}], StructureError, r"stack: expected TensorDicts[\s\S]*member 1"),
    (lambda: [tree(), tree(), tree().exclude("a")], StructureError, r"member 2[\s\S]*removed: 'a'"),
    (lambda: [tree(), tree().set("n", static(6))], StructureError, r"different static values[\s\S]*member 1"),
    (lambda: [tree(), tree().set("a", torch.zeros(2, 3))], (BatchSizeError, StructureError), r"different shapes[\s\S]*member 1, 'a'"),
    (lambda: [tree(), tree()[:1]], BatchSizeError, r"member 1, 'a': \(1,\) for \(2,\); 'b', 'c': \(1, 1\) for \(2, 1\)"),
]


@pytest.mark.parametrize(("make", "error", "message"), STACK_ERRORS)
def test_stack_says_which_member_is_wrong(make, error, message):
    with pytest.raises(error, match=message):
        tdfunc.stack(make())


CASTS = [
    ((torch.float64,), {}),
    ((), {"dtype": torch.int16}),
    (("cpu",), {}),
    (("meta",), {}),
    ((torch.device("meta"), torch.float16), {}),
    ((), {"device": "meta", "dtype": torch.bool}),
    ((torch.float32,), {"non_blocking": True, "copy": True}),
]


@pytest.mark.parametrize(("args", "kwargs"), CASTS, ids=str)
def test_to_is_tensor_to_of_each_leaf(args, kwargs):
    td = tree()
    got = td.to(*args, **kwargs)
    assert got.structure is td.structure
    for a, b in zip(got._leaves, td._leaves, strict=True):
        want = b.to(*args, **kwargs)
        assert (a.dtype, a.device, a.shape, a is b) == (want.dtype, want.device, want.shape, want is b)


def test_to_refuses_a_tensor_and_a_tree():
    for other in (torch.ones(1), tree()):
        with pytest.raises(StructureError, match=r"to: expected a device, a dtype or both[\s\S]*other\.device"):
            tree().to(other)


def test_clone_detach_and_requires_grad():
    td = tree()
    copy = td.clone()
    assert copy.equal(td)
    assert all(a.data_ptr() != b.data_ptr() for a, b in zip(copy._leaves, td._leaves, strict=True))
    fresh = td.requires_grad()
    assert [leaf.requires_grad for leaf in fresh._leaves] == [True, False]
    assert [leaf.requires_grad for leaf in td._leaves] == [False, False]
    assert fresh["a"].data_ptr() == td["a"].data_ptr()
    through = fresh.clone() * 2
    assert [leaf.requires_grad for leaf in through.detach()._leaves] == [False, False]
    through["a"].sum().backward()
    assert fresh["a"].grad.tolist() == [2.0, 2.0]
    assert (through.requires_grad()["a"].is_leaf, fresh.requires_grad(False)["a"].requires_grad) == (True, False)
    assert fresh["a"].requires_grad is True


def test_zeros_like_and_the_torch_functions_on_trees():
    td = tree()
    for got in (td.zeros_like(), torch.zeros_like(td)):
        assert got.structure is td.structure
        assert all(torch.equal(a, torch.zeros_like(b)) and a.dtype == b.dtype for a, b in zip(got._leaves, td._leaves, strict=True))
    assert torch.clone(td).equal(td)
    assert torch.sin(td).equal(td.map(torch.sin))
    with pytest.raises(StructureError, match=r"torch\.erfinv does not take a TensorDict[\s\S]*td\.map"):
        torch.erfinv(td)


def test_to_dict_is_nested_dicts_that_build_the_tree_again():
    td = tree()
    out = td.to_dict()
    assert list(out) == ["a", "b", "n"]
    assert type(out["b"]) is dict
    assert out["b"]["c"] is td["b", "c"]
    assert (out["b"]["s"], out["n"]) == ("x", 5)
    out["b"]["new"] = out["new"] = 1
    assert td.to_dict().keys() == {"a", "b", "n"}
    assert "new" not in td
    assert "new" not in td["b"]
    assert TensorDict({**td.to_dict(), "n": static(5)}, 2).structure is td.structure


def test_to_flat_joins_the_paths():
    td = tree()
    assert {k: v if k in ("n", "b.s") else v.data_ptr() for k, v in td.to_flat().items()} == {
        "a": td["a"].data_ptr(),
        "b.c": td["b", "c"].data_ptr(),
        "n": 5,
        "b.s": "x",
    }
    assert set(td.to_flat("/")) == {"a", "b/c", "n", "b/s"}
    assert list(td.tie("a").to_flat(sep="::")) == ["a", "b::c", "b::s", "n"]
    tied = TensorDict({"p": td["a"], "q": {"r": td["a"]}}).tie("p", ("q", "r")).to_flat()
    assert tied["p"] is tied["q.r"]


@pytest.mark.parametrize("entries", [{"a.b": 1.0}, {"n": {"a.b": 1.0}}, {"a.b": {"c": 1.0}}, {"a.b": "static"}])
def test_to_flat_refuses_keys_with_the_separator(entries):
    with pytest.raises(KeyPathError, match=r"contains the separator '\.'[\s\S]*'a\.b'[\s\S]*sep='/'"):
        TensorDict(entries).to_flat()
    assert len(TensorDict(entries).to_flat("/")) == 1


def test_repr_golden():
    td = TensorDict(
        {"weight": torch.zeros(3, 10), "in": {"b": torch.zeros(3, dtype=torch.int8), "mode": "train"}, "m": torch.zeros(3, device="meta")}, 3
    )
    assert repr(td.tie("weight").set("w2", torch.zeros(3, 10)).tie("weight", "w2")) == (
        "TensorDict(batch_size=(3,),\n"
        "  weight   (3, 10)  float32\n"
        "  in.b     (3,)     int8\n"
        "  m        (3,)     float32 meta\n"
        "  w2       (3, 10)  float32       = weight\n"
        "  in.mode  static   'train')"
    )
    assert repr(TensorDict()) == "TensorDict(batch_size=())"
    assert repr(TensorDict({}, 3)) == "TensorDict(batch_size=(3,))"
    assert str(td) == repr(td) == f"{td}"


def test_repr_is_never_longer_than_a_screen():
    lines = repr(TensorDict({f"k{i}": torch.zeros(1) for i in range(100)})).splitlines()
    assert len(lines) == 42
    assert lines[-1] == "  ... 60 more)"
