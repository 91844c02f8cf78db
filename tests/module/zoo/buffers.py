"""Modules that keep state of their own: masks, caches, statistics, as buffers of every kind and as plain attributes."""

from __future__ import annotations

import torch
from torch import nn

from .case import SEQUENCE, Case


class CachedMask(nn.Module):  # grows with the longest sequence seen
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("mask", torch.ones(2, 2, dtype=torch.bool), persistent=False)

    def forward(self, x):
        length = x.shape[1]
        if self.mask.shape[0] < length:
            self.mask = torch.ones(length, length, dtype=torch.bool).tril()
        return (self.lin(x) @ x.mT).masked_fill(~self.mask[:length, :length], 0)


class LazyBuffer(nn.Module):  # a place for a buffer, filled at the first call
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("mean", None)

    def forward(self, x):
        mean = x.mean(0)
        self.mean = mean if self.mean is None else self.mean.lerp(mean, 0.5)
        return self.lin(x) - self.mean


class Kinds(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("kept", torch.ones(4))
        self.register_buffer("passing", torch.ones(4), persistent=False)
        self.register_buffer("steps", torch.tensor(0), persistent=False)
        self.register_buffer("nothing", None)

    def forward(self, x):
        self.steps += 1
        self.passing.mul_(0.5)
        return self.lin(x) * self.kept + self.passing + (0 if self.nothing is None else self.nothing)


class Rotary(nn.Module):  # keeps its tables by length, in a dict
    def __init__(self):
        super().__init__()
        self.lin, self.tables = nn.Linear(4, 4), {}
        self.register_buffer("frequencies", torch.tensor([1.0, 0.1]), persistent=False)

    def forward(self, x):
        length = x.shape[1]
        if length not in self.tables:
            self.tables[length] = torch.outer(torch.arange(length, dtype=x.dtype), self.frequencies)
        a, b = self.lin(x).chunk(2, -1)
        cos, sin = self.tables[length].cos(), self.tables[length].sin()
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class KeyCache(nn.Module):  # each call sees the keys of those before it
    def __init__(self):
        super().__init__()
        self.key, self.query, self.keys = nn.Linear(4, 4), nn.Linear(4, 4), []

    def forward(self, x):
        self.keys.append(self.key(x).detach())
        keys = torch.cat([*self.keys[:-1], self.key(x)], 1)
        return (self.query(x) @ keys.mT).softmax(-1) @ keys


class Target(nn.Module):  # a moving average of another part's parameters
    def __init__(self):
        super().__init__()
        self.online, self.target = nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            expected = self.target(x)
        return self.online(x) - expected


class Codebook(nn.Module):  # vector quantisation with statistics in buffers
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("codes", torch.randn(5, 4))
        self.register_buffer("used", torch.zeros(5, dtype=torch.long))

    def forward(self, x):
        x = self.lin(x)
        index = (x[:, None] - self.codes).pow(2).sum(-1).argmin(-1)
        if self.training:
            self.used.add_(nn.functional.one_hot(index, 5).sum(0))
        return x + (self.codes[index] - x).detach() + x.tanh()


BUFFERS = [
    Case("cached_mask", CachedMask, SEQUENCE, traces=2),  # of another size after the first step
    Case("lazy_buffer", LazyBuffer, traces=2),  # of another structure after the first step
    Case("buffers_of_all_kinds", Kinds),
    Case("tables_in_dict", Rotary, SEQUENCE),
    Case("cache_in_list", KeyCache, SEQUENCE, no_carry="its cache is in a plain list"),
    Case("target", Target),
    Case("codebook", Codebook),
]
