"""Modules whose weights are computed from others: pruned, parametrized, adapted, packed; and those that were lazy."""

from __future__ import annotations

import warnings

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

from .case import DIV_OUT, IN_GRAPH, PARAMETRIZED, Case


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).mT

    def right_inverse(self, x):
        return x.triu()


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4, 1))
        self.register_buffer("shift", torch.zeros(4))

    def forward(self, x):
        return self.scale * x + self.shift


class Lora(nn.Module):
    def __init__(self, base, rank):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.randn(rank, base.in_features)), nn.Parameter(torch.zeros(base.out_features, rank))
        self.active = True

    def forward(self, x):
        return self.base(x) + (x @ self.a.T @ self.b.T if self.active else 0)


class LoraWeight(nn.Module):
    def __init__(self, size, rank):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(rank, size)), nn.Parameter(torch.randn(size, rank))

    def forward(self, weight):
        return weight + self.b @ self.a


class Backbone(nn.Module):  # packed weights take float32 alone, and give no gradient
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x.detach().float()).to(x.dtype)


def _custom():
    lin = nn.Linear(4, 4)
    parametrize.register_parametrization(lin, "weight", Symmetric())
    parametrize.register_parametrization(lin, "weight", Scaled())
    return nn.Sequential(lin, nn.Tanh())


def _lora_parametrized():
    lin = nn.Linear(4, 4)
    parametrize.register_parametrization(lin, "weight", LoraWeight(4, 2))
    lin.parametrizations.weight.original.requires_grad_(False)
    return lin


def _pruned():
    lin = nn.Linear(4, 4)
    prune.l1_unstructured(lin, "weight", amount=0.5)
    prune.random_unstructured(lin, "bias", amount=1)
    return nn.Sequential(lin, nn.Tanh())


def _lazy():
    net = nn.Sequential(nn.LazyConv1d(3, 2), nn.LazyBatchNorm1d(), nn.Flatten(), nn.LazyLinear(2))
    net(torch.randn(2, 2, 5))
    return net


def _quantised():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        packed = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear}, torch.qint8)
    return nn.Sequential(Backbone(packed), nn.Linear(4, 4))


WEIGHTS = [
    Case("pruned", _pruned, no_deepcopy=IN_GRAPH),
    Case("orthogonal", lambda: parametrizations.orthogonal(nn.Linear(4, 3)), no_pickle=PARAMETRIZED),
    Case("spectral_norm_old", lambda: nn.Sequential(nn.utils.spectral_norm(nn.Linear(4, 4))), no_deepcopy=IN_GRAPH, no_vmap=DIV_OUT),
    Case("parametrized_twice", _custom, no_pickle=PARAMETRIZED),
    Case("lora", lambda: nn.Sequential(Lora(nn.Linear(4, 4), 2), nn.Tanh())),
    Case("lora_parametrized", _lora_parametrized, no_pickle=PARAMETRIZED),
    Case("lazy_initialised", _lazy, lambda: (torch.randn(3, 2, 5),)),
    Case("quantised", _quantised, no_compile="Dynamo takes no packed weights", warns=("TypedStorage is deprecated:UserWarning",)),
]
