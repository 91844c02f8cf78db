"""What users of tensordict, torch and optree reported of trees of tensors: each situation, and the whole kind of it."""

from __future__ import annotations

import copy
import dataclasses
import enum
import io
import pickle
import pickletools
import subprocess
import sys
import zipfile

import numpy as np
import optree
import pytest
import torch
from torch import nn
from torch.utils import _cxx_pytree, _pytree

import tdfunc
from tdfunc import TensorDict, bind, from_flat, from_tensordict, optim, params_of, register_static, stack, state_of, static, vmap

# --- R70: recompiles --------------------------------------------------------------------------------------------


def growing(n, shape=(2,)):
    return TensorDict({"k": torch.randn(shape), **{f"k{i}": torch.randn(shape) for i in range(n)}}, shape[:1])


CHANGES = {
    "set": lambda td: td.set("new", td["k"] * 2),
    "set what is there": lambda td: td.set("k", td["k"] * 2),
    "set below": lambda td: td.set(("deep", "new"), td["k"] + 1),
    "set many": lambda td: td.set("a", td["k"]).set("b", td["k"] + 1).set("c", td["k"] + 2),
    "update": lambda td: td.update({"new": td["k"] * 2, "deep": {"x": td["k"]}}),
    "or": lambda td: td | {"new": td["k"] * 2},
    "exclude": lambda td: td.exclude("k").set("new", td["k"] * 2),
    "rename": lambda td: (td * 2).rename_key("k", "other"),
    "map": lambda td: td.map(torch.sin),
    "tie": lambda td: td.set("new", td["k"] * 2).tie("k", "new"),
    "mapped": lambda td: vmap(lambda row: row.set("new", row["k"].sum()))(td),
    "merge": lambda td: tdfunc.merge(td, TensorDict({"new": td["k"] * 2}, td.batch_size)),
}
changes = pytest.mark.parametrize("name", CHANGES)


@changes
def test_r070_the_same_tree_again_hits_the_cache(name, counted):
    """A compiled function that sets a key, called twice with the same tree and with fresh ones: one trace, nothing written."""
    fn = CHANGES[name]
    compiled, graphs = counted(fn)
    td = growing(3)
    structure, kept = td.structure, td.clone()
    for given in (td, td, growing(3), td.clone(), td):
        got, expected = compiled(given), fn(given)
        assert got.equal(expected)
        assert got.structure is expected.structure
    assert len(graphs) == 1
    assert td.structure is structure
    assert td.equal(kept)


@changes
def test_r070_each_structure_compiles_once_and_no_more(name, counted):
    """Inputs of a growing number of keys, again and again: as many traces as structures."""
    fn = CHANGES[name]
    compiled, graphs = counted(fn)
    for _ in range(3):
        for n in range(4):
            td = growing(n)
            assert compiled(td).equal(fn(td))
    assert len(graphs) == 4


def test_r070_more_structures_than_the_limit_need_a_higher_limit(counted):
    """Ten trees of 1 to 10 keys: ten traces where the limit allows it, and none in the second round."""
    compiled, graphs = counted(CHANGES["set"])
    with torch._dynamo.config.patch(recompile_limit=16):
        for _ in range(2):
            for n in range(10):
                td = growing(n)
                assert compiled(td).equal(CHANGES["set"](td))
    assert len(graphs) == 10


def test_r070_the_output_of_a_step_is_the_input_of_the_next(counted):
    """A loop that sets the same keys in its own result: one trace for the new structure beside the first."""
    compiled, graphs = counted(lambda td: td.set("new", td["k"] * 2).set(("deep", "n"), td["k"]))
    mine = theirs = growing(2)
    for _ in range(5):
        mine = compiled(mine)
        theirs = theirs.set("new", theirs["k"] * 2).set(("deep", "n"), theirs["k"])
    assert mine.equal(theirs)
    assert len(graphs) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_r070_a_tree_made_inside_does_not_recompile_by_how_the_input_was_made(dtype, counted):
    """Equal structures that came about in different ways: one trace."""
    compiled, graphs = counted(lambda td: td.set("new", td["a"] + td["b", "c"]))
    one = lambda: torch.ones(3, dtype=dtype)
    ways = [
        TensorDict({"a": one(), "b": {"c": one()}}),
        TensorDict({"a": one()}).set(("b", "c"), one()),
        TensorDict({"a": one(), "b": {"c": one(), "d": one()}}).exclude(("b", "d")),
        TensorDict({"x": one(), "b": {"c": one()}}).rename_key("x", "a"),
        from_flat({"a": one(), "b.c": one()}),
        pickle.loads(pickle.dumps(TensorDict({"a": one(), "b": {"c": one()}}))),
        _pytree.tree_map(lambda leaf: leaf + 0, TensorDict({"a": one(), "b": {"c": one()}})),
    ]
    for td in ways:
        assert compiled(td)["new"].tolist() == [2, 2, 2]
    assert len(graphs) == 1


def test_r070_what_ran_before_does_not_show_in_a_structure():
    """A key set inside vmap: the same structure, whether or not a tree with such a key was ever made before."""
    td = TensorDict(k=torch.ones(2))
    fresh, known = (vmap(lambda row, name=name: row.set(name, row["k"].sum())) for name in ("never set before", "set before"))
    kept = td.set("set before", td["k"])
    first, second = fresh(td).select("never set before"), known(td).select("set before")
    assert kept["set before"] is td["k"]
    assert first.batch_size == second.batch_size
    assert first.rename_key("never set before", "set before").structure is second.structure


# --- R81: leaves without elements -------------------------------------------------------------------------------

SHAPES = [(0,), (0, 3), (2, 0), (1, 0, 4), (2, 3, 0)]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]


def hollow(dtype=torch.float32):
    leaves = {f"e{i}": torch.empty(shape, dtype=dtype) for i, shape in enumerate(SHAPES)}
    inner = {"none": torch.empty(0, 2, dtype=dtype), "full": torch.ones(2, dtype=dtype), "deep": leaves}
    return TensorDict({**leaves, "full": torch.ones(3, 2, dtype=dtype), "below": inner, "s": "static"}).tie("e0", ("below", "deep", "e0"))


def saved(thing):
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return buffer


def through_numpy(td):
    buffer = io.BytesIO()
    np.savez(buffer, **td.to_flat("/"))
    buffer.seek(0)
    with np.load(buffer) as file:
        return TensorDict({tuple(key.split("/")): torch.from_numpy(file[key]) for key in file})


ROUND_TRIPS = {
    "torch.save": lambda td: torch.load(saved(td), weights_only=True),
    "torch.save of a dict": lambda td: torch.load(saved({"model": [td]}), weights_only=True)["model"][0],
    "pickle": lambda td: pickle.loads(pickle.dumps(td)),
    "deepcopy": copy.deepcopy,
    "flat": lambda td: from_flat(td.to_flat()),
    "torch.save of a flat dict": lambda td: from_flat(torch.load(saved(td.to_flat()), weights_only=True)),
    "dict": lambda td: TensorDict(td.to_dict()),
    "tensordict": lambda td: from_tensordict(td.exclude("s").to_tensordict()),
    "npz": lambda td: through_numpy(td.exclude("s")),
    "pytree": lambda td: _pytree.tree_unflatten(*_pytree.tree_flatten(td)),
    "optree": lambda td: optree.tree_map(lambda leaf: leaf, td),
    "stack and unbind": lambda td: stack([td, td]).unbind()[1],
    "there and back": lambda td: td.flatten_keys("/").unflatten_keys("/"),
    "partition and merge": lambda td: tdfunc.merge(*td.partition(lambda path, leaf: leaf.numel() > 0)),
    "map": lambda td: td.map(torch.clone),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_r081_leaves_without_elements_come_back(name, dtype):
    """Leaves of shape (0,), (0, 3) and (2, 0), nested too, there and back: none is lost, and none has another shape or dtype."""
    if name == "npz" and dtype is torch.bfloat16:
        dtype = torch.float16  # numpy has no bfloat16
    td = hollow(dtype)
    got = ROUND_TRIPS[name](td)
    expected, found = ({path: leaf for path, leaf in tree.to_flat().items() if isinstance(leaf, torch.Tensor)} for tree in (td, got))
    assert set(found) == set(expected)
    for path, leaf in expected.items():
        assert (found[path].shape, found[path].dtype) == (leaf.shape, leaf.dtype)
        assert torch.equal(found[path], leaf)


@pytest.mark.parametrize("size", [(0,), (0, 2), (2, 0)])
def test_r081_so_does_a_tree_whose_batch_is_empty(size):
    """A tree of no rows: its batch size and all its leaves come back."""
    td = TensorDict({"x": torch.empty(*size, 3), "n": {"y": torch.empty(size, dtype=torch.int64)}, "s": "static"}, size)
    for name in ("torch.save", "pickle", "deepcopy", "pytree", "map"):
        got = ROUND_TRIPS[name](td)
        assert got.structure is td.structure
        assert got.batch_size == size
        assert got.equal(td)


def test_r081_compiled_code_keeps_them(counted):
    """Leaves without elements through compiled code and vmap: shapes and dtypes as in eager."""
    td = hollow()
    fn = lambda td: (td + 1).set("more", td["e1"].sum(0)).update({"below": {"new": td["e2"]}})
    compiled, graphs = counted(fn)
    for _ in range(2):
        got = compiled(td)
        assert got.structure is fn(td).structure
        assert got.equal(fn(td))
    assert len(graphs) == 1
    two = stack([td, td])
    assert vmap(fn)(two).equal(stack([fn(td), fn(td)]))


def test_r081_what_is_gone_is_an_error_with_its_name():
    """A leaf that is missing in what was loaded: an error with the key, where an empty one is just empty."""

    class Hollow(nn.Module):
        def __init__(self):
            super().__init__()
            self.none, self.full = nn.Parameter(torch.empty(0, 3)), nn.Parameter(torch.ones(2))

        def forward(self, x):
            return x[:, None] * self.full + self.none.sum()

    module = Hollow()
    whole = torch.load(saved(params_of(module)), weights_only=True)
    torch.testing.assert_close(bind(module, whole)(torch.ones(3)), module(torch.ones(3)))
    for name in ("none", "full"):
        with pytest.raises(tdfunc.KeyPathError, match=f"(?s)missing parameter.*{name}"):
            bind(module, torch.load(saved(params_of(module).exclude(name)), weights_only=True))
        with pytest.raises(tdfunc.KeyPathError, match=name):
            torch.load(saved(params_of(module).exclude(name)), weights_only=True)[name]


# --- R86: weights_only ------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Options:
    depth: int = 2


class Registered:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return type(other) is Registered and other.value == self.value

    def __hash__(self):
        return hash(self.value)


register_static(Registered, lambda item: item.value, Registered)


def checkpoints():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    params = params_of(net)
    members = stack([params, params])
    return {
        "params": params,
        "state": state_of(net),
        "stacked": members,
        "optimizer": optim.adam().init(members),
        "tied": TensorDict(a=torch.ones(2), b={"c": torch.ones(2)}).tie("a", ("b", "c")),
        "dtypes": TensorDict({str(dtype): torch.ones(2, dtype=dtype) for dtype in DTYPES}),
        "statics": TensorDict(a=torch.ones(1), s="text", d=torch.float16, n=static(5), t=("x", (None, True)), z=torch.Size([2]), b=b"x"),
        "parameters": params_of(net, detach=False),
        "empty": TensorDict(batch_size=(3, 0)),
        "nested batch": TensorDict({"x": torch.ones(2), "more": TensorDict({"y": torch.zeros(2, 3, 4)}, (2, 3))}, 2),
        "strided": TensorDict(a=torch.arange(6.0).reshape(2, 3).t(), b=torch.arange(6.0)[::2]),
    }


SAFE_GLOBALS = {"tdfunc.core._pickle rebuild_tensordict", "collections OrderedDict", "_codecs encode"}  # the last writes bytes


@pytest.mark.parametrize("name", checkpoints())
def test_r086_a_file_is_read_with_weights_only_in_a_fresh_process(name, tmp_path):
    """A saved tree, read by another process that only imported tdfunc, with torch's safe defaults."""
    td = checkpoints()[name]
    torch.save({"td": td, "epoch": 3}, tmp_path / "file.pt")
    code = "import torch, tdfunc\nfound = torch.load('file.pt', weights_only=True)\ntorch.save({'td': found['td'] , 'n': found['epoch']}, 'back.pt')"
    subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, env={**__import__("os").environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
    )
    for mmap in (False, True):
        got = torch.load(tmp_path / "back.pt", weights_only=True, mmap=mmap)["td"]
        assert got.structure is td.structure
        assert got.batch_size == td.batch_size
        assert [(leaf.dtype, leaf.requires_grad) for leaf in got._leaves] == [(leaf.dtype, leaf.requires_grad) for leaf in td._leaves]
        assert got.equal(td)


@pytest.mark.parametrize("name", checkpoints())
def test_r086_a_file_holds_plain_containers_and_tensors(name, tmp_path):
    """The pickle in a saved file: it names one function of tdfunc and nothing else but torch's own tensors and types."""
    torch.save(checkpoints()[name], tmp_path / "file.pt")
    with zipfile.ZipFile(tmp_path / "file.pt") as file:
        stream = file.read(next(entry for entry in file.namelist() if entry.endswith("data.pkl")))
    named = {arg for op, arg, _ in pickletools.genops(stream) if op.name in ("GLOBAL", "STACK_GLOBAL", "INST")}
    assert None not in named  # a name made on the stack would be unseen here
    assert {name for name in named if not name.startswith("torch")} <= SAFE_GLOBALS
    assert "tdfunc.core._pickle rebuild_tensordict" in named


@pytest.mark.parametrize(
    "value",
    [pytest.param(value, id=type(value).__name__) for value in (Colour.RED, Options(3), Registered("x"))],
)
def test_r086_statics_of_the_users_types_need_no_unsafe_load(value):
    """A tree with a static of a type of the user's: it is read with weights_only, as are all trees."""
    td = TensorDict(a=torch.ones(1), s=value)
    assert pickle.loads(pickle.dumps(td)).structure is td.structure
    assert torch.load(saved(td), weights_only=True).structure is td.structure


# --- R109: the four pytree registries ---------------------------------------------------------------------------


def trees():
    one = lambda *shape: torch.randn(2, *shape)
    return {
        "flat": TensorDict({"z": one(), "a": one(3), "m": one()}, 2),
        "nested": TensorDict({"z": {"y": one(), "b": {"q": one(2)}}, "a": one()}, 2),
        "tied": TensorDict({"z": one(), "a": {"k": one()}}, 2).set("t", one()).tie("t", ("a", "k")),
        "statics": TensorDict({"z": one(), "s": "text", "n": None}, 2),
        "empty": TensorDict({"e": {}}, (2, 0)),
    }


class Torch:
    flatten, unflatten, map = _pytree.tree_flatten, staticmethod(lambda spec, leaves: _pytree.tree_unflatten(leaves, spec)), _pytree.tree_map


class Cxx:
    flatten, unflatten, map = (
        _cxx_pytree.tree_flatten,
        staticmethod(lambda spec, leaves: _cxx_pytree.tree_unflatten(leaves, spec)),
        _cxx_pytree.tree_map,
    )


class Optree:
    flatten, unflatten, map = optree.tree_flatten, optree.tree_unflatten, optree.tree_map


class OptreeTorch:
    flatten = staticmethod(lambda tree: optree.tree_flatten(tree, namespace="torch"))
    unflatten = optree.tree_unflatten
    map = staticmethod(lambda fn, *given: optree.tree_map(fn, *given, namespace="torch"))


REGISTRIES = {"torch": Torch, "C++": Cxx, "optree": Optree, "optree, of torch": OptreeTorch}


@pytest.mark.parametrize("name", trees())
@pytest.mark.parametrize("registry", REGISTRIES.values(), ids=REGISTRIES)
def test_r109_a_tree_is_a_node_in_every_registry(registry, name):
    """A tree alone and inside of other containers, in torch's two registries and optree's: the same leaves in the same order."""
    td = trees()[name]
    for whole in (td, [td], {"k": (td, [td])}):
        leaves, spec = registry.flatten(whole)
        expected = list(td._leaves) * (2 if isinstance(whole, dict) else 1)
        assert len(leaves) == len(expected)
        assert all(a is b for a, b in zip(leaves, expected))
        back = registry.unflatten(spec, leaves)
        inner = back if whole is td else back[0] if isinstance(whole, list) else back["k"][1][0]
        assert type(inner) is TensorDict
        assert inner.structure is td.structure
        assert inner.equal(td)
    assert registry.map(lambda a, b: a + b, td, td).equal(td + td)


@pytest.mark.parametrize("registry", REGISTRIES.values(), ids=REGISTRIES)
def test_r109_specs_are_equal_where_structures_are(registry):
    """Specs of trees of one structure: equal; of different structures: not."""
    specs = {name: registry.flatten(td)[1] for name, td in trees().items()}
    for name, td in trees().items():
        for other, spec in specs.items():
            assert (registry.flatten(td)[1] == spec) == (name == other)


LOADED = "td = tdfunc.TensorDict(z=torch.ones(1), a={'b': torch.zeros(1)})\nassert len(optree.tree_leaves(td)) == len(_pytree.tree_leaves(td)) == len(_cxx_pytree.tree_leaves(td)) == 2\n"
TORCH, OPTREE, TDFUNC = "from torch.utils import _pytree, _cxx_pytree\nimport torch\n", "import optree\n", "import tdfunc\n"
AGAIN = "import sys\nfor name in [n for n in sys.modules if n.split('.')[0] == 'tdfunc']: del sys.modules[name]\nimport tdfunc\n"
ORDERS = {
    "torch, optree, tdfunc": TORCH + OPTREE + TDFUNC,
    "optree, torch, tdfunc": OPTREE + TORCH + TDFUNC,
    "tdfunc, torch, optree": TDFUNC + TORCH + OPTREE,
    "tdfunc, optree, torch": TDFUNC + OPTREE + TORCH,
    "twice": TDFUNC + TORCH + OPTREE + TDFUNC,
    "reloaded": TDFUNC + TORCH + OPTREE + "import importlib\nimportlib.reload(tdfunc)\n",
    "reloaded below": TDFUNC
    + TORCH
    + OPTREE
    + "import importlib\nimportlib.reload(sys.modules['tdfunc.core._pytree'])\n".replace("sys.", "__import__('sys')."),
    "forgotten and imported": TDFUNC + TORCH + OPTREE + AGAIN,
}
RAISES = {
    "forgotten and imported": "torch refuses a second opaque type of one name",
}


@pytest.mark.parametrize(
    "order", [pytest.param(name, marks=pytest.mark.xfail(raises=AssertionError, reason=RAISES[name]) if name in RAISES else ()) for name in ORDERS]
)
def test_r109_the_order_of_imports_does_not_matter(order):
    """Imports in any order, a second one, a reload: nothing raises, and the tree is a node everywhere."""
    done = subprocess.run(
        [sys.executable, "-c", ORDERS[order] + LOADED],
        capture_output=True,
        text=True,
        check=False,
        env={**__import__("os").environ, "PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr[-1000:]
    assert done.stdout == ""


# --- R112: key paths --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", trees())
def test_r112_flatten_with_paths_agrees_with_flatten(name):
    """A tree in a dict in a tuple: the same leaves and spec with paths as without, and each path leads to its leaf."""
    td = trees()[name]
    whole = ({"p": td, "q": [td, 1]}, 2)
    plain, spec = _pytree.tree_flatten(whole)
    pairs, with_paths = _pytree.tree_flatten_with_path(whole)
    assert with_paths == spec
    assert all(a is b for a, (_, b) in zip(plain, pairs, strict=True))
    for path, leaf in pairs:
        assert _pytree.key_get(whole, path) is leaf
    accessors, leaves, _ = optree.tree_flatten_with_accessor(whole)
    for accessor, leaf in zip(accessors, leaves, strict=True):
        assert accessor(whole) is leaf


def test_r112_paths_are_written_as_indices():
    """The path of a leaf of a module's parameters in a dict in a tuple, as text: what one would write to reach it."""
    params = params_of(nn.ModuleDict({"layer": nn.Linear(2, 2), "more": nn.Sequential(nn.Linear(2, 1))}))
    whole = ({"p": params},)
    shown = [_pytree.keystr(path) for path, _ in _pytree.tree_flatten_with_path(whole)[0]]
    assert shown == [f"[0]['p']{end}" for end in ("['layer']['weight']", "['layer']['bias']", "['more']['0']['weight']", "['more']['0']['bias']")]
    for text, leaf in zip(shown, params._leaves):
        assert eval("whole" + text) is leaf


def test_r112_paths_serve_as_names():
    """Paths in a map, as a filter and as names of a file: each leaf under its own."""
    td = trees()["nested"]
    named = {_pytree.keystr(path): leaf for path, leaf in _pytree.tree_flatten_with_path(td)[0]}
    assert list(named) == ["".join(f"[{part!r}]" for part in path) for path in td.structure.paths()]
    assert len(named) == len(td._leaves)
    doubled = _pytree.tree_map_with_path(lambda path, leaf: leaf * 2 if "'y'" in _pytree.keystr(path) else leaf, {"k": td})["k"]
    assert doubled.equal(td.map_with_path(lambda path, leaf: leaf * 2 if "y" in path else leaf))


@pytest.mark.parametrize("strict", [False, True])
def test_r112_a_module_of_trees_is_exported(strict):
    """An exported function of a tree in a dict: the keyed flatten that export needs is there, and the values are right."""

    class Fn(nn.Module):
        def forward(self, batch):
            td = batch["td"]
            return td.set("sum", td["z"] + td["m"])

    td = trees()["flat"]
    program = torch.export.export(Fn(), ({"td": td},), strict=strict)
    assert program.module()({"td": td}).equal(td.set("sum", td["z"] + td["m"]))


def test_r112_a_wrong_structure_is_told_by_path():
    """Trees of two structures mapped together: the error names where they differ."""
    td = trees()["nested"]
    with pytest.raises(tdfunc.StructureError, match="(?s)z.*y"):
        td + td.exclude(("z", "y"))
    with pytest.raises(ValueError, match="mismatch"):
        _pytree.tree_map(torch.add, td, td.exclude(("z", "y")))
