"""`cond`, `scan` and `while_loop` on trees against plain Python, in eager, under vmap, grad and compile."""

from __future__ import annotations

import pytest
import torch

from tdfunc import BatchSizeError, KeyPathError, StructureError, TensorDict, cond, dynamic_shapes, grad, scan, stack, vmap, while_loop


def tree(shift=0.0):
    return TensorDict({"x": torch.randn(3) + shift, "deep": {"y": torch.randn(2)}, "k": torch.tensor(1), "s": "static"})


def compiled_once(fn, backend="eager"):
    traces = []
    inner = torch._dynamo.lookup_backend(backend)
    return torch.compile(fn, fullgraph=True, backend=lambda graph, inputs: traces.append(1) or inner(graph, inputs)), traces


def yes(p):
    return p.set("x", p["x"].sin()).set("new", p["k"] + 1)


def no(p):
    return p.set("new", p["k"] - 1).set("x", p["x"] ** 2)


def branch(p):
    return cond(p["x"].sum() > 0, yes, no, (p,))


def plain_branch(p):
    return yes(p) if p["x"].sum() > 0 else no(p)


@pytest.mark.parametrize("shift", [-2.0, 2.0])
@pytest.mark.parametrize("both", [False, True])
def test_cond_is_if_and_else(shift, both):
    p = tree(shift)
    pred = p["x"].sum() > 0
    assert cond(pred, yes, no, (p,), both=both).equal(plain_branch(p))
    assert cond(bool(pred), yes, no, (p,), both=both).equal(plain_branch(p))
    assert cond(pred.reshape(1), yes, no, (p,), both=both).equal(plain_branch(p))
    w = p["x"].double().requires_grad_()
    assert torch.autograd.gradcheck(lambda w: cond(pred, yes, no, (p.set("x", w),), both=both)["x"], w)
    assert grad(lambda p: cond(pred, yes, no, (p,), both=both)["x"].sum())(p).allclose(grad(lambda p: plain_branch(p)["x"].sum())(p))


def test_cond_runs_one_branch_in_eager():
    ran = []
    p = tree(2)
    cond(p["x"].sum() > -100, lambda p: ran.append("yes") or p, lambda p: ran.append("no") or p, (p,))
    assert ran == ["yes"]


def test_cond_under_vmap_is_the_rows_one_by_one():
    rows = stack([tree(-2.0), tree(2.0), tree(-3.0)])
    expected = stack([plain_branch(row) for row in rows.unbind()])
    assert vmap(branch)(rows).allclose(expected)
    total = lambda rows: vmap(branch)(rows)["x"].sum()
    assert grad(total)(rows).allclose(stack([grad(lambda p: plain_branch(p)["x"].sum())(row) for row in rows.unbind()]))
    assert vmap(grad(lambda p: branch(p)["x"].sum()))(rows).allclose(grad(total)(rows))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_cond_compiled_is_one_trace_for_both_branches(backend):
    compiled, traces = compiled_once(branch, backend)
    for shift in (-2.0, 2.0, -2.0):
        p = tree(shift)
        assert compiled(p).allclose(plain_branch(p))
    assert len(traces) == 1
    p = tree(2).filter("x").requires_grad()
    floats = torch.compile(lambda p: cond(p["x"].sum() > 0, lambda p: p.sin(), lambda p: p * 2, (p,)), fullgraph=True, backend=backend)
    (g,) = torch.autograd.grad(floats(p)["x"].sum(), [p["x"]])
    torch.testing.assert_close(g, p["x"].detach().cos())


def test_cond_with_both_compiles_inside_grad_and_vmap():
    fn = lambda p: grad(lambda p: cond(p["x"].sum() > 0, yes, no, (p,), both=True)["x"].sum())(p)
    compiled, traces = compiled_once(vmap(fn))
    rows = stack([tree(-2.0), tree(2.0)])
    assert compiled(rows).allclose(vmap(fn)(rows))
    assert len(traces) == 1


def step(c, x):
    c = c.set("x", c["x"] * 0.5 + x["v"])
    return c, {"out": TensorDict(s=c["x"].sum() * x["w"]), "c": c["x"]}


def plain_scan(c, xs, order):
    ys = {}
    for i in order:
        c, ys[i] = step(c, TensorDict(v=xs["v"][i], w=xs["w"][i]))
    return c, torch.stack([ys[i]["out"]["s"] for i in sorted(ys)]), torch.stack([ys[i]["c"] for i in sorted(ys)])


def sequence(n=5):
    return TensorDict({"v": torch.randn(n, 3), "w": torch.randn(n)}, batch_size=n)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_a_loop(reverse):
    c, xs = tree(), sequence()
    last, ys = scan(step, c, xs, reverse=reverse)
    expected, out, carries = plain_scan(c, xs, range(4, -1, -1) if reverse else range(5))
    assert last.allclose(expected)
    assert ys["out"].batch_size == (5,)
    torch.testing.assert_close(ys["out"]["s"], out)
    torch.testing.assert_close(ys["c"], carries)


def test_scan_takes_another_dim_and_no_ys():
    x = torch.randn(3, 4)
    total, ys = scan(lambda c, x: (c + x, None), torch.zeros(3), x, dim=1)
    torch.testing.assert_close(total, x.sum(1))
    assert ys is None


def test_scan_under_vmap_grad_and_compile():
    xs = stack([sequence() for _ in range(3)])
    c = tree()
    fn = lambda xs: scan(step, c, xs)[1]["out"]["s"]
    torch.testing.assert_close(vmap(fn)(xs), torch.stack([fn(row) for row in xs.unbind()]))
    one = xs[0].double()
    v = one["v"].clone().requires_grad_()
    c64 = c.map(lambda t: t.double() if t.is_floating_point() else t)
    assert torch.autograd.gradcheck(lambda v: scan(step, c64, one.set("v", v))[0]["x"], v)
    compiled, traces = compiled_once(grad(lambda xs: fn(xs).square().sum()))
    for row in xs.unbind():
        assert compiled(row).allclose(grad(lambda xs: fn(xs).square().sum())(row))
    assert len(traces) == 1


def doubled(p, n):
    return while_loop(lambda p, n: p["x"].sum() < 50, lambda p, n: (p.set("x", p["x"] * 2), n + 1), (p, n))


def plain_doubled(p, n):
    while p["x"].sum() < 50:
        p, n = p.set("x", p["x"] * 2), n + 1
    return p, n


def start(shift=1.0):
    return TensorDict({"x": torch.rand(3) + shift, "k": torch.tensor(1), "s": "static"}), torch.tensor(0)


@pytest.mark.parametrize("shift", [0.5, 3.0, 100.0])
def test_while_loop_is_while(shift):
    p, n = start(shift)
    got, count = doubled(p, n)
    expected, expected_count = plain_doubled(p, n)
    assert got.equal(expected)
    assert torch.equal(count, expected_count)
    assert got.structure is p.structure


def test_while_loop_under_vmap_stops_each_row_for_itself():
    starts = [start(shift)[0] for shift in (0.5, 3.0, 100.0)]
    got, counts = vmap(lambda p: doubled(p, torch.tensor(0)))(stack(starts))
    expected = [plain_doubled(p, torch.tensor(0)) for p in starts]
    assert got.allclose(stack([p for p, _ in expected]))
    assert counts.tolist() == [n.item() for _, n in expected]
    nested = vmap(vmap(lambda p: doubled(p, torch.tensor(0))[1]))(stack([stack(starts), stack(starts)]))
    assert nested.tolist() == [counts.tolist()] * 2


def test_while_loop_has_gradients_inside_grad_and_vmap():
    starts = [start(shift)[0] for shift in (0.5, 3.0)]
    fn = lambda p: doubled(p, torch.tensor(0))[0]["x"].sum()
    for p in starts:
        factor = 2.0 ** plain_doubled(p, torch.tensor(0))[1].item()
        assert grad(fn)(p)["x"].tolist() == [factor] * 3
    assert vmap(grad(fn))(stack(starts)).equal(stack([grad(fn)(p) for p in starts]))


def test_while_loop_compiled_is_one_trace_for_any_number_of_steps():
    compiled, traces = compiled_once(doubled, "aot_eager")
    for shift in (0.5, 3.0, 100.0):
        p, n = start(shift)
        got, count = compiled(p, n)
        expected, expected_count = plain_doubled(p, n)
        assert got.allclose(expected)
        assert count.item() == expected_count.item()
    assert len(traces) == 1
    same = torch.ones(2)
    (got,) = torch.compile(lambda p: while_loop(lambda p: p["a"].sum() < 9, lambda p: (p * 2,), (p,)), fullgraph=True, backend="aot_eager")(
        TensorDict(a=same, b=same)
    )
    assert got["b"].tolist() == [8, 8]


def test_dynamic_shapes_let_an_exported_program_take_other_sizes():
    td = TensorDict({"x": torch.randn(4, 3), "deep": {"y": torch.randn(4)}, "z": torch.randn(2)})
    batch = torch.export.Dim("batch", min=2)
    shapes = dynamic_shapes(td, {("x",): {0: batch}, ("deep", "*"): {-1: batch}})
    assert shapes == [{0: batch}, {0: batch}, {}]

    class Net(torch.nn.Module):
        def forward(self, td):
            return td["x"].sum(1) * td["deep", "y"] + td["z"].sum()

    program = torch.export.export(Net(), (td,), dynamic_shapes=(shapes,), strict=True)
    other = td.set("x", torch.randn(7, 3)).set(("deep", "y"), torch.randn(7))
    torch.testing.assert_close(program.module()(other), Net()(other))
    assert dynamic_shapes(td, {"**": {0: 1}, "x": {1: 2}})[0] == {0: 1, 1: 2}


P = TensorDict(x=torch.ones(3))
X = torch.ones(3)
REFUSED = {
    "pred": (StructureError, lambda: cond(X > 0, yes, no, (P,)), r"cond: the predicate must be one bool\n.*got: \(3,\)\n  fix: pred.all"),
    "unlike": (
        StructureError,
        lambda: cond(X.sum() > 0, lambda p: p, lambda p: p.set("z", X), (P,), both=True),
        r"cond \(result of a branch\): .*different leaves",
    ),
    "dtype": (
        StructureError,
        lambda: cond(X.sum() > 0, lambda p: p, lambda p: p.double(), (P,), both=True),
        r"another shape or dtype.*torch.float64",
    ),
    "step": (StructureError, lambda: scan(lambda c, x: c, X, P), r"scan: a step must give two things\n  expected: \(carry, y\)\n  got: Tensor"),
    "carry": (StructureError, lambda: scan(lambda c, x: (c.sum(), None), X, P), r"scan: the carry has a leaf of another shape"),
    "ys": (StructureError, lambda: scan(lambda c, x: (c + 1, X if c.sum() > 3 else c.sum()), X, P), r"scan: the y has a leaf"),
    "lengths": (BatchSizeError, lambda: scan(lambda c, x: (c, x), X, (X, torch.ones(2))), r"one number of slices.*got: \[\(3,\), \(2,\)\]"),
    "scalar xs": (BatchSizeError, lambda: scan(lambda c, x: (c, x), X, torch.tensor(1.0)), r"one number of slices"),
    "no slices": (BatchSizeError, lambda: scan(lambda c, x: (c, x), X, torch.ones(0, 2)), r"one number of slices"),
    "a number": (
        StructureError,
        lambda: while_loop(lambda n: n < 3, lambda n: (n + 1,), (0,)),
        r"carried must be.*got: \['int'\]\n  fix: \(state, torch.tensor\(0\)\)",
    ),
    "no tuple": (StructureError, lambda: while_loop(lambda n: n < 3, lambda n: (n + 1,), X), r"carried must be.*got: Tensor"),
    "body": (StructureError, lambda: while_loop(lambda n: n.sum() < 9, lambda n: n + 1, (X,)), r"the result of the body is not like"),
    "body dtype": (StructureError, lambda: while_loop(lambda n: n.sum() < 9, lambda n: (n.double(),), (X,)), r"the result of the body has a leaf"),
    "condition": (StructureError, lambda: while_loop(lambda n: n < 9, lambda n: (n + 1,), (X,)), r"while_loop: the predicate must be one bool"),
    "no dim": (BatchSizeError, lambda: dynamic_shapes(P, {"x": {1: 2}}), r"no such dim\n  at: 'x'\n  expected: less than 1\n  got: 1"),
    "no leaf": (KeyPathError, lambda: dynamic_shapes(P, {"y": {0: 2}}), r"dynamic_shapes: no entry 'y'"),
    "no rule": (StructureError, lambda: dynamic_shapes(P, {"x": 0}), r"a rule must be a dict from dims"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_a_fix(name):
    kind, call, words = REFUSED[name]
    with pytest.raises(kind, match="(?s)" + words) as caught:
        call()
    assert "fix: " in str(caught.value)
