"""Every operation, four ways: eager, compiled as one graph and once, mapped over a batch dim, and differentiated."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.utils import _pytree

import tdfunc
from tdfunc import TensorDict


def tree(n=3):
    return TensorDict({"x": torch.randn(n, 4), "y": {"z": torch.randn(n), "e": {}}, ("q", "r"): torch.randn(n, 1, 2), "s": "static"}, n)


OPERATIONS = {
    "item": lambda td: td["x"] * 2,
    "path": lambda td: td["y", "z"] + td["y"]["z"],
    "get": lambda td: td.get("nope", td["x"]),
    "static": lambda td: td["x"] * len(td["s"]),
    "in": lambda td: td["x"] + ("y" in td) + (("y", "z") in td) + ("nope" in td),
    "len and keys": lambda td: [td["x"] * len(td), list(td), list(td.keys(True)), list(td.keys(True, True))],
    "values": lambda td: [value for value in td.values(True, True)],
    "items": lambda td: dict(td.items()),
    "batch size": lambda td: td["x"] * (len(td.batch_size) + td.ndim),
    "numel": lambda td: td["x"] * td.numel(),
    "constructor": lambda td: TensorDict({"a": td["x"], "b": {"c": td["y", "z"]}, ("d", "e"): td["x"], "s": "t"}, td.batch_size),
    "constructor by keyword": lambda td: TensorDict(a=td["x"], b=td),
    "is empty": lambda td: td["x"] * (1 + td.is_empty() + 2 * td.empty().is_empty()),
    "set": lambda td: td.set("n", td["x"].sum(-1)).set(("y", "k"), td["x"]).set("x", td["x"] + 1).set("t", "u"),
    "set a subtree": lambda td: td.set("y", {"a": td["x"]}).set("sub", td),
    "update": lambda td: td.update({"n": td["x"], "y": {"k": td["x"]}}),
    "or": lambda td: td | TensorDict({"x": td["y", "z"]}, td.batch_size),
    "select": lambda td: td.select("x", ("y", "z")),
    "exclude": lambda td: td.exclude("x", ("y", "z")),
    "pop": lambda td: td.pop("x"),
    "rename": lambda td: td.rename_key("x", "k").rename_key(("y", "z"), ("q", "z")),
    "filter": lambda td: td.filter(lambda path, leaf: path[0] != "x"),
    "partition and merge": lambda td: tdfunc.merge(*td.partition(lambda path, leaf: leaf.dim() > 1)),
    "tie": lambda td: td.set("w", td["x"] * 2).tie("x", "w").set("w", td["x"] * 3),
    "untie": lambda td: td.set("w", td["x"]).tie("x", "w").untie("w"),
    "map": lambda td: td.map(lambda a, b: a * b, td),
    "map to another rank": lambda td: td.map(lambda a: a.sum(-1, keepdim=True).sum(-1)),
    "map with path": lambda td: td.map_with_path(lambda path, a: a * len(path)),
    "stack": lambda td: tdfunc.stack([td, td + 1]),
    "torch.stack": lambda td: torch.stack([td, td]),
    "index none": lambda td: td[None],
    "index ellipsis": lambda td: td[...],
    "batch size given": lambda td: td.with_batch_size(()).auto_batch_size(),
    "add": lambda td: td + td + 1 + 0.5,
    "reflected": lambda td: 1 - td + 2 / (td * td + 1),
    "power": lambda td: (td * td + 1) ** 0.5,
    "negative and absolute": lambda td: abs(-td),
    "tensor on the left": lambda td: torch.ones(td.batch_size) * td,
    "tensor on the right": lambda td: td * torch.full(td.batch_size, 2.0),
    "casts": lambda td: td.to(torch.float64),
    "clone": lambda td: td.clone(),
    "zeros": lambda td: td + td.zeros_like(),
    "to_dict": lambda td: td.to_dict(),
    "to_flat": lambda td: td.to_flat("/"),
    "tree_map": lambda td: _pytree.tree_map(lambda leaf: leaf * 2, td),
}
WITH_A_BATCH = {
    "index int": lambda td: td[0],
    "index slice": lambda td: td[1:],
    "index list": lambda td: td[[0, 2]],
    "index tensor": lambda td: td[torch.tensor([1, 0, 1])],
    "unbind": lambda td: td.unbind(),
}
NOT_DIFFERENTIABLE = {
    "comparison": lambda td: (td < 0, td == td, td != 1, td >= td),
    "detach": lambda td: td.detach(),
    "remainder": lambda td: (td % 2, td // 2),
}


def assert_same(got, want):
    mine, spec = _pytree.tree_flatten(got)
    theirs, wanted = _pytree.tree_flatten(want)
    assert spec == wanted
    for a, b in zip(mine, theirs):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6) if isinstance(b, torch.Tensor) else None
        assert isinstance(b, torch.Tensor) or a == b


def table(*parts):
    every = {name: fn for part in parts for name, fn in part.items()}
    return pytest.mark.parametrize("fn", every.values(), ids=every)


@table(OPERATIONS, WITH_A_BATCH, NOT_DIFFERENTIABLE)
def test_compiled_it_is_one_graph_once_and_equal_to_eager(fn):
    counter = CompileCounter()
    compiled = torch.compile(fn, fullgraph=True, backend=counter)
    for _ in range(3):
        td = tree()
        assert_same(compiled(td), fn(td))
    assert counter.frame_count <= 1  # 0 where there is no tensor work


def tensors(result):
    return [leaf for leaf in _pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


@table(OPERATIONS, NOT_DIFFERENTIABLE)
def test_mapped_it_equals_a_loop_over_rows(fn):
    td = tree()
    got = torch.vmap(lambda row: tuple(tensors(fn(row))))(td)
    rows = [tensors(fn(row)) for row in td.unbind()]
    for column, want in zip(got, zip(*rows)):
        torch.testing.assert_close(column, torch.stack(want))


@table(OPERATIONS, WITH_A_BATCH)
def test_its_gradient_is_that_of_the_same_work_outside_of_the_tree(fn):
    """Autograd through the tree against torch.func through it, and a finite difference along a direction."""
    td = tree().to(torch.float64)

    def scalar(td):
        return sum((leaf.double() ** 2).sum() for leaf in tensors(fn(td)))

    along = td.map(torch.randn_like)
    slope = sum((g * d).sum() for g, d in zip(torch.func.grad(scalar)(td)._leaves, along._leaves))
    h = 1e-6
    torch.testing.assert_close(slope, (scalar(td + along * h) - scalar(td - along * h)) / (2 * h), rtol=1e-5, atol=1e-6)
    live = td.requires_grad()
    grads = torch.autograd.grad(scalar(live), live._leaves, allow_unused=True)
    again = sum((g * d).sum() for g, d in zip(grads, along._leaves) if g is not None)
    torch.testing.assert_close(again, slope)
