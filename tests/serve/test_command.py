"""`jev-engine serve`: one request without a process that stays, and what is said of the one that does."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from serve.plugin_requests import conversation, request

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the command in places of its own."""
    monkeypatch.setenv("JEV_ENGINE_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("JEV_ENGINE_CONFIG", str(tmp_path / "none.toml"))

    def work(*argv, stdin=""):
        return subprocess.run(
            [sys.executable, "-m", "jev_engine", "serve", *argv],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    return work


def test_one_request_is_answered_as_the_process_would(run):
    """And its originals are there for the next one."""
    answered = run("--once", "compact", stdin=json.dumps(request(conversation(12))))
    answer = json.loads(answered.stdout)
    reference = next(text for step in answer["steps"] for _, _, *t in step.get("results", ()) for text in t)
    reference = reference.split("intact as ")[1].split(":")[0]

    asked = {**request([]), "tool": "expand", "input": {"id": reference}}
    read = json.loads(run("--once", "tool", stdin=json.dumps(asked)).stdout)
    stands = json.loads(run("--once", "status", stdin=json.dumps(request([]))).stdout)

    assert answer["act"] == "replace"
    assert read["text"].startswith("0\na line that some tool wrote")
    assert "9 results of this session are out" in stands["text"]


@pytest.mark.parametrize("given", ["", "{{{", "[" * 200_000])
def test_what_is_no_json_is_bad_usage(run, given):
    """Exit code 2, and nothing on standard output."""
    done = run("--once", "compact", stdin=given)

    assert (done.returncode, done.stdout) == (2, "")
    assert "no JSON" in done.stderr


def test_where_none_runs_it_says_so(run):
    """And there is nothing to stop."""
    assert json.loads(run("--status").stdout) == {"running": False}
    assert json.loads(run("--stop").stdout) == {"stopped": False}
