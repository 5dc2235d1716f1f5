"""`jev-engine learn` on session files in a folder of the test's own."""

from __future__ import annotations

import json
import os
import stat

import pytest
from click.testing import CliRunner
from recorded_sessions import recorded

from jev_engine.cli import main
from jev_engine.errors import StoreError
from jev_engine.judges import weights
from jev_engine.memory import Memories, Remembered, default_path, folder_of


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


def claude_rows(messages, folder):
    """The same session as Claude Code writes it."""
    rows = []
    for message in messages:
        if message["role"] == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            body = {"role": "user", "content": [block]}
        elif message.get("tool_calls"):
            made = message["tool_calls"][0]
            function = made["function"]
            arguments = json.loads(function["arguments"])
            block = {"type": "tool_use", "id": made["id"], "name": function["name"], "input": arguments}
            body = {"role": "assistant", "id": f"m{len(rows)}", "content": [block]}
        else:
            body = {"role": message["role"], "content": message["content"], "id": f"m{len(rows)}"}
        parent = rows[-1]["uuid"] if rows else None
        kind = body["role"]
        rows.append({"type": kind, "uuid": f"u{len(rows)}", "parentUuid": parent, "cwd": folder, "message": body})
    return rows


def write_session(folder, number, cwd="/work/site", *, age_seconds=7_200):
    path = folder / f"{number}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in claude_rows(recorded(number), cwd)))
    changed = path.stat().st_mtime - age_seconds
    os.utime(path, (changed, changed))
    return path


def run(*words):
    return CliRunner().invoke(main, ["learn", *map(str, words)], catch_exceptions=False)


def memories():
    return Memories.load(default_path(), weights.VERSION)


def test_finished_sessions_give_their_project_two_numbers(home):
    """Before and after are shown."""
    for number in range(3):
        write_session(home / "sessions", number)
    done = run(home / "sessions")

    slope, intercept = memories().of("/work/site")
    assert done.exit_code == 0
    assert "/work/site" in done.stdout
    assert "→" in done.stdout
    assert (slope, intercept) != (1.0, 0.0)
    assert memories().of("/work/other") is None


def test_only_new_sessions_are_read_in(home):
    """A session never counts twice."""
    write_session(home / "sessions", 1)
    run(home / "sessions")
    before = memories().get("/work/site")
    again = run(home / "sessions")
    unchanged = memories().get("/work/site")
    write_session(home / "sessions", 2)
    run(home / "sessions")

    assert "1 learned before" in again.stderr
    assert before == unchanged
    assert memories().get("/work/site").sessions == 2


def test_each_project_has_a_memory_of_its_own(home):
    """By the folder the session was recorded in."""
    write_session(home / "sessions", 1, "/work/one")
    write_session(home / "sessions", 2, "/work/two/")
    run(home / "sessions")

    assert len(memories()) == 2
    assert memories().of("/work/two") is not None


def test_the_file_is_the_users_alone_and_names_no_folder(home):
    """Mode 0600, keyed digests, numbers."""
    write_session(home / "sessions", 1)
    run(home / "sessions")
    text = default_path().read_text()

    assert stat.S_IMODE(default_path().stat().st_mode) == 0o600
    assert "site" not in text
    assert "handler" not in text


def test_a_session_that_may_still_be_going_on_is_left_out(home):
    """Its future is not known yet."""
    write_session(home / "sessions", 1, age_seconds=10)
    done = run(home / "sessions")

    assert "Nothing new was learned." in done.stdout
    assert "1 changed within the last hour" in done.stderr


def test_files_that_are_no_sessions_are_counted_and_left_out(home):
    """The others are learned from."""
    write_session(home / "sessions", 1)
    notes = home / "sessions/notes.json"
    notes.write_text('{"hello": 1}')
    os.utime(notes, (1, 1))
    done = run(home / "sessions")

    assert done.exit_code == 0
    assert "1 not a session" in done.stderr
    assert len(memories()) == 1


def test_a_link_that_leads_nowhere_stops_nothing(home):
    """It is counted like any file that is no session."""
    write_session(home / "sessions", 1)
    (home / "sessions" / "gone.jsonl").symlink_to(home / "sessions" / "deleted.jsonl")

    done = run(home / "sessions")

    assert done.exit_code == 0
    assert "1 not a session" in done.stderr
    assert len(memories()) == 1


def test_sessions_without_a_folder_need_a_project(home):
    """Chat Completions files record none."""
    path = home / "plain.json"
    path.write_text(json.dumps(recorded(1)))
    os.utime(path, (1, 1))

    assert "name one with --project" in run(path).stderr
    assert "/work/mine" in run(path, "--project", "/work/mine").stdout


def test_forgetting_removes_the_file(home):
    """All of it."""
    write_session(home / "sessions", 1)
    run(home / "sessions")

    assert "Removed" in run("--forget").stdout
    assert not default_path().exists()
    assert "nothing to forget" in run("--forget").stdout


def test_json_names_projects_by_digest_only(home):
    """For machines, and for pasting into an issue."""
    write_session(home / "sessions", 1)
    data = json.loads(run(home / "sessions", "--json").stdout)

    (project,) = data["projects"]
    assert "site" not in project["folder"]
    assert project["before"]["rows"] == project["after"]["rows"] > 0


def test_without_sessions_the_command_says_where_it_looked(home, monkeypatch):
    """And what to give it."""
    monkeypatch.setenv("HOME", str(home))
    done = run()

    assert done.exit_code == 2
    assert "~/.claude/projects" in done.stderr


def test_memories_of_another_judge_mean_nothing(tmp_path):
    """New weights begin anew."""
    known = Memories("one")
    known.put("/work/a", Remembered(0.9, 0.1, 3, {}, []))
    known.save(tmp_path / "memory.json")

    assert Memories.load(tmp_path / "memory.json", "one").of("/work/a") == (0.9, 0.1)
    assert Memories.load(tmp_path / "memory.json", "two").of("/work/a") is None


def test_a_broken_file_is_named_and_not_overwritten(tmp_path):
    """Doubt keeps."""
    path = tmp_path / "memory.json"
    path.write_text('{"version": 1, "judge": "one"}')

    with pytest.raises(StoreError, match="--forget"):
        Memories.load(path, "one")
    assert path.read_text() == '{"version": 1, "judge": "one"}'


def test_the_folder_of_a_session_is_found_in_its_rows():
    """Or there is none."""
    assert folder_of([{"type": "summary"}, {"cwd": "/work/a"}]) == "/work/a"
    assert folder_of([{"role": "user"}, object()]) is None
