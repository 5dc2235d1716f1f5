"""The examples and the code of the documentation page, run as a reader would run them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["agent", "graph", "functional"])
def test_an_example_runs_offline_and_shortens_its_history(tmp_path, name):
    """Complete programs: no key, no network, and the answer comes out."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / f"langgraph_{name}.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    *_, sizes, answer = done.stdout.splitlines()
    held, sent = [int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", sizes)]

    assert done.returncode == 0, done.stderr
    assert answer == "worker-17 ran out of disk at 12:31."
    assert sent < 20_000
    assert held > sent


def test_the_code_of_the_page_runs(tmp_path, monkeypatch, capsys):
    """Block after block, in one namespace."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    blocks = BLOCK.findall((ROOT / "docs" / "langgraph.md").read_text(encoding="utf-8"))
    names = {}

    for number, block in enumerate(blocks):
        exec(compile(block, f"docs/langgraph.md, block {number}", "exec"), names)  # noqa: S102  # our own page

    assert len(blocks) == 5
    assert names["done"].messages[0].content == "Hello."
    assert names["built"].invoke({"messages": [("user", "Hi.")]}, names["thread"])["messages"]
    assert capsys.readouterr().out
