"""The code blocks of the README and the documentation run as they stand."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: pathlib.Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_the_code_blocks_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for block in blocks(page):
        exec(compile(block, page.name, "exec"), scope)


def test_the_readme_has_the_commands_that_ci_runs():
    text = (ROOT / "README.md").read_text()
    assert len(re.findall(r"^python3 -m venv .*-m tdfunc\.demo$", text, re.MULTILINE)) == 1
    assert len(re.findall(r"^python3 -m venv .*-m pytest -q -n 2$", text, re.MULTILINE)) == 1
    assert "python -m pytest" in (ROOT / ".ci" / "run").read_text()
