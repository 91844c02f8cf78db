"""Hooks: they run once, on the bound values; and what is done to those of a bound module leaves the original's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tdfunc import bind, params_of
from tdfunc.module.clone import HOOKS

X = torch.randn(4, 3)


class Watched(nn.Module):  # keeps the handles of its hooks
    def __init__(self):
        super().__init__()
        self.lin, self.seen = nn.Linear(3, 3), []
        self.first = self.lin.register_forward_hook(self.note)
        self.second = self.lin.register_forward_pre_hook(lambda module, args, kwargs: None, with_kwargs=True)
        self.handles = {"back": [self.lin.register_full_backward_hook(lambda module, grads, outs: None)]}

    def note(self, module, args, out):
        self.seen.append(module.weight)

    def forward(self, x):
        return self.lin(x)


def test_a_handle_that_is_kept_is_the_clones_own():
    module = Watched()
    bound = bind(module, params_of(module))
    for hooks in (bound.lin._forward_hooks, bound.lin._forward_pre_hooks, bound.lin._backward_hooks):
        assert len(hooks) == 1
    for handle in (bound.first, bound.second, bound.handles["back"][0]):
        handle.remove()
    assert not any(bound.lin.__dict__[name] for name in HOOKS)
    assert [len(module.lin.__dict__[name]) for name in HOOKS] == [len(Watched().lin.__dict__[name]) for name in HOOKS]
    bound(X)
    assert not bound.seen
    module(X)
    assert module.seen[0] is module.lin.weight


def test_a_hook_that_notes_sees_the_bound_values_once():
    module = Watched()
    params = params_of(module)
    bound = bind(module, params)
    bound(X)
    (seen,) = bound.seen
    assert seen is params["lin", "weight"]
    assert not module.seen


KINDS = {
    "forward": lambda m, hook: m.register_forward_hook(hook),
    "forward_pre": lambda m, hook: m.register_forward_pre_hook(hook),
    "backward": lambda m, hook: m.register_full_backward_hook(hook),
    "backward_pre": lambda m, hook: m.register_full_backward_pre_hook(hook),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("on", ["module", "bound", "every module"])
def test_each_kind_runs_once(kind, on):
    module, calls = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), []
    note = lambda part, *args: calls.append(part)
    handle = None
    if on == "module":
        KINDS[kind](module[0], note)
    params = params_of(module).requires_grad()
    bound = bind(module, params)
    if on == "bound":
        KINDS[kind](bound[0], note)
    if on == "every module":
        everywhere = {
            "forward": nn.modules.module.register_module_forward_hook,
            "forward_pre": nn.modules.module.register_module_forward_pre_hook,
            "backward": nn.modules.module.register_module_full_backward_hook,
            "backward_pre": nn.modules.module.register_module_full_backward_pre_hook,
        }[kind]
        handle = everywhere(lambda part, *args: note(part) if part is bound[0] else None)
    try:
        bound(X.clone().requires_grad_()).sum().backward()
    finally:
        if handle is not None:
            handle.remove()
    assert [part is bound[0] for part in calls] == [True]
    assert params["0", "weight"].grad is not None
    assert all(p.grad is None for p in module.parameters())


def test_the_template_is_no_input_of_a_graph():
    module, graphs = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), []
    params = params_of(module)

    def backend(graph, inputs):
        graphs.append(len(inputs))
        return graph.forward

    torch.compile(lambda p, x: bind(module.eval(), p)(x), backend=backend, fullgraph=True)(params, X)
    assert graphs == [len(params._leaves) + 3 + 1]  # the buffers, which were not given, and x


def test_a_bound_module_out_of_a_graph_shares_no_hooks_with_the_template():
    module = nn.Linear(3, 3)
    bound = torch.compile(lambda p: bind(module, p), backend="eager", fullgraph=True)(params_of(module))
    assert not {id(bound.__dict__[name]) for name in HOOKS} & {id(module.__dict__[name]) for name in HOOKS}
    assert torch.equal(bound(X), module(X))
