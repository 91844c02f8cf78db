"""Modules that refer to themselves, tie, count and hook, as people write them."""

from __future__ import annotations

import functools
import inspect
import warnings
import weakref

import torch
from torch import nn
from torch.nn.utils import parametrizations

from .case import DIV_OUT, IN_GRAPH, PARAMETRIZED, SEQUENCE, Case


class TiedHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 7)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.embed(x))


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.again = nn.ModuleDict({"inner": self.first})

    def forward(self, x):
        return self.again["inner"](self.first(x).tanh())


class TiedBuffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(4))
        self.register_buffer("same", self.count)

    def forward(self, x):
        self.count.add_(1)
        return self.lin(x) + self.same


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.n = nn.Linear(4, 4), 0
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        self.n = self.n + 1
        self.total = self.total + x.sum(0)
        return self.lin(x) * self.n + self.total


def _decorated(forward):
    @functools.wraps(forward)
    def call(self, x):
        return forward(self, x)

    return call


class CountsDecorated(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.n = nn.Linear(4, 4), 0

    @_decorated
    def forward(self, x):
        self.n = self.n + 1
        return self.lin(x) * self.n


class NoGradMethod(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))

    @torch.no_grad()
    def follow(self, x):
        self.mean.lerp_(x.mean(0), 0.5)

    def forward(self, x):
        self.follow(x)
        return self.lin(x) + self.mean


class Holder(nn.Module):  # keeps a sub-module in a place of its own, and reaches it by that
    def __init__(self, keep, call):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.kept, self.call = keep(self), call

    def forward(self, x):
        return self.call(self.kept, x)


def _closure(module):
    lin = module.lin

    def call(x):
        return lin(x)

    return call


class Slotted(nn.Module):
    __slots__ = ("inner", "scale")

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        object.__setattr__(self, "scale", 3.0)
        object.__setattr__(self, "inner", [self.lin])

    def forward(self, x):
        return self.inner[0](x) * self.scale


class Containers(nn.Module):
    def __init__(self):
        super().__init__()
        self.many = nn.ParameterList([torch.randn(4, 4), torch.randn(4)])
        self.named = nn.ParameterDict({"a": torch.randn(4), "b": torch.randn(4, 4)})
        self.layers = nn.ModuleDict({"one": nn.Linear(4, 4)})

    def forward(self, x):
        return self.layers["one"](x @ self.many[0] + self.many[1]) @ self.named["b"] + self.named["a"]


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.lin.weight.requires_grad_(False)
        self.index = nn.Parameter(torch.tensor([3, 1, 2, 0]), requires_grad=False)

    def forward(self, x):
        return self.lin(x)[:, self.index]


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 4, dtype=torch.complex128))

    def forward(self, x):
        return (x.to(self.w.dtype) @ self.w).exp()


class Parent(nn.Module):
    def __init__(self, link):
        super().__init__()
        self.child, self.scale = Child(), nn.Parameter(torch.randn(4))
        link(self.child, self)

    def forward(self, x):
        return self.child(x)


class Child(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        parent = self.parent[0] if isinstance(self.parent, list) else self.parent
        return self.lin(x) * parent.scale


class Inspects(nn.Module):  # asks how many arguments a method of its own takes
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def chunk(self, x):
        return self.lin(x)

    def forward(self, x):
        return self.chunk(x) * len(inspect.signature(self.chunk).parameters)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        return self.inner(x, x, x)


def _drops():
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Dropout(0.5), nn.Linear(8, 3))


def _old_weight_norm():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.Sequential(torch.nn.utils.weight_norm(nn.Linear(4, 4)), nn.Tanh())


def _compiled():
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    return nn.Sequential(torch.compile(net, backend="eager"), nn.Linear(3, 3))


def _compiled_in_place():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    net.compile(backend="eager")
    return net


def _hooked():
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    net.register_forward_hook(lambda module, args, out: module[0](out))
    net[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    return net


LAMBDA = "its attributes are lambdas, which pickle refuses"
OWN = [
    Case("mlp", lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))),
    Case("conv_batchnorm", lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU()), lambda: (torch.randn(2, 2, 5, 5),)),
    Case("norm_dropout_eval", lambda: _drops().eval()),
    Case("norm_dropout_train", _drops, no_vmap="masks differ from member to member", no_threads="masks come from one generator"),
    Case("tied_head", TiedHead, lambda: (torch.tensor([[1, 2], [6, 0]]),)),
    Case("shared_module", Shared),
    Case("tied_buffers", TiedBuffers),
    Case("transformer", lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), SEQUENCE),
    Case("attention", Attention, SEQUENCE),
    Case("lstm", lambda: nn.LSTM(4, 3, batch_first=True), SEQUENCE, no_compile="Dynamo does not trace RNNs"),
    Case("weight_norm", lambda: parametrizations.weight_norm(nn.Linear(4, 4)), no_pickle=PARAMETRIZED),
    Case("weight_norm_old", _old_weight_norm, no_deepcopy=IN_GRAPH),
    Case(
        "spectral_norm",
        lambda: parametrizations.spectral_norm(nn.Linear(4, 4)),
        no_pickle=PARAMETRIZED,
        no_vmap=DIV_OUT,
    ),
    Case("no_grad_method", NoGradMethod),
    Case("counter", Counter, no_carry="it counts in a plain attribute too"),
    Case("counter_decorated", CountsDecorated, no_carry="its count is a plain attribute"),
    Case("in_list", lambda: Holder(lambda m: [m.lin], lambda kept, x: kept[0](x)), no_pickle=LAMBDA),
    Case("in_partial", lambda: Holder(lambda m: functools.partial(m.lin), lambda kept, x: kept(x)), no_pickle=LAMBDA),
    Case("in_method", lambda: Holder(lambda m: m.lin.forward, lambda kept, x: kept(x)), no_pickle=LAMBDA),
    Case("in_closure", lambda: Holder(_closure, lambda kept, x: kept(x)), no_pickle=LAMBDA, no_compile="Dynamo makes no cells"),
    Case("in_weakref", lambda: Holder(lambda m: weakref.ref(m.lin), lambda kept, x: kept()(x)), no_pickle=LAMBDA),
    Case("parameter_in_list", lambda: Holder(lambda m: [m.lin.weight], lambda kept, x: x @ kept[0].T), no_pickle=LAMBDA),
    Case("slots", Slotted, no_pickle="nn.Module.__setstate__ leaves the slots empty", no_deepcopy="nn.Module.__setstate__ leaves the slots empty"),
    Case("containers", Containers),
    Case("compiled", _compiled, no_pickle="a compiled frame is not pickled"),
    Case("compiled_in_place", _compiled_in_place),
    Case("frozen_and_integer", Frozen),
    Case("complex", Complex, no_float="a complex parameter keeps its dtype in Module.double"),
    Case("parent_by_hand", lambda: Parent(lambda child, parent: object.__setattr__(child, "parent", parent))),
    Case("parent_in_list", lambda: Parent(lambda child, parent: setattr(child, "parent", [parent]))),
    Case("signature", Inspects),
    Case("hooks", _hooked, no_pickle=LAMBDA),
]
