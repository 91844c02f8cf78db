"""Files written whole or not at all."""

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

from tdfunc._errors import StorageError, describe


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, if it is not there.

    Raises:
        StorageError: If it cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(_refused("make the folder", folder, error)) from error
    if not os.access(folder, os.W_OK):
        raise StorageError(describe("cannot write to the folder", at=folder, fix="another place"))


@contextlib.contextmanager
def replacing(path: Path) -> Generator[Path]:
    """Give a path to write to; what is there at the end takes the place of `path` at once.

    After an error, `path` is as it was.

    Raises:
        StorageError: If the system refuses to write.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        raise StorageError(_refused("write the file", path, error)) from error
    finally:
        part.unlink(missing_ok=True)


def _refused(what: str, path: Path, error: OSError) -> str:
    return describe(f"cannot {what}", at=path, got=error.strerror or error, fix="another place")
