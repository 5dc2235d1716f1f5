"""A session file shortened offline, and the real Claude Code going on with it under a new id."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hosts.claude_code_lab import Lab, broken_pairs, opened_lab, reading, results, thinking
from hosts.gateway_sessions import SESSIONS, put, said

pytestmark = pytest.mark.slow

SHORTEN_ALL = ("--policy", "threshold", "--keep-result", "1", "--keep-call", "0")
"""Everything that may be judged goes, whatever judge ships."""


@pytest.fixture
def lab(tmp_path):
    """A home, a project and an API."""
    with opened_lab(tmp_path) as made:
        yield made


def rewrite(lab: Lab, file: Path, *options: str) -> str:
    """Shorten a session into a new one beside it; its id, or nothing where nothing may go."""
    told = json.loads(lab.engine("compress", str(file), "--new-session", "--json", *options))
    if told["outcome"] == "nothing_to_prune":
        return ""
    assert told["resume"] == f"claude --resume {Path(told['written_to']).stem}"
    assert Path(told["written_to"]).parent == file.parent
    return Path(told["written_to"]).stem


def test_a_session_of_this_cli_goes_on_shorter(lab):
    """Written by the CLI itself, its last model one that binds its thinking."""
    before = lab.run(reading(10, "text Read them all."), plugin=None)
    file = lab.transcript()
    held = file.read_bytes()
    lab.session = rewrite(lab, file, *SHORTEN_ALL)
    after = lab.run("SCRIPT: text Still here.", plugin=None)
    again = lab.run("SCRIPT: text And again.", plugin=None)

    assert file.read_bytes() == held
    assert broken_pairs(after.messages) == broken_pairs(again.messages) == []
    assert sum("[jev-engine: result of" in text for text in results(after.messages)) >= 5
    assert len(after.requests[-1].body) < 0.7 * len(before.requests[-1].body)
    assert [text for text in said(before.messages) if text not in said(after.messages)] == []
    assert len(thinking(after.messages)) < len(thinking(before.messages))
    assert again.messages[: len(after.messages) - 1] == after.messages[:-1]


def test_the_latest_session_of_a_folder_is_found(lab, monkeypatch):
    """By the name of the folder it was used in; a dry run writes nothing."""
    lab.run(reading(6, "text Read them all."), plugin=None)
    file = lab.transcript()
    monkeypatch.chdir(lab.project)
    names = set(file.parent.iterdir())
    told = json.loads(lab.engine("compress", "--latest", "--json"))
    json.loads(lab.engine("compress", "--latest", "--new-session", "--dry-run", "--json"))

    assert told["calls"] == 6
    assert set(file.parent.iterdir()) == names


@pytest.mark.parametrize("name", SESSIONS)
def test_real_sessions_go_on_shorter(lab, shared, name):
    """Early sessions of other people: smaller requests, clean pairs, the same texts, and the whole session back."""
    file = put(lab, shared / "sessions" / "claude-code" / f"{name}.jsonl")
    held = file.read_bytes()
    before = lab.run("SCRIPT: text Before.", plugin=None)
    if not before.requests:
        pytest.skip(f"NOT CHECKED: this CLI does not accept {name}")
    file.write_bytes(held)
    new = rewrite(lab, file, "--force")
    assert file.read_bytes() == held
    if not new:
        pytest.skip(f"{name}: nothing in it may go")
    written = file.with_name(f"{new}.jsonl")
    lab.engine("restore", str(written), "-o", str(lab.home / "back.jsonl"))
    lab.session = new
    after = lab.run("SCRIPT: text Before.", plugin=None)

    assert broken_pairs(after.messages) == []
    assert said(after.messages) == said(before.messages)
    assert len(after.requests[-1].body) < len(before.requests[-1].body)
    signatures = thinking(after.messages)
    assert len(set(signatures)) == len(signatures)
    rows = [[json.loads(line) for line in text.splitlines()] for text in
            (held.decode(), (lab.home / "back.jsonl").read_text(encoding="utf-8"))]  # fmt: skip
    assert rows[0] == rows[1]
