"""Imports go down only: each layer knows those below it, and none above."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys

import pytest

import tdfunc

LAYERS = [
    {"_errors"},
    {"structure"},
    {"_typing"},
    {"ops"},
    {"core"},
    {"module", "records", "stacks"},
    {"transforms", "optim"},
    {"graph", "storage", "distributed"},
    {"interop", "testing"},
    {"demo"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
PACKAGE = pathlib.Path(tdfunc.__file__).parent
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py" or path.parent != PACKAGE)


def imported(path: pathlib.Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module and node.module.split(".")[0] == "tdfunc":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("tdfunc.")}
    return found


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_file_imports_only_from_its_own_layer_and_below(file):
    own = file.parts[0].removesuffix(".py")
    for name in imported(PACKAGE / file):
        if name in LEVEL:  # else a name of the public top level, which only the demo takes
            assert LEVEL[name] < LEVEL[own] or name == own or (own == "demo"), f"{file} imports tdfunc.{name}"
        else:
            assert own == "demo", f"{file} imports tdfunc.{name}"


def test_importing_prints_nothing_and_loads_neither_dynamo_nor_extras():
    code = (
        "import sys, tdfunc\n"
        "loaded = [m for m in ('torch._dynamo', 'tensordict', 'sklearn', 'matplotlib', 'safetensors', 'rich') if m in sys.modules]\n"
        "assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_file_outgrows_its_idea():
    long = {str(file): n for file in FILES if (n := len((PACKAGE / file).read_text().splitlines())) > 450}
    assert not long
