"""A Claude Code session shortened into a session of its own: new id, whole links, bound thinking gone."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

import pytest

from jev_engine.cli.new_session import choose_target
from jev_engine_adapters.claude_code import adapter

THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}


def session_rows(model="claude-fable-5-2", calls=8):
    """A session as the host writes it: one block a row, thinking before each call."""
    rows: list[dict] = []

    def row(kind, content, **fields):
        parent = rows[-1]["uuid"] if rows else None
        message = {"role": kind, "content": content, **({"model": model} if kind == "assistant" else {})}
        links = {"uuid": f"row-{len(rows)}", "parentUuid": parent, "sessionId": "old"}
        rows.append({"type": kind, **links, "message": message, **fields})

    row("user", "Fix the parser.")
    for n in range(calls):
        row("assistant", [THOUGHT])
        row("assistant", [{"type": "tool_use", "id": f"u{n}", "name": "Read", "input": {"n": n}}])
        row("user", [{"type": "tool_result", "tool_use_id": f"u{n}", "content": f"line {n}\n" * 300}],
            sourceToolAssistantUUID=rows[-1]["uuid"])  # fmt: skip
    row("assistant", [THOUGHT, {"type": "text", "text": "Done."}])
    rows.append({"type": "last-prompt", "leafUuid": rows[-1]["uuid"], "sessionId": "old"})
    return rows


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def read(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def texts_of(rows):
    return [entry.text for entry in adapter.read(rows).entries if entry.text]


def test_a_new_session_stands_beside_the_old_one(shell, shorten_all):
    """Named by its id, which is in every row; the old file is as it was."""
    path = shell.file("old.jsonl", lines(session_rows()))
    before = path.read_bytes()

    done = shell.run("compress", path, "--new-session", "--json", *shorten_all)
    told = json.loads(done.stdout)
    [name] = shell.names() - {"old.jsonl", "store"}
    rows = read(shell.folder / name)

    assert told["resume"] == f"claude --resume {Path(name).stem}"
    assert str(uuid.UUID(Path(name).stem)) == Path(name).stem
    assert {row["sessionId"] for row in rows} == {Path(name).stem}
    assert path.read_bytes() == before
    assert texts_of(rows) == texts_of(session_rows())


def test_thinking_behind_the_first_edit_goes_where_it_is_bound(shell, shorten_all):
    """Rows of thinking alone go with it; what hung below them hangs below their parents."""
    path = shell.file("old.jsonl", lines(session_rows()))
    done = shell.run("compress", path, "-o", shell.folder, *shorten_all)
    [name] = shell.names() - {"old.jsonl", "store"}
    rows = read(shell.folder / name)

    uuids = {row.get("uuid") for row in rows}
    assert next(row["message"]["content"] for row in rows if row["type"] == "assistant") == [THOUGHT]
    assert sum("thinking" in json.dumps(row) for row in rows) == 1
    assert all(row["parentUuid"] in uuids for row in rows[1:] if "parentUuid" in row)
    assert all(row["sourceToolAssistantUUID"] in uuids for row in rows if "sourceToolAssistantUUID" in row)
    assert rows[-1]["leafUuid"] in uuids
    assert "without their thinking" in done.stderr
    assert len(adapter.read(rows).calls) == 8


def test_thinking_stays_where_it_is_not_bound(shell, shorten_all):
    """An older model takes it with any history."""
    path = shell.file("old.jsonl", lines(session_rows(model="claude-opus-4-1")))
    shell.run("compress", path, "-o", shell.folder, *shorten_all)
    [name] = shell.names() - {"old.jsonl", "store"}

    assert sum("c2ln" in json.dumps(row) for row in read(shell.folder / name)) == 9


def test_the_old_session_comes_back_from_the_new_one(shell, shorten_all):
    """Every row, thinking and id included."""
    rows = session_rows()
    path = shell.file("old.jsonl", lines(rows))
    shell.run("compress", path, "-o", shell.folder, *shorten_all)
    [name] = shell.names() - {"old.jsonl", "store"}

    done = shell.run("restore", shell.folder / name, "-o", shell.folder / "back.jsonl")

    assert done.exit_code == 0
    assert read(shell.folder / "back.jsonl") == rows


def test_a_dry_run_writes_nothing(shell, shorten_all):
    """With a place to write to or without."""
    path = shell.file("old.jsonl", lines(session_rows()))
    for options in ((), ("--new-session", "--dry-run"), ("-o", str(shell.folder), "--dry-run")):
        done = shell.run("compress", path, *options, *shorten_all)
        assert done.exit_code == 0

    assert shell.names() == {"old.jsonl"}


def test_nothing_to_take_out_makes_no_new_session(shell):
    """Two files of the same rows would help nobody."""
    path = shell.file("old.jsonl", lines(session_rows(calls=1)))

    done = shell.run("compress", path, "--new-session")

    assert done.exit_code == 0
    assert "nothing_to_prune" in done.stdout
    assert shell.names() - {"store"} == {"old.jsonl"}


def test_the_latest_session_of_the_folder_is_taken(shell, monkeypatch, shorten_all):
    """By the name the host gives the folder; subagents are no sessions."""
    work = shell.folder / "my project"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(shell.folder / "claude"))
    mangled = "".join(sign if sign.isalnum() else "-" for sign in str(Path.cwd()))
    kept = shell.folder / "claude" / "projects" / mangled
    kept.mkdir(parents=True)
    for age, name in enumerate(("agent-9.jsonl", "new.jsonl", "old.jsonl")):
        (kept / name).write_text(lines(session_rows(calls=9 - age)), encoding="utf-8")
        os.utime(kept / name, (1e9 - age, 1e9 - age))

    done = shell.run("compress", "--latest", "--new-session", "--json", *shorten_all)

    assert json.loads(done.stdout)["calls"] == 8
    assert len(list(kept.iterdir())) == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--latest", "x.jsonl"], "leave one of them out"),
        ([], "Missing argument"),
        (["--latest", "--format", "openai"], "keeps no sessions in files"),
        (["s.json", "--new-session"], "not resumed from files"),
        (["old.jsonl", "--new-session", "-o", "x.jsonl"], "leave out -o"),
    ],
)
def test_what_does_not_go_together_is_refused(shell, monkeypatch, messages, words, said):
    """Before anything is read or written."""
    monkeypatch.chdir(shell.folder)
    shell.file("old.jsonl", lines(session_rows()))
    shell.file("s.json", messages)

    done = shell.run("compress", *words)

    assert done.exit_code == 2
    assert said in done.stderr
    assert shell.names() == {"old.jsonl", "s.json"}


def test_no_session_in_the_folder_is_said(shell, monkeypatch):
    """A folder in which the host was never used."""
    monkeypatch.chdir(shell.folder)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(shell.folder / "claude"))

    done = shell.run("compress", "--latest")

    assert done.exit_code == 2
    assert "no session of claude-code was used" in done.stderr


def test_an_id_in_the_name_of_the_file_is_taken(tmp_path):
    """The host finds a session by the name of its file."""
    named = str(uuid.uuid4())

    assert choose_target("x", f"/a/{named}.jsonl", beside=False).session == named
    assert choose_target("x", "/a/out.jsonl", beside=False).path == "/a/out.jsonl"
    assert choose_target("x", str(tmp_path), beside=False).path.startswith(str(tmp_path))
    assert choose_target("x", None, beside=False) is None
