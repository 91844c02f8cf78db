"""Random trees as plain data: nested dicts of tensors, static values and marked nodes; they know nothing of how tdfunc works."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from hypothesis import strategies as st

import tdfunc
from tdfunc import TensorDict

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
DTYPES = (*FLOATS, torch.complex64, torch.int8, torch.int64, torch.uint8, torch.bool)
NAMES = ("a", "b", "c", "", "a.b", "weight", "ü")
STATICS = ("x", b"y", True, None, torch.float32, torch.device("cpu"), torch.Size([2]), (1, "z"), tdfunc.static(1), tdfunc.static(1.0))


@dataclasses.dataclass
class More:
    """A nested node with more batch dims than its parent."""

    dims: tuple[int, ...]
    entries: dict[str, Any]


sizes = st.lists(st.integers(0, 3), max_size=4).map(tuple)
full_sizes = st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple)


@st.composite
def leaves(draw, batch, dtypes=DTYPES):
    shape = (*batch, *draw(st.lists(st.integers(0, 3), max_size=2)))
    seed = draw(st.integers(0, 2**16))
    values = torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(seed))
    return values.to(draw(st.sampled_from(dtypes)))


@st.composite
def entries(draw, batch, dtypes=DTYPES, depth=2, statics=True, min_size=0):
    made: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=min_size, max_size=4)):
        kind = draw(st.sampled_from(("leaf", "leaf", "leaf", *(("static",) if statics else ()), *(("node", "more") if depth else ()))))
        if kind == "leaf":
            made[name] = draw(leaves(batch, dtypes))
        elif kind == "static":
            made[name] = draw(st.sampled_from(STATICS))
        elif kind == "node":
            made[name] = draw(entries(batch, dtypes, depth - 1, statics))
        else:
            dims = draw(st.lists(st.integers(1, 2), min_size=1, max_size=1).map(tuple))
            made[name] = More(dims, draw(entries((*batch, *dims), dtypes, depth - 1, statics)))
    return made


def build(node, batch):
    """Return the TensorDict of drawn entries."""
    made = {}
    for name, value in node.items():
        if isinstance(value, More):
            made[name] = build(value.entries, (*batch, *value.dims))
        elif isinstance(value, dict):
            made[name] = build(value, batch)
        else:
            made[name] = value
    return TensorDict(made, batch)


@st.composite
def trees(draw, size=sizes, dtypes=DTYPES, ties=True, statics=True, min_leaves=0):
    """Draw a TensorDict; some of its leaves of one shape, dtype and event rank are tied."""
    batch = draw(size)
    td = build(draw(entries(batch, dtypes, statics=statics, min_size=min(1, min_leaves))), batch)
    if min_leaves and td.is_empty():
        td = td.set("filled", draw(leaves(batch, dtypes)))
    if ties and draw(st.booleans()):
        alike: dict[Any, list[tuple[str, ...]]] = {}
        for path, leaf in zip(td.structure.paths(), td._leaves, strict=True):
            alike.setdefault((leaf.shape, leaf.dtype), []).append(path)
        for group in alike.values():
            if len(group) > 1:
                td = td.tie(*group)
    return td


def walk(td, at=()):
    """Yield path and value of all leaves and static values, by the Mapping protocol only."""
    for name in td:
        value = td[name]
        if isinstance(value, TensorDict):
            yield from walk(value, (*at, name))
        else:
            yield (*at, name), value


def nodes(td, at=()):
    """Yield path and batch size of all nodes."""
    yield at, tuple(td.batch_size)
    for name in td:
        if isinstance(td[name], TensorDict):
            yield from nodes(td[name], (*at, name))


def assert_same(got, want, *, ordered=True):
    """The `==` of the laws: same paths, values, dtypes, shapes, ties, static values and batch sizes."""
    ours, theirs = dict(walk(got)), dict(walk(want))
    assert list(ours) == list(theirs) if ordered else ours.keys() == theirs.keys()
    for path, value in theirs.items():
        mine = ours[path]
        if isinstance(value, torch.Tensor):
            assert (mine.dtype, mine.shape) == (value.dtype, value.shape), path
            assert torch.equal(mine, value), path
        else:
            assert type(mine) is type(value), path
            assert mine == value, path
    assert dict(nodes(got)) == dict(nodes(want))
    assert {frozenset(group) for group in got.ties} == {frozenset(group) for group in want.ties}
    assert got.equal(want)
    assert want.equal(got)
    if ordered:
        assert got.structure is want.structure
