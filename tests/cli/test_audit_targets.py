"""What a trail may take the place of, and what may take the place of a trail: nothing that is there."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from audit_trails import SessionDesk
from click.testing import CliRunner, Result

from jev_engine.cli import main
from jev_engine.testing import history, user

AUDIT = ("audit", "--file")


class Desk(SessionDesk):
    """A session with a trail of it, in a folder where every byte is watched."""

    def __init__(self, shell: Any, messages: Any, words: tuple[str, ...]) -> None:
        super().__init__(shell, messages, words)
        self.key = shell.folder / "data" / "jev-engine" / "audit.key"
        done = shell.run("compress", self.session, "-o", self.short, "--audit", self.trail, *self.words)
        assert done.exit_code == 0, done.output
        shell.file("notes.txt", "not a line of a trail\n")

    def ask(self, *words: str | Path, file: Path | None = None) -> Result:
        line = [*AUDIT, file or self.trail, "--store", self.shell.store, *words]
        return CliRunner().invoke(main, [str(word) for word in line], catch_exceptions=False)

    def content(self) -> dict[str, bytes]:
        """Every file of the folder but the log of the database, which readers write too."""
        files = [each for each in self.shell.folder.rglob("*") if each.is_file() and "sqlite3-" not in each.name]
        return {str(each): each.read_bytes() for each in files}

    def stays(self, done: Result, before: dict[str, bytes]) -> None:
        assert done.exit_code == 2, done.output
        assert self.content() == before


@pytest.fixture
def desk(shell: Any, messages: Any, shorten_all: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setenv("XDG_DATA_HOME", str(shell.folder / "data"))
    return Desk(shell, messages, shorten_all)


TARGETS: dict[str, tuple[Callable[[Desk], str | Path], str]] = {
    "input": (lambda desk: desk.session, "the input file"),
    "link to the input": (lambda desk: linked(desk.session), "the input file"),
    "output": (lambda desk: desk.shell.folder / "new.json", "-o"),
    "what has the output as its lock": (lambda desk: desk.shell.folder / "new", "-o"),
    "store": (lambda desk: desk.shell.store, "the store of originals"),
    "log of the store": (lambda desk: f"{desk.shell.store}-wal", "the store of originals"),
    "key": (lambda desk: desk.key, "the key of audit trails"),
    "text": (lambda desk: desk.shell.folder / "notes.txt", "is no trail"),
    "session": (lambda desk: desk.short, "is no trail"),
    "database": (lambda desk: database(desk.shell.folder / "other.sqlite3"), "is no trail"),
    "folder": (lambda desk: desk.shell.folder, "is a folder"),
    "pipe": (lambda desk: pipe(desk.shell.folder / "pipe"), "no ordinary file"),
    "device": (lambda _: "/dev/null", "no ordinary file"),
    "standard output": (lambda _: "-", "it is a file"),
    "empty name": (lambda _: "", "names no file"),
}  # fmt: skip


def linked(target: Path) -> Path:
    link = target.with_name("link")
    link.symlink_to(target)
    return link


def database(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE t (x)")
    return path


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("target", TARGETS)
def test_a_trail_is_written_to_no_file_of_another_kind(desk: Desk, target: str) -> None:
    """The option and the remedy are named, nothing is judged, and every byte stays."""
    where, words = TARGETS[target]
    trail, out = where(desk), desk.shell.folder / ("new.lock" if "lock" in target else "new.json")
    before = desk.content()
    done = desk.shell.run("compress", desk.session, "-o", out, "--audit", trail, *desk.words)

    assert words in " ".join(done.stderr.split())
    assert "audit" in done.stderr
    assert "Name" in done.stderr
    desk.stays(done, before)


def test_a_trail_with_a_torn_first_line_goes_on(desk: Desk) -> None:
    """A writer died within it: that is a trail all the same, and so is an empty file."""
    for begun in (b'{"chain":"5e55","n":1,"ha', b'{"ch', b""):
        desk.trail.write_bytes(begun)
        done = desk.shell.run("compress", desk.session, "-o", desk.short, "--audit", desk.trail, *desk.words)

        assert done.exit_code == 0, done.output
        assert "committed" in desk.ask("list").stdout


@pytest.mark.parametrize("asked", [("report",), ("export",), ("export", "--as", "csv"), ("answers",)])
@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("trail.jsonl", "audit trail"),
        ("trail.jsonl.000001", "audit trail"),
        ("trail.jsonl.000007", "audit trail"),
        ("trail.jsonl.lock", "audit trail"),
        ("trail.jsonl.anchor", "audit trail"),
        ("link", "audit trail"),
        ("copy.jsonl", "audit trail"),
        ("store/originals.sqlite3", "the store of originals"),
        ("data/jev-engine/audit.key", "the key of audit trails"),
        ("none/page", "Create it first"),
    ],
)
def test_no_answer_takes_the_place_of_a_trail(desk: Desk, asked: tuple[str, ...], end: str, words: str) -> None:
    """The trail that was asked, what lies beside it, and any other; the store and the key."""
    shutil.copy(desk.trail, desk.shell.folder / "copy.jsonl")
    shutil.copy(desk.trail, desk.shell.folder / "trail.jsonl.000001")
    linked(desk.trail)
    before = desk.content()
    done = desk.ask(*asked, "-o", desk.shell.folder / end)

    assert words in " ".join(done.stderr.split())
    desk.stays(done, before)


def test_no_answer_takes_the_place_of_a_key_that_is_named(desk: Desk) -> None:
    """One that came with a trail from another machine."""
    key = desk.shell.file("other.key", b"k" * 32)
    before = desk.content()
    done = CliRunner().invoke(main, [*AUDIT, str(desk.trail), "--key", str(key), "export", "-o", str(key)])

    assert "the key of audit trails" in done.stderr
    desk.stays(done, before)


def test_no_session_and_no_calibration_takes_the_place_of_a_trail(desk: Desk) -> None:
    """Whether the command knows of that trail or not."""
    answers = desk.shell.file("answers.jsonl", "")
    before = desk.content()
    made = [
        desk.shell.run("compress", desk.session, "-o", desk.trail, *desk.words),
        desk.shell.run("compress", desk.session, "-o", f"{desk.trail}.lock", "--audit", desk.trail, *desk.words),
        desk.shell.run("restore", desk.short, "-o", desk.trail),
        desk.shell.run("restore", desk.short, "-o", f"{desk.trail}.000002", "--audit", desk.trail),
        CliRunner().invoke(main, ["calibrate", str(answers), "-o", str(desk.trail)]),
        CliRunner().invoke(main, ["calibrate", str(answers), "-o", str(answers)]),
    ]

    for done in made:
        assert "-o" in done.stderr
        desk.stays(done, before)


@pytest.mark.parametrize("name", ["notes.txt", "session.json", "store/originals.sqlite3", "trail.jsonl"])
def test_a_purge_that_finds_nothing_leaves_every_byte(desk: Desk, name: str) -> None:
    """Of what is no trail, and of a trail without that session."""
    before = desk.content()
    done = desk.ask("purge", "--yes", "abc", file=desk.shell.folder / name)

    desk.stays(done, before)


@pytest.mark.parametrize("asked", [("list",), ("stats",), ("show",), ("export",)])
def test_what_is_no_trail_is_not_read_as_one(desk: Desk, asked: tuple[str, ...]) -> None:
    """A session, a pipe nobody writes to, a name that is none: at once, and in words."""
    for file, words in (
        (desk.session, "is no trail"),
        (pipe(desk.shell.folder / "pipe"), "no ordinary file"),
        (Path("/dev/null"), "no ordinary file"),
    ):
        done = desk.ask(*asked, file=file)
        assert done.exit_code == 2
        assert words in done.stderr
    done = CliRunner().invoke(main, [*AUDIT, "", *asked])
    assert done.exit_code == 2
    assert "--file: names no file" in done.stderr


def test_regrets_are_read_from_a_trail_only(desk: Desk) -> None:
    """Or nothing would be protected, without a word."""
    for name, words in ((desk.session, "is no trail"), ("", "--regrets: names no file")):
        done = desk.shell.run("compress", desk.session, "--regrets", name, *desk.words)
        assert done.exit_code == 2
        assert words in done.stderr


def test_a_session_may_still_replace_a_session(desk: Desk) -> None:
    """What is refused is refused for what it is, not because it is there."""
    desk.shell.file("old.json", history(user("An older one.")))
    done = desk.shell.run("compress", desk.session, "-o", desk.shell.folder / "old.json", *desk.words)

    assert done.exit_code == 0
    assert (desk.shell.folder / "old.json").read_bytes() == desk.short.read_bytes()
