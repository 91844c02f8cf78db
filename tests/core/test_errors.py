"""Every mistake a person makes, with the error's type and what its message says."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

import tdfunc
from tdfunc import BatchSizeError, ImmutableError, KeyPathError, StructureError, TdfuncError, TensorDict
from tdfunc.structure import from_spec

ONE = torch.ones(3)


def tree():
    return TensorDict({"weight": ONE, "bias": ONE, "layer": {"weight": torch.ones(3, 2), "scale": ONE}, "mode": "train"}, 3)


MISTAKES = {
    # keys
    "a misspelled key": (
        lambda: tree()["wieght"],
        KeyPathError,
        r"get: no entry 'wieght' \(did you mean 'weight'\?\)[\s\S]*one of 'weight', 'bias', 'layer', 'mode'[\s\S]*td\.get\('wieght'\)",
    ),
    "a misspelled key below": (
        lambda: tree()["layer", "scael"],
        KeyPathError,
        r"no entry 'layer', 'scael' \(did you mean 'scale'\?\)[\s\S]*at: 'layer'[\s\S]*one of 'weight', 'scale'",
    ),
    "a misspelled node": (lambda: tree()["layr", "scale"], KeyPathError, r"\(did you mean 'layer'\?\)[\s\S]*at: the root"),
    "a key below a leaf": (lambda: tree()["weight", "x"], KeyPathError, r"no entry 'weight', 'x'[\s\S]*a subtree there"),
    "a dotted key": (lambda: tree()["layer.scale"], KeyPathError, r"no entry 'layer\.scale'[\s\S]*fix: td\['layer', 'scale'\]"),
    "a dotted key that names nothing": (lambda: tree()["layer.scael"], KeyPathError, r"no entry 'layer\.scael'[\s\S]*td\.get\("),
    "select of a misspelled key": (lambda: tree().select("bais"), KeyPathError, r"select: no entry 'bais' \(did you mean 'bias'\?\)"),
    "select of a list": (lambda: tree().select(["weight", "bias"]), KeyPathError, r"a key must be a str[\s\S]*list"),
    "exclude of a list": (lambda: tree().exclude(["weight"]), KeyPathError, r"a key must be a str[\s\S]*list"),
    "untie of a list": (lambda: tree().untie(["weight"]), KeyPathError, r"a key must be a str[\s\S]*list"),
    "get of a list": (lambda: tree().get(["weight"]), KeyPathError, r"a key must be a str[\s\S]*list"),
    "pop of a misspelled key": (lambda: tree().pop("wait"), KeyPathError, r"pop: no entry 'wait'"),
    "rename of a misspelled key": (lambda: tree().rename_key("modes", "m"), KeyPathError, r"rename_key: no entry 'modes' \(did you mean 'mode'\?\)"),
    "set under an int": (lambda: tree().set(0, ONE), KeyPathError, r"a key must be a str[\s\S]*got: 0 of type int[\s\S]*use '0'"),
    "set under None": (lambda: tree().set(None, ONE), KeyPathError, r"a key must be a str[\s\S]*NoneType"),
    "set under bytes": (lambda: tree().set(b"a", ONE), KeyPathError, r"a key must be a str[\s\S]*bytes"),
    "set under the empty path": (lambda: tree().set((), ONE), KeyPathError, "a key path must not be empty"),
    "set under a path with an int": (lambda: tree().set(("layer", 1), ONE), KeyPathError, r"a key must be a str[\s\S]*got: 1"),
    "get under an int": (lambda: tree().get(1), KeyPathError, "a key must be a str"),
    "build with an int key": (lambda: TensorDict({1: ONE}), KeyPathError, r"TensorDict: a key must be a str[\s\S]*inside: the root"),
    "build with an int key below": (lambda: TensorDict({"n": {"m": {2: ONE}}}), KeyPathError, r"a key must be a str[\s\S]*inside: 'n', 'm'"),
    "build with an unhashable key": (lambda: TensorDict([(["a"], ONE)]), KeyPathError, r"a key must be a str[\s\S]*list"),
    "update with an int key": (lambda: tree().update({1: ONE}), KeyPathError, "a key must be a str"),
    # shapes and batch sizes
    "a leaf that does not fit": (
        lambda: TensorDict({"n": {"a": torch.ones(2, 3)}}, 3),
        BatchSizeError,
        r"at: 'n', 'a'[\s\S]*starts with \(3,\)[\s\S]*got: \(2, 3\)[\s\S]*batch_size=\(\)",
    ),
    "a number in a batch": (lambda: TensorDict({"a": 1.0}, 3), BatchSizeError, r"'a'[\s\S]*got: \(\)"),
    "a set that does not fit": (
        lambda: tree().set("x", torch.ones(4)),
        BatchSizeError,
        r"at: 'x'[\s\S]*starts with \(3,\)[\s\S]*got: \(4,\)[\s\S]*with_batch_size",
    ),
    "a set of a number in a batch": (lambda: tree().set("x", 1.0), BatchSizeError, r"set: [\s\S]*'x'[\s\S]*got: \(\)"),
    "a set of an array that does not fit": (lambda: tree().set("x", np.ones(2)), BatchSizeError, r"'x'[\s\S]*got: \(2,\)"),
    "a set of a mapping that does not fit": (lambda: tree().set("x", {"y": torch.ones(2)}), BatchSizeError, r"'x', 'y'[\s\S]*got: \(2,\)"),
    "a set below that does not fit": (lambda: tree().set(("layer", "x"), torch.ones(2)), BatchSizeError, r"'layer', 'x'[\s\S]*starts with \(3,\)"),
    "a replacement that does not fit": (lambda: tree().set("weight", torch.ones(4)), BatchSizeError, r"'weight'[\s\S]*got: \(4,\)"),
    "an update that does not fit": (lambda: tree().update({"weight": torch.ones(4)}), BatchSizeError, r"'weight'[\s\S]*got: \(4,\)"),
    "too many batch dims": (lambda: tree().with_batch_size((3, 2)), BatchSizeError, r"'weight': shape \(3,\)[\s\S]*start with \(3, 2\)"),
    "a batch size that is a str": (lambda: TensorDict({}, "3"), BatchSizeError, "an int or a sequence of ints"),
    "an index in no batch dims": (lambda: TensorDict(a=ONE)[0], BatchSizeError, r"at most 0 dims[\s\S]*td\['key'\]"),
    # values
    "a list of numbers": (
        lambda: TensorDict({"a": [1, 2]}),
        StructureError,
        r"can be no entry[\s\S]*at: 'a'[\s\S]*got: list[\s\S]*torch\.tensor\(value\)",
    ),
    "a list of tensors": (lambda: TensorDict({"a": [ONE, ONE]}), StructureError, r"torch\.stack\(value\)"),
    "a tuple of tensors": (lambda: TensorDict({"a": (ONE, ONE)}), StructureError, r"'a'[\s\S]*got: tuple[\s\S]*torch\.stack"),
    "a set of strings": (lambda: TensorDict({"a": {"x"}}), StructureError, r"'a'[\s\S]*tuple\(sorted"),
    "a set of a list": (lambda: tree().set("a", [1.0] * 3), StructureError, r"set: [\s\S]*'a'[\s\S]*torch\.tensor"),
    "a module as an entry": (lambda: TensorDict({"a": torch.nn.ReLU()}), StructureError, r"'a'[\s\S]*ReLU[\s\S]*params_of"),
    "a function as an entry": (lambda: TensorDict({"a": len}), StructureError, r"'a'[\s\S]*register_static\("),
    "an object as an entry": (lambda: TensorDict({"n": {"a": object()}}), StructureError, r"'n', 'a'[\s\S]*register_static\(object"),
    # sources
    "a module": (lambda: TensorDict(torch.nn.Linear(1, 1)), StructureError, r"got a module[\s\S]*params_of\(module\)"),
    "a tensor": (lambda: TensorDict(ONE), StructureError, r"cannot read the source[\s\S]*Tensor[\s\S]*TensorDict\(\{'key': value\}\)"),
    "a str": (lambda: TensorDict("ab"), StructureError, "cannot read the source"),
    "an int": (lambda: TensorDict(5), StructureError, "cannot read the source"),
    "None": (lambda: TensorDict(None), StructureError, "cannot read the source"),
    "a list of tensors as source": (lambda: TensorDict([ONE, ONE]), StructureError, "pairs of a key and a value"),
    "a list of str": (lambda: TensorDict(["ab", "cd"]), StructureError, "pairs of a key and a value"),
    # other trees
    "a dict in a sum": (lambda: tree() + {"a": 1}, StructureError, r"\+: expected another TensorDict[\s\S]*dict"),
    "a map over a dict": (lambda: tree().map(torch.add, {"a": 1}), StructureError, "map: expected another TensorDict"),
    "a map over other paths": (
        lambda: tree().map(torch.add, tree().exclude("bias")),
        StructureError,
        r"map: the trees have different leaves[\s\S]*removed: 'bias'",
    ),
    "a map that gives None": (
        lambda: tree().map(lambda t: None),
        StructureError,
        r"map: the function must return a tensor[\s\S]*'weight'[\s\S]*td\.filter",
    ),
    "a map that gives None below": (
        lambda: tree().map_with_path(lambda p, t: t if len(p) == 1 else None),
        StructureError,
        r"map_with_path: [\s\S]*'layer', 'weight'",
    ),
    "a map that gives a pair": (lambda: tree().map(lambda t: (t, t)), StructureError, "must return a tensor"),
    # changes and truth
    "an assignment": (lambda: tree().__setitem__("a", 1), ImmutableError, r"td = td\.set\('a', value\)"),
    "truth": (lambda: bool(tree()), StructureError, "ambiguous"),
}


@pytest.mark.parametrize(("mistake", "error", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_in_words(mistake, error, message):
    with pytest.raises(error, match=message) as caught:
        mistake()
    assert isinstance(caught.value, TdfuncError)
    assert str(caught.value) == caught.value.args[0]


def test_several_problems_are_told_at_once():
    with pytest.raises(TdfuncError) as caught:
        TensorDict({"a": [1, 2], "b": torch.ones(2), 3: ONE, "n": {"m": torch.nn.ReLU(), "ok": ONE}, "ok": ONE}, 3)
    text = str(caught.value)
    assert text.startswith("TensorDict: 4 problems\n- ")
    for part in ("at: 'a'", "got: list", "at: 'b'", "got: (2,)", "got: 3 of type int", "at: 'n', 'm'", "got: ReLU"):
        assert part in text
    assert "'ok'" not in text


def test_several_problems_of_a_set_or_update_are_told_at_once():
    wrong = {"a": [1, 2], "b": torch.ones(2)}
    for call in (lambda: tree().update(wrong), lambda: tree().update(**wrong), lambda: tree().set("x", wrong)):
        with pytest.raises(TdfuncError, match=r"'a'[\s\S]*'b'"):
            call()


HIERARCHY = [(StructureError, ValueError), (KeyPathError, KeyError), (BatchSizeError, ValueError), (ImmutableError, TypeError)]


@pytest.mark.parametrize(("error", "base"), [*HIERARCHY, (tdfunc.BindError, ValueError), (tdfunc.StorageError, ValueError)])
def test_errors_are_pythons_own_and_tdfuncs(error, base):
    assert issubclass(error, base)
    assert issubclass(error, TdfuncError)
    caught = pickle.loads(pickle.dumps(error("a\nb")))
    assert (type(caught), str(caught)) == (error, "a\nb")


def test_an_error_leaves_the_tree_and_the_next_call_as_they_were():
    td = tree()
    for _ in range(2):
        with pytest.raises(KeyPathError):
            td.select("nope")
        with pytest.raises(BatchSizeError):
            td.set("x", torch.ones(4))
    assert td.equal(tree())
    assert td.set("x", torch.ones(3, 4)).batch_size == (3,)


def test_an_unknown_version_of_a_stored_structure_is_refused():
    with pytest.raises(tdfunc.StorageError, match=r"unknown version[\s\S]*expected: 1[\s\S]*got: 99"):
        from_spec((99, (), ()))
