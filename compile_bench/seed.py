"""tensordict's own rows about the container, by their names. `python -m compile_bench.seed`.

What tensordict does in place is done here by making a tree. The "stacked" rows are dense stacks, whose structure is that of
their members, and the "locked" ones have no counterpart: a tree never changes, and what was read once is kept.
"""

from __future__ import annotations

import warnings

import torch
from torch.utils import _pytree

import tdfunc
from compile_bench._timing import Row, measure, table
from compile_bench.container import Ours, Theirs

A = torch.zeros(3, 4, 5)


def levels(size: tuple[int, ...]) -> dict:
    tree: dict = {}
    for i in reversed(range(19)):
        tree = {"t": torch.zeros(size) + i, **({str(i + 1): tree} if tree else {})}
    return {"0": tree}


def both(source: dict, size: tuple[int, ...]) -> tuple:
    return Ours(source, size), Theirs(source, list(size))


def reading() -> list[Row]:
    big, big_ = both({str(i): torch.zeros(3, 4) + i for i in range(100)}, (3, 4))
    nested, nested_ = both(levels((3, 4)), (3, 4))
    stacked = tdfunc.stack(both(levels((3, 10)), (3, 10))[0].unbind(1), 1)
    stacked_ = torch.stack(both(levels((3, 10)), (3, 10))[1].unbind(1), 1)
    locked_ = both(levels((3, 4)), (3, 4))[1].lock_()
    node = tuple(map(str, range(19)))
    leaf = (*node, "t")
    rows = []
    for view in ("items", "keys", "values"):
        rows += [
            Row(f"test_{view}", lambda v=view: list(getattr(big, v)()), [lambda v=view: list(getattr(big_, v)())]),
            Row(f"test_{view}_nested", lambda v=view: list(getattr(nested, v)(True)), [lambda v=view: list(getattr(nested_, v)(True))]),
            Row(f"test_{view}_nested_locked", lambda v=view: list(getattr(nested, v)(True)), [lambda v=view: list(getattr(locked_, v)(True))]),
            Row(
                f"test_{view}_nested_leaf",
                lambda v=view: list(getattr(nested, v)(True, True)),
                [lambda v=view: list(getattr(nested_, v)(True, True))],
            ),
            Row(f"test_{view}_stack_nested", lambda v=view: list(getattr(stacked, v)(True)), [lambda v=view: list(getattr(stacked_, v)(True))]),
            Row(
                f"test_{view}_stack_nested_leaf",
                lambda v=view: list(getattr(stacked, v)(True, True)),
                [lambda v=view: list(getattr(stacked_, v)(True, True))],
            ),
        ]
    rows += [
        Row("test_membership", lambda: "a" in big, [lambda: "a" in big_.keys()]),
        Row("test_membership_nested", lambda: ("a",) in nested, [lambda: ("a",) in nested_.keys(True)]),
        Row("test_membership_nested_leaf", lambda: ("a",) in nested, [lambda: ("a",) in nested_.keys(True, True)]),
        Row("test_membership_nested_last", lambda: leaf in nested, [lambda: leaf in nested_.keys(True)]),
        Row("test_membership_nested_leaf_last", lambda: leaf in nested, [lambda: leaf in nested_.keys(True, True)]),
        Row("test_membership_stacked_nested", lambda: ("a",) in stacked, [lambda: ("a",) in stacked_.keys(True)]),
        Row("test_membership_stacked_nested_last", lambda: leaf in stacked, [lambda: leaf in stacked_.keys(True)]),
        Row("test_nested_getleaf", lambda: nested.get(leaf), [lambda: nested_.get(leaf)]),
        Row("test_nested_get", lambda: nested.get(node), [lambda: nested_.get(node)]),
        Row("test_stacked_getleaf", lambda: stacked.get(leaf), [lambda: stacked_.get(leaf)]),
        Row("test_stacked_get", lambda: stacked.get(node), [lambda: stacked_.get(node)]),
        Row("test_nested_getitemleaf", lambda: nested[leaf], [lambda: nested_[leaf]]),
        Row("test_nested_getitem", lambda: nested[node], [lambda: nested_[node]]),
        Row("test_stacked_getitemleaf", lambda: stacked[leaf], [lambda: stacked_[leaf]]),
        Row("test_stacked_getitem", lambda: stacked[node], [lambda: stacked_[node]]),
        Row("test_flatten_speed", lambda: nested.flatten_keys(), [lambda: nested_.flatten_keys()]),
        Row("test_select_nested", lambda: nested.select(leaf), [lambda: nested_.select(leaf)]),
        Row("test_exclude_nested", lambda: nested.exclude(leaf), [lambda: nested_.exclude(leaf)]),
        Row("test_empty[False]", lambda: nested.empty(False), [lambda: nested_.empty(False)]),
        Row("test_empty[True]", lambda: nested.empty(True), [lambda: nested_.empty(True)]),
    ]
    flat, flat_ = nested.flatten_keys(), nested_.flatten_keys()
    rows.append(Row("test_unflatten_speed", lambda: flat.unflatten_keys(), [lambda: flat_.unflatten_keys()]))
    far, new, more = tuple(map(str, range(20, 0, -1))), torch.zeros(3, 4), torch.zeros(3, 10)
    rows += [
        Row("test_plain_set_nested", lambda: nested.set(far, new), [lambda: nested_.set(far, new)]),
        Row("test_plain_set_stack_nested", lambda: stacked.set(far, more), [lambda: stacked_.set(far, more)]),
        Row("test_plain_set_nested_inplace", lambda: nested.set(leaf, new), [lambda: nested_.set(leaf, new, inplace=True)]),
        Row("test_unbind_speed", lambda: nested.unbind(0), [lambda: nested_.unbind(0)]),
        Row("test_unbind_speed_stack0", lambda: stacked.unbind(0), [lambda: stacked_.unbind(0)]),
        Row("test_unbind_speed_stack1", lambda: stacked.unbind(1), [lambda: stacked_.unbind(1)]),
    ]
    long, long_ = both(levels((3, 20)), (3, 20))
    rows += [
        Row("test_split", lambda: long.split(2, 1), [lambda: long_.split(2, dim=1)]),
        Row("test_chunk", lambda: long.chunk(10, 1), [lambda: long_.chunk(10, dim=1)]),
    ]
    return rows


def common() -> list[Row]:
    td, td_ = both({"a": A, "b": {"b1": A}}, (3, 4))
    other, other_ = both({"a": A + 1, "b": {"b1": A + 1}}, (3, 4))
    c = torch.zeros(3, 4, 5)
    index = {"int": 1, "slice_int": (slice(None), 1), "range": range(2), "tuple": (2, 1), "list": [0, 1]}
    rows = [
        Row("test_creation", lambda: Ours({}, (3, 4)), [lambda: Theirs({}, [3, 4])]),
        Row("test_creation_empty", lambda: Ours({"a": A, "b": A}, (3, 4)), [lambda: Theirs({"a": A, "b": A}, [3, 4])]),
        Row("test_creation_nested_1", lambda: Ours({"a": A, ("b", "b1"): A}, (3, 4)), [lambda: Theirs({"a": A, ("b", "b1"): A}, [3, 4])]),
        Row("test_creation_nested_2", lambda: Ours({"a": A, "b": {"b1": A}}, (3, 4)), [lambda: Theirs({"a": A, "b": {"b1": A}}, [3, 4])]),
        Row("test_clone", lambda: td.clone(), [lambda: td_.clone()]),
        Row("test_setitem", lambda: td.clone().set("c", c), [lambda: td_.clone().__setitem__("c", c)]),
        Row("test_set", lambda: td.clone().set("c", c), [lambda: td_.clone().set("c", c)]),
        Row("test_update", lambda: td.clone().update({"a": c, "k": c}), [lambda: td_.clone().update({"a": c, "k": c})]),
        Row("test_update_nested", lambda: td.clone().update(other), [lambda: td_.clone().update(other_)]),
        Row("test_update__nested", lambda: td.clone().update(other), [lambda: td_.clone().update_(other_)]),
        Row("test_set_nested", lambda: td.clone().set(("b", "b1"), c), [lambda: td_.clone().set(("b", "b1"), c)]),
        Row("test_set_nested_new", lambda: td.clone().set(("c", "c", "c"), c), [lambda: td_.clone().set(("c", "c", "c"), c)]),
        Row(
            "test_select",
            lambda: td.clone().set(("c", "c", "c"), c).select("a", "z", ("c", "c", "c"), strict=False),
            [lambda: td_.clone().set(("c", "c", "c"), c).select("a", "z", ("c", "c", "c"), strict=False)],
        ),
    ]
    for name, at in index.items():
        rows.append(Row(f"test_getitem[{name}]", lambda at=at: td[at], [lambda at=at: td_[at]]))
        if name != "list":
            value, value_ = td[at].zeros_like(), torch.zeros_like(td_[at])
            rows.append(Row(f"test_setitem_dim[{name}]", lambda at=at, v=value: td.at[at].set(v), [lambda at=at, v=value_: td_.__setitem__(at, v)]))
    return rows


def pytrees() -> list[Row]:
    plain = {"a": {"b": torch.zeros(3, 4, 1), "c": {"d": torch.zeros(3, 4, 5, 6)}}, "c": torch.zeros(3, 4, 1)}
    td, td_ = both(plain, (3, 4))
    each = lambda fn: lambda: _pytree.tree_map(fn, plain)
    return [
        Row("test_reshape_td", lambda: td.reshape(12), [lambda: td_.reshape(12)], each(lambda x: x.reshape(12, *x.shape[2:]))),
        Row("test_view_td", lambda: td.view(12), [lambda: td_.view(12)], each(lambda x: x.view(12, *x.shape[2:]))),
        Row("test_unbind_td", lambda: td.unbind(0), [lambda: td_.unbind(0)], each(lambda x: x.unbind(0))),
        Row("test_split_td", lambda: td.split([1, 2], 0), [lambda: td_.split([1, 2], 0)], each(lambda x: x.split([1, 2], 0))),
        Row("test_add_td", lambda: td + 1, [lambda: td_ + 1, lambda: td_.apply(lambda x: x + 1)], each(lambda x: x + 1)),
    ]


def torch_functions() -> list[Row]:
    td, td_ = both({"a": torch.zeros(1, 100, 100), "b": {"c": torch.zeros(1, 100, 100)}}, (1, 100))
    rows = []
    for name, fn in (
        ("test_stack", lambda t: torch.stack([t, t])),
        ("test_cat", lambda t: torch.cat([t, t], 0)),
        ("test_unbind", lambda t: torch.unbind(t, 0)),
        ("test_squeeze", lambda t: torch.squeeze(t, 0)),
        ("test_unsqueeze", lambda t: torch.unsqueeze(t, 0)),
        ("test_permute", lambda t: torch.permute(t, (1, 0))),
        ("test_zeros_like", torch.zeros_like),
        ("test_ones_like", torch.ones_like),
        ("test_full_like", lambda t: torch.full_like(t, 2.0)),
    ):
        rows.append(Row(name, lambda fn=fn: fn(td), [lambda fn=fn: fn(td_)]))
    return rows


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results = [measure(row) for rows in (reading(), common(), pytrees(), torch_functions()) for row in rows]
    print(table(results))
    print(f"above 1.0 of tensordict: {', '.join(f'{r.name} {r.ratio:.2f}' for r in results if r.ratio > 1.0) or 'none'}")


if __name__ == "__main__":
    main()
