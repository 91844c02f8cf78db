"""The bridge: parameters out of a module, a module bound and called. `python -m compile_bench.bridge`."""

from __future__ import annotations

import warnings

import tensordict
import torch
from torch import nn

import tdfunc
from compile_bench._timing import Row, measure, table


def mlp(depth: int = 12, width: int = 8) -> nn.Module:
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)])


def norm_net(depth: int = 12, width: int = 8) -> nn.Module:
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width)) for _ in range(depth)])


def rows() -> list[Row]:
    net, x = mlp(), torch.randn(4, 8)
    ours = tdfunc.params_of(net)
    theirs = tensordict.TensorDict.from_module(net).detach()
    flat = {name: param.detach() for name, param in net.named_parameters()}
    stacked = tdfunc.stack([ours] * 4)
    stacked_theirs = torch.stack([tensordict.TensorDict.from_module(net).detach()] * 4)
    stacked_flat = {name: torch.stack([param] * 4) for name, param in flat.items()}

    def swap(params, preserve):
        with params.to_module(net, preserve_module_state=preserve):
            return net(x)

    return [
        Row("params_of", lambda: tdfunc.params_of(net, detach=False), [lambda: tensordict.TensorDict.from_module(net)]),
        Row(
            "params_of, detached",
            lambda: tdfunc.params_of(net),
            [lambda: tensordict.TensorDict.from_module(net).detach(), lambda: tensordict.TensorDict.from_module(net).data],
        ),
        Row(
            "bind + call",
            lambda: tdfunc.bind(net, ours)(x),
            [lambda: swap(theirs, False), lambda: swap(theirs, True)],
            lambda: torch.func.functional_call(net, flat, (x,)),
        ),
        Row(
            "vmap of a bound MLP",
            lambda: torch.vmap(lambda p: tdfunc.bind(net, p)(x))(stacked),
            [lambda: torch.vmap(lambda p: swap(p, False))(stacked_theirs)],
            lambda: torch.vmap(lambda p: torch.func.functional_call(net, p, (x,)))(stacked_flat),
        ),
    ]


def added(name: str, net: nn.Module, x: torch.Tensor) -> str:
    """Return what bind and functional_call add to the plain call, in microseconds, and the ratio of the two."""
    state = tdfunc.state_of(net)
    flat = {key: tensor.detach() for key, tensor in [*net.named_parameters(), *net.named_buffers()]}
    lines = []
    for mode, guard in (("no_grad", torch.no_grad), ("grad", torch.enable_grad)):
        with guard():
            plain = lambda: net(x)
            fc = measure(Row("", lambda: torch.func.functional_call(net, flat, (x,)), [plain]))
            bound = measure(Row("", lambda: tdfunc.bind(net, state)(x), [plain]))
        ours, theirs = bound.ours - bound.theirs, fc.ours - fc.theirs
        lines.append(
            f"{name:18s} {mode:8s} plain {bound.theirs:7.1f}   bind adds {ours:7.1f}   functional_call adds {theirs:7.1f}   ratio {ours / theirs:5.2f}"
        )
    return "\n".join(lines)


def print_added() -> None:
    print("added to the plain call, us:")
    print(added("MLP, 12 layers", mlp(), torch.randn(4, 8)))
    print(added("MLP 64-128-10", nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), torch.randn(32, 64)))
    print(added("12 x BatchNorm", norm_net(), torch.randn(4, 8)))


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(table([measure(row) for row in rows()]))
    print("(bare: torch.func.functional_call)\n")
    print_added()


if __name__ == "__main__":
    main()
