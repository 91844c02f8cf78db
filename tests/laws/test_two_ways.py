"""The quick way of eager and the general way that a trace takes are one function: same result or same error, on random trees."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tdfunc
from tdfunc import TensorDict
from tdfunc.ops import _foreach
from tdfunc.structure import clear_caches
from tests.laws.strategies import DTYPES, assert_same, leaves, nodes, trees, walk

law = settings(deadline=None, derandomize=True, max_examples=100, database=None)
ODD_KEYS = ["nope", ("a",), ("a", "nope"), ("nope", "a"), (("a",), "b"), (), 0, None, ["a"], ("a", 0), 1.5, b"a"]


def general(name):
    """Return what torch.compile traces in the place of a method."""
    return getattr(TensorDict, name)._torchdynamo_inline


def outcome(fn, *args, **kwargs):
    try:
        return fn(*args, **kwargs)
    except Exception as error:
        return type(error), str(error)


def agree(got, want):
    assert type(got) is type(want)
    if isinstance(want, TensorDict):
        assert_same(got, want)
        assert got.batch_size == want.batch_size
    elif isinstance(want, torch.Tensor):
        assert got is want
    else:
        assert got == want


def keys_of(td):
    return [path if len(path) > 1 else path[0] for path, _ in [*walk(td), *nodes(td)] if path]


@law
@given(trees(), st.data(), st.integers(0, 2))
@pytest.mark.parametrize("name", ["__getitem__", "get", "__contains__"])
def test_reading(name, td, data, read):
    key = data.draw(st.sampled_from([*keys_of(td), *ODD_KEYS]))
    if not read:
        td.structure.release()
    elif read == 2:
        assert len(list(td.items(include_nested=True))) == len(list(td.keys(include_nested=True)))
    for _ in range(2):
        agree(outcome(getattr(TensorDict, name), td, key), outcome(general(name), td, key))


@law
@given(trees(), st.booleans(), st.booleans(), st.booleans())
@pytest.mark.parametrize("name", ["keys", "values", "items"])
def test_listing(name, td, nested, only, release):
    if release:
        td.structure.release()
    for _ in range(2):
        got, want = list(getattr(td, name)(nested, only)), list(general(name)(td, nested, only))
        assert len(got) == len(want)
        for mine, theirs in zip(got, want, strict=True):
            if name == "items":
                assert mine[0] == theirs[0]
                mine, theirs = mine[1], theirs[1]
            agree(mine, theirs)


values = st.one_of(st.sampled_from(["static", None, tdfunc.static(1), 1.0, [1], {}]), st.lists(st.integers(0, 3), max_size=3).flatmap(leaves))


@law
@given(trees(), st.data(), st.booleans())
def test_setting(td, data, release):
    key = data.draw(st.sampled_from([*keys_of(td), "new", ("new", "er"), *ODD_KEYS]))
    value = data.draw(st.one_of(values, leaves(tuple(td.batch_size))))
    if release:
        td.structure.release()
    for _ in range(2):
        agree(outcome(td.set, key, value), outcome(general("set"), td, key, value))


@law
@given(trees(), st.data(), st.booleans())
def test_updating(td, data, release):
    keys = data.draw(st.lists(st.sampled_from([*keys_of(td), "new", ("new", "er"), 0]), unique=True, max_size=3))
    other = {key: data.draw(st.one_of(leaves(tuple(td.batch_size)), values)) for key in keys}
    alike = {key: td[key] + 0 for key in keys if key in td and isinstance(td[key], torch.Tensor)}
    if release:
        td.structure.release()
    for new in (other, alike, other | alike):
        agree(outcome(td.update, new), outcome(general("update"), td, new))


@law
@given(trees(), st.data(), st.booleans())
def test_building(td, data, fresh):
    size = data.draw(st.sampled_from([td.batch_size, (), tuple(td.batch_size[:1]), (3,), 2, "2", -1]))
    plain = td.to_dict()
    flat = {key: leaf for key, leaf in td.items(leaves_only=True)}
    for source in (plain, flat, {**flat, **data.draw(st.sampled_from([{0: torch.ones(1)}, {("p", "q"): torch.ones(1)}, {"x": [1]}, {}]))}):
        if fresh:
            clear_caches()
        agree(outcome(TensorDict, source, size), outcome(general("__new__"), TensorDict, source, size))


@law
@given(
    trees(dtypes=DTYPES),
    st.sampled_from([0, 1, -2, 2.5, float("inf"), 2**40 + 1, 1e300, torch.tensor(2), torch.tensor(2.5)]),
    st.sampled_from([name for name in _foreach._NAMES if name not in ("addcmul", "addcdiv", "lerp")]),
)
def test_foreach_kernels(td, number, name):
    """The kernel over all leaves and torch's function on each give the same bits, with a number and with a tree."""
    fn = getattr(torch, name)
    if name in ("add", "sub", "mul", "div"):
        others = [(number,), (td._leaves,)]
    else:
        others = [(td._leaves,)] if name in ("maximum", "minimum") else [()]
    for other in others:
        firsts = [row if isinstance(row, tuple) else (row,) * len(td._leaves) for row in other]
        able = [i for i, leaf in enumerate(td._leaves) if isinstance(outcome(fn, leaf, *[row[i] for row in firsts]), torch.Tensor)]
        leaves_ = tuple(td._leaves[i] for i in able)
        rows = tuple(tuple(row[i] for i in able) if isinstance(row, tuple) else row for row in other)
        got, want = _foreach.each(td, name, fn, leaves_, *rows), _foreach._each(td, name, fn, leaves_, *rows)
        for mine, theirs in zip(got, want, strict=True):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
