"""Small nets in the shapes that vision and language models have."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .case import Case


class SqueezeExcite(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(dim, 2, 1), nn.Conv2d(2, dim, 1)

    def forward(self, x):
        return x * self.expand(self.reduce(x.mean((2, 3), keepdim=True)).relu()).sigmoid()


class DropPath(nn.Module):  # stochastic depth: whole samples of a branch are dropped
    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if not self.training or self.rate == 0.0:
            return x
        keep = x.new_empty(x.shape[0], *[1] * (x.dim() - 1)).bernoulli_(1 - self.rate)
        return x * keep / (1 - self.rate)


class BasicBlock(nn.Module):
    def __init__(self, into, out, stride=1, attention=None):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.attention, self.drop_path = attention, DropPath(0.2)
        self.downsample = None if stride == 1 and into == out else nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        y = y if self.attention is None else self.attention(y)
        return (self.drop_path(y) + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet(nn.Module):
    def __init__(self, attention=lambda dim: None):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        self.layer1 = nn.Sequential(BasicBlock(4, 4, attention=attention(4)), BasicBlock(4, 6, 2, attention=attention(6)))
        self.fc = nn.Linear(6, 5)
        for part in self.modules():
            if isinstance(part, DropPath):
                part.eval()

    def forward(self, x):
        return self.fc(self.layer1(self.stem(x)).mean((2, 3)))


class ConvNeXtBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dwconv, self.norm = nn.Conv2d(dim, dim, 3, padding=1, groups=dim), nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.gamma = nn.Parameter(torch.full((dim,), 0.1))

    def forward(self, x):
        y = self.dwconv(x).permute(0, 2, 3, 1)  # (batch, height, width, channels)
        y = self.gamma * self.down(F.gelu(self.up(self.norm(y))))
        return x + y.permute(0, 3, 1, 2)


class InvertedResidual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        wide = [nn.Conv2d(dim, 8, 1), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.Hardswish()]
        self.body = nn.Sequential(*wide, SqueezeExcite(8), nn.Conv2d(8, dim, 1))

    def forward(self, x):
        return x + self.body(x)


class VitBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        batch, length, dim = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)  # (3, batch, heads, length, head_dim)
        x = x + self.proj(F.scaled_dot_product_attention(*qkv.unbind(0)).transpose(1, 2).reshape(batch, length, dim))
        return x + self.mlp(self.norm2(x))


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.cls = nn.Conv2d(3, 4, 4, 4), nn.Parameter(torch.randn(1, 1, 4))
        self.pos_embed, self.norm, self.head = nn.Parameter(torch.randn(1, 5, 4)), nn.LayerNorm(4), nn.Linear(4, 3)
        self.blocks = nn.Sequential(VitBlock(4, 2), VitBlock(4, 2))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.tokens, self.channels = nn.Linear(tokens, tokens), nn.Linear(dim, dim)

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).mT).mT
        return x + self.channels(self.norm2(x))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.downs = nn.ModuleList([nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 6, 3, padding=1)])
        self.ups = nn.ModuleDict({"1": nn.ConvTranspose2d(6, 4, 2, 2), "0": nn.ConvTranspose2d(8, 3, 2, 2)})

    def forward(self, x):
        skips = []
        for down in self.downs:
            x = F.max_pool2d(down(x).relu(), 2)
            skips.append(x)
        return self.ups["0"](torch.cat([self.ups["1"](skips.pop()), skips.pop()], 1))


class CausalAttention(nn.Module):
    def __init__(self, dim, length):
        super().__init__()
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.register_buffer("bias", torch.tril(torch.ones(length, length, dtype=torch.bool)), persistent=False)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.mT).masked_fill(~self.bias[: x.shape[1], : x.shape[1]], -1e9)
        return self.proj(scores.softmax(-1) @ v)


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        block = lambda: nn.ModuleDict({"ln": nn.LayerNorm(4), "attn": CausalAttention(4, 6), "mlp": nn.Linear(4, 4)})
        self.transformer = nn.ModuleDict({"wte": nn.Embedding(9, 4), "wpe": nn.Embedding(6, 4), "h": nn.ModuleList([block(), block()])})
        self.lm_head = nn.Linear(4, 9, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.transformer.h[1].attn.bias = self.transformer.h[0].attn.bias  # one mask for all blocks

    def forward(self, tokens):
        x = self.transformer.wte(tokens) + self.transformer.wpe(torch.arange(tokens.shape[1]))
        for block in self.transformer.h:
            x = x + block["attn"](block["ln"](x))
            x = x + block["mlp"](x).tanh()
        return self.lm_head(x)


class Encoding(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.mean, self.logvar, self.dec = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(2, 4)

    def forward(self, x):
        hidden = self.enc(x).tanh()
        return {"x": self.dec(self.mean(hidden)), "spread": self.logvar(hidden).exp()}


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(4, 3), nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.SiLU()) for _ in range(3)])

    def forward(self, x):
        return (torch.stack([expert(x) for expert in self.experts], -1) * self.gate(x).softmax(-1)[:, None]).sum(-1)


PICTURE = lambda: (torch.randn(2, 3, 8, 8),)
MAPS = lambda: (torch.randn(2, 4, 5, 5),)
NETS = [
    Case("resnet", ResNet, PICTURE),
    Case("resnet_eval_squeeze_excite", lambda: ResNet(SqueezeExcite).eval(), PICTURE),
    Case("stochastic_depth_eval", lambda: nn.Sequential(nn.Linear(4, 4), DropPath(0.5)).eval()),
    Case("squeeze_excite", lambda: SqueezeExcite(4), MAPS),
    Case("convnext", lambda: nn.Sequential(ConvNeXtBlock(4), ConvNeXtBlock(4)), MAPS),
    Case("inverted_residual", lambda: InvertedResidual(4), MAPS),
    Case("vit", Vit, PICTURE),
    Case("mixer", lambda: MixerBlock(5, 4), lambda: (torch.randn(2, 5, 4),)),
    Case("unet", UNet, PICTURE),
    Case("gpt_tied", Gpt, lambda: (torch.tensor([[1, 2, 3, 0], [6, 0, 8, 8]]),)),
    Case("dict_output", Encoding),
    Case("experts", Experts),
]
