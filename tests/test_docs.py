"""The documentation builds without a warning and without a network."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jev_engine import errors

DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.mark.slow
def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-W",
            "--keep-going",
            "-q",
            "-d",
            tmp_path / "doctrees",
            DOCS,
            tmp_path / "html",
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "html/index.html").is_file()


def test_every_page_is_reachable_from_the_index() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    pages = {
        path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md") if "_build" not in path.parts
    }

    assert {page for page in pages - {"index"} if page not in index} == set()


def test_the_drawn_error_tree_is_the_real_one() -> None:
    drawn: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"    ((?:│   |    )*)(?:[├└]── )?([A-Z]\w+)", line):
            depth = (len(found[1]) // 4 + 1) if "── " in line else 0
            path = [*path[:depth], found[2]]
            drawn[found[2]] = path[-2] if depth else "Exception"
    real = {
        name: error.__bases__[0].__name__
        for name, error in vars(errors).items()
        if inspect.isclass(error) and error.__module__ == errors.__name__
    }

    assert drawn == real
