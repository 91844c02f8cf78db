"""The demo: its metrics against closed forms, its step against torch.optim, its command line from end to end."""

import json
import math
import subprocess
import sys
import zipfile

import pytest
import torch

from tdfunc import TensorDict, buffers_of, init_ensemble, optim, params_of, stack
from tdfunc.demo import _metrics as metrics
from tdfunc.demo._cli import main
from tdfunc.demo._compile import Compiler
from tdfunc.demo._data import TRAIN_IMAGES, load_digits, minibatches
from tdfunc.demo._files import replacing
from tdfunc.demo._loop import make_loop, members_of
from tdfunc.demo._net import make_net
from tdfunc.demo._rates import measure
from tdfunc.demo._save import load, save
from tdfunc.demo._train import State, make_step, predict

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

KEYS = [
    *[f"{who}_{what}" for what in ("accuracy", "nll", "ece") for who in ("ensemble", "member")],
    *[f"{how}_steps_per_s" for how in ("compiled", "eager", "loop")],
    "compilations",
]
QUICK = ["--no-compile", "--epochs", "1", "--members", "2"]


@pytest.fixture(autouse=True)
def short_turns(monkeypatch):
    """Rates are of no interest here."""
    monkeypatch.setattr("tdfunc.demo._run.measure", lambda runs: measure(runs, rounds=1, seconds=0))


# --- metrics ----------------------------------------------------------------------------------------------------------


def test_a_uniform_prediction_has_the_nll_and_entropy_of_its_class_count():
    log_probs = torch.full((7, 10), 0.1).log()
    assert metrics.nll(log_probs, torch.arange(7)) == pytest.approx(math.log(10), rel=1e-6)
    assert metrics.entropy(log_probs).allclose(torch.full((7,), math.log(10)))


def test_ece_is_zero_where_confidence_is_accuracy_and_one_for_sure_mistakes():
    calibrated = torch.tensor([[0.75, 0.25]]).repeat(4, 1).log()
    assert metrics.ece(calibrated, torch.tensor([0, 0, 0, 1])) == pytest.approx(0, abs=1e-6)
    sure = torch.tensor([[1.0, 0.0]]).repeat(3, 1).log()
    assert metrics.ece(sure, torch.tensor([1, 1, 1])) == 1
    assert metrics.ece(sure, torch.tensor([0, 0, 0])) == 0


def test_ece_weighs_bins_by_their_share():
    # three images at 0.95, of which two are right; one at 0.55, right
    log_probs = torch.tensor([[0.95, 0.05]] * 3 + [[0.55, 0.45]]).log()
    expected = 3 / 4 * abs(2 / 3 - 0.95) + 1 / 4 * abs(1 - 0.55)
    assert metrics.ece(log_probs, torch.tensor([0, 0, 1, 0])) == pytest.approx(expected, rel=1e-6)


def test_the_mixture_is_no_worse_than_the_mean_member():
    torch.manual_seed(0)
    log_probs, labels = torch.randn(5, 50, 10).log_softmax(-1), torch.randint(10, (50,))
    mixture = metrics.mixture(log_probs)
    assert mixture.exp().allclose(log_probs.exp().mean(0))
    assert metrics.nll(mixture, labels) <= metrics.mean_scores(log_probs, labels).nll  # Jensen


def test_the_interval_of_half_in_a_hundred():
    low, high = metrics.interval(torch.tensor(0.5), torch.tensor(100.0))
    assert (round(float(low), 4), round(float(high), 4)) == (0.4038, 0.5962)


# --- data -------------------------------------------------------------------------------------------------------------


def test_the_split_is_fixed_and_stratified():
    digits = load_digits()
    assert digits.train_x.shape == (TRAIN_IMAGES, 1, 8, 8)
    assert digits.test_x.shape == (450, 1, 8, 8)
    assert digits.train_x.amin() == 0
    assert digits.train_x.amax() == 1
    total = digits.train_y.bincount() + digits.test_y.bincount()
    assert (digits.test_y.bincount() - total / 4).abs().max() < 1
    assert all(a.equal(b) for a, b in zip(digits, load_digits(), strict=True))


def test_each_member_sees_each_image_at_most_once_an_epoch_in_its_own_order():
    x, y = torch.arange(11.0), torch.arange(11)
    orders = torch.cat([labels for _, labels in minibatches(x, y, members=3, batch_size=5, epochs=1, seed=0)], 1)
    assert orders.shape == (3, 10)
    assert all(len(order.unique()) == 10 for order in orders)
    assert not orders[0].equal(orders[1])
    again = torch.cat([labels for _, labels in minibatches(x, y, members=3, batch_size=5, epochs=1, seed=0)], 1)
    assert orders.equal(again)


# --- the step ---------------------------------------------------------------------------------------------------------


def start(members, factory, lr=1e-2):
    net, params, buffers = init_ensemble(factory, members, seed=0)
    opt = optim.adam(lr)
    torch.manual_seed(1)
    x = torch.rand(members, 6, 1, 8, 8, dtype=params.dtype)
    return net, opt, State(params, buffers, opt.init(params)), x, torch.randint(10, (members, 6))


def test_the_step_is_that_of_a_loop_over_modules_with_torch_adam():
    net, opt, state, x, y = start(3, lambda: make_net().double())
    first = state.params.clone(), state.buffers.clone()
    members = members_of(lambda: make_net().double(), state.params, state.buffers)
    step, loop = make_step(net, opt), make_loop(members, lr=1e-2)
    begin = state
    for _ in range(5):
        state, losses, accuracies = step(state, x, y)
        expected = loop(x, y)
        torch.testing.assert_close(losses, expected[0], rtol=1e-9, atol=1e-9)
        assert accuracies.equal(expected[1])
    assert state.params.allclose(stack([params_of(member) for member in members]), rtol=1e-9, atol=1e-9)
    assert state.buffers.allclose(stack([buffers_of(member) for member in members]), rtol=1e-9, atol=1e-9)
    assert begin.params.equal(first[0])
    assert begin.buffers.equal(first[1])


def test_the_step_is_one_graph_compiled_once():
    net, opt, eager, x, y = start(2, make_net)
    step, compiler = make_step(net, opt), Compiler("eager")
    compiled_step, compiled = compiler(step), eager
    for _ in range(3):
        eager, *seen = step(eager, x, y)
        compiled, *compiled_seen = compiled_step(compiled, x, y)
        torch.testing.assert_close(compiled_seen, seen)
    assert compiler.count == 1
    assert compiled.params.allclose(eager.params, atol=1e-5)
    compiled_step(compiled, x[:, :3], y[:, :3])
    assert compiler.count == 2  # the count is real: another shape, another graph


def test_predict_is_eval_mode_and_leaves_the_net_in_training_mode():
    net, _, state, x, _ = start(2, make_net)
    log_probs = predict(net, state.params, state.buffers, x[0])
    members = members_of(make_net, state.params, state.buffers)
    torch.testing.assert_close(log_probs, torch.stack([member.eval()(x[0]).log_softmax(-1) for member in members]))
    assert net.training


# --- the command line -------------------------------------------------------------------------------------------------


def last_line(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_train_save_and_load(tmp_path, capsys):
    file, out = tmp_path / "deep" / "ensemble.pt", tmp_path / "new"
    threads = torch.get_num_threads()
    assert main([*QUICK, "--out", str(out), "--save", str(file)]) == 0
    trained = last_line(capsys)
    assert list(trained) == KEYS
    assert trained["ensemble_accuracy"] > 0.8
    assert trained["compiled_steps_per_s"] is None
    assert trained["compilations"] == 0
    assert trained["eager_steps_per_s"] > 0
    assert trained["loop_steps_per_s"] > 0
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert torch.get_num_threads() == threads

    assert main(["--load", str(file), "--out", str(tmp_path)]) == 0
    loaded = last_line(capsys)
    assert list(loaded) == KEYS
    assert {name: trained[name] for name in KEYS[:6]} == {name: loaded[name] for name in KEYS[:6]}
    assert [loaded[name] for name in KEYS[6:]] == [None, None, None, 0]
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["demo.png", "demo.png", "ensemble.pt"]


def test_a_saved_ensemble_loads_in_another_process(tmp_path):
    _, params, buffers = init_ensemble(make_net, 2, seed=0)
    save(tmp_path / "e.pt", params, buffers, {})
    code = "import sys; from pathlib import Path; from tdfunc.demo._save import load; print(load(Path(sys.argv[1]))[1].batch_size)"
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "e.pt"], capture_output=True, text=True, check=False)
    assert done.stdout == "torch.Size([2])\n", done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--members", "0"], "--members: expected a whole number, at least 1, got '0'"),
        (["--epochs", "0"], "--epochs: expected a whole number, at least 1"),
        (["--batch-size", "1.5"], "--batch-size: expected a whole number, at least 1"),
        (["--batch-size", "1348"], "--batch-size: expected at most the 1,347 training images, got 1,348"),
        (["--lr", "-1"], "--lr: expected a number above 0, got '-1'"),
        (["--lr", "nan"], "--lr: expected a number above 0"),
        (["--seed", "-1"], "--seed: expected a whole number from 0"),
        (["--save", "a.pt", "--load", "b.pt"], "--save: not with --load"),
        (["--save", "a.txt"], "save: the file of an ensemble is named otherwise"),
        (["--load", "a.txt"], "load: the file of an ensemble is named otherwise"),
        (["--load", "missing.pt"], "load: there is no such file"),
        (["--out", "taken"], "cannot make the folder"),
        (["--save", "taken/e.pt"], "cannot make the folder"),
    ],
)
def test_bad_options_end_in_one_message(options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(SystemExit) as ended:
        main(options)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def not_a_zip(path):
    path.write_bytes(b"no zip file")


def no_checkpoint(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a", "b")


def cut_short(path):
    _, params, buffers = init_ensemble(make_net, 1, seed=0)
    save(path, params, buffers, {})
    path.write_bytes(path.read_bytes()[:-100])


def no_ensemble(path):
    torch.save({"weights": torch.ones(2)}, path)


def code(path):
    torch.save({"format": print}, path)


def another_net(path):
    _, params, buffers = init_ensemble(lambda: torch.nn.Linear(2, 2), 2, seed=0)
    save(path, params, buffers, {})


def another_width(path):
    _, params, buffers = init_ensemble(make_net, 2, seed=0)
    save(path, params.set(("0", "weight"), torch.zeros(2, 9, 1, 3, 3)), buffers, {})


def other_members(path):
    _, params, buffers = init_ensemble(make_net, 2, seed=0)
    save(path, params, buffers.map(lambda leaf: leaf[:1]), {})


def another_dtype(path):
    _, params, buffers = init_ensemble(make_net, 2, seed=0)
    save(path, params.to(torch.float64), buffers, {})


def no_members(path):
    save(path, params_of(make_net()), TensorDict(), {})


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (not_a_zip, "holds no ensemble"),
        (no_checkpoint, "damaged"),
        (cut_short, "holds no ensemble"),
        (no_ensemble, "holds no ensemble"),
        (code, "holds more than tensors"),
        (another_net, "another network"),
        (another_width, "0.weight"),
        (other_members, "another network"),
        (another_dtype, "another network"),
        (no_members, "another network"),
    ],
)
def test_a_file_that_is_no_such_ensemble_is_refused(write, message, tmp_path, capsys):
    write(tmp_path / "e.pt")
    with pytest.raises(SystemExit) as ended:
        main(["--load", str(tmp_path / "e.pt"), "--out", str(tmp_path)])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "demo.png").exists()


def test_load_gives_what_init_ensemble_gave(tmp_path):
    _, params, buffers = init_ensemble(make_net, 2, seed=0)
    save(tmp_path / "e.pt", params, buffers, {})
    state = torch.get_rng_state()
    net, *trees = load(tmp_path / "e.pt")
    assert trees[0].equal(params)
    assert trees[1].equal(buffers)
    assert trees[0].batch_size == (2,)
    assert next(net.parameters()).is_meta
    assert torch.get_rng_state().equal(state)


def test_a_file_is_replaced_whole_or_stays(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(path) as part:
        part.write_text("half")
        1 / 0
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]
    with replacing(path) as part:
        part.write_text("new")
    assert [file.read_text() for file in tmp_path.iterdir()] == ["new"]


def test_missing_extras_are_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(SystemExit) as ended:
        main(QUICK)
    assert ended.value.code == 1
    assert 'needs tqdm, which is not installed: pip install "tdfunc[demo]"' in capsys.readouterr().err
