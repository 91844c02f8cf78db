"""One of each family of torch.nn that keeps parameters or state."""

from __future__ import annotations

import torch
from torch import nn

from .case import SEQUENCE, Case

RNN = "Dynamo does not trace RNNs"
NUMBER = "it reads a buffer as a number"


class Attention(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.inner = nn.MultiheadAttention(*args, **kwargs, batch_first=True)

    def forward(self, q, k, v):
        return self.inner(q, k, v, key_padding_mask=torch.tensor([[False] * 4 + [True]] * 2), average_attn_weights=False)


class Padded(nn.Module):  # what stands in padded rows differs between torch's two ways, and is left out
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x):
        padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
        return self.encoder(x, src_key_padding_mask=padding).masked_fill(padding[..., None], 0)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.loss = nn.Linear(4, 3), nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]), reduction="none")

    def forward(self, x, target):
        return self.loss(self.body(x), target)


def _steps(cell, x):
    state = None
    for step in x.unbind(1):
        state = cell(step, state)
    return state


class Cells(nn.Module):
    def __init__(self, *cells):
        super().__init__()
        self.cells = nn.ModuleList(cells)

    def forward(self, x):
        return [_steps(cell, x) for cell in self.cells]


def image(*size):
    return lambda: (torch.randn(2, 2, *size),)


FAMILIES = [
    Case("conv1d", lambda: nn.Conv1d(2, 3, 3, padding="same"), image(7)),
    Case("conv2d_depthwise", lambda: nn.Conv2d(2, 4, 3, groups=2, padding=1, padding_mode="circular"), image(5, 5)),
    Case("conv3d", lambda: nn.Conv3d(2, 3, 2, dilation=2), image(4, 4, 4)),
    Case("conv_transpose1d", lambda: nn.ConvTranspose1d(2, 3, 3, stride=2), image(4)),
    Case("conv_transpose2d", lambda: nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1), image(4, 4)),
    Case("conv_transpose3d", lambda: nn.ConvTranspose3d(2, 2, 2), image(3, 3, 3)),
    Case("bilinear", lambda: nn.Bilinear(4, 3, 2), lambda: (torch.randn(6, 4), torch.randn(6, 3))),
    Case("embedding_bag", lambda: nn.EmbeddingBag(9, 4, mode="sum"), lambda: (torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 2]))),
    Case("embedding_padded", lambda: nn.Embedding(7, 4, padding_idx=1), lambda: (torch.tensor([[1, 2], [6, 0]]),)),
    Case(
        "embedding_max_norm",
        lambda: nn.Embedding(7, 4, max_norm=1.0),
        lambda: (torch.tensor([[1, 2], [6, 0]]),),
        copied=True,
    ),
    Case("layer_norm", lambda: nn.LayerNorm((3, 4)), lambda: (torch.randn(5, 3, 4),)),
    Case("rms_norm", lambda: nn.RMSNorm(4)),
    Case("group_norm", lambda: nn.GroupNorm(2, 4), lambda: (torch.randn(3, 4, 5),)),
    Case("batch_norm_cumulative", lambda: nn.BatchNorm1d(4, momentum=None), no_compile=NUMBER, no_vmap=NUMBER),
    Case("batch_norm_eval", lambda: nn.BatchNorm3d(2).eval(), image(3, 3, 3)),
    Case("instance_norm", lambda: nn.InstanceNorm2d(2, affine=True, track_running_stats=True), image(4, 4)),
    Case("prelu", lambda: nn.Sequential(nn.Linear(4, 4), nn.PReLU(4))),
    Case(
        "adaptive_log_softmax",
        lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 9, [3, 6], div_value=1.5),
        lambda: (torch.randn(5, 4), torch.tensor([0, 4, 8, 2, 5])),
        no_compile="its sizes are those of its values",
        no_vmap="it writes in place to a tensor that is not stacked",
    ),
    Case("loss_weights", Classifier, lambda: (torch.randn(6, 4), torch.tensor([0, 1, 2, 2, 1, 0]))),
    Case("rnn", lambda: nn.RNN(4, 3, nonlinearity="relu", batch_first=True), SEQUENCE, no_compile=RNN),
    Case("gru", lambda: nn.GRU(4, 3, num_layers=2), SEQUENCE, no_compile=RNN),
    Case(
        "lstm_projected",
        lambda: nn.LSTM(4, 3, bidirectional=True, proj_size=2),
        SEQUENCE,
        no_compile=RNN,
        warns=("LSTM with projections is not supported with oneDNN:UserWarning",),
    ),
    Case("cells", lambda: Cells(nn.RNNCell(4, 3), nn.GRUCell(4, 3)), SEQUENCE),
    Case("lstm_cell", lambda: Cells(nn.LSTMCell(4, 3)), SEQUENCE),
    Case(
        "attention_eval",
        lambda: Attention(4, 2, kdim=3, vdim=2, add_bias_kv=True).eval(),
        lambda: (torch.randn(2, 5, 4), torch.randn(2, 5, 3), torch.randn(2, 5, 2)),
    ),
    Case("attention_fast", lambda: Attention(4, 2).eval(), lambda: SEQUENCE() * 3),
    Case("encoder_layer_eval", lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, norm_first=True).eval(), SEQUENCE),
    Case(
        "encoder_nested_tensors",
        lambda: Padded().eval(),
        SEQUENCE,
        no_vmap="nested tensors do not stack",
        warns=("The PyTorch API of nested tensors:UserWarning",),
    ),
    Case(
        "decoder_layer",
        lambda: nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        lambda: (torch.randn(2, 3, 4), torch.randn(2, 5, 4)),
    ),
    Case(
        "transformer_full",
        lambda: nn.Transformer(4, 2, 1, 2, 8, dropout=0.0, batch_first=True),
        lambda: (torch.randn(2, 5, 4), torch.randn(2, 3, 4)),
    ),
]
