"""Both async backends, the shared material, and the hypothesis profiles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"

# No deadline: the first example of a run pays for imports. In CI the same examples every time.
hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run every async test on both."""
    return request.param


@pytest.fixture(autouse=True, scope="session")
def no_settings_of_this_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A test begins with the defaults, whatever the settings file of whoever runs it says."""
    with pytest.MonkeyPatch.context() as patch:
        empty = tmp_path_factory.mktemp("settings") / "empty.toml"
        empty.touch()
        patch.setenv("JEV_ENGINE_CONFIG", str(empty))
        yield


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real sessions, golden vectors and the corpus, which lie beside the project and not in it."""
    if not SHARED.is_dir():
        pytest.skip(f"NOT CHECKED AGAINST REAL SESSIONS: no folder {SHARED.name!r} beside the project")
    return SHARED
