"""Examples in Markdown and docstrings are tests; no test writes to the user's own folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser, SkipParser
from sybil.parsers.rest import DocTestParser

if TYPE_CHECKING:
    from collections.abc import Iterator

pages = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "adapters/README.md", "docs/*.md", "docs/reference/*.md"],
)
docstrings = Sybil(
    parsers=[DocTestParser()],
    patterns=["jev_engine/*.py", "jev_engine/*/*.py", "adapters/jev_engine_adapters/*/*.py"],
)
pytest_collect_file = (pages + docstrings).pytest()


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Send the data, state, cache and configuration folders of the whole run to a temporary place."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("DATA", "STATE", "CACHE", "CONFIG"):
            patch.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
        yield
