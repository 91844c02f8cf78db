"""The options of the command line, checked before anything is computed."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from ._data import TRAIN_IMAGES


class Options(argparse.Namespace):
    """The options, by name and type."""

    members: int
    epochs: int
    batch_size: int
    lr: float
    seed: int
    compile: bool
    out: Path
    save: Path | None
    load: Path | None


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> Options:
    """Return the options of a command line.

    Raises:
        SystemExit: With code 2 and a sentence on stderr if one of them is not usable.
    """
    options = parser.parse_args(argv, Options())
    if options.batch_size > TRAIN_IMAGES:
        parser.error(f"argument --batch-size: expected at most the {TRAIN_IMAGES:,} training images, got {options.batch_size:,}")
    if options.save is not None and options.load is not None:
        parser.error("argument --save: not with --load, which trains nothing that could be saved")
    return options


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tdfunc.demo",
        description="Train a deep ensemble on scanned digits as one compiled function, and compare it with its members.",
    )
    train = parser.add_argument_group("training")
    train.add_argument("--members", type=_count, default=8, metavar="N", help="networks in the ensemble (%(default)s)")
    train.add_argument("--epochs", type=_count, default=40, metavar="N", help="times to go through the training images (%(default)s)")
    train.add_argument("--batch-size", type=_count, default=32, metavar="N", help="images per member and step (%(default)s)")
    train.add_argument("--lr", type=_rate, default=3e-3, metavar="X", help="learning rate of Adam (%(default)s)")
    train.add_argument("--seed", type=_seed, default=0, metavar="N", help="decides the initialisations and the orders of minibatches (%(default)s)")
    train.add_argument("--no-compile", dest="compile", action="store_false", help="take the steps in eager mode, without a C++ compiler")
    files = parser.add_argument_group("files")
    files.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="where demo.png goes (the current directory)")
    files.add_argument("--save", type=Path, metavar="PATH", help="write the trained ensemble to a .pt file")
    files.add_argument("--load", type=Path, metavar="PATH", help="evaluate a saved ensemble; nothing is trained")
    return parser


def _count(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number, at least 1, got {text!r}")
    return int(text)


def _seed(text: str) -> int:
    if not text.strip().isdecimal() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to 2**63 - 1, got {text!r}")
    return int(text)


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value
