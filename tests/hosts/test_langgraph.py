"""LangChain and LangGraph in two environments: the newest versions, and the oldest this project supports.

What is tested is in the files `langgraph_*.py` beside this one; they run within the environment.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from hosts.environments import environment

pytestmark = pytest.mark.slow
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CORPUS = ROOT.parent / "shared" / "corpus" / "trajectories.jsonl.gz"
KIT = ["anyio[trio]>=4.11", "hypothesis>=6.100", "pytest>=9"]
NEWEST = [
    "langchain==1.5.2", "langgraph==1.2.24", "langgraph-checkpoint-sqlite==3.1.2", "langgraph-prebuilt==1.1.3",
    "langchain-core==1.8.3", "deepagents==0.7.32", "langchain-anthropic==1.7.10", "langchain-openai==1.7.4",
    "langchain-google-genai==4.4.3",
]  # fmt: skip
FLOOR = ["langchain==1.3.0", "langgraph==1.2.0", "langgraph-checkpoint-sqlite==3.0.3"]
ENVIRONMENTS = {"langgraph-newest": NEWEST, "langgraph-floor": FLOOR}
RUN_SECONDS = 300
# Strict: only plain values come back from a checkpoint, as LangGraph is going to have it by default.
SETTINGS = {"LANGGRAPH_STRICT_MSGPACK": "true", "PYTHONDONTWRITEBYTECODE": "1"}


def run_within(python: Path, *files: str) -> subprocess.CompletedProcess[str]:
    """Run test files with the environment's own pytest, apart from the settings and fixtures of this project."""
    options = ["-c", os.devnull, "--rootdir", str(HERE), "--noconftest", "-p", "no:cacheprovider", "-W", "error", "-q"]
    return subprocess.run(
        [str(python), "-m", "pytest", *options, *files],
        cwd=HERE,
        env={**os.environ, **SETTINGS, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=RUN_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_on_the_real_libraries(name):
    """Every file of cases; what needs deepagents and the providers' converters on the newest versions only."""
    python = environment(name, [*ENVIRONMENTS[name], *KIT])
    cases = sorted(path.name for path in HERE.glob("langgraph_*.py") if path.name != "langgraph_agents.py")
    if name == "langgraph-floor":
        cases.remove("langgraph_neighbours.py")

    done = run_within(python, *cases)

    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    # One test needs real sessions beside the project, and says so where there are none.
    skips = 0 if CORPUS.is_file() else 1
    found = re.search(r"(\d+) skipped", done.stdout)
    assert (int(found[1]) if found else 0) == skips, done.stdout[-6_000:]


@pytest.mark.parametrize("script", ["langgraph_growth.py", "langgraph_prefix.py"])
def test_the_benchmarks_hold_their_bars(script):
    """120 steps of checkpoints at or below the best known; 60 steps with at most 7 broken prefixes."""
    python = environment("langgraph-newest", [*NEWEST, *KIT])
    arguments = ["--ours"] if script == "langgraph_growth.py" else []

    done = subprocess.run(
        [str(python), str(ROOT / "benchmarks" / script), *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=RUN_SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr[-2_000:]
