"""The package that docs/write-a-plugin.md describes, built from the page's own blocks and used as it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FILES = ("pyproject.toml", "jev_example/__init__.py", "jev_example/plugin.py")


def blocks_of(page: str) -> tuple[dict[str, str], str]:
    """The three files, and the program that uses them."""
    files = {}
    for name in FILES:
        found = re.search(rf"^`{re.escape(name)}`[^\n]*:\n\n```\w+\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        assert found is not None, name
        files[name] = found.group(1)
    use = re.search(r"^<!-- use -->\n```\w+\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert use is not None
    return files, use.group(1)


@pytest.mark.slow
def test_the_page_makes_a_plugin_that_works(tmp_path: Path, root: Path) -> None:
    """Installed into a folder of its own, found by its entry point, and nothing more than the page says."""
    files, use = blocks_of((root / "docs/write-a-plugin.md").read_text(encoding="utf-8"))
    package = tmp_path / "jev-example"
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    (tmp_path / "use.py").write_text(use, encoding="utf-8")
    site = tmp_path / "site"
    apart = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(package)]
    made = subprocess.run(install, capture_output=True, text=True, env=apart, check=False)
    assert made.returncode == 0, made.stderr

    with_site = {**apart, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "use.py"], cwd=tmp_path, capture_output=True, text=True, env=with_site, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("went out, and the sink heard of it\n")
    # And the command knows the new form.
    steps = '[{"ask": "Fix it."}, {"tool": "read", "given": "a", "got": "b"}]'
    shown = subprocess.run(
        [sys.executable, "-m", "jev_engine", "inspect", "-", "--format", "steps", "--store", "s.db"],
        input=steps, cwd=tmp_path, capture_output=True, text=True, env=with_site, check=False,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
