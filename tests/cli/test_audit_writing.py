"""What commands tell a trail: which one, when, and that it is what really happened."""

from __future__ import annotations

import signal
import stat
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from audit_trails import SessionDesk
from click.testing import CliRunner, Result
from commands import start
from loopback import Loopback, until

from jev_engine.audit.records import read_events, read_trail
from jev_engine.cli import main


class Desk(SessionDesk):
    """Questions to the trail."""

    def compress(self, *words: str | Path) -> Result:
        return self.shell.run("compress", self.session, *words, *self.words)

    def ask(self, *words: str) -> str:
        line = ["audit", "--file", str(self.trail), "--store", str(self.shell.store), *words]
        done = CliRunner().invoke(main, line, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    def outcomes(self) -> list[str]:
        return [told.outcome for told in read_trail(self.trail).passes.values()]

    def told(self, kind: str) -> list[Any]:
        """Events of a kind that are in the trail."""
        return [event for event in read_events(self.trail) if getattr(event, "kind", None) == kind]

    def reference(self) -> str:
        return self.told("decided")[0].units[0].reference


@pytest.fixture
def desk(shell: Any, messages: Any, shorten_all: tuple[str, ...]) -> Desk:
    return Desk(shell, messages, shorten_all)


@pytest.fixture
def settings(shell: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings of the user that name a trail."""
    file = shell.file("config.toml", f'audit = "{shell.folder / "trail.jsonl"}"\n')
    monkeypatch.setenv("JEV_ENGINE_CONFIG", str(file))
    return file


def limited(desk: Desk, *words: str | Path, most_bytes: int) -> tuple[int, str]:
    """A compression that may write so much into one file; its exit code, and what it said."""
    process = start("compress", desk.session, *words, *desk.words, "--store", desk.shell.store, most_bytes=most_bytes)
    _, errors = process.communicate(timeout=60)
    return process.returncode, " ".join(errors.decode().split())


def test_a_session_that_could_not_be_written_was_not_committed(desk: Desk, messages: Any) -> None:
    """The disk takes the trail and not the session: the trail says so, and nothing in it went."""
    messages[0]["content"] += "and on, " * 250_000
    desk.shell.file("session.json", messages)
    code, said = limited(desk, "-o", desk.short, "--audit", desk.trail, most_bytes=1_000_000)

    assert code == 2
    assert "cannot be written" in said
    assert not desk.short.exists()
    assert desk.outcomes() == ["discarded (over_capacity)"]
    assert [event.reason for event in desk.told("discarded")] == ["the shorter session could not be written"]
    assert not desk.told("committed")


def test_a_session_that_was_written_was_committed(desk: Desk) -> None:
    """To a file, to standard output, and where a dry run only shows it."""
    desk.compress("-o", desk.short, "--audit", desk.trail)
    desk.compress("-o", "-", "--audit", desk.trail)
    desk.compress("--audit", desk.trail)

    assert desk.outcomes() == ["committed", "committed", "dry run (committed)"]
    assert desk.ask("verify", "--anchor").startswith("whole")


@pytest.mark.usefixtures("settings")
def test_the_trail_of_the_settings_is_told_of_what_is_written(desk: Desk) -> None:
    """A dry run is not: it leaves nothing behind."""
    assert desk.compress().exit_code == 0
    assert not desk.trail.exists()
    assert desk.compress("-o", desk.short).exit_code == 0

    assert desk.outcomes() == ["committed"]


@pytest.mark.usefixtures("settings")
def test_the_trail_that_is_named_comes_before_that_of_the_settings(desk: Desk) -> None:
    other = desk.shell.folder / "other.jsonl"
    desk.compress("-o", desk.short, "--audit", other)

    assert other.exists()
    assert not desk.trail.exists()


@pytest.mark.usefixtures("settings")
def test_no_pass_is_made_that_the_trail_of_the_settings_cannot_take(desk: Desk) -> None:
    """As with --audit, and the message names both."""
    desk.trail.write_text("notes\n")
    done = desk.compress("-o", desk.short)

    assert done.exit_code == 2
    assert "`audit` in your settings" in " ".join(done.stderr.split())
    assert not desk.short.exists()


def test_sinks_that_the_settings_require_stay_required(desk: Desk, settings: Path) -> None:
    """A trail comes on top of them."""
    settings.write_text('required_sinks = ["other"]\n')
    done = desk.compress("-o", desk.short, "--audit", desk.trail)

    assert done.exit_code == 1
    assert "required sink 'other' is not there" in done.output
    assert not desk.short.exists()


def test_a_trail_that_takes_no_more_is_named_with_cause_and_remedy(desk: Desk) -> None:
    """The disk is full within the pass: where, why, and what to do; and nothing is written."""
    desk.compress("-o", desk.shell.folder / "first.json", "--audit", desk.trail)
    with desk.trail.open("ab") as file:
        file.write(b'{"chain":"' + b"0" * (999_000 - desk.trail.stat().st_size) + b"\n")
    code, said = limited(desk, "-o", desk.short, "--audit", desk.trail, most_bytes=1_000_000)

    assert code == 1
    assert str(desk.trail) in said
    assert "File too large" in said
    assert "check permissions and free space there, or name another file" in said
    assert "Traceback" not in said
    assert not desk.short.exists()


@pytest.mark.usefixtures("settings")
def test_what_a_person_reads_again_is_told(desk: Desk) -> None:
    """An original that is expanded is a look-back, at a part of it too; a history that is restored is told as that."""
    desk.compress("-o", desk.short)
    reference = desk.reference()
    assert "never" in desk.ask("explain", "t1")

    assert desk.shell.run("expand", reference).exit_code == 0
    assert desk.shell.run("expand", reference, "--limit", "100", "--json").exit_code == 0
    assert desk.shell.run("restore", desk.short, "-o", desk.shell.folder / "back.json").exit_code == 0

    expanded, (restored,) = desk.told("expanded"), desk.told("restored")
    assert [(each.reference, each.chars) for each in expanded] == [(reference, 3_120), (reference, 100)]
    assert {each.session for each in (*expanded, restored)} == {desk.told("committed")[0].session}
    assert {each.origin.actor for each in (*expanded, restored)} == {"user"}
    assert restored.passes == 1
    assert "never" not in desk.ask("explain", "t1")
    assert desk.ask("verify", "--anchor").startswith("whole")


def test_a_look_back_is_told_to_no_trail_unless_there_is_one(desk: Desk) -> None:
    """Named or in the settings; what cannot be found is no look-back."""
    desk.compress("-o", desk.short, "--audit", desk.trail)
    before = desk.trail.read_bytes()
    assert desk.shell.run("expand", desk.reference()).exit_code == 0
    assert desk.shell.run("restore", desk.short).exit_code == 0
    assert desk.shell.run("expand", "jx-0000000000000000", "--audit", desk.trail).exit_code == 2
    assert desk.trail.read_bytes() == before

    assert desk.shell.run("expand", desk.reference(), "--audit", desk.trail).exit_code == 0
    assert len(desk.told("expanded")) == 1


def test_a_restored_session_that_could_not_be_written_was_not_restored(desk: Desk, messages: Any) -> None:
    """The disk takes the trail and not the session."""
    messages[0]["content"] += "and on, " * 250_000
    desk.shell.file("session.json", messages)
    desk.compress("-o", desk.short, "--audit", desk.trail)
    words = ("-o", desk.shell.folder / "back.json", "--store", desk.shell.store, "--audit", desk.trail)
    process = start("restore", desk.short, *words, most_bytes=1_000_000)
    process.communicate(timeout=60)

    assert process.returncode == 2
    assert not desk.told("restored")


@pytest.mark.usefixtures("settings")
def test_a_trail_that_cannot_be_written_keeps_nobody_from_an_original(desk: Desk) -> None:
    """One of the settings is warned of; one that was named is refused."""
    desk.compress("-o", desk.short)
    reference = desk.reference()
    desk.trail.write_text("notes\n")
    done = desk.shell.run("expand", reference)
    assert done.exit_code == 0
    assert done.stdout.startswith("part 0: a line of its own")
    assert "the audit trail does not hear of this" in done.stderr
    assert desk.shell.run("restore", desk.short).exit_code == 0
    for command, what in (("expand", reference), ("restore", desk.short)):
        assert desk.shell.run(command, what, "--audit", desk.trail).exit_code == 2

    assert desk.trail.read_text() == "notes\n"


def test_a_trail_is_for_its_owner_only(desk: Desk) -> None:
    """One that was there before with another mode too, and what is exported from it."""
    desk.compress("-o", desk.short, "--audit", desk.trail)
    older = desk.trail.with_name("trail.jsonl.000001")
    older.write_bytes(desk.trail.read_bytes())
    for each, mode in ((desk.trail, 0o644), (older, 0o666)):
        each.chmod(mode)
    desk.compress("-o", desk.short, "--audit", desk.trail)
    made = [desk.trail, older]
    for asked in (("export",), ("export", "--as", "csv"), ("answers",), ("report",)):
        made.append(desk.shell.folder / "-".join(asked))
        desk.ask(*asked, "-o", str(made[-1]))

    assert {stat.S_IMODE(each.stat().st_mode) for each in made} == {0o600}


def test_ctrl_c_in_a_first_pass_is_told_and_anchored(desk: Desk) -> None:
    """While the judge is waited for: abandoned, with an end that the anchor knows."""
    asked = threading.Event()

    class Waits(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.set()
            self.rfile.read(1 << 24)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with Loopback(Waits) as server:
        process = start("compress", desk.session, "-o", desk.short, "--audit", desk.trail, "--store", desk.shell.store,
                        "--judge", server.url)  # fmt: skip
        until(asked.is_set)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)

    assert process.returncode == 130, errors
    assert desk.outcomes() == ["abandoned (CancelledError)"]
    assert desk.ask("verify", "--anchor").startswith("whole")
