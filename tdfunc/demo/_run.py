"""One run from data to report."""

import contextlib
from collections.abc import Generator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tdfunc import TensorDict, init_ensemble, optim

from ._compile import Compiler
from ._data import Digits, load_digits, minibatches
from ._loop import make_loop, members_of
from ._metrics import mean_scores, mixture, scores
from ._net import make_net
from ._options import Options
from ._plot import draw
from ._progress import progress
from ._rates import Rates, measure, repeated
from ._report import Report, json_line, table
from ._save import load, save
from ._train import State, Step, make_step, predict, train


class Trained(NamedTuple):
    """An ensemble and what its training left behind: losses `(epochs, steps, members)`, rates, compilations."""

    net: nn.Module
    params: TensorDict
    buffers: TensorDict
    losses: Tensor | None = None
    rates: Rates = Rates()
    compilations: int = 0


def run(options: Options) -> Report:
    """Train an ensemble or load one, evaluate it, draw `demo.png` and print the report; its last line is JSON."""
    digits = load_digits()
    with one_thread():
        found = _train(options, digits) if options.load is None else Trained(*load(options.load))
        log_probs = predict(found.net, found.params, found.buffers, digits.test_x)
    picture = options.out / "demo.png"
    draw(picture, found.losses, log_probs, digits.test_x, digits.test_y)
    report = Report(
        members=len(log_probs),
        member=mean_scores(log_probs, digits.test_y),
        ensemble=scores(mixture(log_probs), digits.test_y),
        rates=found.rates,
        compilations=found.compilations,
    )
    print(table(report), f"\nwrote {picture}", json_line(report), sep="\n")
    return report


@contextlib.contextmanager
def one_thread() -> Generator[None]:
    """Let torch compute on one core, as long as the context lasts.

    Tensors this small gain nothing from a second one, and threads that wait for each other on a busy machine cost a
    hundredfold. The compiled step is made for a number of threads, so this goes around all of its calls.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _train(options: Options, digits: Digits) -> Trained:
    net, params, buffers = init_ensemble(make_net, options.members, seed=options.seed)
    opt = optim.adam(options.lr)
    start = State(params, buffers, opt.init(params))
    eager, compiler = make_step(net, opt), Compiler()
    step = compiler(eager) if options.compile else eager

    batches = partial(minibatches, digits.train_x, digits.train_y, members=options.members, batch_size=options.batch_size, seed=options.seed)
    steps = options.epochs * (len(digits.train_y) // options.batch_size)
    with progress(steps, "compiling" if options.compile else "training") as watch:
        end, losses = train(step, start, batches(epochs=options.epochs), watch)
    if options.save is not None:
        about = {name: getattr(options, name) for name in ("epochs", "batch_size", "lr", "seed")}
        save(options.save, end.params, end.buffers, about)

    # No step changed `start`, so all that are compared can set out from it.
    compared = {"eager": eager, "compiled": step} if options.compile else {"eager": eager}
    rates = _rates(compared, options.lr, start, *next(batches(epochs=1)))
    return Trained(net, end.params, end.buffers, losses.unflatten(0, (options.epochs, -1)), rates, compiler.count)


def _rates(steps: dict[str, Step], lr: float, start: State, x: Tensor, y: Tensor) -> Rates:
    """Measure functional steps, and the loop over modules that does the same work."""
    loop = make_loop(members_of(make_net, start.params, start.buffers), lr)
    runs = {name: repeated(step, start, x, y) for name, step in steps.items()}
    return Rates(**measure({**runs, "loop": lambda: loop(x, y)}))
