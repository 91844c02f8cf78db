"""Six models bound and called, beside functional_call and to_module: eager, and traced. `python -m compile_bench.models`."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import tensordict
import torch
from torch import Tensor, nn

import tdfunc
from compile_bench._timing import columns
from compile_bench.bridge import mlp

Forms = dict[str, tuple[Callable[[Any, Tensor], Tensor], Any]]
"""Ways to call a model with a state: each a function of the state and the input, and its state."""


class Residual(nn.Module):
    """Two convolutions beside a short cut, as in a ResNet-18."""

    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        same = stride == 1 and inside == out
        self.short = nn.Identity() if same else nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.short(x))


def resnet(width: int = 8) -> nn.Module:
    """Return the eight blocks of a ResNet-18, an eighth as wide."""
    sizes = [width, width, 2 * width, 4 * width, 8 * width]
    blocks = [Residual(a if i == 0 else b, b, 2 if i == 0 and b > a else 1) for a, b in zip(sizes, sizes[1:]) for i in range(2)]
    stem = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10))


class Block(nn.Module):
    """A layer of a GPT: causal attention, and a network of two layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # (batch, heads, time, size) each
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """A GPT whose head is its embedding."""

    def __init__(self, words: int = 50, width: int = 16, depth: int = 4, length: int = 8) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, 2) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class Lstm(nn.Module):
    """An LSTM of two layers, and a head on its last output."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(width, width, 2, batch_first=True), nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def tree(width: int = 4, fan: int = 4, groups: int = 99) -> nn.Module:
    """Return 500 modules, in groups of groups: 4 * 25 - 1 groups of four layers."""
    group = lambda: nn.Sequential(*[nn.Linear(width, width) for _ in range(fan)])
    quarters = [nn.Sequential(*[group() for _ in range(min(25, groups - start))]) for start in range(0, groups, 25)]
    return nn.Sequential(*quarters)


def models() -> dict[str, tuple[nn.Module, Tensor]]:
    """Return the models, each with an input."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return {
        "MLP, 12 layers": (mlp(), torch.randn(4, 8)),
        "ResNet-18, narrow": (resnet(), torch.randn(2, 3, 32, 32)),
        "Transformer, 4 layers": (nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.randn(2, 8, 16)),
        "GPT, tied": (Gpt(), torch.randint(50, (2, 8))),
        "LSTM, 2 layers": (Lstm(), torch.randn(2, 5, 8)),
        "500 modules": (tree(), torch.randn(2, 4)),
    }


def forms(net: nn.Module) -> Forms:
    """Return the ways to call a model with the values that it has: the plain one first, then ours."""

    def fresh(tensor: Tensor) -> Tensor:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)

    def swap(preserve: bool) -> tuple[Callable[[Any, Tensor], Tensor], Any]:
        def call(state: Any, x: Tensor) -> Tensor:
            with state.to_module(net, preserve_module_state=preserve):
                return net(x)

        return call, tensordict.TensorDict.from_module(net).apply(fresh)

    named = {name: fresh(tensor) for name, tensor in [*net.named_parameters(), *net.named_buffers()]}
    ours = tdfunc.params_of(net, detach=False).map(fresh) | tdfunc.buffers_of(net).map(fresh)
    return {
        "plain": (lambda _, x: net(x), None),
        "bind": (lambda state, x: tdfunc.bind(net, state)(x), ours),
        "functional_call": (lambda state, x: torch.func.functional_call(net, state, (x,)), named),
        "to_module": swap(False),
        "to_module, kept": swap(True),
    }


def check(calls: Forms, x: Tensor) -> None:
    """Raise unless all forms give what the plain call gives."""
    (plain, nothing), *others = calls.values()
    for call, state in others:
        torch.testing.assert_close(call(state, x), plain(nothing, x), rtol=0, atol=0)


def eager(name: str, calls: Forms, x: Tensor, blocks: int) -> str:
    """Return the plain call's microseconds, what each form adds, and ours over theirs: of what is added, and of the whole."""
    lines = []
    for mode, guard in (("no_grad", torch.no_grad), ("grad", torch.enable_grad)):
        with guard():
            plain, ours, theirs, *swaps = columns([lambda call=call, state=state: call(state, x) for call, state in calls.values()], blocks)
        swap = min(swaps, key=statistics.median)
        bind, call, module = [statistics.median(a - b for a, b in zip(column, plain)) * 1e6 for column in (ours, theirs, swap)]
        whole = [statistics.median(a / b for a, b in zip(ours, column)) for column in (theirs, swap)]
        lines.append(
            f"{name:22s} {mode:8s} {statistics.median(plain) * 1e6:8.1f} {bind:8.1f} {call:8.1f} {module:8.1f}"
            f"   {bind / call:6.2f} {bind / module:6.2f}   {whole[0]:6.2f} {whole[1]:6.2f}"
        )
    return "\n".join(lines)


def trace(call: Callable[[Any, Tensor], Tensor], state: Any, x: Tensor) -> float:
    """Return the seconds until the first call of a compiled function is done, the graph run as it is."""
    torch.compiler.reset()
    compiled = torch.compile(call, backend="eager", fullgraph=True)
    with torch._dynamo.config.patch(allow_rnn=True):
        start = time.perf_counter()
        compiled(state, x)
        return time.perf_counter() - start


def traced(name: str, calls: Forms, x: Tensor, blocks: int) -> str:
    """Return the milliseconds to trace each form, and ours over theirs; a form that does not trace is left out."""
    times: dict[str, list[float]] = {}
    for form, (call, state) in calls.items():
        try:
            trace(call, state, x)
        except Exception:
            print(f"{name}: {form} does not trace")
        else:
            times[form] = []
    for _ in range(blocks):
        for form, column in times.items():
            column.append(trace(*calls[form], x))
    swap = min([times[form] for form in ("to_module", "to_module, kept") if form in times], key=statistics.median, default=None)
    shown = [times["plain"], times["bind"], times["functional_call"], swap]
    middle = " ".join(f"{statistics.median(column) * 1e3:8.1f}" if column else f"{'-':>8s}" for column in shown)
    ratios = [statistics.median(a / b for a, b in zip(times["bind"], column)) if column else float("nan") for column in shown[2:]]
    return f"{name:22s} {middle}   " + " ".join(f"{ratio:6.2f}" for ratio in ratios)


def main(eager_blocks: int = 41, traced_blocks: int = 3) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    made = {name: (forms(net), x) for name, (net, x) in models().items()}
    for calls, x in made.values():
        check(calls, x)
    forms_ = f"{'bind':>8s} {'fc':>8s} {'to_mod':>8s}"
    print("us of the plain call, us that bind, functional_call and to_module add; of what is added, bind over each; of the whole, likewise")
    print(f"{'model':22s} {'mode':8s} {'plain':>8s} {forms_}   {'fc':>6s} {'to_mod':>6s}   {'fc':>6s} {'to_mod':>6s}")
    for name, (calls, x) in made.items():
        print(eager(name, calls, x, eager_blocks))
    print("\nms to trace, torch.compile(backend='eager', fullgraph=True); bind over functional_call and over to_module")
    print(f"{'model':22s} {'plain':>8s} {forms_}   {'fc':>6s} {'to_mod':>6s}")
    for name, (calls, x) in made.items():
        print(traced(name, calls, x, traced_blocks))
    torch.compiler.reset()


if __name__ == "__main__":
    main()
