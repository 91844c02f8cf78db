"""The command line."""

from collections.abc import Sequence
from importlib.util import find_spec

from tdfunc._errors import StorageError

from ._files import make_folder
from ._options import make_parser, parse
from ._run import run
from ._save import check_target

EXTRAS = ("sklearn", "matplotlib", "tqdm")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code.

    Raises:
        SystemExit: With code 2 if an option or a file is not usable, 1 if an extra is not installed.
    """
    parser = make_parser()
    options = parse(parser, argv)
    missing = [name for name in EXTRAS if find_spec(name) is None]
    if missing:
        parser.exit(1, f'the demo needs {", ".join(missing)}, which is not installed: pip install "tdfunc[demo]"\n')
    try:
        make_folder(options.out)
        if options.save is not None:
            check_target(options.save)
        run(options)
    except StorageError as error:
        parser.error(str(error))
    return 0
