"""Real Hermes hosts from the package index, each scenario in `hermes_scenarios` and `hermes_faults` a test."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hosts.environments import environment
from hosts.hermes_names import FAULTS, SCENARIOS

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
LIGHT = [
    "openai==2.24.0",
    "pyyaml==6.0.3",
    "python-dotenv==1.2.2",
    "requests==2.33.0",
    "psutil==7.2.2",
    "httpx==0.28.1",
]
VERSIONS = ("0.17.0", "0.18.2", "0.19.0")
WORKER_SECONDS = 600


def run_all(version: str, module: str, folder: Path) -> dict[str, dict[str, Any]]:
    """All scenarios of a module in one process of that host; what became of each, by name."""
    package = f"hermes-agent=={version}"
    python = environment(f"hermes-{version}", LIGHT, no_deps=[package])
    out = folder / "results"
    done = subprocess.run(
        [python, HERE / "hermes_worker.py", folder / "home", out, module],
        cwd=folder, capture_output=True, timeout=WORKER_SECONDS, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    lines = out.read_text().splitlines() if out.exists() else []
    found = {line["name"]: line for line in map(json.loads, lines)}
    found["worker"] = {"fault": (done.stdout + done.stderr)[-2_000:].decode(errors="replace")}
    return found


@pytest.fixture(scope="session")
def became(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What became of each scenario of a host; two hosts run at once, because they mostly wait."""
    chosen = [item for item in request.session.items if getattr(item, "originalname", "") in MODULES]
    wanted = dict.fromkeys((MODULES[item.originalname], item.callspec.params["version"]) for item in chosen)  # type: ignore[attr-defined]
    with ThreadPoolExecutor(2) as pool:
        running = {
            (module, version): pool.submit(run_all, version, module, tmp_path_factory.mktemp(f"{module}-{version}"))
            for module, version in wanted
        }
        yield lambda module, version: running[module, version].result()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_real_host(version: str, scenario: str, became: Any) -> None:
    """End to end against a provider on loopback: words and pairs on the wire, originals byte for byte."""
    found = became("hermes_scenarios", version)

    assert scenario in found, found["worker"]["fault"]
    assert found[scenario]["fault"] is None, found[scenario]["fault"]


@pytest.mark.parametrize("version", ["0.17.0", "0.19.0"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_no_turn(version: str, fault: str, became: Any) -> None:
    """On the host that shares one engine between agents, and on one that copies it."""
    found = became("hermes_faults", version)

    assert fault in found, found["worker"]["fault"]
    assert found[fault]["fault"] is None, found[fault]["fault"]


MODULES = {"test_a_real_host": "hermes_scenarios", "test_a_fault_costs_no_turn": "hermes_faults"}
