"""Session files of Claude Code as they lie there: odd signs inside a row, and files that come and go."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from claude_code_rows import Session, use
from hypothesis import given
from hypothesis import strategies as st

import jev_engine
import jev_engine_adapters.claude_code
from jev_engine.cli.new_session import latest_file
from jev_engine.cli.reading import read_session
from jev_engine_adapters.claude_code.companions import (
    companions,
    find_companions,
    newest_first,
    session_file,
    sessions_beside,
)
from jev_engine_adapters.claude_code.going_back import write_session
from jev_engine_adapters.claude_code.offline import latest_session

SPLITTERS = [sign for sign in map(chr, range(0x3000)) if len(f"a{sign}b".splitlines()) > 1]
"""Every sign at which Python ends a line; JSON needs an escape for those below a space only."""
NAMES = {sign: f"U+{ord(sign):04X}" for sign in SPLITTERS}


def write(path, rows):
    """As the host writes it: one row a line, signs as they are, LF at the end of each."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_bytes(text.encode("utf-8"))
    return path


def rows_of(path):
    """The rows of a file, lines ended by LF alone."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def compacted(text):
    """A session with this text in it, compacted once."""
    session = Session()
    session.user(text)
    session.says(use("a", command=text))
    session.result("a", text)
    session.compaction()
    return [{**row, "sessionId": "old"} for row in session.rows]


@pytest.mark.parametrize("sign", SPLITTERS, ids=NAMES.get)
def test_no_sign_inside_a_row_ends_it_on_the_way_back(sign, tmp_path):
    """What stood before the compaction is there again, sign by sign."""
    rows = compacted(f"before{sign}after")

    made = write_session(write(tmp_path / "old.jsonl", rows))

    found = rows_of(made)
    assert {row.pop("sessionId") for row in found} == {made.stem}
    assert found == [{name: value for name, value in row.items() if name != "sessionId"} for row in rows[:3]]


@given(st.text(st.characters(codec="utf-8")))
def test_no_text_at_all_is_lost_on_the_way_back(text):
    """Whatever a user or a tool has said."""
    with tempfile.TemporaryDirectory() as folder:
        made = write_session(write(Path(folder) / "old.jsonl", compacted(text)))
        found = rows_of(made)

    assert found[0]["message"]["content"] == text
    assert found[2]["message"]["content"][0]["content"] == text


@pytest.mark.parametrize("sign", SPLITTERS, ids=NAMES.get)
def test_no_sign_inside_a_row_hides_what_came_with_a_result(sign, tmp_path):
    """The text of a skill lies in a row of its own."""
    row = {"isMeta": True, "sourceToolUseID": "a", "message": {"content": f"Greet{sign}in verse."}}

    assert companions(write(tmp_path / "s.jsonl", [row, row]), ["a"]) == {"a": (f"Greet{sign}in verse.", 0)}


@pytest.mark.parametrize("sign", SPLITTERS, ids=NAMES.get)
def test_no_sign_inside_a_row_ends_it_for_a_new_session(sign, tmp_path):
    """As the command line reads it, and would write it."""
    rows = compacted(f"before{sign}after")
    path = write(tmp_path / "old.jsonl", rows)

    file = read_session(str(path))

    assert file.messages == rows
    assert file.dump(file.messages, range(len(rows))) == path.read_bytes()


def test_a_row_on_the_way_back_is_the_hosts_own_text_but_for_its_id(tmp_path):
    """JavaScript writes numbers in another way, and so may other programs."""
    path = write(tmp_path / "old.jsonl", compacted("x"))
    odd = path.read_text(encoding="utf-8").replace('{"', '{"cost":1e-7, "share": 1.10, "', 1).replace("x", r"\u0078")
    path.write_text(odd, encoding="utf-8")

    made = write_session(path)

    assert made.read_text(encoding="utf-8") == "".join(
        f"{line}\n".replace('"sessionId": "old"', f'"sessionId": "{made.stem}"') for line in odd.split("\n")[:3]
    )


def test_half_a_surrogate_pair_comes_back_as_it_was(tmp_path):
    """It has no UTF-8, so it stands in the file as an escape."""
    rows = [{"type": "user", "sessionId": "old", "message": {"content": "\ud83d"}}, *compacted("x")[-2:]]
    path = tmp_path / "old.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    assert rows_of(write_session(path))[0]["message"]["content"] == "\ud83d"


def test_a_session_that_cannot_be_read_leaves_no_new_one(tmp_path):
    """And the command says so in one line."""
    path = tmp_path / "old.jsonl"
    path.write_text('{"type": "user"}\n{"type": ', encoding="utf-8")

    argv = [sys.executable, "-m", "jev_engine_adapters.claude_code.going_back", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [path]


def test_no_code_of_this_host_splits_text_at_more_than_line_feeds():
    """`str.splitlines` ends a row in the middle, so none of these files may call it."""
    files = [*Path(jev_engine_adapters.claude_code.__file__).parent.rglob("*.py")]
    files += [Path(jev_engine.__file__).parent / "cli" / name for name in ("setup.py", "new_session.py", "reading.py")]

    calls = [
        f"{file.name}:{node.lineno}"
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "splitlines"
    ]

    assert len(files) > 10
    assert calls == []


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The folder of a project's sessions: two of them, and all that may lie beside them."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    kept = tmp_path / "projects" / "".join(sign if sign.isalnum() else "-" for sign in str(tmp_path))
    kept.mkdir(parents=True)
    row = {"isMeta": True, "sourceToolUseID": "a", "message": {"content": "A skill."}}
    for age, name in enumerate(("newer", "older")):
        path = write(kept / f"{name}.jsonl", [row] if name == "older" else [])
        os.utime(path, (1e9 - age, 1e9 - age))
    return kept


def dangling(project):
    """A link to a file that is gone."""
    (project / "gone.jsonl").symlink_to(project / "nowhere.jsonl")


def circular(project):
    """A link to itself."""
    (project / "gone.jsonl").symlink_to(project / "gone.jsonl")


def folder(project):
    """A folder of that name."""
    (project / "gone.jsonl").mkdir()


def pipe(project):
    """A pipe, which would be waited for."""
    os.mkfifo(project / "gone.jsonl")


@pytest.mark.parametrize("odd", [dangling, circular, folder, pipe])
def test_what_is_no_file_is_passed_over(odd, project, tmp_path):
    """Wherever sessions are looked for: by name, beside another, and as the last one."""
    odd(project)
    newer, older = project / "newer.jsonl", project / "older.jsonl"

    assert sessions_beside(str(tmp_path)) == [newer, older]
    assert session_file("gone") is None
    assert session_file("older") == older
    assert latest_session(tmp_path) == newer
    assert latest_file("auto") == str(newer)
    assert find_companions(sessions_beside(str(tmp_path)), ["a"]) == {"a": ("A skill.", 0)}


@pytest.mark.parametrize("odd", [dangling, circular, folder, pipe])
def test_where_nothing_else_lies_there_is_no_session(odd, project, tmp_path):
    """Not the odd one either."""
    for path in project.iterdir():
        path.unlink()
    odd(project)

    assert latest_session(tmp_path) is None
    assert sessions_beside(str(tmp_path)) == []


def test_a_session_that_goes_while_it_is_looked_at_is_passed_over(project):
    """Deleted between the listing and the look, as a cleaning job does."""

    def listed():
        for path in sorted(project.glob("*.jsonl")):
            if path.name == "newer.jsonl":
                path.unlink()
            yield path

    assert newest_first(listed()) == [project / "older.jsonl"]
