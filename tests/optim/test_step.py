"""A step is a pure function: of trees, under vmap, under compile in one graph; its state is a tree like any other."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

from tdfunc import TensorDict, bind, grad, merge, optim, params_of, stack, state_of, vmap
from tdfunc._errors import StructureError

OPTS = {
    "sgd": lambda lr=0.05: optim.sgd(lr),
    "momentum": lambda lr=0.05: optim.sgd(lr, momentum=0.9, dampening=0.2, weight_decay=0.1),
    "nesterov": lambda lr=0.05: optim.sgd(lr, momentum=0.9, nesterov=True),
    "adam": lambda lr=0.05: optim.adam(lr, weight_decay=0.1),
    "amsgrad": lambda lr=0.05: optim.adam(lr, amsgrad=True, maximize=True),
    "adamw": lambda lr=0.05: optim.adamw(lr),
}


@pytest.fixture(params=OPTS)
def make(request):
    return OPTS[request.param]


def tree(shift=0.0):
    torch.manual_seed(0)
    return TensorDict({"w": torch.randn(3, 2) + shift, "deep": {"b": torch.randn(4) - shift}}).to(torch.float64)


def gradients(params):
    return params.map(lambda p: p.sin() + 0.1 if p.is_floating_point() else torch.zeros_like(p))


def steps(opt, params, n, state=None):
    state = opt.init(params) if state is None else state
    for _ in range(n):
        params, state = opt.step(params, gradients(params), state)
    return params, state


def test_the_state_is_a_tree_of_the_parameters_batch_size(make):
    params = stack([tree(i) for i in range(3)])
    state = make().init(params)
    assert type(state) is TensorDict
    assert state.batch_size == (3,)
    assert state["step"].dtype is torch.int64
    assert state["step"].tolist() == [0, 0, 0]
    assert all(state[name].structure is params.structure and not any(leaf.any() for leaf in state[name]._leaves) for name in state if name != "step")
    assert make().init(tree())["step"].shape == ()


def test_the_trees_of_the_state_are_no_one_object(make):
    leaves = make().init(tree())._leaves
    assert len({id(leaf) for leaf in leaves}) == len(leaves)
    assert len({leaf.data_ptr() for leaf in leaves}) == len(leaves)


def test_nothing_that_goes_in_is_changed(make):
    params, opt = tree(), make()
    state = steps(opt, params, 2)[1]
    grads = gradients(params)
    kept = [t.clone() for t in (params, grads, state)]
    versions = [leaf._version for t in (params, grads, state) for leaf in t._leaves]
    first = opt.step(params, grads, state)
    assert all(a.equal(b) for a, b in zip((params, grads, state), kept, strict=True))
    assert [leaf._version for t in (params, grads, state) for leaf in t._leaves] == versions
    again = opt.step(params, grads, state)
    assert first[0].equal(again[0])
    assert first[1].equal(again[1])


def test_stack_step_is_step_stack_and_vmap_of_step(make):
    opt, members = make(), [tree(i) for i in range(3)]
    alone = [steps(opt, member, 4) for member in members]
    params, state = steps(opt, stack(members), 4)
    assert params.allclose(stack([p for p, _ in alone]), rtol=1e-12, atol=1e-12)
    assert state.allclose(stack([s for _, s in alone]), rtol=1e-12, atol=1e-12)
    mapped, mapped_state = stack(members), opt.init(stack(members))
    for _ in range(4):
        mapped, mapped_state = vmap(opt.step)(mapped, gradients(mapped), mapped_state)
    assert mapped.allclose(params, rtol=1e-12, atol=1e-12)
    assert mapped_state.allclose(state, rtol=1e-12, atol=1e-12)
    assert mapped_state.structure is state.structure


def test_members_can_be_taken_out_and_go_on_alone(make):
    opt = make()
    params, state = steps(opt, stack([tree(i) for i in range(3)]), 3)
    whole, _ = steps(opt, params, 3, state)
    chosen, _ = steps(opt, params[[2, 0]], 3, state[[2, 0]])
    single, single_state = steps(opt, params[1], 3, state[1])
    assert chosen.allclose(whole[[2, 0]], rtol=1e-12, atol=1e-12)
    assert single.allclose(whole[1], rtol=1e-12, atol=1e-12)
    assert single_state["step"].item() == 6


@pytest.mark.parametrize("lr", [0.1, torch.tensor([0.1, 0.01, 0.5], dtype=torch.float64)], ids=["float", "mapped"])
def test_init_and_training_run_inside_vmap_over_seeds_and_rates(lr):
    def train(params, lr):
        opt = optim.adam(lr)
        state = opt.init(params)
        for _ in range(5):
            params, state = opt.step(params, gradients(params), state)
        return params

    members = [tree(i) for i in range(3)]
    got = vmap(train, in_dims=(0, None if isinstance(lr, float) else 0))(stack(members), lr)
    rates = [lr] * 3 if isinstance(lr, float) else lr.tolist()
    assert got.allclose(stack([train(m, r) for m, r in zip(members, rates, strict=True)]), rtol=1e-12, atol=1e-12)


RATES = {
    "float": 0.05,
    "tensor": torch.tensor(0.05),
    "function": lambda step: 0.1 * torch.cos(step * 0.1),
    "float function": lambda step: 0.1 / (step + 1),
}


@pytest.mark.parametrize("lr", RATES)
def test_compiled_it_is_one_graph_for_twenty_steps(make, lr):
    opt, traces = make(RATES[lr]), []
    compiled = torch.compile(opt.step, fullgraph=True, backend=lambda graph, inputs: traces.append(1) or graph.forward)
    params = expected = tree()
    state = expected_state = opt.init(params)
    for _ in range(20):
        params, state = compiled(params, gradients(params), state)
        expected, expected_state = opt.step(expected, gradients(expected), expected_state)
    assert len(traces) == 1
    assert params.allclose(expected, rtol=1e-12, atol=1e-12)
    assert state.allclose(expected_state, rtol=1e-12, atol=1e-12)
    assert state.structure is expected_state.structure


def test_generated_code_is_as_exact_as_eager():
    opt = optim.adamw(lambda step: 0.1 * 0.9**step, amsgrad=True)
    compiled = torch.compile(opt.step, fullgraph=True)
    params = expected = stack([tree(i) for i in range(3)])
    state = expected_state = opt.init(params)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(5):
            params, state = compiled(params, gradients(params), state)
            expected, expected_state = opt.step(expected, gradients(expected), expected_state)
    assert params.allclose(expected, rtol=1e-10, atol=1e-10)


def test_the_state_survives_a_file(make):
    opt = make()
    params, state = steps(opt, tree(), 3)
    file = io.BytesIO()
    torch.save({"params": params, "state": state}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert loaded["state"].equal(state)
    assert loaded["state"].structure is state.structure
    assert steps(opt, loaded["params"], 3, loaded["state"])[0].equal(steps(opt, params, 3, state)[0])


def test_integer_and_bool_leaves_pass_through_as_they_are(make):
    params = tree().set("n", torch.tensor([3, 4])).set("flag", torch.tensor(True))
    after, state = steps(make(), params, 3)
    assert after["n"] is params["n"]
    assert after["flag"] is params["flag"]
    assert after.exclude("n", "flag").equal(steps(make(), tree(), 3)[0])
    assert all(not state[name, "n"].any() for name in state if name != "step")


def test_a_tied_leaf_takes_one_step_and_stays_tied(make):
    tied = TensorDict({"a": torch.ones(2), "b": torch.ones(2), "c": torch.ones(1)}).tie("a", "b")
    after, state = steps(make(), tied, 3)
    assert after.ties == tied.ties
    assert torch.equal(after["a"], steps(make(), TensorDict(a=torch.ones(2)), 3)[0]["a"])
    assert len(after._leaves) == 2
    assert all(state[name].ties == tied.ties for name in state if name != "step")


def test_a_frozen_part_is_left_out_by_partition(make):
    net, x = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)).double(), torch.randn(5, 3).double()
    whole, opt = params_of(net), make()
    frozen, trained = whole.partition(lambda path, leaf: path[0] == "0")
    state, before = opt.init(trained), frozen.clone()
    loss = lambda p: bind(net, merge(frozen, p))(x).pow(2).mean()
    after, _ = opt.step(trained, grad(loss)(trained), state)
    assert frozen.equal(before)
    assert not after.equal(trained)
    assert params_of(bind(net, frozen, after)).equal(merge(frozen, after))


def test_gradients_in_another_order_of_keys_are_matched_by_path(make):
    params = tree()
    grads = gradients(params)
    turned = TensorDict({"deep": grads["deep"], "w": grads["w"]})
    state = make().init(params)
    got, expected = make().step(params, turned, state), make().step(params, grads, state)
    assert got[0].equal(expected[0])
    assert got[0].structure is params.structure
    assert got[1].equal(expected[1])


def test_gradients_flow_through_a_step(make):
    lr = torch.tensor(0.05, dtype=torch.float64, requires_grad=True)
    opt, params = make(lr), tree()
    after, _ = opt.step(params, gradients(params), opt.init(params))
    (got,) = torch.autograd.grad(sum([leaf.sum() for leaf in after._leaves]), [lr])
    h = 1e-6
    total = lambda rate: sum([leaf.sum() for leaf in make(rate).step(params, gradients(params), opt.init(params))[0]._leaves])
    assert torch.allclose(got, (total(0.05 + h) - total(0.05 - h)) / (2 * h), atol=1e-6)


NAN = float("nan")
REFUSED = {
    "lr below 0": (lambda: optim.sgd(-1.0), r"lr is out of range\n  expected: 0.0 <= lr\n  got: -1.0"),
    "lr nan": (lambda: optim.adam(NAN), r"lr is out of range.*got: nan"),
    "lr infinite": (lambda: optim.adamw(float("inf")), r"lr is out of range"),
    "momentum": (lambda: optim.sgd(0.1, momentum=-0.1), r"momentum is out of range"),
    "momentum nan": (lambda: optim.sgd(0.1, momentum=NAN), r"momentum is out of range"),
    "dampening nan": (lambda: optim.sgd(0.1, momentum=0.9, dampening=NAN), r"dampening is out of range"),
    "weight_decay": (lambda: optim.sgd(0.1, weight_decay=-1), r"weight_decay is out of range.*got: -1"),
    "beta1": (lambda: optim.adam(0.1, betas=(1.0, 0.9)), r"betas\[0\] is out of range\n  expected: 0.0 <= betas\[0\] < 1.0"),
    "beta2": (lambda: optim.adam(0.1, betas=(0.9, 1.5)), r"betas\[1\] is out of range"),
    "beta nan": (lambda: optim.adamw(0.1, betas=(NAN, 0.9)), r"betas\[0\] is out of range"),
    "eps": (lambda: optim.adam(0.1, eps=-1e-8), r"eps is out of range"),
    "adamw decay": (lambda: optim.adamw(0.1, weight_decay=NAN), r"weight_decay is out of range"),
    "nesterov": (lambda: optim.sgd(0.1, nesterov=True), r"nesterov needs momentum and no dampening"),
    "nesterov dampened": (lambda: optim.sgd(0.1, momentum=0.9, dampening=0.1, nesterov=True), r"nesterov needs momentum"),
    "init of a module": (
        lambda: optim.adam().init(nn.Linear(1, 1)),
        r"init takes a TensorDict of parameters\n  got: Linear\n  fix: opt.init\(params_of\(model\)\)",
    ),
    "init of a dict": (lambda: optim.sgd(0.1).init({"w": torch.ones(1)}), r"init takes a TensorDict"),
    "missing gradient": (lambda: step_with(grads=lambda g: g.exclude("w")), r"optim: the gradients: the trees have different leaves.*'w'"),
    "more gradients": (lambda: step_with(grads=lambda g: g.set(("deep", "x"), 1.0)), r"the gradients.*'deep', 'x'"),
    "gradients of no tree": (lambda: step_with(grads=lambda g: [1]), r"step takes three TensorDicts.*got: TensorDict, list, TensorDict"),
    "step of a module": (lambda: optim.sgd(0.1).step(nn.Linear(1, 1), tree(), optim.sgd(0.1).init(tree())), r"got: Linear, TensorDict, TensorDict"),
    "no state": (lambda: step_with(state=lambda s: None), r"got: TensorDict, TensorDict, NoneType"),
    "swapped": (lambda: step_with(lambda g: optim.adam().init(tree()), lambda s: tree()), r"no step count.*keys \['w', 'deep'\].*in this order"),
    "lr of text": (lambda: optim.adam("1e-3"), r"lr is no number.*got: '1e-3' of type str"),
    "lr None": (lambda: optim.sgd(None), r"lr is no number.*NoneType"),
    "another state": (lambda: step_with(state=lambda s: s.exclude(("exp_avg", "w"))), r"optim: the state.*'w'"),
    "gradients untied": (
        lambda: optim.sgd(0.1).step(*[t := TensorDict(a=1.0, b=1.0).tie("a", "b"), t.untie("a", "b")], optim.sgd(0.1).init(t)),
        r"the gradients.*tied alike",
    ),
}


def step_with(grads=lambda g: g, state=lambda s: s):
    params, opt = tree(), optim.adam()
    return opt.step(params, grads(gradients(params)), state(opt.init(params)))


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_a_fix(name):
    call, words = REFUSED[name]
    with pytest.raises(StructureError, match="(?s)" + words) as caught:
        call()
    assert "fix: " in str(caught.value)


WRONG_STATES = {"of another optimizer": optim.adam, "of one without momentum": optim.sgd}


@pytest.mark.parametrize("name", WRONG_STATES)
def test_the_state_of_another_optimizer_is_refused_by_the_missing_name(name):
    params = tree()
    with pytest.raises(KeyError, match="momentum_buffer"):
        optim.sgd(0.1, momentum=0.9).step(params, gradients(params), WRONG_STATES[name]().init(params))


@pytest.mark.parametrize("shape", [(2, 3), (1,), ()], ids=str)
def test_gradients_of_another_shape_do_not_broadcast_into_the_parameters(make, shape):
    params = TensorDict(w=torch.ones(3))
    with pytest.raises(ValueError, match="'w'"):
        make().step(params, TensorDict(w=torch.ones(shape)), make().init(params))


def test_a_state_of_a_whole_module_trains_only_what_floats(make):
    state = state_of(nn.BatchNorm1d(2))
    after, _ = steps(make(), state, 2)
    assert after["num_batches_tracked"] is state["num_batches_tracked"]
