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


def reading() -> list[Row]:
    a, b = Ours(flat(10), 3), Theirs(flat(10), [3])
    c, d = Ours(nested(), 3), Theirs(nested(), [3])
    e, f = Ours(deep(), 3), Theirs(deep(), [3])
    g, h = Ours(flat(100), 3), Theirs(flat(100), [3])
    locked = Theirs(nested(), [3]).lock_()
    path, far = ("a", "b", "c"), ("k",) * 20 + ("x",)
    return [
        Row("td['k']", lambda: a["3"], [lambda: b["3"], lambda: b.get("3")]),
        Row("get('k')", lambda: a.get("3"), [lambda: b.get("3")]),
        Row("td['a', 'b', 'c']", lambda: c[path], [lambda: d[path], lambda: d.get(path)]),
        Row("leaf 20 deep", lambda: e[far], [lambda: f[far], lambda: f.get(far)]),
        Row("subtree", lambda: c["a"], [lambda: d["a"], lambda: d.get("a"), lambda: locked["a"]]),
        Row("subtree by path", lambda: c["a", "b"], [lambda: d["a", "b"], lambda: locked["a", "b"]]),
        Row("'k' in td", lambda: "3" in a, [lambda: "3" in b, lambda: "3" in b.keys()]),
        Row("path in td", lambda: path in c, [lambda: path in d, lambda: path in d.keys(True)]),
        Row("list(keys), 10", lambda: list(a.keys()), [lambda: list(b.keys())]),
        Row("list(values), 10", lambda: list(a.values()), [lambda: list(b.values())]),
        Row("list(items), 10", lambda: list(a.items()), [lambda: list(b.items())]),
        Row("list(keys), 100", lambda: list(g.keys()), [lambda: list(h.keys())]),
        Row("list(values), 100", lambda: list(g.values()), [lambda: list(h.values())]),
        Row("list(items), 100", lambda: list(g.items()), [lambda: list(h.items())]),
        Row("list(items), nested", lambda: list(c.items()), [lambda: list(d.items()), lambda: list(locked.items())]),
        Row("list(keys(True, True))", lambda: list(c.keys(True, True)), [lambda: list(d.keys(True, True)), lambda: list(locked.keys(True, True))]),
        Row("list(values(True, True))", lambda: list(c.values(True, True)), [lambda: list(d.values(True, True)), lambda: list(locked.values(True, True))]),
        Row("list(items(True, True))", lambda: list(c.items(True, True)), [lambda: list(d.items(True, True)), lambda: list(locked.items(True, True))]),
    ]


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

    return [
        Row("set, existing key", lambda: a.set("3", X), [lambda: b.set("3", X), lambda: b.__setitem__("3", X)]),
        Row("set, nested key", lambda: c.set(("a", "b", "c"), X), [lambda: d.set(("a", "b", "c"), X), lambda: d.__setitem__(("a", "b", "c"), X)]),
        Row("set, 100 new keys", ours_new, [theirs_new, theirs_item]),
        Row("update, a dict of 2", lambda: a.update({"3": X, "4": X}), [lambda: b.update({"3": X, "4": X})]),
        Row("update, a tree of 2", lambda: a.update(one), [lambda: b.update(two)]),
        Row("select 3 of 10", lambda: a.select("1", "2", "3"), [lambda: b.select("1", "2", "3")]),
        Row("select, nested", lambda: c.select(("a", "b")), [lambda: d.select(("a", "b"))]),
        Row("exclude 2 of 10", lambda: a.exclude("1", "2"), [lambda: b.exclude("1", "2")]),
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
        Row("unbind", lambda: a.unbind(0), [lambda: b.unbind(0), lambda: locked.unbind(0)], lambda: {k: v.unbind(0) for k, v in raw.items()}),
        Row("map(clone)", lambda: a.map(torch.clone), [lambda: b.apply(torch.clone), lambda: b.clone()], lambda: {k: v.clone() for k, v in raw.items()}),
        Row("detach", lambda: a.detach(), [lambda: b.detach(), lambda: b.data], lambda: {k: v.detach() for k, v in raw.items()}),
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
