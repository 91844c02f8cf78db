"""Recurrent modules inside transforms: the same numbers from plain torch operations, where torch's kernels have no batching rule.

Math:
    LSTM: i, f, o = sigmoid, g = tanh of W x + U h; c' = f c + i g; h' = o tanh(c'), projected where there is a projection.
    GRU: r, z = sigmoid of W x + U h; n = tanh(W_n x + r U_n h); h' = n + z (h - n).
    RNN: h' = tanh (or relu) of W x + U h.

References:
    Hochreiter and Schmidhuber 1997, Long short-term memory. Cho et al. 2014, Learning phrase representations using RNN
    encoder-decoder; the order of the gates and the place of r are those of `torch.nn.LSTM` and `torch.nn.GRU`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

from tdfunc._errors import BindError, describe

State = tuple[Tensor, ...]
Step = Callable[[Tensor, Tensor, State], State]
"""(what the input gives, what the hidden state gives, the state before) -> the state after; the hidden state comes first."""


def _lstm_step(x: Tensor, h: Tensor, state: State) -> State:
    i, f, g, o = (x + h).chunk(4, -1)
    c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru_step(x: Tensor, h: Tensor, state: State) -> State:
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, -1), h.chunk(3, -1)
    n = (xn + (xr + hr).sigmoid() * hn).tanh()
    return (n + (xz + hz).sigmoid() * (state[0] - n),)


def _tanh_step(x: Tensor, h: Tensor, _state: State) -> State:
    return ((x + h).tanh(),)


def _relu_step(x: Tensor, h: Tensor, _state: State) -> State:
    return ((x + h).relu(),)


_STEPS: dict[str, Step] = {"LSTM": _lstm_step, "GRU": _gru_step, "RNN_TANH": _tanh_step, "RNN_RELU": _relu_step}


def _layers(module: Any, input: Any, hx: Any = None) -> Any:
    """Run an LSTM, a GRU or an RNN: `(time, batch, features)`, or batch first, or without a batch."""
    if not isinstance(input, Tensor):
        raise BindError(
            describe(
                "bind: a recurrent module inside a transform takes no packed sequence",
                expected="a padded tensor",
                got=type(input).__name__,
                fix="torch.nn.utils.rnn.pad_packed_sequence(input, batch_first=...)[0]",
            )
        )
    at = 0 if module.batch_first else 1
    alone = input.dim() == 2
    x = input.unsqueeze(at) if alone else input
    lstm = module.mode == "LSTM"
    count = module.num_layers * (2 if module.bidirectional else 1)
    if hx is None:
        sizes = [module.proj_size or module.hidden_size, *([module.hidden_size] if lstm else [])]
        state = tuple([x.new_zeros(count, x.shape[at], size) for size in sizes])
    else:
        state = tuple(hx) if lstm else (hx,)
        state = tuple([part.unsqueeze(1) for part in state]) if alone else state
    module.check_forward_args(x, state if lstm else state[0], None)
    x = x.transpose(0, 1) if module.batch_first else x
    ends: list[State] = []
    for layer in range(module.num_layers):
        outs: list[Tensor] = []
        for way in ("", "_reverse") if module.bidirectional else ("",):
            out, end = _run(module, f"_l{layer}{way}", x, tuple([part[len(ends)] for part in state]))
            outs.append(out)
            ends.append(end)
        x = torch.cat(outs, -1) if len(outs) > 1 else outs[0]
        if layer < module.num_layers - 1:
            x = dropout(x, module.dropout, module.training)
    x = x.transpose(0, 1) if module.batch_first else x
    last = [torch.stack(parts) for parts in zip(*ends, strict=True)]
    if alone:
        x, last = x.squeeze(at), [part.squeeze(1) for part in last]
    return x, tuple(last) if lstm else last[0]


def _run(module: Any, suffix: str, x: Tensor, state: State) -> tuple[Tensor, State]:
    """Run one layer in one direction over `(time, batch, features)`; return its outputs, and the state at its end."""
    step, hidden = _STEPS[module.mode], getattr(module, f"weight_hh{suffix}")
    project = getattr(module, f"weight_hr{suffix}") if getattr(module, "proj_size", 0) else None
    into = getattr(module, f"bias_ih{suffix}") if module.bias else None
    bias = getattr(module, f"bias_hh{suffix}") if module.bias else None
    inputs = linear(x, getattr(module, f"weight_ih{suffix}"), into).unbind(0)
    outs: list[Tensor] = []
    for row in reversed(inputs) if suffix.endswith("_reverse") else inputs:
        state = step(row, linear(state[0], hidden, bias), state)
        if project is not None:
            state = (linear(state[0], project), *state[1:])
        outs.append(state[0])
    return torch.stack(outs[::-1] if suffix.endswith("_reverse") else outs), state


def _cell(step: Step) -> Callable[..., Any]:
    def form(module: Any, input: Tensor, hx: Any = None) -> Any:
        lstm = step is _lstm_step
        used = _relu_step if getattr(module, "nonlinearity", "tanh") == "relu" else step
        if hx is None:
            zeros = input.new_zeros(*input.shape[:-1], module.hidden_size)
            state: State = (zeros, zeros) if lstm else (zeros,)
        else:
            state = tuple(hx) if lstm else (hx,)
        after = used(linear(input, module.weight_ih, module.bias_ih), linear(state[0], module.weight_hh, module.bias_hh), state)
        return after if lstm else after[0]

    return form


FORMS: dict[Any, Callable[..., Any]] = {
    **{cls.forward: _layers for cls in (nn.LSTM, nn.GRU, nn.RNN)},
    nn.LSTMCell.forward: _cell(_lstm_step),
    nn.GRUCell.forward: _cell(_gru_step),
    nn.RNNCell.forward: _cell(_tanh_step),
}
"""What runs instead of a class's `forward`, by that function."""
