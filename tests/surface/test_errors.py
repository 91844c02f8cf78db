"""What a person gets wrong: every operation names itself, where, what was expected and got, and a mend, before any tensor work."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tdfunc
from tdfunc import BatchSizeError, KeyPathError, StructureError, TensorDict


def tree():
    return TensorDict({"x": torch.rand(3, 2, 4), "y": {"z": torch.rand(3, 2)}}, (3, 2))


OTHER = TensorDict({"x": torch.rand(3, 2, 4), "k": torch.rand(3, 2)}, (3, 2))
SHORT = tree()[:2]
CASES = {
    "reshape to another number of rows": (
        lambda td: td.reshape(4),
        BatchSizeError,
        r"reshape: .*\n  expected: sizes whose product is 6.*\n  got: \(4,\)",
    ),
    "reshape with two -1": (lambda td: td.reshape(-1, -1), BatchSizeError, "reshape: "),
    "view to another number of rows": (lambda td: td.view(5, -1), BatchSizeError, "view: "),
    "flatten over a dim that is none": (
        lambda td: td.flatten(0, 2),
        BatchSizeError,
        r"flatten: dim 2 is no batch dim\n  expected: a dim in \[-2, 1\]",
    ),
    "flatten backwards": (lambda td: td.flatten(1, 0), BatchSizeError, "flatten: the range of dims is empty"),
    "unflatten to other sizes": (lambda td: td.unflatten(0, (2, 2)), BatchSizeError, "unflatten: .*\n  expected: sizes whose product is 3"),
    "permute without all dims": (lambda td: td.permute(0), BatchSizeError, "permute: not every batch dim is given"),
    "permute with a dim twice": (lambda td: td.permute(0, 0), BatchSizeError, "permute: a dim is given twice"),
    "transpose of an event dim": (lambda td: td.transpose(0, 2), BatchSizeError, "transpose: dim 2 is no batch dim"),
    "movedim to fewer places": (lambda td: td.movedim((0, 1), 0), BatchSizeError, "movedim: as many places as dims"),
    "squeeze of an event dim": (lambda td: td.squeeze(2), BatchSizeError, "squeeze: dim 2"),
    "unsqueeze too far": (lambda td: td.unsqueeze(3), BatchSizeError, "unsqueeze: dim 3"),
    "a dim that is no int": (lambda td: td.sum("x"), BatchSizeError, "sum: not a dim"),
    "a dim that is a float": (lambda td: td.unsqueeze(0.5), BatchSizeError, "unsqueeze: a dim is an int"),
    "expand of a size that is not 1": (lambda td: td.expand(4, 2), BatchSizeError, r"expand: .*\n.*\(3, 2\).*\n  got: \(4, 2\)"),
    "expand to fewer dims": (lambda td: td.expand(2), BatchSizeError, "expand: "),
    "repeat with too few numbers": (lambda td: td.repeat(2), BatchSizeError, "repeat: fewer repeats than batch dims"),
    "repeat_interleave with the wrong number": (
        lambda td: td.repeat_interleave(torch.tensor([1, 2]), 0),
        BatchSizeError,
        "repeat_interleave: one number",
    ),
    "flip of an event dim": (lambda td: td.flip(2), BatchSizeError, "flip: dim 2"),
    "fliplr of one batch dim": (lambda td: td[0].fliplr(), BatchSizeError, "fliplr: dim 1"),
    "roll with too many shifts": (lambda td: td.roll((1, 1), 0), BatchSizeError, "roll: one shift for each dim"),
    "rot90 in one dim": (lambda td: td.rot90(1, (0,)), BatchSizeError, "rot90: a plane has two dims"),
    "narrow past the end": (lambda td: td.narrow(0, 2, 2), BatchSizeError, r"narrow: .*\n  expected: .*start \+ length <= 3"),
    "pad of an odd number": (lambda td: td.pad((1,)), BatchSizeError, "pad: pairs"),
    "pad of too many dims": (lambda td: td.pad((1, 1) * 3), BatchSizeError, "pad: pairs"),
    "split into sizes that do not add up": (lambda td: td.split([1, 1]), BatchSizeError, "split: the sizes do not add up.*\n.*sum is 3"),
    "chunk into none": (lambda td: td.chunk(0), BatchSizeError, "chunk: "),
    "tensor_split into none": (lambda td: td.tensor_split(0), BatchSizeError, "tensor_split: "),
    "gather with too few dims": (lambda td: td.gather(0, torch.tensor([0])), BatchSizeError, "gather: the index"),
    "index_select with floats": (lambda td: td.index_select(0, torch.rand(2)), BatchSizeError, "index_select: the index is a vector of integers"),
    "a mask of another shape": (lambda td: td.masked_fill(torch.ones(2, 2, dtype=torch.bool), 0), BatchSizeError, r"masked_fill: .*\n.*\(3, 2\)"),
    "a mask of numbers": (lambda td: td.masked_select(torch.ones(3, 2)), BatchSizeError, "masked_select: .*\n.*\n  got: torch.float32"),
    "a condition of numbers": (lambda td: td.where(torch.ones(3, 2), 0.0), BatchSizeError, "where: the condition is no bool tensor"),
    "where without a tree": (lambda td: tdfunc.where(torch.ones(1, dtype=torch.bool), 1.0, 2.0), StructureError, "where: none of the three"),
    "at with an index too deep": (lambda td: td.at[0, 0, 0].set(1), BatchSizeError, "index: it reaches past the batch dims"),
    "at with a tree of other keys": (lambda td: td.at[0].set(OTHER[0]), StructureError, r"at\[...\].set: the trees have different leaves"),
    "at with a tree of another size": (
        lambda td: td.at[0].set(td),
        BatchSizeError,
        r"at\[...\].set: the value has another shape\n  at: 'x'\n.*\(2, 4\)\n  got: \(3, 2, 4\)",
    ),
    "at with a list": (lambda td: td.at[0].set([1, 2]), BatchSizeError, r"at\[...\].set: not a value"),
    "at with a str": (lambda td: td.at[0].add("x"), BatchSizeError, r"at\[...\].add: not a value"),
    "cat of other sizes": (
        lambda td: tdfunc.cat([td, td[:, :1]]),
        BatchSizeError,
        r"cat: the members have different shapes\n  at: member 1, 'x': \(3, 1, 4\)",
    ),
    "cat of other keys": (lambda td: tdfunc.cat([td, OTHER]), StructureError, r"cat \(member 1\): the trees have different leaves"),
    "cat of nothing": (lambda td: tdfunc.cat([]), StructureError, "cat: no trees given"),
    "cat along an event dim": (lambda td: tdfunc.cat([td, td], 2), BatchSizeError, "cat: dim 2"),
    "add of a tree with other keys": (
        lambda td: td.add(OTHER),
        StructureError,
        r"add: .*\n  at: removed: 'y', 'z'; added: 'k'",
    ),
    "add of a tree of another size": (
        lambda td: td + SHORT,
        BatchSizeError,
        r"\+: shapes that do not go together\n  at: 'x'\n.*\(3, 2, 4\)\n  got: \(2, 2, 4\)",
    ),
    "a default that is none": (lambda td: td.add(OTHER, default="union"), StructureError, "add: not a default"),
    "a default where a leaf meets a subtree": (lambda td: td.add(TensorDict(y=torch.rand(1)), default=0), StructureError, "add: "),
    "clamp without bounds": (lambda td: td.clamp(), StructureError, "clamp: no bound"),
    "a sum over a dim too many": (lambda td: td.sum(2), BatchSizeError, "sum: dim 2"),
    "one max for all of different shapes": (lambda td: td.max(0, reduce=True), BatchSizeError, "max: leaves of different shapes"),
    "one sum of nothing": (lambda td: td.empty().sum(reduce=True), StructureError, "sum: no leaves"),
    "dot of other shapes": (lambda td: td.dot(SHORT), BatchSizeError, "dot: different shapes\n  at: 'x'"),
    "flatten_keys with a key that has the separator": (
        lambda td: td.rename_key("x", "a.b").flatten_keys(),
        KeyPathError,
        r"flatten_keys: .*'\.'.*\n  at: 'a.b'",
    ),
    "flatten_keys with an empty separator": (lambda td: td.flatten_keys(""), KeyPathError, "flatten_keys: the separator is no str, or empty"),
    "unflatten_keys into one place": (lambda td: td.set("x.a", td["x"]).unflatten_keys(), KeyPathError, "unflatten_keys: two entries"),
    "select by a pattern of nothing": (lambda td: td.select("q*"), KeyPathError, r"select: no entry matches the pattern 'q\*'"),
    "filter by a key that is not there": (lambda td: td.filter("xx"), KeyPathError, "filter: no entry 'xx'"),
    "split_keys by a key that is not there": (lambda td: td.split_keys("x", "q"), KeyPathError, "split_keys: no entry 'q'"),
    "rename_keys of what is not there": (lambda td: td.rename_keys({"q": "r"}), KeyPathError, "rename_keys: no entry 'q'"),
    "rename_keys to what is taken": (lambda td: td.rename_keys({"x": ("y", "z")}), KeyPathError, "the new key is taken"),
    "tie of other shapes": (lambda td: td.tie("x", ("y", "z")), StructureError, "tie: leaves of different shapes"),
    "diff with a dict": (lambda td: tdfunc.diff(td, {"x": 1}), StructureError, "diff: expected two TensorDicts"),
    "view of a batch dim as another dtype": (
        lambda td: td.view(torch.bfloat16),
        BatchSizeError,
        r"view: the last event dim cannot hold .*\n  at: 'y', 'z'",
    ),
    "at a static value": (lambda td: td.set("s", "t").at["s", 0].set(1.0), StructureError, r"at\[...\].set: a static value has no rows\n  at: 's'"),
    "floats into integers": (lambda td: td.map(torch.Tensor.long).at[0].mul(1.5), StructureError, r"at\[...\].mul: the leaf cannot hold such values"),
    "floats set into integers": (
        lambda td: td.map(torch.Tensor.long).at[0].set(1.5),
        StructureError,
        r"at\[...\].set: the leaf cannot hold such values",
    ),
    "a list of keys as an index": (lambda td: td[["x", "y"]], BatchSizeError, "index: a list of keys[\\s\\S]*select"),
    "a slice backwards": (lambda td: td[::-1], BatchSizeError, "index: torch has no slices with negative steps[\\s\\S]*flip"),
    "max of two trees": (lambda td: torch.max(td, td), BatchSizeError, "max: [\\s\\S]*td.maximum"),
    "one sum with kept dims": (lambda td: td.sum(keepdim=True, reduce=True), StructureError, "sum: one number"),
    "stack of sizes without leaves": (
        lambda td: tdfunc.stack([td.empty(), td[:2].empty()]),
        BatchSizeError,
        "stack: the members have different batch sizes",
    ),
    "a loss of other keys": (lambda td: torch.nn.functional.mse_loss(td, OTHER), StructureError, "mse_loss: the trees have different leaves"),
    "where with one argument": (lambda td: torch.where(td > 0), StructureError, "where: two choices are needed"),
    "out=": (lambda td: torch.add(td, td, out=td), StructureError, "add: a TensorDict never changes"),
    "a function of torch that has no form for trees": (lambda td: torch.fft.fft(td), StructureError, "does not take a TensorDict"),
}


@pytest.mark.parametrize(("call", "kind", "message"), CASES.values(), ids=CASES)
def test_the_error_names_the_operation_and_the_mend(call, kind, message):
    td = tree()
    with pytest.raises(kind, match=message) as caught:
        call(td)
    assert "fix: " in str(caught.value)


@pytest.mark.parametrize("call", [lambda td: td.log(), lambda td: td.median(), lambda td: td.mean(0)], ids=["log", "median", "mean"])
def test_what_torch_refuses_is_told_by_path(call):
    td = TensorDict(
        {
            "fine": torch.rand(3),
            "n": {"odd": torch.zeros(3, dtype=torch.complex64) if call.__code__.co_names != ("mean",) else torch.ones(3, dtype=torch.long)},
        },
        3,
    )
    if call.__code__.co_names == ("log",):
        td = td.set(("n", "odd"), torch.zeros(3).to_sparse())
    with pytest.raises((RuntimeError, NotImplementedError)) as caught:
        call(td)
    assert any("'n', 'odd'" in note for note in caught.value.__notes__)


def test_what_looked_wrong_and_is_right():
    """Each was a fault once."""
    td = tree()
    assert td.add(td.exclude("x"), default=0.0).structure is td.structure  # the order of the left tree
    assert torch.norm(td).allclose(td.norm())
    assert torch.nn.functional.relu(td - 0.5).equal((td - 0.5).relu())
    assert torch.nn.functional.softmax(td, 0).equal(td.softmax(0))
    assert torch.mean(td, axis=0).equal(td.mean(0))
    assert TensorDict(a=torch.zeros(0), b=torch.ones(2)).global_norm(float("inf")) == 1
    assert TensorDict(a=torch.tensor([True]), b=torch.tensor([False])).maximum(True)["b"].tolist() == [True]
    assert td[np.array([2, 0])[::-1]].equal(td[[0, 2]])
    assert td.index_select(0, [1]).equal(td[[1]])
    assert TensorDict(a=torch.zeros(3, 4)).view(torch.bfloat16)["a"].shape == (3, 8)


def test_a_mask_writes_into_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        td = tree().map(mode.from_tensor)
        assert td.at[torch.ones(3, 2, dtype=torch.bool)].set(1.0)["x"].shape == (3, 2, 4)
