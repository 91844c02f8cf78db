"""The zoo under torch.compile, vmap and grad: as in eager, as in a loop; traced once. What cannot be has its reason in the table."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree

from tdfunc import bind, buffers_of, params_of, stack, vmap


class Traces:
    """A backend that counts the graphs that it gets."""

    def __init__(self):
        self.count = 0

    def __call__(self, graph, inputs):
        self.count += 1
        return graph.forward


def run(module, x):
    torch.manual_seed(3)
    return module(*x)


def moved(state, by):
    return state.map(lambda t: t + by * t.abs() if t.is_floating_point() or t.is_complex() else t.clone())


def assert_same(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Dynamo's own, of the old weight_norm
def test_compiled_equals_eager_in_one_trace(case):
    if case.no_compile:
        pytest.skip(case.no_compile)
    module, x, traces = case.make(), case.x(), Traces()

    def step(params, buffers, *x):
        bound = bind(module, params, buffers)
        return bound(*x), buffers_of(bound)

    compiled = torch.compile(step, fullgraph=True, backend=traces)
    buffers = buffers_of(module)
    for i in range(3):
        params = moved(params_of(module), 0.1 * i)
        torch.manual_seed(3)
        expected, kept = step(params, buffers, *x)
        torch.manual_seed(3)
        out, after = compiled(params, buffers, *x)
        assert_same(out, expected)
        assert_same(after.to_flat(), kept.to_flat())
        assert after.structure is buffers.structure or (i == 0 and case.traces > 1)
        buffers = after
    assert traces.count == case.traces


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_a_stack_of_states_equals_a_loop(case):
    if case.no_vmap:
        pytest.skip(case.no_vmap)
    module, x = case.make(), case.x()
    states = [(moved(params_of(module), 0.1 * i), moved(buffers_of(module), 0.1 * i)) for i in range(2)]

    def step(params, buffers):
        bound = bind(module, params, buffers)
        return bound(*x), buffers_of(bound)

    params, buffers = stack([p for p, _ in states]), stack([b for _, b in states])
    kept = params.clone(), buffers.clone()
    out, after = vmap(step)(params, buffers)
    for i, state in enumerate(states):
        expected, expected_after = step(*state)
        assert_same(_pytree.tree_map(lambda t: t[i], out), expected)  # noqa: B023
        assert_same(after[i].to_flat() if len(after) else {}, expected_after.to_flat())
    assert params.equal(kept[0])
    assert buffers.equal(kept[1])


def test_torch_func_grad_equals_autograd(case):
    module, x = case.make(), case.x()
    params, rest = moved(params_of(module), 0.1).partition(lambda path, leaf: leaf.is_floating_point() or leaf.is_complex())
    loss = lambda p: sum(
        [(leaf.abs() * torch.arange(leaf.numel()).reshape(leaf.shape)).sum() for leaf in _pytree.tree_leaves(run(bind(module, p, rest), x))]
    )
    got = torch.func.grad(loss)(params)
    leaves = params.requires_grad()
    found = torch.autograd.grad(loss(leaves), leaves._leaves, allow_unused=True)
    assert_same(list(got._leaves), [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves._leaves, strict=True)])
    assert got.structure is params.structure
