"""The container: creation, reading, setting, indexing, arithmetic, pytrees. `python -m compile_bench.container`."""

from __future__ import annotations

import warnings

import tensordict
import torch
from torch.utils import _pytree

import tdfunc
from compile_bench._timing import Row, measure, table

Theirs = tensordict.TensorDict
Ours = tdfunc.TensorDict
X = torch.zeros(3, 4)


def flat(n: int) -> dict:
    return {str(i): X for i in range(n)}


def nested() -> dict:
    return {"a": {"b": {"c": X, "d": X}, "e": X}, "f": X}


def deep(depth: int = 20) -> dict:
    tree: dict = {"x": X}
    for _ in range(depth):
        tree = {"k": tree}
    return tree


def creation() -> list[Row]:
    rows = []
    for name, source in [*[(f"creation, {n} leaves", flat(n)) for n in (2, 10, 100)], ("creation, nested", nested()), ("creation, 20 deep", deep())]:
        rows.append(
            Row(
                f"{name}, no batch size",
                lambda source=source: Ours(source),
                [lambda source=source: Theirs(source), lambda source=source: Theirs(source, []), lambda source=source: Theirs.from_dict(source)],
            )
        )
        rows.append(
            Row(
                f"{name}, batch size 3",
                lambda source=source: Ours(source, (3,)),
                [lambda source=source: Theirs(source, [3]), lambda source=source: Theirs(source, torch.Size([3]))],
            )
        )
    return rows


def chain() -> dict:
    """Return 19 nested levels with one leaf each, as the nested rows of tensordict's own benchmarks have them."""
    tree: dict = {}
    for i in reversed(range(19)):
        tree = {"t": torch.zeros(3, 4) + i, **({str(i + 1): tree} if tree else {})}
    return {"0": tree}


def reading() -> list[Row]:
    a, b = Ours(flat(10), 3), Theirs(flat(10), [3])
    c, d = Ours(nested(), 3), Theirs(nested(), [3])
    g, h = Ours(flat(100), 3), Theirs(flat(100), [3])
    e, f, locked = Ours(chain(), 3), Theirs(chain(), [3]), Theirs(chain(), [3]).lock_()
    path, node = ("a", "b", "c"), tuple(map(str, range(19)))
    far = (*node, "t")
    rows = [
        Row("td['k']", lambda: a["3"], [lambda: b["3"], lambda: b.get("3")]),
        Row("get('k')", lambda: a.get("3"), [lambda: b.get("3")]),
        Row("td['a', 'b', 'c']", lambda: c[path], [lambda: d[path], lambda: d.get(path)]),
        Row("leaf, 19 deep", lambda: e[far], [lambda: f[far], lambda: f.get(far), lambda: locked[far]]),
        Row("get leaf, 19 deep", lambda: e.get(far), [lambda: f.get(far), lambda: locked.get(far)]),
        Row("subtree", lambda: c["a"], [lambda: d["a"], lambda: d.get("a")]),
        Row("subtree, 18 deep", lambda: e[node], [lambda: f[node], lambda: f.get(node), lambda: locked[node]]),
        Row("'k' in td", lambda: "3" in a, [lambda: "3" in b, lambda: "3" in b.keys()]),
        Row("absent 'k' in td", lambda: "x" in a, [lambda: "x" in b, lambda: "x" in b.keys()]),
        Row("path in td", lambda: path in c, [lambda: path in d, lambda: path in d.keys(True)]),
        Row("path in td, 19 deep", lambda: far in e, [lambda: far in f, lambda: far in f.keys(True), lambda: far in locked]),
    ]
    for kind in ("keys", "values", "items"):
        for n, ours, theirs in ((10, a, b), (100, g, h)):
            rows.append(
                Row(
                    f"list({kind}), {n}",
                    lambda ours=ours, kind=kind: list(getattr(ours, kind)()),
                    [lambda theirs=theirs, kind=kind: list(getattr(theirs, kind)())],
                )
            )
        for args in ((True,), (True, True)):
            rows.append(
                Row(
                    f"list({kind}{args!r}), 19 deep".replace(",)", ")"),
                    lambda kind=kind, args=args: list(getattr(e, kind)(*args)),
                    [lambda kind=kind, args=args: list(getattr(f, kind)(*args)), lambda kind=kind, args=args: list(getattr(locked, kind)(*args))],
                )
            )
    return rows


def setting() -> list[Row]:
    a, b = Ours(flat(10), 3), Theirs(flat(10), [3])
    c, d = Ours(nested(), 3), Theirs(nested(), [3])
    one, two = Ours({"3": X, "4": X}, 3), Theirs({"3": X, "4": X}, [3])

    def ours_new():
        td = Ours(batch_size=(3,))
        for i in range(100):
            td = td.set(str(i), X)
        return td

    def theirs_new():
        td = Theirs({}, [3])
        for i in range(100):
            td.set(str(i), X)
        return td

    def theirs_item():
        td = Theirs({}, [3])
        for i in range(100):
            td[str(i)] = X
        return td

    e, f, far = Ours(chain(), 3), Theirs(chain(), [3]), (*map(str, range(19)), "t")
    return [
        Row("set, existing key", lambda: a.set("3", X), [lambda: b.set("3", X), lambda: b.__setitem__("3", X)]),
        Row("set, nested key", lambda: c.set(("a", "b", "c"), X), [lambda: d.set(("a", "b", "c"), X), lambda: d.__setitem__(("a", "b", "c"), X)]),
        Row("set, 19 deep", lambda: e.set(far, X), [lambda: f.set(far, X), lambda: f.__setitem__(far, X)]),
        Row("set, 100 new keys", ours_new, [theirs_new, theirs_item]),
        Row("update, a dict of 2", lambda: a.update({"3": X, "4": X}), [lambda: b.update({"3": X, "4": X})]),
        Row("update, a tree of 2", lambda: a.update(one), [lambda: b.update(two)]),
        Row("select 3 of 10", lambda: a.select("1", "2", "3"), [lambda: b.select("1", "2", "3")]),
        Row("select, nested", lambda: c.select(("a", "b")), [lambda: d.select(("a", "b"))]),
        Row("select, 19 deep", lambda: e.select(far), [lambda: f.select(far)]),
    ]


def tensor_work() -> list[Row]:
    a, b, raw = Ours(flat(10), 3), Theirs(flat(10), [3]), flat(10)
    a100, b100, raw100 = Ours(flat(100), 3), Theirs(flat(100), [3]), flat(100)
    locked = Theirs(flat(10), [3]).lock_()
    return [
        Row("td[0]", lambda: a[0], [lambda: b[0], lambda: locked[0]], lambda: {k: v[0] for k, v in raw.items()}),
        Row("td[1:]", lambda: a[1:], [lambda: b[1:]], lambda: {k: v[1:] for k, v in raw.items()}),
        Row("td[None]", lambda: a[None], [lambda: b[None], lambda: b.unsqueeze(0)], lambda: {k: v[None] for k, v in raw.items()}),
        Row("td + 1", lambda: a + 1, [lambda: b + 1, lambda: locked + 1], lambda: {k: v + 1 for k, v in raw.items()}),
        Row("td + td, 10", lambda: a + a, [lambda: b + b, lambda: locked + locked], lambda: {k: v + raw[k] for k, v in raw.items()}),
        Row("td + td, 100", lambda: a100 + a100, [lambda: b100 + b100], lambda: {k: v + raw100[k] for k, v in raw100.items()}),
        Row(
            "stack 3",
            lambda: tdfunc.stack([a, a, a]),
            [lambda: torch.stack([b, b, b]), lambda: Theirs.stack([b, b, b])],
            lambda: {k: torch.stack([v, v, v]) for k, v in raw.items()},
        ),
        Row("tree_flatten, 10", lambda: _pytree.tree_flatten(a), [lambda: _pytree.tree_flatten(b), lambda: _pytree.tree_flatten(locked)]),
        Row("tree_flatten, 100", lambda: _pytree.tree_flatten(a100), [lambda: _pytree.tree_flatten(b100)]),
        Row(
            "tree_map(clone)",
            lambda: _pytree.tree_map(torch.clone, a),
            [lambda: _pytree.tree_map(torch.clone, b), lambda: _pytree.tree_map(torch.clone, locked)],
            lambda: {k: v.clone() for k, v in raw.items()},
        ),
    ]


def rows() -> list[Row]:
    return [*creation(), *reading(), *setting(), *tensor_work()]


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(table([measure(row) for row in rows()]))


if __name__ == "__main__":
    main()
