"""`jev-engine compress --audit` and `jev-engine audit`: from one pass to every question about it."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from jev_engine.cli import main
from jev_engine.testing import call, history, result


class Desk:
    """A session that was compressed with a trail, and questions to the trail."""

    def __init__(self, shell: Any, messages: Any, words: tuple[str, ...]) -> None:
        self.shell = shell
        self.words = words
        self.trail = shell.folder / "trail.jsonl"
        self.session = shell.file("session.json", messages)
        self.made = shell.run("compress", self.session, "-o", shell.folder / "out.json", "--force", "--audit",
                              self.trail, *words)  # fmt: skip

    def ask(self, *words: str, code: int = 0) -> str:
        line = ["audit", "--file", str(self.trail), "--store", str(self.shell.store), *words]
        done: Result = CliRunner().invoke(main, line, catch_exceptions=False)
        assert done.exit_code == code, done.output
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.ask(*words, "--json"))


@pytest.fixture
def desk(shell: Any, messages: Any, shorten_all: tuple[str, ...]) -> Desk:
    return Desk(shell, messages, shorten_all)


def test_list_and_show_name_every_unit(desk: Desk) -> None:
    """One pass, eight calls: judged or pinned, each with its reason."""
    (row,) = desk.json("list")["passes"]
    assert (row["outcome"], row["calls"]) == ("committed", 8)
    assert row["pass"][:12] in desk.ask("list")

    shown = desk.json("show", row["pass"][:8])
    assert len(shown["units"]) + len(shown["pinned"]) == 8
    assert all(unit["reason"] for unit in shown["units"])
    assert "result not needed" in desk.ask("show")


def test_explain_says_why_and_where_the_original_is(desk: Desk) -> None:
    """By label and by id; a pinned unit too; a call nobody knows is a plain error."""
    facts = desk.json("explain", "t1")
    reference = facts["unit"]["reference"]
    assert "policy threshold" in facts["words"]["measured by"]
    assert desk.json("explain", reference) == facts
    assert "newest" in desk.ask("explain", "t8")
    assert desk.shell.run("expand", reference).exit_code == 0
    desk.ask("explain", "t99", code=2)


def test_verify_finds_what_was_done_to_the_file(desk: Desk) -> None:
    """Exit code 1, and the line; a cut-off end only with the anchor."""
    assert desk.ask("verify", "--anchor").startswith("whole")
    lines = desk.trail.read_text().splitlines(keepends=True)

    desk.trail.write_text("".join(lines[:-1]))
    assert desk.ask("verify").startswith("whole")
    assert "cut off" in desk.ask("verify", "--anchor", code=1)
    desk.trail.write_text("".join([lines[0].replace("openai", "0penai"), *lines[1:]]))
    assert "trail.jsonl:1" in desk.ask("verify", code=1)


def test_stats_tail_and_export(desk: Desk) -> None:
    """Numbers of the pass, its events, its decisions one a line."""
    stats = desk.json("stats")
    assert stats["passes"] == 1
    assert stats["units_out"] == 5
    assert "5 units out" in desk.ask("stats")

    tail = [json.loads(line) for line in desk.ask("tail", "-n", "2").splitlines()]
    assert [event["kind"] for event in tail] == ["decided", "committed"]
    rows = list(csv.DictReader(io.StringIO(desk.ask("export", "--as", "csv"))))
    assert [row["action"] for row in rows] == ["truncate"] * 5 + ["pinned"] * 3
    assert len([json.loads(line) for line in desk.ask("export").splitlines()]) == 8


def test_a_session_can_be_picked_and_purged(desk: Desk, messages: Any, shorten_all: Any) -> None:
    """By its digest; the rest can still be verified."""
    first = desk.json("list")["passes"][0]["session"]
    messages[0] = {**messages[0], "content": "Another session."}
    Desk(desk.shell, messages, shorten_all)
    assert len(desk.json("list")["passes"]) == 2
    assert len(json.loads(desk.ask("--session", first, "list", "--json"))["passes"]) == 1

    assert "lines taken out" in desk.ask("purge", first, "--yes")
    assert [row["session"] for row in desk.json("list")["passes"]] != [first]
    assert desk.ask("verify", "--anchor").startswith("whole")


def test_the_anchor_lies_in_the_store_and_not_beside_the_trail(desk: Desk) -> None:
    """Who can write the trail's folder cannot make the end of it unseen."""
    assert {"trail.jsonl", "trail.jsonl.lock"} == {name for name in desk.shell.names() if name.startswith("trail")}
    Desk(desk.shell, [{"role": "user", "content": "Another."}], ())

    lines = desk.trail.read_text().splitlines(keepends=True)
    desk.trail.write_text("".join(lines[:-1]))

    assert "cut off" in desk.ask("verify", "--anchor", code=1)


def test_replay_rebuilds_the_input_from_the_store(desk: Desk) -> None:
    """From the shorter session alone, and with rows that came later."""
    out = desk.shell.folder / "out.json"
    desk.session.unlink()
    grown = desk.shell.file("grown.json", [*json.loads(out.read_text()), {"role": "user", "content": "And now?"}])

    for name in (out, grown):
        found = desk.json("replay", "--input", str(name))
        assert found["is_same"], found


def test_replay_of_another_session_says_so(desk: Desk) -> None:
    """It is no input of that pass, and neither is anything in the store."""
    other = desk.shell.file("other.json", [{"role": "user", "content": "Another."}])

    assert not json.loads(desk.ask("replay", "--input", str(other), "--json", code=1))["is_same"]


def test_the_second_pass_of_a_session_can_be_replayed(desk: Desk) -> None:
    """Its input holds markers of the first."""
    first, second = desk.shell.folder / "out.json", desk.shell.folder / "second.json"
    later = [row for n in range(20, 28) for row in rows_of(n)]
    grown = desk.shell.file("grown.json", [*json.loads(first.read_text()), *later])
    done = desk.shell.run("compress", grown, "-o", second, "--force", "--audit", desk.trail, *desk.words)
    assert "committed" in done.output

    assert desk.json("replay", "--input", str(grown))["is_same"]
    assert desk.json("replay", "--input", str(second))["is_same"]
    oldest, newest = [row["pass"] for row in desk.json("list")["passes"]]
    assert desk.json("replay", "--input", str(second), "--pass", newest)["is_same"]
    assert desk.json("replay", "--input", str(second), "--pass", oldest)["is_same"]


def rows_of(number: int) -> list[Any]:
    asked = call("read_file", id=f"call_{number}", path=f"src/part_{number}.py")
    return history(asked, result(f"part {number}: another line\n" * 120))


def test_tail_follows_what_is_written_later(desk: Desk) -> None:
    """Events of a pass that begins after it, and nothing twice."""
    line = [sys.executable, "-m", "jev_engine", "audit", "--file", str(desk.trail), "tail", "-n", "1", "-f"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as reader:
        limit = threading.Timer(60, reader.kill)  # a reader that hears nothing would wait for ever
        limit.start()
        assert reader.stdout is not None
        first = reader.stdout.readline()
        Desk(desk.shell, [{"role": "user", "content": "Another."}], ())
        later = reader.stdout.readline()
        reader.terminate()
        limit.cancel()

    assert [json.loads(each)["kind"] for each in (first, later)] == ["committed", "pass_started"]


def test_report_is_written_as_one_page(desk: Desk) -> None:
    """For the owner's eyes."""
    page = desk.shell.folder / "report.html"
    desk.ask("report", "-o", str(page))

    assert page.read_text().startswith("<!doctype html>")
    assert page.stat().st_mode & 0o077 == 0


def test_a_dry_run_leaves_a_trail_and_nothing_else(shell: Any, messages: Any, shorten_all: Any) -> None:
    """What would have gone, and that it did not."""
    session, trail = shell.file("session.json", messages), shell.folder / "trail.jsonl"
    assert shell.run("compress", session, "--force", "--audit", trail, *shorten_all).exit_code == 0
    done = CliRunner().invoke(main, ["audit", "--file", str(trail), "list"])

    assert "dry run (committed)" in done.stdout
    explained = CliRunner().invoke(main, ["audit", "--file", str(trail), "explain", "t1"])
    assert "stores nothing" in explained.stdout
    assert not shell.store.exists()


def test_a_trail_that_cannot_be_written_stops_the_pass(shell: Any, messages: Any, shorten_all: Any) -> None:
    """No audit, no deletion: nothing is judged or written, and the message says why."""
    (shell.folder / "file").write_text("")
    out = shell.folder / "out.json"
    done = shell.run("compress", shell.file("s.json", messages), "-o", out, "--force", "--audit",
                     shell.folder / "file" / "trail.jsonl", *shorten_all)  # fmt: skip

    assert done.exit_code == 2
    assert "Not a directory" in done.output
    assert not out.exists()


def test_no_trail_is_a_plain_error(tmp_path: Path) -> None:
    """It says what writes one."""
    done = CliRunner().invoke(main, ["audit", "--file", str(tmp_path / "none"), "list"])

    assert done.exit_code == 2
    assert "--audit FILE" in done.output
