"""A file that is no trail: a sink appends nothing to it, a purge takes nothing from it, and a reader names it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from audit_trails import KEY, write_trail

from jev_engine.audit.files import belongs_to, is_trail, read_lines
from jev_engine.audit.jsonl import JsonlSink, purge_session
from jev_engine.errors import AuditError
from jev_engine.events.batch import Batch

FOREIGN = {
    "text": b"notes\n",
    "text without an end": b"notes",
    "session": b'[{"role": "user", "content": "Fix it."}]',
    "database": b"SQLite format 3\0" + b"\0" * 84,
    "key": b"k" * 32,
    "blank line first": b'\n{"chain":"5e55"}\n',
    "nearly a trail": b'{"chain" :"5e55","n":1}\n',
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_nothing_is_appended_to_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "other"
    path.write_bytes(FOREIGN[kind])
    sink = JsonlSink(path, key=KEY)
    with pytest.raises(AuditError, match="is no trail"):
        sink.emit_many(Batch("5e55", [b"{}"]))

    assert path.read_bytes() == FOREIGN[kind]
    assert not is_trail(path)


def test_a_pass_that_requires_such_a_trail_takes_nothing_out(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"notes\n")
    done = write_trail(path)

    assert done.outcome == "failed"
    assert str(path) in done.reason
    assert path.read_bytes() == b"notes\n"


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_purge_leaves_it_and_makes_no_file_beside_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "other"
    path.write_bytes(FOREIGN[kind])
    with pytest.raises(AuditError, match="no line of that session"):
        purge_session(JsonlSink(path, key=KEY), "5e55")

    assert path.read_bytes() == FOREIGN[kind]
    assert [each.name for each in tmp_path.iterdir()] == ["other"]


def test_a_pipe_and_a_folder_are_not_waited_for(tmp_path: Path) -> None:
    """Whether they are read or written."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, words in (("pipe", "is no ordinary file"), ("folder", "is a folder")):
        path = tmp_path / name
        with pytest.raises(AuditError, match=words):
            list(read_lines(path))
        with pytest.raises(AuditError, match=words):
            JsonlSink(path, key=KEY).emit_many(Batch("5e55", [b"{}"]))


def test_what_lies_beside_a_trail_belongs_to_it(tmp_path: Path) -> None:
    """Also by another way to the same folder, and where the trail is a link; what is only named alike does not."""
    (tmp_path / "real").mkdir()
    (tmp_path / "way").symlink_to(tmp_path / "real")
    trail, link = tmp_path / "real" / "t.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(trail)

    for end in ("", ".lock", ".anchor", ".000001", ".1234567"):
        assert belongs_to(trail, tmp_path / "way" / f"t.jsonl{end}")
        assert belongs_to(link, tmp_path / f"link.jsonl{end}")
    assert belongs_to(link, trail)
    for other in ("t.json", "t.jsonl.00001", "t.jsonl.copy", "t.jsonl.lock.old", "u.jsonl"):
        assert not belongs_to(trail, trail.with_name(other))
