"""A compiled training step of an ensemble: 8 MLPs 64-128-10, Adam. `python -m compile_bench.ensemble_step`.

The same step in four forms: tdfunc, dicts with torch.func.functional_call written by hand, tensordict in its best compiled
form, and a loop over stateful modules with torch.optim.Adam(foreach=True).
"""

from __future__ import annotations

import gc
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import tensordict
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import tdfunc
from compile_bench._timing import block, repeats_for

MEMBERS, BATCH, LR, BETA1, BETA2, EPS = 8, 32, 1e-3, 0.9, 0.999, 1e-8
Step = Callable[..., Any]


def make(width: int = 128) -> nn.Module:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def members(n: int, width: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return [make(width) for _ in range(n)]


def ours(nets: list[nn.Module]) -> tuple[Step, tuple[Any, ...]]:
    net, params = nets[0], tdfunc.stack([tdfunc.params_of(m) for m in nets])
    opt = tdfunc.optim.adam(LR)

    def loss(p, x, y):
        return cross_entropy(tdfunc.bind(net, p)(x), y)

    def step(p, s, x, y):
        value, grads = tdfunc.vmap(tdfunc.value_and_grad(loss), in_dims=(0, None, None))(p, x, y)
        p, s = opt.step(p, grads, s)
        return p, s, value

    return step, (params, opt.init(params))


def by_hand(nets: list[nn.Module]) -> tuple[Step, tuple[Any, ...]]:
    net = nets[0]
    params = {k: torch.stack([dict(m.named_parameters())[k].detach() for m in nets]) for k, _ in net.named_parameters()}
    state = (
        torch.zeros((), dtype=torch.int64),
        {k: torch.zeros_like(p) for k, p in params.items()},
        {k: torch.zeros_like(p) for k, p in params.items()},
    )

    def loss(p, x, y):
        return cross_entropy(torch.func.functional_call(net, p, (x,)), y)

    def step(p, s, x, y):
        grads, value = torch.func.vmap(torch.func.grad_and_value(loss), in_dims=(0, None, None))(p, x, y)
        count, mean, square = s[0] + 1, {}, {}
        new = {}
        one, two = 1 - BETA1 ** count.double(), 1 - BETA2 ** count.double()
        for k, g in grads.items():
            mean[k] = s[1][k].lerp(g, 1 - BETA1)
            square[k] = (s[2][k] * BETA2).addcmul(g, g, value=1 - BETA2)
            new[k] = p[k] - (LR / one).float() * (mean[k] / (square[k].sqrt() / two.sqrt().float() + EPS))
        return new, (count, mean, square), value

    return step, (params, state)


def with_tensordict(nets: list[nn.Module]) -> tuple[Step, tuple[Any, ...]]:
    net = nets[0]
    params = torch.stack([tensordict.TensorDict.from_module(m).detach() for m in nets])
    state = (torch.zeros((), dtype=torch.int64), params.clone().zero_(), params.clone().zero_())

    def loss(p, x, y):
        with p.to_module(net, preserve_module_state=False):
            return cross_entropy(net(x), y)

    def step(p, s, x, y):
        grads, value = torch.func.vmap(torch.func.grad_and_value(loss), in_dims=(0, None, None))(p, x, y)
        count = s[0] + 1
        one, two = 1 - BETA1 ** count.double(), 1 - BETA2 ** count.double()
        mean = s[1].lerp(grads, 1 - BETA1)
        square = s[2].mul(BETA2).addcmul(grads, grads, value=1 - BETA2)
        denominator = square.sqrt().div(two.sqrt().float()).add(EPS)
        return p.sub(mean.div(denominator).mul((LR / one).float())), (count, mean, square), value

    return step, (params, state)


def loop(nets: list[nn.Module]) -> tuple[Step, tuple[Any, ...]]:
    optimizers = [torch.optim.Adam(net.parameters(), LR, foreach=True) for net in nets]

    def step(x, y):
        values = []
        for net, optimizer in zip(nets, optimizers):
            optimizer.zero_grad()
            value = cross_entropy(net(x), y)
            value.backward()
            optimizer.step()
            values.append(value.detach())
        return (torch.stack(values),)

    return step, ()


def trace_seconds(form: Callable[..., Any], n: int, width: int, x: torch.Tensor, y: torch.Tensor) -> float:
    """Return what Dynamo takes to trace the step, with no code generated."""
    torch._dynamo.reset()
    step, state = form(members(n, width))
    compiled = torch.compile(step, fullgraph=True, backend="eager")
    gc.collect()  # what the last form left is not this one's to clean up
    start = time.perf_counter()
    compiled(*state, x, y)
    return time.perf_counter() - start


def runner(step: Step, state: tuple[Any, ...], x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    """Return a call that does one step and keeps the new state."""
    held = [state]

    def run():
        held[0] = step(*held[0], x, y)[:-1]

    return run


def compare(n: int = MEMBERS, width: int = 128, blocks: int = 15) -> dict[str, float]:
    """Return the ratios of one setting, and print its row."""
    x, y = torch.randn(BATCH, 64), torch.randint(0, 10, (BATCH,))
    forms = {"tdfunc": ours, "by hand": by_hand, "tensordict": with_tensordict, "loop": loop}
    runs, graphs = {}, {}
    torch._dynamo.reset()
    for name, form in forms.items():
        step, state = form(members(n, width))
        if name != "loop":
            count = [0]

            def counting(gm, inputs, count=count):
                count[0] += 1
                return torch._inductor.compile(gm, inputs)

            step = torch.compile(step, fullgraph=True, backend=counting)
            graphs[name] = count
        runs[name] = runner(step, state, x, y)
    for run in runs.values():
        for _ in range(3):
            run()
    repeats = {name: repeats_for(run, 0.05) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(blocks):
        for name, run in runs.items():
            times[name].append(block(run, repeats[name]))
    ratio = {name: statistics.median(a / b for a, b in zip(times["tdfunc"], column)) for name, column in times.items()}
    traces = {name: statistics.median(trace_seconds(form, n, width, x, y) for _ in range(5)) for name, form in forms.items() if name != "loop"}
    row = "  ".join(f"{name} {statistics.median(column) * 1e3:7.3f} ms" for name, column in times.items())
    print(f"members {n:3d} width {width:4d}: {row}")
    print(
        f"    time over by hand {ratio['by hand']:.3f}, over tensordict {ratio['tensordict']:.3f}; the loop takes {1 / ratio['loop']:.1f} times as long"
    )
    print(
        f"    graphs {', '.join(f'{k} {v[0]}' for k, v in graphs.items())}; trace {', '.join(f'{k} {v:.2f} s' for k, v in traces.items())}; trace over tensordict {traces['tdfunc'] / traces['tensordict']:.2f}, over by hand {traces['tdfunc'] / traces['by hand']:.2f}"
    )
    return ratio


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    compare()


if __name__ == "__main__":
    main()
