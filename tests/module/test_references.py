"""Wherever a module hides a reference to itself: the clone follows it, or an error names the attribute; it never runs the original."""

from __future__ import annotations

import collections
import dataclasses
import functools
import types
import weakref
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from tdfunc import bind, params_of
from tdfunc._errors import BindError


class Pair(NamedTuple):
    a: Any
    b: Any


class MyList(list):
    pass


class MyDict(dict):
    pass


@dataclasses.dataclass
class Config:
    lin: Any


@dataclasses.dataclass(frozen=True)
class FrozenConfig:
    lin: Any


class Slots:
    __slots__ = ("lin",)

    def __init__(self, lin):
        self.lin = lin


class Callable:
    def __init__(self, fn):
        self.fn = fn

    def __call__(self, x):
        return self.fn(x)


class Property:
    def __init__(self, owner):
        self.owner = weakref.ref(owner)


def closure(module, depth):
    def around(inner):
        def call(x):
            return inner(x)

        return call

    fn = around(module.lin)
    for _ in range(depth):
        fn = around(fn)
    return fn


def recursive(module):
    def fn(x, n=1):
        return module.lin(x) if n == 0 else fn(x, n - 1)

    return fn


def default(module):
    return lambda x, lin=module.lin: lin(x)


def keyword_default(module):
    return lambda x, *, lin=module.lin: lin(x)


def weight_closure(module):
    weight, bias = module.lin.weight, module.lin.bias
    return lambda x: nn.functional.linear(x, weight, bias)


def list_closure(module):
    layers = [module.lin]

    def call(x):
        return layers[0](x)

    return call


def nested(value, depth):
    for _ in range(depth):
        value = [value]
    return value


def reach(value):
    while isinstance(value, list):
        value = value[0]
    return value


def lru(module):
    return functools.lru_cache(maxsize=None)(module.lin.forward)


def wrapped(module):
    @functools.wraps(module.lin.forward)
    def fn(x):
        return module.lin(x)

    return fn


call = lambda kept, x: kept(x)
HIDDEN = {
    "list": (lambda m: [m.lin], lambda k, x: k[0](x)),
    "list_in_dict_in_tuple": (lambda m: ({"a": [m.lin]},), lambda k, x: k[0]["a"][0](x)),
    "five_lists_deep": (lambda m: nested(m.lin, 5), lambda k, x: reach(k)(x)),
    "nine_lists_deep": (lambda m: nested(m.lin, 9), lambda k, x: reach(k)(x)),
    "set": (lambda m: {m.lin}, lambda k, x: next(iter(k))(x)),
    "frozenset": (lambda m: frozenset({m.lin}), lambda k, x: next(iter(k))(x)),
    "dict_key": (lambda m: {m.lin: 1}, lambda k, x: next(iter(k))(x)),
    "deque": (lambda m: collections.deque([m.lin], maxlen=3), lambda k, x: k[0](x)),
    "defaultdict": (lambda m: collections.defaultdict(list, a=m.lin), lambda k, x: k["a"](x)),
    "mappingproxy": (lambda m: types.MappingProxyType({"a": m.lin}), lambda k, x: k["a"](x)),
    "userdict": (lambda m: collections.UserDict(a=m.lin), lambda k, x: k["a"](x)),
    "namedtuple": (lambda m: Pair(1, m.lin), lambda k, x: k.b(x)),
    "list_subclass": (lambda m: MyList([m.lin]), lambda k, x: k[0](x)),
    "dict_subclass": (lambda m: MyDict(a=m.lin), lambda k, x: k["a"](x)),
    "chain": (lambda m: collections.ChainMap({"a": m.lin}), lambda k, x: k["a"](x)),
    "partial": (lambda m: functools.partial(m.lin), call),
    "partial_of_partial": (lambda m: functools.partial(functools.partial(m.lin.forward)), call),
    "partial_argument": (lambda m: functools.partial(lambda lin, x: lin(x), m.lin), call),
    "partial_keyword": (lambda m: functools.partial(lambda x, lin: lin(x), lin=m.lin), call),
    "partial_list": (lambda m: functools.partial(lambda layers, x: layers[0](x), [m.lin]), call),
    "method": (lambda m: m.lin.forward, call),
    "own_method": (lambda m: m.run, call),
    "closure": (lambda m: closure(m, 0), call),
    "closure_in_closure": (lambda m: closure(m, 2), call),
    "recursive_closure": (recursive, call),
    "closure_over_parameter": (weight_closure, call),
    "closure_over_list": (list_closure, call),
    "default": (default, call),
    "keyword_default": (keyword_default, call),
    "wrapped": (wrapped, call),
    "lru_cache": (lru, call),
    "weakref": (lambda m: weakref.ref(m.lin), lambda k, x: k()(x)),
    "weak_proxy": (lambda m: weakref.proxy(m.lin), call),
    "weak_method": (lambda m: weakref.WeakMethod(m.lin.forward), lambda k, x: k()(x)),
    "weak_set": (lambda m: weakref.WeakSet([m.lin]), lambda k, x: next(iter(k))(x)),
    "weak_values": (lambda m: weakref.WeakValueDictionary(a=m.lin), lambda k, x: k["a"](x)),
    "weakref_in_list": (lambda m: [weakref.ref(m.lin)], lambda k, x: k[0]()(x)),
    "dataclass": (lambda m: Config(m.lin), lambda k, x: k.lin(x)),
    "frozen_dataclass": (lambda m: FrozenConfig(m.lin), lambda k, x: k.lin(x)),
    "list_in_dataclass": (lambda m: Config([m.lin]), lambda k, x: k.lin[0](x)),
    "namespace": (lambda m: types.SimpleNamespace(lin=m.lin), lambda k, x: k.lin(x)),
    "namespace_in_namespace": (lambda m: types.SimpleNamespace(a=types.SimpleNamespace(lin=m.lin)), lambda k, x: k.a.lin(x)),
    "object_with_slots": (lambda m: Slots(m.lin), lambda k, x: k.lin(x)),
    "object_with_method": (lambda m: Callable(m.lin.forward), call),
    "object_with_weakref": (Property, lambda k, x: k.owner().lin(x)),
    "method_of_object": (lambda m: Callable(m.lin).__call__, call),
    "object_in_list": (lambda m: [Config(m.lin)], lambda k, x: k[0].lin(x)),
    "foreign_module": (lambda m: [Outside(m.lin)], lambda k, x: k[0].inner[0](x)),
    "parameter": (lambda m: [m.lin.weight, m.lin.bias], lambda k, x: nn.functional.linear(x, *k)),
    "parameter_in_dict": (lambda m: {"w": {"x": (m.lin.weight,)}}, lambda k, x: nn.functional.linear(x, k["w"]["x"][0])),
    "parameter_in_dataclass": (lambda m: Config(m.lin.weight), lambda k, x: nn.functional.linear(x, k.lin)),
    "parameter_in_partial": (lambda m: functools.partial(torch.mul, m.lin.weight), lambda k, x: k(x.sum())),
}


class Outside(nn.Module):
    """A module that is not registered, and refers to one that is."""

    def __init__(self, lin):
        super().__init__()
        self.inner = [lin]


class Hides(nn.Module):
    def __init__(self, keep, use):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.use = use
        self.kept = keep(self)

    def run(self, x):
        return self.lin(x)

    def forward(self, x):
        return self.use(self.kept, x)


@pytest.mark.parametrize("name", HIDDEN)
def test_the_reference_is_followed_or_refused_by_name(name, snapshot):
    module, x = Hides(*HIDDEN[name]), torch.randn(2, 3)
    kept, before = module.kept, snapshot(module)
    params = params_of(module).map(lambda t: t + torch.randn_like(t))
    twin = Hides(*HIDDEN[name])
    twin.load_state_dict(params.to_flat())
    try:
        got = bind(module, params)(x)
    except BindError as error:
        assert "'kept'" in str(error)
        assert "fix:" in str(error)
    else:
        torch.testing.assert_close(got, twin(x))
    assert module.kept is kept
    assert snapshot(module) == before


MUTABLE = {"list": [1, [2]], "dict": {"a": 1, "b": [1]}, "set": {1}, "list of lists": [[1], [2]], "deque": collections.deque([1])}


class Logs(nn.Module):
    def __init__(self, log):
        super().__init__()
        self.lin, self.log = nn.Linear(3, 3), log

    def forward(self, x):
        out = self.lin(x)
        if isinstance(self.log, dict):
            self.log["last"] = 1
        elif isinstance(self.log, set):
            self.log.add(2)
        else:
            self.log.append(1)
        return out


@pytest.mark.parametrize("name", MUTABLE)
def test_what_a_forward_notes_down_stays_with_the_clone(name):
    module = Logs(MUTABLE[name])
    before = str(module.log)
    bound = bind(module, params_of(module))
    bound(torch.ones(1, 3))
    assert str(module.log) == before
    assert str(bound.log) != before


def test_a_list_that_holds_itself_and_the_module_ends():
    module = Hides(lambda m: [m.lin], lambda k, x: k[0](x))
    module.kept.append(module.kept)
    bound = bind(module, params_of(module).map(torch.zeros_like))
    assert bound.kept[1] is bound.kept
    assert bound(torch.ones(1, 3)).abs().sum() == 0


def test_two_names_of_one_list_stay_one_list():
    module = Hides(lambda m: [m.lin], lambda k, x: k[0](x))
    module.again = module.kept
    bound = bind(module, params_of(module))
    assert bound.again is bound.kept
    assert bound.kept is not module.kept


class Cached(nn.Module):
    """A module that keeps what it computed of its weight."""

    def __init__(self, view):
        super().__init__()
        self.lin, self.view, self.cache = nn.Linear(3, 3), view, None

    def forward(self, x):
        if self.cache is None:
            self.cache = self.view(self.lin.weight)
        return x @ self.cache


VIEWS = {"transpose": lambda w: w.T, "data": lambda w: w.data, "detached": lambda w: w.detach(), "slice": lambda w: w[:, :3]}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_cached_view_of_a_parameter_is_refused_and_none_is_needed(view):
    module, x = Cached(view), torch.ones(1, 3)
    zeros = params_of(module).map(torch.zeros_like)
    assert (bind(module, zeros)(x) == 0).all()
    assert module.cache is None
    module(x)
    with pytest.raises(BindError, match=r"view of a parameter[\s\S]*'cache'[\s\S]*'lin', 'weight'[\s\S]*fix: "):
        bind(module, zeros)
    with pytest.raises(Exception, match="view of a parameter"):
        torch.compile(lambda p: bind(module, p)(x), fullgraph=True, backend="eager")(zeros)
