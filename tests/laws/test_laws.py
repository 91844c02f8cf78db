"""The laws of the container, on random trees: mixed dtypes, sizes of zero, ties, static values, nodes with more batch dims."""

from __future__ import annotations

import io
import pickle

import optree
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils import _pytree

import tdfunc
from tdfunc import TensorDict
from tdfunc.structure import from_json, to_json
from tests.laws.strategies import FLOATS, assert_same, full_sizes, leaves, nodes, trees, walk

law = settings(deadline=None, derandomize=True, max_examples=80, database=None)


def lifted(td, fn):
    """Apply fn to each leaf by a dict loop: the oracle of map, for an fn that keeps the shape."""
    return {path: fn(value) for path, value in walk(td) if isinstance(value, torch.Tensor)}


@law
@given(trees())
def test_unflatten_of_flatten_is_the_tree(td):
    assert_same(_pytree.tree_unflatten(*_pytree.tree_flatten(td)), td)
    leaves, spec = optree.tree_flatten(td)
    assert_same(optree.tree_unflatten(spec, leaves), td)
    assert_same(_pytree.tree_unflatten(_pytree.tree_leaves(td), _pytree.treespec_loads(_pytree.treespec_dumps(_pytree.tree_structure(td)))), td)


@law
@given(trees())
def test_map_of_the_identity_is_the_tree(td):
    assert_same(td.map(lambda t: t), td)
    assert_same(td.map_with_path(lambda _, t: t), td)
    assert_same(td.clone(), td)
    assert_same(_pytree.tree_map(lambda t: t, td), td)


FUNCTIONS = {
    "negate": lambda t: ~t if t.dtype is torch.bool else -t,
    "cast": lambda t: t.to(torch.float64) if not t.is_complex() else t,
    "one more event dim": lambda t: t.unsqueeze(-1),
    "twice as wide": lambda t: torch.cat([t, t], -1) if t.dim() else t,
    "sum over the last": lambda t: t.sum(-1) if t.dim() else t,
    "first row": lambda t: t[:1] if t.dim() else t,
}


@law
@given(trees(), st.sampled_from(list(FUNCTIONS)), st.sampled_from(list(FUNCTIONS)))
def test_map_of_map_is_map_of_the_composition_where_batch_dims_agree(td, first, second):
    f, g = FUNCTIONS[first], FUNCTIONS[second]
    once, twice = td.map(lambda t: g(f(t))), td.map(f).map(g)
    for path, leaf in lifted(td, lambda t: g(f(t))).items():
        assert torch.equal(once[path], leaf)
        assert torch.equal(twice[path], leaf)
    assert once.ties == twice.ties == td.ties
    if td.map(f).batch_size == td.batch_size and {first, second} <= {"negate", "cast", "one more event dim"}:
        assert_same(twice, once)


@law
@given(trees(), st.integers(0, 3), st.booleans())
def test_merge_of_partition_is_the_tree_but_for_order(td, modulus, by_value):
    pred = (lambda _, leaf: leaf.numel() % 2 == modulus % 2) if by_value else (lambda path, _: len("".join(path)) % (modulus + 1) == 0)
    yes, no = td.partition(pred)
    assert_same(tdfunc.merge(yes, no), td, ordered=False)
    assert_same(tdfunc.merge(no, yes), td, ordered=False)
    assert_same(yes | no, td, ordered=False)
    assert_same(td.filter(pred), yes)
    assert yes.numel() + no.numel() == td.numel()


@law
@given(trees(), st.integers(1, 3), st.data())
def test_unbind_of_stack_gives_the_trees(td, n, data):
    dim = data.draw(st.integers(-td.batch_dims - 1, td.batch_dims))
    others = [td.map(lambda t, i=i: t + i if t.dtype is not torch.bool else t) for i in range(n)]
    stacked = tdfunc.stack(others, dim)
    at = dim % (td.batch_dims + 1)
    assert stacked.batch_size == (*td.batch_size[:at], n, *td.batch_size[at:])
    back = stacked.unbind(dim)
    assert len(back) == n
    for got, want in zip(back, others, strict=True):
        assert_same(got, want)
    for path, value in walk(stacked):
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, torch.stack([other[path] for other in others], at))


@law
@given(trees(size=full_sizes), st.data())
def test_stack_of_unbind_is_the_tree(td, data):
    dim = data.draw(st.integers(-td.batch_dims, td.batch_dims - 1))
    parts = td.unbind(dim)
    assert_same(tdfunc.stack(parts, dim if dim >= 0 else dim), td)
    for i, part in enumerate(parts):
        assert_same(td[(slice(None),) * (dim % td.batch_dims) + (i,)], part)


@law
@given(trees())
def test_pickle_and_save_and_json_keep_everything(td):
    assert_same(pickle.loads(pickle.dumps(td)), td)
    buffer = io.BytesIO()
    torch.save(td, buffer)
    buffer.seek(0)
    assert_same(torch.load(buffer, weights_only=True), td)
    assert from_json(to_json(td.structure)) is td.structure


@law
@given(trees())
def test_to_dict_and_to_flat_hold_the_very_leaves(td):
    want = dict(walk(td))
    flat = td.to_flat("\x00")
    assert flat.keys() == {"\x00".join(path) for path in want}
    assert all(flat["\x00".join(path)] is value or flat["\x00".join(path)] == value for path, value in want.items())
    assert all(flat["\x00".join(path)] is value for path, value in want.items() if isinstance(value, torch.Tensor))

    def flatten(node, at=()):
        for name, value in node.items():
            yield from flatten(value, (*at, name)) if isinstance(value, dict) else [((*at, name), value)]

    out = dict(flatten(td.to_dict()))
    assert list(out) == list(want)
    assert all(out[path] is value or out[path] == value for path, value in want.items() if not isinstance(value, torch.Tensor))
    assert all(out[path] is value for path, value in want.items() if isinstance(value, torch.Tensor))


def reordered(td):
    """Return the tree with the keys of all nodes in the reverse order."""
    if not len(td):
        return td
    return TensorDict(
        {
            name: reordered(td[name])
            if isinstance(td[name], TensorDict)
            else tdfunc.static(td[name])
            if not isinstance(td[name], torch.Tensor)
            else td[name]
            for name in reversed(list(td))
        },
        td.batch_size,
    )


@law
@given(trees(ties=False))
def test_equal_and_binary_operators_are_blind_to_the_order(td):
    other = reordered(td)
    assert td.equal(other)
    assert other.equal(td)
    assert_same(reordered(other), td)
    got = td.map(torch.add, other)
    for path, leaf in walk(td):
        if isinstance(leaf, torch.Tensor):
            assert torch.equal(got[path], leaf + leaf)
    assert list(got.structure.paths()) == list(td.structure.paths())


@law
@given(trees(min_leaves=1), st.data())
def test_set_then_get_gives_the_value_and_leaves_all_others(td, data):
    path = data.draw(st.sampled_from([path for path, _ in walk(td)]))
    node = td[path[:-1]] if len(path) > 1 else td
    value = data.draw(leaves(tuple(node.batch_size)))
    got = td.set(path, value)
    assert got[path] is value
    group = next((set(group) for group in td.ties if path in group), {path})
    for other, was in walk(td):
        if isinstance(was, torch.Tensor):
            assert got[other] is (value if other in group else was)
    assert dict(nodes(got)) == dict(nodes(td)) or len(td._leaves) == 1
    if isinstance(td[path], torch.Tensor):
        assert got.ties == td.ties
        assert_same(got.set(path, td[path]), td)


@law
@given(trees(), st.data())
def test_a_new_key_comes_and_goes(td, data):
    at = data.draw(st.sampled_from([path for path, _ in nodes(td)]))
    node = td[at] if at else td
    value = data.draw(leaves(tuple(node.batch_size)))
    got = td.set((*at, "new"), value)
    assert got[(*at, "new")] is value
    assert got.batch_size == td.batch_size
    back = got.exclude((*at, "new"))
    assert_same(back, td)
    popped, rest = got.pop((*at, "new"))
    assert popped is value
    assert_same(rest, td)
    assert_same(got.rename_key((*at, "new"), (*at, "newer")).exclude((*at, "newer")), td)


@law
@given(trees(), st.data())
def test_select_and_exclude_are_complements(td, data):
    paths = [path for path, _ in walk(td)]
    chosen = data.draw(st.lists(st.sampled_from(paths), unique=True)) if paths else []
    yes, no = td.select(*chosen), td.exclude(*chosen)
    assert [path for path, _ in walk(yes)] == [path for path in paths if path in chosen]
    assert [path for path, _ in walk(no)] == [path for path in paths if path not in chosen]
    for part in (yes, no):
        assert part.batch_size == td.batch_size
        for path, value in walk(part):
            assert part[path] is td[path] or value == td[path]
    if not td.ties:
        assert_same(tdfunc.merge(no, yes), td, ordered=False)


@law
@given(trees(), st.data())
def test_tie_then_untie_is_the_tree_without_ties(td, data):
    td = td.untie(*[path for group in td.ties for path in group])
    assert td.ties == ()
    alike = {}
    for path, leaf in zip(td.structure.paths(), td._leaves, strict=True):
        alike.setdefault(leaf.shape, []).append(path)
    groups = [group for group in alike.values() if len(group) > 1]
    assume(groups)
    group = data.draw(st.sampled_from(groups))
    tied = td.tie(*group)
    assert [set(found) for found in tied.ties] == [set(group)]
    assert len(tied._leaves) == len(td._leaves) - len(group) + 1
    assert all(tied[path] is td[group[0]] for path in group)
    assert dict(nodes(tied)) == dict(nodes(td))
    assert tied.untie(*group).structure is td.structure


BATCHED = {
    "arithmetic": lambda td: td * 2 + td,
    "a comparison": lambda td: td == td,
    "map": lambda td: td.map(lambda t: t * t),
    "map with path": lambda td: td.map_with_path(lambda path, t: t * len(path)),
    "map to a scalar": lambda td: td.map(lambda t: t.sum()),
    "set": lambda td: td.set("new", torch.ones(*td.batch_size, 2)).set(("in", "new"), torch.zeros(td.batch_size)),
    "reverse order": lambda td: reordered(td) if not td.ties else td,
    "select": lambda td: td.select(*list(td)[:1]),
    "exclude": lambda td: td.exclude(*list(td)[:1]).set("new", torch.ones(td.batch_size)),
    "partition": lambda td: td.partition(lambda path, _: len(path) == 1)[0],
    "stack": lambda td: tdfunc.stack([td, td]),
    "cast": lambda td: td.to(torch.float64),
    "zeros": lambda td: td.zeros_like(),
    "update": lambda td: td.update({"new": torch.ones(*td.batch_size, 3)}),
    "tie": lambda td: td.set("p", torch.ones(*td.batch_size, 2)).set("q", torch.zeros(*td.batch_size, 2)).tie("p", "q"),
}


@law
@given(trees(size=full_sizes, dtypes=FLOATS, min_leaves=1), st.sampled_from(list(BATCHED)))
def test_every_operation_commutes_with_vmap_over_the_first_batch_dim(td, name):
    fn = BATCHED[name]
    assume(not fn(td[0]).is_empty())
    want = tdfunc.stack([fn(part) for part in td.unbind()])
    assert_same(torch.vmap(fn)(td), want)


@law
@given(trees(size=full_sizes), st.data())
def test_indexing_rows_is_indexing_each_leaf(td, data):
    n = td.batch_size[0]
    index = data.draw(
        st.one_of(
            st.integers(-n, n - 1), st.slices(n), st.lists(st.integers(0, n - 1)), st.lists(st.booleans(), min_size=n, max_size=n).map(torch.tensor)
        )
    )
    if isinstance(index, slice) and index.step is not None and index.step < 0:
        index = slice(index.start, index.stop, -index.step)
    got = td[index]
    plain = torch.tensor(index, dtype=torch.long) if isinstance(index, list) else index
    for path, value in walk(td):
        if isinstance(value, torch.Tensor):
            assert torch.equal(got[path], value[plain])
    assert got.batch_size == torch.zeros(td.batch_size)[plain].shape
    assert got.structure is td.structure or td.is_empty()


@law
@given(trees())
def test_with_batch_size_there_and_back(td):
    for n in range(td.batch_dims + 1):
        fewer = td.with_batch_size(td.batch_size[:n])
        assert fewer.batch_size == td.batch_size[:n]
        back = fewer.with_batch_size(td.batch_size)
        assert back.batch_size == td.batch_size
        assert dict(nodes(back)).keys() == dict(nodes(td)).keys()
        for path, size in nodes(back):
            node = dict(nodes(td))[path]
            assert size == node or not (td[path]._leaves if path else td._leaves)
