"""What users of torch.func and tensordict reported of functional modules: each situation, and the whole kind of it."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from tdfunc import BindError, KeyPathError, TdfuncError, TensorDict, bind, buffers_of, ensemble, grad, load_into, params_of, stack, state_of, vmap

# --- R2: ties ---------------------------------------------------------------------------------------------------


class TwoNames(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))
        self.tied = self.weight

    def forward(self, x):
        return (x @ self.weight).tanh() @ self.tied


class EmbedAndHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(3, 5, bias=False), nn.Linear(5, 3)
        self.turned = nn.Linear(3, 5)
        self.turned.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.embed(x) * self.turned(x))


class SharedPart(nn.Module):  # one sub-module under three names, on two levels
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(3, 3)
        self.many = nn.ModuleDict({"two": self.one, "deep": nn.Sequential(nn.Tanh(), self.one)})

    def forward(self, x):
        return self.many["deep"](self.many["two"](self.one(x)))


class AcrossLevels(nn.Module):  # a parameter of the root is one of a leaf module, twice
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.bias = self.layers[0].bias = self.layers[1].bias
        self.alone = nn.Parameter(torch.randn(3))

    def forward(self, x):
        return self.layers[1](self.layers[0](x).tanh() * self.alone) + self.bias


TIED = [TwoNames, EmbedAndHead, SharedPart, AcrossLevels]
tied = pytest.mark.parametrize("make", TIED)


def names_of(module):
    """Return the paths of each distinct parameter, by torch's own account."""
    names = {}
    for name, param in module.named_parameters(remove_duplicate=False):
        names.setdefault(param, []).append(tuple(name.split(".")))
    return list(names.values())


def twin_with(module, flat):
    """Return a copy of a module with other values, loaded by torch."""
    twin = copy.deepcopy(module)
    twin.load_state_dict(flat, strict=False)
    return twin


@tied
def test_r002_a_tied_parameter_is_one_leaf_with_all_its_names(make):
    """A module with two names for a parameter: there is one leaf, and a record of the names."""
    module = make()
    params = params_of(module)
    assert len(params._leaves) == len(list(module.parameters()))
    assert {frozenset(group) for group in params.ties} == {frozenset(group) for group in names_of(module) if len(group) > 1}
    assert params.numel() == sum(p.numel() for p in module.parameters())


@tied
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_r002_a_value_for_one_name_reaches_every_name(make, dtype):
    """A value for one of two tied names: the other name has it too, whichever was given."""
    module, x = make().to(dtype), torch.randn(4, 3, dtype=dtype)
    for group in names_of(module):
        value = torch.randn_like(params_of(module)[group[0]])
        expected = twin_with(module, {".".join(path): value for path in group})(x)
        assert not torch.equal(expected, module(x))
        for path in group:
            torch.testing.assert_close(bind(module, {path: value}, strict=False)(x), expected)
            torch.testing.assert_close(bind(module, params_of(module).set(path, value))(x), expected)


@tied
def test_r002_gradients_of_all_uses_are_summed(make):
    """A tied parameter has the gradient of all its uses, by autograd and by a transform."""
    module, x = make().double(), torch.randn(4, 3).double()
    module(x).sin().sum().backward()
    found = grad(lambda p: bind(module, p)(x).sin().sum())(params_of(module))
    assert len(found._leaves) == len(list(module.parameters()))
    live = params_of(module).requires_grad()
    bind(module, live)(x).sin().sum().backward()
    for name, param in module.named_parameters(remove_duplicate=False):
        path = tuple(name.split("."))
        torch.testing.assert_close(found[path], param.grad)
        torch.testing.assert_close(live[path].grad, param.grad)


@tied
def test_r002_ties_hold_in_a_stack_and_in_compiled_code(make, counted):
    """Tied modules in vmap and compiled: as member by member, and one input of the graph for each distinct tensor."""
    module, x = make(), torch.randn(4, 3)
    params = stack([params_of(make()) for _ in range(3)])
    assert len(params._leaves) == len(list(module.parameters()))

    def run(params, x):
        return vmap(lambda p: bind(module, p)(x))(params)

    expected = torch.stack([twin_with(module, params[i].to_flat())(x) for i in range(3)])
    torch.testing.assert_close(run(params, x), expected)
    compiled, graphs = counted(run)
    for _ in range(2):
        torch.testing.assert_close(compiled(params.clone(), x), expected)
    assert len(graphs) == 1
    assert len(graphs[0].graph.find_nodes(op="placeholder")) == len(params._leaves) + 1


@tied
def test_r002_two_values_for_one_tied_parameter_are_refused(make):
    """Two different values for two names of one parameter: neither wins in silence."""
    module = make()
    flat = {
        ".".join(path): torch.randn(p.shape) for path, p in ((tuple(n.split(".")), p) for n, p in module.named_parameters(remove_duplicate=False))
    }
    with pytest.raises(BindError, match="(?s)tied.*fix: "):
        bind(module, flat)


# --- R8: strictness ---------------------------------------------------------------------------------------------


class Watched(nn.Module):  # notes down every call
    calls = 0

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.head = nn.ModuleDict({"out": nn.Linear(2, 2, bias=False)})
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x):
        Watched.calls += 1
        return self.head["out"](self.body(x)) * self.scale


WRONG_NAMES = {
    "root": ("sacle", "scale"),
    "leaf": ("body.0.wieght", "weight"),
    "module": ("boby.0.weight", "body"),
    "deep module": ("head.outt.weight", "out"),
    "buffer": ("body.1.running_maen", "running_mean"),
    "absent bias": ("head.out.bias", None),
    "absent module": ("tail.weight", None),
    "below a parameter": ("scale.weight", None),
}


WAYS = {
    "eager": lambda fn, td: fn(td),
    "grad": lambda fn, td: grad(lambda t: fn(t).sum())(td),
    "vmap": lambda fn, td: vmap(fn)(td.map(lambda leaf: torch.stack([leaf, leaf]))),
}
ways = pytest.mark.parametrize("way", WAYS)


@ways
@pytest.mark.parametrize("name", WRONG_NAMES)
@pytest.mark.parametrize("strict", [True, False])
def test_r008_an_unknown_name_is_refused_before_anything_runs(name, strict, way):
    """A misspelled or extra key: an error that names it and the nearest, strict or not, and no call."""
    module = Watched()
    key, meant = WRONG_NAMES[name]
    flat = {path: value for path, value in params_of(module).to_flat().items() if not key.startswith(path + ".")}
    state = TensorDict({tuple(path.split(".")): value for path, value in {**flat, key: torch.zeros(2, 2)}.items()})
    Watched.calls = 0
    with pytest.raises(KeyPathError) as caught:
        WAYS[way](lambda td: bind(module, td, strict=strict)(torch.ones(3, 2)), state)
    assert Watched.calls == 0
    assert any(repr(part) in str(caught.value) for part in key.split("."))
    assert meant is None or f"did you mean {meant!r}" in str(caught.value)


SHAPES = {(2, 2): [(5, 2), (1, 2), (2, 1), (2,), (), (4,), (2, 2, 1), (0, 2)], (2,): [(), (1,), (3,), (1, 2), (0,)]}


@ways
@pytest.mark.parametrize(
    ("path", "shape"),
    [(path, shape) for path, right in {"head.out.weight": (2, 2), "scale": (2,), "body.1.running_mean": (2,)}.items() for shape in SHAPES[right]],
)
def test_r008_a_wrong_shape_is_refused_before_anything_runs(path, shape, way):
    """A weight of another shape, also one that would broadcast: refused by path, with both shapes, and no call."""
    module = Watched()
    state = state_of(module).set(tuple(path.split(".")), torch.zeros(shape))
    Watched.calls = 0
    with pytest.raises(BindError) as caught:
        WAYS[way](lambda td: bind(module, td)(torch.ones(3, 2)), state)
    assert Watched.calls == 0
    assert f"got: {shape}" in str(caught.value).replace("a tensor of shape ", "")
    assert path.rsplit(".", 1)[-1] in str(caught.value)


@ways
@pytest.mark.parametrize("path", ["scale", "body.0.weight", "body.0.bias", "head.out.weight"])
def test_r008_a_missing_name_is_refused_unless_that_is_asked_for(path, way):
    """A missing key: an error by default; with strict=False the module's own value."""
    module = Watched().eval()
    state, x = params_of(module).map(torch.randn_like).exclude(tuple(path.split("."))), torch.randn(3, 2)
    with pytest.raises(KeyPathError, match="(?s)missing parameter.*strict=False"):
        WAYS[way](lambda td: bind(module, td)(x), state)
    torch.testing.assert_close(bind(module, state, strict=False)(x), twin_with(module, state.to_flat())(x))


def test_r008_compiled_code_refuses_the_same_with_the_same_words():
    """A misspelled key or a wrong shape under torch.compile: the error of the eager call."""
    module = nn.Linear(2, 2)

    def run(params, x):
        try:
            return bind(module, params)(x)
        except TdfuncError:
            return x * 0 - 1

    good = params_of(module)
    for state in (good.rename_key("weight", "wieght"), good.set("weight", torch.zeros(5, 2)), good.exclude("bias")):
        compiled = torch.compile(run, fullgraph=True, backend="eager")
        assert (compiled(state, torch.ones(3, 2)) == -1).all()
    torch.testing.assert_close(torch.compile(run, fullgraph=True, backend="eager")(good, torch.ones(3, 2)), module(torch.ones(3, 2)))


def test_r008_all_that_is_wrong_is_told_at_once():
    """Several mistakes in one state: one error with all of them."""
    state = {"wieght": torch.zeros(2, 2), "bias": torch.zeros(3)}
    for call in (bind, load_into):
        with pytest.raises(TdfuncError) as caught:
            call(nn.Linear(2, 2), state)
        text = str(caught.value)
        assert "'wieght'" in text and "missing parameter" in text and "(3,)" in text


# --- R9: signatures ---------------------------------------------------------------------------------------------


class Signature(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)


class OnlyKeyword(Signature):
    def forward(self, *, input, scale=1.0):
        return self.lin(input) * scale


class Batch(Signature):
    def forward(self, ids, mask, labels=None):
        return self.lin(ids) * mask


class AnyArguments(Signature):
    def forward(self, *args, **kwargs):
        return self.lin(sum(args) + sum(kwargs.values()))


class NoArguments(Signature):
    def forward(self):
        return self.lin.weight.sum(0)


class Mixed(Signature):
    def forward(self, x, /, y=None, *rest, mode="plus", **more):
        out = self.lin(x) if y is None else self.lin(x) + y if mode == "plus" else self.lin(x) * y
        return {"out": out + sum(rest), "more": [more[key] for key in sorted(more)]}


class Trees(Signature):
    def forward(self, pair, batch):
        return tuple(self.lin(part) for part in (*pair, batch["x"]))


X, Y = torch.linspace(-1, 1, 12).reshape(4, 3), torch.linspace(0, 1, 3)
SIGNATURES = {
    "keyword": (OnlyKeyword, (), {"input": X}),
    "keywords": (OnlyKeyword, (), {"scale": 2.0, "input": X}),
    "a batch": (Batch, (), {"ids": X, "mask": X > 0}),
    "any positional": (AnyArguments, (X, X), {}),
    "any keyword": (AnyArguments, (), {"a": X, "b": X}),
    "any": (AnyArguments, (X,), {"b": X}),
    "none": (NoArguments, (), {}),
    "defaults": (Mixed, (X,), {}),
    "positional default": (Mixed, (X, Y), {}),
    "all kinds": (Mixed, (X, Y, X), {"mode": "times", "z": X, "a": 3}),
    "a default by name": (Mixed, (X,), {"y": Y, "mode": "times"}),
    "trees": (Trees, ((X, X + 1), {"x": X}), {}),
    "trees by name": (Trees, (), {"batch": {"x": X}, "pair": [X]}),
}


@pytest.mark.parametrize("name", SIGNATURES)
@pytest.mark.parametrize("way", ["eager", "grad", "vmap", "ensemble", "compile"])
def test_r009_a_bound_module_is_called_as_the_module(name, way, counted):
    """A call by keywords only, or of any other form: it needs no empty tuple, in no transform."""
    cls, args, kwargs = SIGNATURES[name]
    module, other = cls(), params_of(cls())
    expected = twin_with(module, other.to_flat())(*args, **kwargs)
    run = lambda params: bind(module, params)(*args, **kwargs)
    if way == "eager":
        got = run(other)
    elif way == "compile":
        compiled, graphs = counted(lambda params, args, kwargs: bind(module, params)(*args, **kwargs))
        compiled(params_of(module), args, kwargs)
        got = compiled(other, args, kwargs)
        assert len(graphs) == 1
    elif way == "grad":
        leaves = torch.utils._pytree.tree_leaves
        total = lambda out: sum(leaf.sin().sum() for leaf in leaves(out) if isinstance(leaf, torch.Tensor))
        twin = twin_with(module, other.to_flat())
        total(twin(*args, **kwargs)).backward()
        got = grad(lambda p: total(run(p)))(other).to_flat()
        expected = {key: torch.zeros_like(p) if p.grad is None else p.grad for key, p in twin.named_parameters()}
    else:
        both = stack([params_of(module), other])
        wrapped = ensemble(module) if way == "ensemble" else lambda state, *args, **kwargs: vmap(lambda s: bind(module, s)(*args, **kwargs))(state)
        if name == "all kinds":  # a number among the results is none that vmap can stack
            kwargs = {key: value for key, value in kwargs.items() if key != "a"}
            expected = twin_with(module, other.to_flat())(*args, **kwargs)
        got = torch.utils._pytree.tree_map(lambda leaf: leaf[1], wrapped(both, *args, **kwargs))
    torch.testing.assert_close(got, expected)


class Methods(Signature):
    def encode(self, x, *, times=1):
        return self.lin(x) * times

    def decode(self, *, code):
        return code @ self.lin.weight

    def forward(self):
        raise AssertionError("not asked for")


def test_r009_so_are_its_methods_and_sub_modules(counted):
    """A call of another method or of a sub-module: with its own arguments, and the bound values."""
    module, other = Methods(), params_of(Methods())
    run = lambda p, x: (bind(module, p).encode(x, times=2), bind(module, p).decode(code=x), bind(module, p).lin(input=x))
    twin = twin_with(module, other.to_flat())
    expected = twin.encode(X, times=2), twin.decode(code=X), twin.lin(X)
    torch.testing.assert_close(run(other, X), expected)
    compiled, graphs = counted(run)
    torch.testing.assert_close(compiled(other, X), expected)
    assert len(graphs) == 1


# --- R10: what a call changes -----------------------------------------------------------------------------------


class Writes(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.iter, self.log, self.seen = nn.Linear(3, 3), 0, [], {}
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("cache", torch.zeros(2, 3), persistent=False)
        self.plain = torch.zeros(3)


class IntAndBuffer(Writes):
    def forward(self, x):
        self.iter += 1
        self.count += 1
        return self.lin(x) * self.iter + self.count


class Assigned(Writes):
    def forward(self, x):
        self.iter = self.iter + 1
        self.total = self.total + x.sum(0)
        self.count = self.count + 2
        return self.lin(x) + self.total * self.iter


class Views(Writes):
    def forward(self, x):
        self.cache[self.iter % 2] = x[0]
        self.total.view(3, 1).add_(x.mean())
        self.iter += 1
        return self.lin(x) + self.cache.sum(0) + self.total


class Data(Writes):
    def forward(self, x):
        self.total.data.add_(1).mul_(2)
        return self.lin(x) + self.total


class PlainTensor(Writes):
    def forward(self, x):
        self.plain += x.sum(0)
        return self.lin(x) + self.plain


class Notes(Writes):
    def forward(self, x):
        self.log.append(len(self.log))
        self.seen["n"] = self.seen.get("n", 0) + 1
        return self.lin(x) * len(self.log) + self.seen["n"]


class Below(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([IntAndBuffer(), Assigned(), nn.BatchNorm1d(3, momentum=0.5)])

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


WRITERS = [IntAndBuffer, Assigned, Views, Data, PlainTensor, Notes, Below]
writers = pytest.mark.parametrize("make", WRITERS)


@writers
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_r010_what_a_forward_writes_stays_with_the_bound_module(make, dtype, everything):
    """A forward that counts calls and updates buffers, called twice: on the clone as on a copy, on the original nothing."""
    module = make().to(dtype)
    module.plain = torch.zeros(3, dtype=dtype)
    x, before = torch.randn(4, 3, dtype=dtype), everything(module)
    alone = copy.deepcopy(module)
    bound = bind(module, state_of(module))
    for _ in range(2):
        torch.testing.assert_close(bound(x), alone(x))
    assert buffers_of(bound).allclose(buffers_of(alone))
    if make is not Below:
        assert (bound.iter, bound.log, bound.seen) == (alone.iter, alone.log, alone.seen)
    assert everything(module) == before


@writers
def test_r010_each_bind_starts_where_the_module_stands(make, everything):
    """Two functional calls with the same state: the same result, whatever the first one wrote."""
    module, x = make(), torch.randn(4, 3)
    state, before = state_of(module), everything(module)
    kept = state.clone()
    first, second = (bind(module, state)(x) for _ in range(2))
    assert torch.equal(first, second)
    assert state.equal(kept)
    assert everything(module) == before


@writers
def test_r010_an_exception_in_the_middle_leaves_nothing_behind(make, everything):
    """A forward that fails after it wrote: the original and the state are as before."""
    module, x = make(), torch.randn(4, 3)
    module.register_forward_hook(lambda *_: 1 / 0)
    state, before = state_of(module), everything(module)
    kept = state.clone()
    with pytest.raises(ZeroDivisionError):
        bind(module, state)(x)
    assert state.equal(kept)
    assert everything(module) == before


CARRIED = [IntAndBuffer, Assigned, Views, Below]  # those with buffers, whose new values a step hands on


def carry(module, state, x):
    bound = bind(module, state)
    return bound(x), state | buffers_of(bound)


@pytest.mark.parametrize("make", CARRIED)
def test_r010_buffers_are_handed_on_in_compiled_code(make, counted, everything):
    """A compiled step with state in and state out: as in eager, one trace, and the module never changes."""
    module = make()
    mine = theirs = state_of(module)
    compiled, graphs = counted(lambda state, x: carry(module, state, x))
    before = everything(module)
    for _ in range(4):
        x = torch.randn(4, 3)
        got, mine = compiled(mine, x)
        expected, theirs = carry(module, theirs, x)
        torch.testing.assert_close(got, expected)
        assert mine.allclose(theirs)
    assert not mine.equal(state_of(module))
    assert len(graphs) == 1
    assert everything(module) == before


@pytest.mark.parametrize("make", CARRIED)
def test_r010_buffers_are_handed_on_in_vmap(make, everything):
    """A mapped step with state in and state out: each lane as if alone, and the module never changes."""
    module = make()
    states, x = stack([state_of(make()) for _ in range(3)]), torch.randn(3, 4, 3)
    kept, before = states.clone(), everything(module)
    mine, alone = states, list(states.unbind())
    for _ in range(2):
        got, mine = vmap(lambda s, x: carry(module, s, x))(mine, x)
        pairs = [carry(module, s, row) for s, row in zip(alone, x)]
        alone = [state for _, state in pairs]
        torch.testing.assert_close(got, torch.stack([out for out, _ in pairs]))
        assert mine.allclose(stack(alone))
    assert states.equal(kept)
    assert everything(module) == before


# --- R17: RNNs --------------------------------------------------------------------------------------------------


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.ModuleDict({"rnn": nn.LSTM(2, 3, batch_first=True)}), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.inner["rnn"](x)[0]), None


RNNS = {
    "lstm": lambda: nn.LSTM(2, 3),
    "two layers": lambda: nn.LSTM(2, 3, num_layers=2, batch_first=True),
    "both ways": lambda: nn.LSTM(2, 3, bidirectional=True),
    "no bias": lambda: nn.LSTM(2, 3, bias=False),
    "projection": lambda: nn.LSTM(2, 3, proj_size=1),
    "gru": lambda: nn.GRU(2, 3, num_layers=2),
    "rnn": lambda: nn.RNN(2, 3, nonlinearity="relu", bidirectional=True),
    "inside": Wrapped,
}


def rnns(test):
    return pytest.mark.filterwarnings("ignore:LSTM with projections is not supported")(pytest.mark.parametrize("name", RNNS)(test))


@rnns
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_r017_every_weight_of_an_rnn_has_its_gradient(name, dtype):
    """An LSTM with other weights, and the gradient of its output: that of a module which has these weights."""
    module, x = RNNS[name]().to(dtype), torch.randn(3, 4, 2, dtype=dtype)
    other = params_of(RNNS[name]().to(dtype))
    twin = twin_with(module, other.to_flat())
    twin(x)[0].sin().sum().backward()
    live = other.requires_grad()
    out = bind(module, live)(x)[0]
    torch.testing.assert_close(out, twin(x)[0])
    out.sin().sum().backward()
    found = grad(lambda p: bind(module, p)(x)[0].sin().sum())(other)
    for key, param in twin.named_parameters():
        path = tuple(key.split("."))
        torch.testing.assert_close(live[path].grad, param.grad)
        torch.testing.assert_close(found[path], param.grad)
        assert param.grad.abs().sum() > 0
    assert all(param.grad is None for param in module.parameters())


@rnns
def test_r017_afterwards_an_rnn_uses_its_own_weights(name, everything):
    """A plain call after a functional one: its own weights, its own gradients, nothing of it changed."""
    module, x = RNNS[name](), torch.randn(3, 4, 2)
    expected, before = module(x)[0], everything(module)
    zeros = params_of(module).zeros_like()
    bound = bind(module, zeros)
    assert not torch.equal(bound(x)[0], expected)
    assert everything(module) == before
    torch.testing.assert_close(module(x)[0], expected, rtol=0, atol=0)
    module(x)[0].sum().backward()
    assert all(param.grad is not None for param in module.parameters())
    for part in module.modules():
        if isinstance(part, nn.RNNBase):
            assert {id(weight) for weight in part._flat_weights} <= {id(param) for param in module.parameters()}


@rnns
@pytest.mark.parametrize("way", ["call", "grad"])
def test_r017_bound_tensors_of_an_rnn_are_not_kept_alive(name, way):
    """The tensors that an LSTM was bound to: gone with the bound module, without a plain call in between."""
    module, x = RNNS[name](), torch.randn(3, 4, 2)
    params = params_of(module).clone()
    refs = [weakref.ref(leaf) for leaf in params._leaves]
    if way == "call":
        bind(module, params)(x)
    else:
        grad(lambda p: bind(module, p)(x)[0].sum())(params)
    del params
    gc.collect()
    assert [ref() for ref in refs] == [None] * len(refs)


@rnns
def test_r017_a_jacobian_of_an_rnn_is_autograds(name):
    """The Jacobian of an LSTM with respect to its parameters: row by row that of autograd."""
    module, x = RNNS[name]().double(), torch.randn(1, 2, 2).double()
    params = params_of(module)
    found = torch.func.jacrev(lambda p: bind(module, p)(x)[0].flatten())(params)
    outs = module(x)[0].flatten()
    for key, param in module.named_parameters():
        rows = torch.stack([torch.autograd.grad(out, param, retain_graph=True)[0] for out in outs])
        torch.testing.assert_close(found[tuple(key.split("."))], rows)


# --- R30: hooks -------------------------------------------------------------------------------------------------


def note(module, *given):
    """Keep the last thing that a hook was given."""
    module.seen = given[-1][0] if isinstance(given[-1], tuple) else given[-1]


HOOKS = {
    "pre": lambda part: part.register_forward_pre_hook(note),
    "pre, with keywords": lambda part: part.register_forward_pre_hook(lambda m, args, kwargs: note(m, args), with_kwargs=True),
    "after": lambda part: part.register_forward_hook(note),
    "after, at any rate": lambda part: part.register_forward_hook(note, always_call=True),
}


def hooked(kind, at):
    module = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 4)), nn.Linear(4, 2))
    HOOKS[kind](module.get_submodule(at))
    return module


hooks = pytest.mark.parametrize(("kind", "at"), [(kind, at) for kind in HOOKS for at in ("0", "1", "1.1")])


def rows_of(module, at, x):
    """Return what the hook sees of each row, by plain calls of a copy."""
    alone, seen = copy.deepcopy(module), []
    for row in x:
        alone(row)
        seen.append(alone.get_submodule(at).seen)
    return torch.stack(seen)


@hooks
@pytest.mark.parametrize("way", ["tdfunc.vmap", "torch.vmap", "chunks", "compile"])
def test_r030_what_a_hook_keeps_is_read_from_the_bound_module(kind, at, way, counted, everything):
    """A hook that stores an intermediate under vmap: on the clone, to be returned batched; on the module nothing."""
    module, x = hooked(kind, at), torch.randn(6, 3)
    params, before = params_of(module), everything(module)

    def both(params, row):
        bound = bind(module, params)
        return bound(row), bound.get_submodule(at).seen

    mapped = {
        "tdfunc.vmap": lambda: vmap(both, (None, 0)),
        "torch.vmap": lambda: torch.vmap(both, (None, 0)),
        "chunks": lambda: vmap(both, (None, 0), chunk_size=4),
        "compile": lambda: counted(lambda params, x: vmap(both, (None, 0))(params, x))[0],
    }[way]()
    out, seen = mapped(params, x)
    assert everything(module) == before
    assert not hasattr(module.get_submodule(at), "seen")
    torch.testing.assert_close(seen, rows_of(module, at, x).detach())
    torch.testing.assert_close(out, module(x).detach())


@hooks
def test_r030_so_it_is_under_grad_and_the_gradient_goes_through_it(kind, at):
    """A hook that stores an intermediate under grad: a loss of it has the gradient of the plain module."""
    module, x = hooked(kind, at).double(), torch.randn(6, 3).double()

    def loss(params):
        bound = bind(module, params)
        out = bound(x)
        return out.sum() + bound.get_submodule(at).seen.sin().sum()

    found = grad(loss)(params_of(module))
    assert not hasattr(module.get_submodule(at), "seen")
    out = module(x)
    (out.sum() + module.get_submodule(at).seen.sin().sum()).backward()
    for key, param in module.named_parameters():
        torch.testing.assert_close(found[tuple(key.split("."))], param.grad)


def test_r030_a_hook_that_changes_the_output_does_so_row_by_row():
    """A hook that returns something else under vmap: as in the plain call of each row."""
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    module[0].register_forward_pre_hook(lambda m, args: (args[0] * m.weight.sum(),))
    module[1].register_forward_hook(lambda m, args, out: out - args[0].mean())
    x, other = torch.randn(5, 3), params_of(module).map(torch.randn_like)
    twin = twin_with(module, other.to_flat())
    torch.testing.assert_close(vmap(lambda row: bind(module, other)(row))(x), torch.stack([twin(row) for row in x]))


# --- R35: compiled modules --------------------------------------------------------------------------------------


def in_place(module):
    module.compile(backend="eager")
    return module


def eager(module):
    return torch.compile(module, backend="eager")


def plain():
    return nn.Sequential(nn.Linear(1, 3), nn.Sequential(nn.Tanh(), nn.BatchNorm1d(3), nn.Linear(3, 3)), nn.Linear(3, 2))


def part_compiled(at, how):
    def wrap(module):
        parent, _, name = at.rpartition(".")
        module.get_submodule(parent)[int(name)] = how(module.get_submodule(at))
        return module

    return wrap


COMPILED = {
    "whole": eager,
    "whole, in place": in_place,
    "both ways": lambda m: eager(in_place(m)),
    "first layer": part_compiled("0", eager),
    "a block": part_compiled("1", eager),
    "a layer of a block, in place": part_compiled("1.2", in_place),
    "whole and a block": lambda m: eager(part_compiled("1", eager)(m)),
}
compiled_modules = pytest.mark.parametrize("name", COMPILED)


@compiled_modules
def test_r035_a_compiled_module_follows_the_values_that_it_is_bound_to(name):
    """A compiled module with all parameters zero gives zero, and any other values give theirs."""
    module, x = COMPILED[name](plain()), torch.randn(5, 1)
    zeros = bind(module, params_of(module).zeros_like())(x)
    assert zeros.shape == (5, 2)
    assert not zeros.any()
    for _ in range(3):
        other = plain()
        got = bind(module, state_of(other))(x)
        torch.testing.assert_close(got, other(x))
    with torch.no_grad():
        assert module(x).abs().sum() > 0  # before as after, by its own values


@compiled_modules
def test_r035_its_names_are_those_of_the_plain_module(name):
    """The parameters of a compiled module: the structure of the plain one, so each takes the other's."""
    module = COMPILED[name](plain())
    assert params_of(module).structure is params_of(plain()).structure
    assert buffers_of(module).structure is buffers_of(plain()).structure
    x = torch.randn(5, 1)
    source = plain()
    wrapped = COMPILED[name](copy.deepcopy(source))
    torch.testing.assert_close(bind(plain(), state_of(wrapped))(x), source(x))


@compiled_modules
def test_r035_a_step_over_it_is_one_graph(name, counted):
    """A compiled module bound in compiled code and in vmap: one graph, and the values that were given."""
    module, x = COMPILED[name](plain()).eval(), torch.randn(5, 1)
    step, graphs = counted(lambda states, x: vmap(lambda s: bind(module, s)(x))(states))
    for _ in range(3):
        others = [plain().eval() for _ in range(2)]
        got = step(stack([state_of(other) for other in others]), x)
        torch.testing.assert_close(got, torch.stack([other(x) for other in others]))
    assert len(graphs) == 1


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Dynamo's own, of a compiled block
@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize("source", ["named_parameters", "state_dict"])
@pytest.mark.parametrize("call", ["bind", "load_into"])
def test_r035_the_names_that_torch_gives_are_taken_too(name, source, call):
    """A dict with the names of the compiled module itself: taken as the plain names are."""
    x, other = torch.randn(5, 1), COMPILED[name](plain()).eval()
    module = COMPILED[name](plain()).eval()
    state = dict(other.named_parameters()) if source == "named_parameters" else other.state_dict()
    if call == "bind":
        got = bind(module, state)(x)
    else:
        load_into(module, {key: value.detach() for key, value in state.items()})
        got = module(x)
    torch.testing.assert_close(got, other(x))


# --- R67: write-back --------------------------------------------------------------------------------------------


def policy():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
    net[0].bias.requires_grad_(False)
    return net


def tied_policy():
    net = policy()
    net.append(nn.Linear(4, 8))
    net[4].weight = net[0].weight
    net[1].register_buffer("again", net[1].running_mean)
    return net


def with_buffers():
    net = policy()
    net.register_buffer("steps", torch.zeros((), dtype=torch.int32))
    net[3].register_buffer("hidden", torch.ones(3), persistent=False)
    net[3].register_buffer("absent", None)
    return net


POLICIES = {
    "policy": policy,
    "tied": tied_policy,
    "buffers": with_buffers,
    "double": lambda: policy().double(),
    "half": lambda: policy().bfloat16(),
    "eval": lambda: policy().eval(),
    "compiled": lambda: eager(policy()),
    "parametrized": lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 8)), nn.Linear(8, 2)),
    "rnn": lambda: nn.GRU(4, 3, num_layers=2),
    "containers": lambda: nn.ModuleDict({"a": nn.ParameterList([torch.ones(2), torch.zeros(3)]), "b": nn.ParameterDict({"w": torch.ones(1)})}),
}
SOURCES = {
    "detached clones": lambda td: td.clone(),
    "with gradients": lambda td: td.map(lambda t: t.clone().requires_grad_(t.is_floating_point())),
    "double": lambda td: td.map(lambda t: t.to(torch.float64) if t.is_floating_point() else t),
    "strided": lambda td: td.map(lambda t: torch.stack([t, t], -1)[..., 0]),
    "flat": lambda td: td.clone().to_flat(),
    "nested": lambda td: td.clone().to_dict(),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", POLICIES)
def test_r067_a_write_twice_leaves_a_module_what_it_is(name, source):
    """A weight sync with detached copies, done twice: the same registrations, objects, types and flags, and the new values."""
    module = POLICIES[name]()

    def registered():
        named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
        return [(key, id(t), type(t), t.requires_grad, t.dtype, t.device, t.is_leaf, t.data_ptr()) for key, t in named], list(module.state_dict())

    before = registered()
    values = state_of(module).map(lambda t: torch.randn_like(t) if t.is_floating_point() else t + 3)
    for _ in range(2):
        load_into(module, SOURCES[source](values))
        assert registered() == before
        assert state_of(module).equal(values)
        assert state_of(module).ties == values.ties
    reloaded = POLICIES[name]()
    reloaded.load_state_dict(module.state_dict())  # by torch's own means: no entry is lost
    kept = [tuple(key.replace("_orig_mod.", "").split(".")) for key in module.state_dict()]
    assert all(torch.equal(state_of(reloaded)[path], values[path]) for path in kept)


@pytest.mark.parametrize("name", ["policy", "tied", "rnn"])
def test_r067_afterwards_it_trains_on(name):
    """Training after a weight sync: the optimizer's Parameters are the module's, as with load_state_dict."""
    mine, theirs = POLICIES[name](), POLICIES[name]()
    new = state_of(mine).map(lambda t: torch.randn_like(t) if t.is_floating_point() else t)
    load_into(mine, new)
    theirs.load_state_dict(new.to_flat())
    for module in (mine, theirs):
        opt = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], 0.1)
        sum(p.sin().sum() for p in module.parameters()).backward()
        opt.step()
    assert state_of(mine).allclose(state_of(theirs))
    assert not state_of(mine).allclose(new)


def test_r067_bind_never_writes_a_plain_tensor_into_the_module(everything):
    """A functional call with plain tensors: Parameters stay Parameters, and state_dict keeps its entries."""
    module = with_buffers().eval()
    before, keys = everything(module), list(module.state_dict())
    for _ in range(2):
        bind(module, state_of(module).clone())(torch.randn(3, 4))
    assert everything(module) == before
    assert list(module.state_dict()) == keys
    assert all(type(p) is nn.Parameter for p in module.parameters())
