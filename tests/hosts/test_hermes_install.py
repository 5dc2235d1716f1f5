"""`setup`, `doctor` and `remove` on real Hermes hosts that have nothing of this project in their environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hosts.environments import environment
from hosts.test_hermes import HERE, LIGHT

from jev_engine.hosts import carry_out
from jev_engine_adapters.hermes.install import integration

pytestmark = pytest.mark.slow

VERSIONS = ("0.17.0", "0.18.2", "0.19.0")


@pytest.fixture(params=VERSIONS)
def options(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A host without this project, and an empty home of its own."""
    version = request.param
    python = environment(f"hermes-bare-{version}", LIGHT, no_deps=[f"hermes-agent=={version}"], with_ours=False)
    home = tmp_path / "home" / "hermes"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text("# mine\nmodel:\n  context_length: 131072\n")
    monkeypatch.setenv("JEV_ENGINE_CONFIG", str(tmp_path / "none.toml"))
    return {"home": str(home), "python": str(python)}


def said_by_doctor(options: dict[str, str]) -> dict[str, tuple[str, str]]:
    return {finding.what: (finding.state, finding.text) for finding in integration.doctor(options)}


def test_set_up_checked_used_and_removed(options: dict[str, str], tmp_path: Path) -> None:
    """The folder alone is enough for a session with passes, tools and originals."""
    before = said_by_doctor(options)
    carry_out(integration.setup(options))
    after = said_by_doctor(options)

    assert before["active engine"][0] == "bad"
    assert after["active engine"][0] == "ok", after
    assert "/plugins/jev-engine/lib/jev_engine/" in after["active engine"][1]
    assert after["tools"] == ("ok", "jev_expand, jev_search")
    assert not [text for state, text in after.values() if state == "bad"]

    became = played(options, tmp_path)
    assert became["fault"] is None, became["fault"]

    carry_out(integration.remove(options))
    assert said_by_doctor(options)["active engine"][0] == "bad"
    assert not (Path(options["home"]) / "plugins" / "jev-engine").exists()


def played(options: dict[str, str], tmp_path: Path) -> dict[str, Any]:
    """One scenario with the folder's own copy of the engine."""
    out = tmp_path / "results"
    lib = Path(options["home"]) / "plugins" / "jev-engine" / "lib"
    subprocess.run(
        [options["python"], HERE / "hermes_worker.py", tmp_path / "home", out, "hermes_scenarios", "in_place"],
        env={**os.environ, "PYTHONPATH": str(lib)}, cwd=tmp_path, capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("has_folder", [False, True])
def test_the_entry_point_works_alone_and_beside_the_folder(version: str, has_folder: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """The same name on both ways: one registration, no matter which the host takes."""
    python = environment(f"hermes-bare-{version}", LIGHT, no_deps=[f"hermes-agent=={version}"], with_ours=False)
    home = tmp_path / "hermes"
    home.mkdir()
    options = {"home": str(home), "python": str(python)}
    carry_out(integration.setup(options))
    site = tmp_path / "site"
    shutil.copytree(home / "plugins" / "jev-engine" / "lib", site)
    (site / "jev_engine-9.dist-info").mkdir()
    (site / "jev_engine-9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: jev-engine\nVersion: 9\n")
    entry = "[hermes_agent.plugins]\njev-engine = jev_engine_adapters.hermes\n"
    (site / "jev_engine-9.dist-info" / "entry_points.txt").write_text(entry)
    if not has_folder:
        shutil.rmtree(home / "plugins")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(site))
        said = {finding.what: (finding.state, finding.text) for finding in integration.doctor(options)}

    assert said["active engine"][0] == "ok", said
    assert "/site/jev_engine/" in said["active engine"][1]
    assert said["tools"] == ("ok", "jev_expand, jev_search")
