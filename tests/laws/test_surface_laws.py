"""Laws of the operations that arrange, cut, join and write, over random trees of all dtypes, sizes, ties and static values."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tdfunc
from tdfunc import TensorDict
from tdfunc.ops import _at, _foreach
from tests.laws.strategies import assert_same, full_sizes, trees, walk

law = settings(deadline=None, derandomize=True, max_examples=80, database=None)


def rows(td):
    return math.prod(td.batch_size)


@law
@given(trees())
def test_reshape_there_and_back_is_the_tree(td):
    assert_same(td.reshape(rows(td)).reshape(*td.batch_size), td)
    assert_same(td.unsqueeze(0).squeeze(0), td)
    assert_same(td.unsqueeze(-1).expand(*td.batch_size, 3).narrow(td.ndim, 1, 1).squeeze(-1), td)


@law
@given(trees(full_sizes), st.data())
def test_permute_flip_and_roll_have_inverses(td, data):
    order = data.draw(st.permutations(range(td.ndim)))
    back = sorted(range(td.ndim), key=lambda i: order[i])
    dim = data.draw(st.integers(-td.ndim, td.ndim - 1))
    assert_same(td.permute(*order).permute(back), td)
    assert_same(td.flip(dim).flip(dim), td)
    assert_same(td.roll(2, dim).roll(-2, dim), td)
    assert_same(td.movedim(dim, 0).movedim(0, dim), td)


@law
@given(trees(full_sizes), st.data())
def test_cat_of_the_pieces_is_the_tree(td, data):
    dim = data.draw(st.integers(-td.ndim, td.ndim - 1))
    n = data.draw(st.integers(1, 3))
    for pieces in (td.split(n, dim), td.chunk(n, dim), td.tensor_split(n, dim)):
        assert_same(tdfunc.cat(pieces, dim), td)
        assert_same(torch.cat(pieces, dim), td)
    assert_same(tdfunc.stack(td.unbind(dim), dim), td)


@law
@given(trees(), st.sampled_from(["/", "->", "|"]))
def test_flat_keys_come_back_and_keys_with_the_separator_are_refused(td, sep):
    flat = td.flatten_keys(sep)
    assert not any(isinstance(value, TensorDict) and len(value) for value in flat.values())
    assert {path: leaf for path, leaf in walk(flat.unflatten_keys(sep))}.keys() == {path for path, _ in walk(td)}
    again = flat.unflatten_keys(sep)
    assert again.equal(td)
    if not td.structure.extras():
        assert_same(again, td)
    inside = td.set(f"p{sep}q", torch.zeros(td.batch_size))
    with pytest.raises(tdfunc.KeyPathError, match="contains the separator"):
        inside.flatten_keys(sep)


@law
@given(trees())
def test_sorted_keys_make_one_structure_of_any_order(td):
    reverse = td.empty()
    for name in reversed(list(td)):
        value = td[name]  # a static number is read as a number, which set would make a tensor
        reverse = reverse.set(name, tdfunc.static(value) if type(value) in (int, float) else value)
    assert td.sort_keys().equal(td)
    assert list(td.sort_keys()) == sorted(td)
    if not td.ties:
        assert reverse.sort_keys().structure is td.sort_keys().structure


@law
@given(trees(min_leaves=1), st.data())
def test_split_keys_is_a_partition_of_the_leaves(td, data):
    paths = [path for path, value in walk(td) if isinstance(value, torch.Tensor)]
    wanted = data.draw(st.lists(st.sampled_from(paths), max_size=3, unique=True))
    first, second, rest = td.split_keys(list(wanted), lambda path, _: len(path) == 1)
    assert first.numel() + second.numel() + rest.numel() == td.numel()
    assert tdfunc.merge(first, second, rest).equal(td)
    assert td.split_keys(*[[path] for path in wanted])[-1].numel() == td.filter(lambda path, _: True).exclude(*_with_ties(td, wanted)).numel()


def _with_ties(td, paths):
    groups = {path: group for group in td.ties for path in group}
    return [other for path in paths for other in groups.get(path, (path,))]


@law
@given(trees(full_sizes), st.data())
def test_what_is_set_at_an_index_is_read_there_and_nothing_else_changes(td, data):
    n = td.batch_size[0]
    index = data.draw(st.one_of(st.integers(-n, n - 1), st.just(slice(None)), st.just(slice(1, None)), st.lists(st.integers(0, n - 1), unique=True)))
    index = torch.tensor(index, dtype=torch.long) if isinstance(index, list) else index
    value = td[index].map(torch.ones_like)
    new = td.at[index].set(value)
    assert new.structure is td.structure
    assert new[index].equal(value)
    assert_same(td.at[index].set(td.at[index].get()), td)
    assert_same(new, _at._put_by_position(td, index, value, _at.overwrite, "set"))  # the form that a trace takes
    untouched = torch.ones(n, dtype=torch.bool)
    untouched[index] = False
    assert new[untouched].equal(td[untouched])


@law
@given(trees(full_sizes), st.data())
def test_diff_of_a_tree_with_itself_is_empty_and_else_names_each_change(td, data):
    assert not len(tdfunc.diff(td, td))
    assert not len(tdfunc.diff(td, td.clone()))
    tdfunc.assert_close(td, td.clone(), equal_nan=True)
    paths = [path for path, leaf in walk(td) if isinstance(leaf, torch.Tensor)]
    if paths:
        path = data.draw(st.sampled_from(paths))
        less = td.untie(path).exclude(path)
        assert {change.path for change in tdfunc.diff(td.untie(path), less)} >= {path}
        wider = td.set(path, td[path].to(torch.complex128 if td[path].dtype is not torch.complex128 else torch.float64))
        assert path in {change.path for change in tdfunc.diff(td, wider).of("dtype")} or td.ties


@pytest.mark.parametrize("name", [name for name in _foreach._NAMES if hasattr(torch, name)])
def test_the_gradients_of_a_foreach_kernel_are_those_of_the_loop(name):
    """Leaves of different shapes, and more of them than rows: what the backward pass of a kernel may mix up."""
    torch.manual_seed(0)
    shapes = [(2,), (1, 2), (3,), (2, 2), (1,)]
    make = lambda: tuple((torch.rand(shape, dtype=torch.float64) * 0.5 + 0.2).requires_grad_() for shape in shapes)
    many = {"add": 1, "sub": 1, "mul": 1, "div": 1, "pow": 1, "maximum": 1, "minimum": 1, "addcmul": 2, "lerp": 2}.get(name, 0)
    columns = [make() for _ in range(many + 1)]
    inputs = [leaf for column in columns for leaf in column]
    td = TensorDict({str(i): leaf for i, leaf in enumerate(columns[0])})
    fn = getattr(torch, name)
    results = [form(td, name, fn, *columns) for form in (_foreach.each, _foreach._each)]
    first = [torch.autograd.grad(sum((leaf * leaf).sum() for leaf in result), inputs, create_graph=True, allow_unused=True) for result in results]
    for got, want in zip(*first):
        torch.testing.assert_close(got, want)
    if all(grad is not None and grad.requires_grad for grad in first[1]):
        second = [torch.autograd.grad(sum(grad.sum() for grad in grads), inputs, allow_unused=True) for grads in first]
        for got, want in zip(*second):
            torch.testing.assert_close(got, want)
