"""The rest of the container: keys, shapes, pieces, rows, maths, reductions. `python -m compile_bench.surface`.

The trees are those of tensordict's own benchmarks: 19 levels with one leaf each, a flat tree of 100, and small ones. The bare
column does the same work on a list of the leaves, written by hand.
"""

from __future__ import annotations

import warnings

import torch
from torch.utils import _pytree

import tdfunc
from compile_bench._timing import Row, measure, table
from compile_bench.container import Ours, Theirs, chain


def pair(source: dict, size) -> tuple:
    return Ours(source, size), Theirs(source, list(size))


def small() -> dict:
    return {"a": {"b": torch.zeros(3, 4, 1), "c": {"d": torch.zeros(3, 4, 5, 6)}}, "c": torch.zeros(3, 4, 1)}


def wide(n: int = 50) -> dict:
    return {f"k{i}": torch.rand(3, 4, 8) + 0.1 for i in range(n)}


def keys() -> list[Row]:
    e, f = pair(chain(), (3,))
    last = tuple(map(str, range(19))) + ("t",)
    g, h = e.flatten_keys("."), f.flatten_keys(".")
    c, d = pair(wide(), (3, 4))
    return [
        Row("flatten_keys, 19 deep", lambda: e.flatten_keys("."), [lambda: f.flatten_keys(".")]),
        Row("unflatten_keys, 19 deep", lambda: g.unflatten_keys("."), [lambda: h.unflatten_keys(".")]),
        Row("select the last of 19 deep", lambda: e.select(last), [lambda: f.select(last)]),
        Row("exclude the last of 19 deep", lambda: e.exclude(last), [lambda: f.exclude(last)]),
        Row("empty", lambda: e.empty(), [lambda: f.empty()]),
        Row("empty(recurse=True)", lambda: e.empty(recurse=True), [lambda: f.empty(recurse=True)]),
        Row("split_keys of 50", lambda: c.split_keys(["k1", "k2"]), [lambda: d.split_keys(["k1", "k2"])]),
        Row("rename_keys", lambda: c.rename_keys({"k1": "x"}), [lambda: d.rename_keys({"k1": "x"})]),
        Row("to_dict, 50", lambda: c.to_dict(), [lambda: d.to_dict()]),
    ]


def shapes() -> list[Row]:
    a, b = pair(small(), (3, 4))
    e, f = pair({k: {"t": torch.zeros(3, 20)} for k in map(str, range(19))}, (3, 20))
    c, d = pair(wide(), (3, 4))
    leaves = tuple(c._leaves)
    each = lambda fn: lambda: [fn(leaf) for leaf in leaves]
    index = torch.tensor([2, 0])
    mask = torch.rand(3, 4) > 0.5
    rows = [
        Row(
            "reshape(12)", lambda: a.reshape(12), [lambda: b.reshape(12)], lambda: _pytree.tree_map(lambda x: x.reshape(12, *x.shape[2:]), small_tree)
        ),
        Row("view(12)", lambda: a.view(12), [lambda: b.view(12)], lambda: _pytree.tree_map(lambda x: x.view(12, *x.shape[2:]), small_tree)),
        Row("unbind(0)", lambda: a.unbind(0), [lambda: b.unbind(0)]),
        Row("split([1, 2], 0)", lambda: a.split([1, 2], 0), [lambda: b.split([1, 2], 0)]),
        Row(
            "td + 1, nested", lambda: a + 1, [lambda: b + 1, lambda: b.apply(lambda x: x + 1)], lambda: _pytree.tree_map(lambda x: x + 1, small_tree)
        ),
        Row("split(2, 1), 19 leaves", lambda: e.split(2, 1), [lambda: f.split(2, 1), lambda: f.split(2, dim=1)]),
        Row("chunk(10, 1), 19 leaves", lambda: e.chunk(10, 1), [lambda: f.chunk(10, 1)]),
    ]
    small_tree = small()
    for name, ours, theirs, bare in (
        ("reshape, 50", lambda: c.reshape(-1), lambda: d.reshape(-1), each(lambda x: x.reshape(-1, 8))),
        ("permute, 50", lambda: c.permute(1, 0), lambda: d.permute(1, 0), each(lambda x: x.permute(1, 0, 2))),
        ("transpose, 50", lambda: c.transpose(0, 1), lambda: d.transpose(0, 1), each(lambda x: x.transpose(0, 1))),
        ("squeeze, 50", lambda: c.unsqueeze(0).squeeze(0), lambda: d.unsqueeze(0).squeeze(0), each(lambda x: x.unsqueeze(0).squeeze(0))),
        ("unsqueeze, 50", lambda: c.unsqueeze(-1), lambda: d.unsqueeze(-1), each(lambda x: x.unsqueeze(2))),
        ("expand, 50", lambda: c.expand(5, 3, 4), lambda: d.expand(5, 3, 4), each(lambda x: x.expand(5, 3, 4, 8))),
        ("flatten, 50", lambda: c.flatten(0, 1), lambda: d.flatten(0, 1), each(lambda x: x.flatten(0, 1))),
        ("repeat, 50", lambda: c.repeat(2, 1), lambda: d.repeat(2, 1), each(lambda x: x.repeat(2, 1, 1))),
        ("flip, 50", lambda: c.flip(0), lambda: d.flip([0]), each(lambda x: x.flip(0))),
        ("roll, 50", lambda: c.roll(1, 0), lambda: d.roll(1, 0), each(lambda x: x.roll(1, 0))),
        ("narrow, 50", lambda: c.narrow(0, 1, 2), lambda: d.narrow(0, 1, 2), each(lambda x: x.narrow(0, 1, 2))),
        ("td[0], 50", lambda: c[0], lambda: d[0], each(lambda x: x[0])),
        ("td[:, 1], 50", lambda: c[:, 1], lambda: d[:, 1], each(lambda x: x[:, 1])),
        ("td[[0, 1]], 50", lambda: c[[0, 1]], lambda: d[[0, 1]], each(lambda x: x[[0, 1]])),
        ("td[range(2)], 50", lambda: c[range(2)], lambda: d[range(2)], each(lambda x: x[torch.arange(2)])),
        ("td[2, 1], 50", lambda: c[2, 1], lambda: d[2, 1], each(lambda x: x[2, 1])),
        ("td[tensor], 50", lambda: c[index], lambda: d[index], each(lambda x: x[index])),
        ("td[mask], 50", lambda: c[mask], lambda: d[mask], each(lambda x: x[mask])),
        ("stack, 50", lambda: tdfunc.stack([c, c]), lambda: torch.stack([d, d]), each(lambda x: torch.stack([x, x]))),
        ("cat, 50", lambda: tdfunc.cat([c, c]), lambda: torch.cat([d, d]), each(lambda x: torch.cat([x, x]))),
        ("unbind, 50", lambda: c.unbind(0), lambda: d.unbind(0), lambda: list(zip(*[x.unbind(0) for x in leaves]))),
        (
            "masked_fill, 50",
            lambda: c.masked_fill(mask, 0.0),
            lambda: d.masked_fill(mask, 0.0),
            each(lambda x: x.masked_fill(mask.unsqueeze(-1), 0.0)),
        ),
        ("where, 50", lambda: c.where(mask, c), lambda: d.where(mask, d), each(lambda x: torch.where(mask.unsqueeze(-1), x, x))),
    ):
        rows.append(Row(name, ours, [theirs], bare))
    return rows


def maths() -> list[Row]:
    c, d = pair(wide(), (3, 4))
    leaves = tuple(c._leaves)
    each = lambda fn: lambda: [fn(leaf) for leaf in leaves]
    v = torch.rand(4)
    rows = []
    for name, ours, theirs, bare in (
        ("exp, 50", lambda: c.exp(), lambda: d.exp(), each(torch.exp)),
        ("abs, 50", lambda: c.abs(), lambda: d.abs(), each(torch.abs)),
        ("neg, 50", lambda: -c, lambda: -d, each(torch.neg)),
        ("sigmoid, 50", lambda: c.sigmoid(), lambda: d.sigmoid(), each(torch.sigmoid)),
        ("isfinite, 50", lambda: c.isfinite(), lambda: d.isfinite(), each(torch.isfinite)),
        ("td + 1, 50", lambda: c + 1, lambda: d + 1, each(lambda x: x + 1)),
        ("td + td, 50", lambda: c + c, lambda: d + d, each(lambda x: x + x)),
        ("td * td, 50", lambda: c * c, lambda: d * d, each(lambda x: x * x)),
        ("td * tensor, 50", lambda: c * v, lambda: d * v, each(lambda x: x * v.unsqueeze(-1))),
        ("td ** 2, 50", lambda: c**2, lambda: d**2, each(lambda x: x**2)),
        ("td > 0, 50", lambda: c > 0, lambda: d > 0, each(lambda x: x > 0)),
        ("td == td, 50", lambda: c == c, lambda: d == d, each(lambda x: x == x)),
        ("maximum, 50", lambda: c.maximum(c), lambda: d.maximum(d), each(lambda x: torch.maximum(x, x))),
        ("clamp, 50", lambda: c.clamp(0.2, 0.8), lambda: d.clamp(0.2, 0.8), each(lambda x: x.clamp(0.2, 0.8))),
        ("lerp, 50", lambda: c.lerp(c, 0.5), lambda: d.lerp(d, 0.5), each(lambda x: x.lerp(x, 0.5))),
        ("addcmul, 50", lambda: c.addcmul(c, c), lambda: d.addcmul(d, d), each(lambda x: x.addcmul(x, x))),
        ("addcdiv, 50", lambda: c.addcdiv(c, c), lambda: d.addcdiv(d, d), each(lambda x: x.addcdiv(x, x))),
        ("sum(), 50", lambda: c.sum(), lambda: d.sum(), each(torch.sum)),
        ("sum(0), 50", lambda: c.sum(0), lambda: d.sum(0), each(lambda x: x.sum(0))),
        ("mean(0), 50", lambda: c.mean(0), lambda: d.mean(0), each(lambda x: x.mean(0))),
        ("std(0), 50", lambda: c.std(0), lambda: d.std(0), each(lambda x: x.std(0))),
        ("max(0), 50", lambda: c.max(0), lambda: d.max(0), each(lambda x: x.max(0))),
        ("norm(), 50", lambda: c.norm(), lambda: d.norm(), each(torch.linalg.vector_norm)),
        ("softmax(0), 50", lambda: c.softmax(0), lambda: d.softmax(0), each(lambda x: x.softmax(0))),
        ("clone, 50", lambda: c.clone(), lambda: d.clone(), each(torch.clone)),
        ("to(float64), 50", lambda: c.to(torch.float64), lambda: d.to(torch.float64), each(lambda x: x.to(torch.float64))),
        ("zeros_like, 50", lambda: c.zeros_like(), lambda: torch.zeros_like(d), each(torch.zeros_like)),
        ("full_like, 50", lambda: c.full_like(2.0), lambda: torch.full_like(d, 2.0), each(lambda x: torch.full_like(x, 2.0))),
        ("detach, 50", lambda: c.detach(), lambda: d.detach(), each(torch.Tensor.detach)),
        ("bytes, 50", lambda: c.bytes(), lambda: d.bytes(), None),
    ):
        rows.append(Row(name, ours, [theirs], bare))
    return rows


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results = [measure(row) for rows in (keys(), shapes(), maths()) for row in rows]
    print(table(results))
    over = [f"{r.name} {r.bare_ratio:.2f}" for r in results if r.bare_ratio is not None and r.bare_ratio > 1.15]
    print(f"above 1.15 of bare torch: {', '.join(over) or 'none'}")


if __name__ == "__main__":
    main()
