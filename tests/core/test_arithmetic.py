"""Operators, leaf by leaf and bit for bit what torch gives: with numbers, tensors over the batch shape, and trees."""

from __future__ import annotations

import operator
import warnings

import numpy as np
import pytest
import torch

from tdfunc import BatchSizeError, StructureError, TensorDict

OPS = {name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "gt", "ge", "eq", "ne")}
DTYPES = [
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool),
]
NUMBERS = [2, -3, 0, 0.1, 1.5, -0.0, float("nan"), float("inf"), 2**24 + 1, 2**40 + 1, 1e300, 1e-300, 3.3e38, True, 1j]


def mixed(*batch):
    """Leaves of every dtype, each with and without event dims; a tree with batch dims has no 0-dim leaf."""
    values = torch.linspace(-3, 3, max(1, torch.Size(batch).numel()) * 4).reshape(*batch, 2, 2)
    leaves = {str(dtype): values.to(dtype) for dtype in DTYPES}
    return TensorDict({"event": leaves, "batch": {name: leaf[..., 0, 1] for name, leaf in leaves.items()}}, batch)


def attempt(fn, *args):
    """Return what fn gives, or the type of what it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return fn(*args)
        except (RuntimeError, TypeError, NotImplementedError, OverflowError) as error:
            return type(error)


def identical(a, b):
    """Same dtype, shape and bits; a nan is a nan."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.is_floating_point:
        return (
            torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))
            and torch.equal(a.isnan(), b.isnan())
            and torch.equal(a.signbit() | a.isnan(), b.signbit() | b.isnan())
        )
    if a.dtype.is_complex:
        return identical(torch.view_as_real(a), torch.view_as_real(b))
    return torch.equal(a, b)


def check(td, fn, oracle):
    """fn of the whole tree is oracle of each leaf, for the leaves that torch can do; one that it cannot raises."""
    paths = td.structure.paths()
    want = {path: attempt(oracle, td[path]) for path in paths}
    able = [path for path in paths if isinstance(want[path], torch.Tensor)]
    for group in (able, *([path] for path in paths if path not in able)):
        part = td.select(*group)
        got = attempt(fn, part)
        if group is able:
            if not able:
                continue
            assert isinstance(got, TensorDict), got
            assert got.structure.paths() == tuple(able)
            for path in able:
                assert identical(got[path], want[path]), (path, got[path], want[path])
        else:
            assert got is want[group[0]], (group, got)


@pytest.mark.parametrize("batch", [(), (3,)], ids=["no batch dims", "batch"])
@pytest.mark.parametrize("name", OPS)
def test_a_number_on_either_side(name, batch):
    op, td = OPS[name], mixed(*batch)
    for number in NUMBERS:
        check(td, lambda t: op(t, number), lambda leaf: op(leaf, number))
        check(td, lambda t: op(number, t), lambda leaf: op(number, leaf))


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_0_dim_tensor_on_either_side(name, dtype):
    op = OPS[name]
    other = torch.tensor(3).to(dtype)
    for td in (mixed(), mixed(3)):
        check(td, lambda t: op(t, other), lambda leaf: op(leaf, other))
        check(td, lambda t: op(other, t), lambda leaf: op(other, leaf))


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64], ids=str)
def test_a_tensor_over_the_batch_shape_on_either_side(name, dtype):
    op = OPS[name]
    other = torch.tensor([1, 2, 3]).to(dtype)
    spread = lambda leaf: other.reshape(3, *[1] * (leaf.dim() - 1))
    check(mixed(3), lambda t: op(t, other), lambda leaf: op(leaf, spread(leaf)))
    check(mixed(3), lambda t: op(other, t), lambda leaf: op(spread(leaf), leaf))


@pytest.mark.parametrize("name", OPS)
def test_a_tree_with_the_same_paths(name):
    op, td = OPS[name], mixed(3)
    for dtype in DTYPES:
        other = td.map(lambda leaf, dtype=dtype: torch.full_like(leaf, 2, dtype=dtype))
        check(td, lambda t: op(t, other.select(*t.structure.paths())), lambda leaf: op(leaf, torch.full_like(leaf, 2, dtype=dtype)))  # noqa: B023


BROADCASTS = [
    ((3, 4), (4,), (3, 4)),
    ((3, 4), (3, 1), (3, 4)),
    ((3, 4), (1,), (3, 4)),
    ((3, 4), (1, 1), (3, 4)),
    ((3, 4), (5, 3, 4), (5, 3, 4)),
    ((3, 1), (4,), (3, 4)),
    ((4,), (3, 1), (3, 4)),
    ((), (3,), (3,)),
    ((0,), (1,), (0,)),
    ((3, 4), (), (3, 4)),
]


@pytest.mark.parametrize(("batch", "shape", "want"), BROADCASTS)
def test_a_tensor_aligns_with_the_last_batch_dims(batch, shape, want):
    td = TensorDict({"a": torch.randn(batch), "b": {"c": torch.randn(*batch, 5), "d": torch.randn(*batch, 2, 6)}}, batch)
    other = torch.randn(shape)
    for got, op in ((td - other, operator.sub), (other - td, lambda a, b: b - a), (td - other.numpy(), operator.sub)):
        assert got.batch_size == got["b"].batch_size == want
        assert torch.equal(got["a"], op(td["a"], other))
        assert torch.equal(got["b", "c"], op(td["b", "c"], other.unsqueeze(-1)))
        assert torch.equal(got["b", "d"], op(td["b", "d"], other[..., None, None]))


def test_a_tensor_that_does_not_broadcast_over_the_batch_shape_is_an_error():
    td = TensorDict({"a": torch.zeros(3, 5)}, 3)
    with pytest.raises(
        BatchSizeError, match=r"\+: shapes that do not go together\n  at: 'a'\n  expected: a shape that broadcasts with \(3, 5\)\n  got: \(5, 1\)"
    ):
        td + torch.zeros(5)


def test_a_nested_tree_with_more_batch_dims_meets_a_tensor_by_the_roots():
    td = TensorDict({"n": TensorDict({"x": torch.zeros(3, 4)}, (3, 4)), "y": torch.zeros(3)}, 3)
    got = td + torch.tensor([1.0, 2.0, 3.0])
    assert got["n", "x"][:, 0].tolist() == got["y"].tolist() == [1, 2, 3]
    assert got["n"].batch_size == (3, 4)


@pytest.mark.parametrize("name", ["add", "mul", "sub", "truediv"])
@pytest.mark.parametrize("make", [np.float32, np.float64, np.int32], ids=lambda m: m.__name__)
def test_numpy_on_either_side(name, make):
    op, td = OPS[name], TensorDict({"a": torch.rand(3, 2) + 1, "b": torch.arange(1, 4)}, 3)
    array = np.array([1, 2, 3]).astype(make)
    tensor = torch.from_numpy(array)
    assert op(td, array).equal(op(td, tensor))
    assert op(td, make(2)).allclose(op(td, 2))
    assert op(array, td).equal(op(tensor, td))
    assert op(make(2), td).allclose(op(2, td))


@pytest.mark.parametrize("fn", [operator.neg, abs, operator.abs], ids=["neg", "abs", "operator.abs"])
def test_unary_operators(fn):
    td = mixed(3)
    check(td, fn, fn)


def test_comparisons_are_elementwise_and_give_bool_trees():
    td = TensorDict({"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([2, 1])}, 2)
    assert (td == 2).to_dict()["a"].tolist() == [False, True]
    assert (td == td)["b"].tolist() == [True, True]
    assert (td != torch.tensor([1, 1]))["b"].tolist() == [True, False]
    assert (2 > td)["a"].tolist() == [True, False]
    assert (torch.tensor([1, 2]) <= td)["b"].tolist() == [True, False]
    assert (td == td).dtype == torch.bool


OTHERS = [None, "x", [1], {"a": 1}, object()]


@pytest.mark.parametrize("other", OTHERS, ids=lambda o: type(o).__name__)
@pytest.mark.parametrize("name", OPS)
def test_operators_refuse_what_is_no_number_tensor_or_tree(name, other):
    with pytest.raises((StructureError, TypeError), match="expected another TensorDict|unsupported operand"):
        OPS[name](TensorDict(a=torch.ones(2)), other)


def test_trees_with_other_paths_are_refused_by_path():
    one, two = TensorDict(a=torch.ones(1), b=torch.ones(1)), TensorDict(a=torch.ones(1), c=torch.ones(1))
    with pytest.raises(StructureError, match=r"removed: 'b'; added: 'c'[\s\S]*select"):
        one + two


@pytest.mark.parametrize("number", [2, 0.5])
@pytest.mark.parametrize("name", ["add", "mul", "sub", "truediv"])
def test_a_default_device_does_not_matter_to_leaves_on_another(name, number):
    td = TensorDict({"a": torch.ones(3), "b": torch.ones(2, 2)})
    with torch.device("meta"):
        got, back = OPS[name](td, number), OPS[name](number, td)
    assert got.equal(OPS[name](td, number))
    assert back.equal(OPS[name](number, td))


def test_fake_leaves_meet_numbers_outside_of_their_mode():
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    td = TensorDict({name: mode.from_tensor(torch.ones(3)) for name in "ab"})
    assert (td["a"] + 1).shape == (3,)
    assert (td + 1)["b"].shape == (3,)


def test_gradients_and_subclasses_pass_through():
    class Tagged(torch.Tensor):
        pass

    x = torch.ones(3, requires_grad=True)
    td = TensorDict({"a": x, "b": torch.ones(3).as_subclass(Tagged)}) * 3 - 1
    assert type(td["b"]) is Tagged
    td["a"].sum().backward()
    assert x.grad.tolist() == [3.0] * 3


@pytest.mark.parametrize("name", ["add", "mul", "sub", "truediv", "floordiv", "mod", "pow"])
def test_huge_integers_overflow_as_in_torch(name):
    td = TensorDict({"a": torch.ones(3), "b": torch.ones(3)})
    want = attempt(lambda: OPS[name](td["a"], 2**70))
    got = attempt(lambda: OPS[name](td, 2**70))
    assert got is want if isinstance(want, type) else identical(got["a"], want)
