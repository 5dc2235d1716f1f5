"""`jev-engine audit verify | anchor | purge | tail`, and what every reader of a trail is told of it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from jev_engine.audit.chain import LINE_END, START, Head, parse, seal
from jev_engine.audit.jsonl import JsonlSink
from jev_engine.cli import main
from jev_engine.events.batch import Batch


class Audited:
    """Sessions that were compressed into one trail, under a key of this test's own."""

    def __init__(self, shell: Any, words: tuple[str, ...]) -> None:
        self.shell = shell
        self.words = words
        self.trail = shell.folder / "trail.jsonl"
        self.key = shell.folder / "data" / "jev-engine" / "audit.key"

    def add(self, name: str, messages: Any) -> Path:
        session: Path = self.shell.file(name, messages)
        out = self.shell.folder / f"out-{name}"
        done = self.shell.run("compress", session, "-o", out, "--force", "--audit", self.trail, *self.words)
        assert done.exit_code == 0, done.output
        return session

    def ask(self, *words: str | Path, trail: Path | None = None, before: tuple[str, ...] = ()) -> Result:
        line = ["audit", "--file", str(trail or self.trail), "--store", str(self.shell.store), *before]
        return CliRunner().invoke(main, [*line, *map(str, words)], catch_exceptions=False)

    def sessions(self, *before: str) -> list[str]:
        return [row["session"] for row in json.loads(self.ask("list", "--json", before=before).stdout)["passes"]]

    def lines(self) -> list[bytes]:
        return self.trail.read_bytes().splitlines(keepends=True)

    def forge_a_session(self) -> None:
        """With every hash right, as anybody can."""
        line = parse(self.lines()[0])
        assert line is not None
        event = line.event.replace(line.chain.encode(), b"f" * 32)
        start, _ = seal("f" * 32, Head(0, START), event, with_prev=True)
        with self.trail.open("ab") as file:
            file.write(start + event + LINE_END)


@pytest.fixture
def audited(shell: Any, messages: Any, shorten_all: Any, monkeypatch: pytest.MonkeyPatch) -> Audited:
    monkeypatch.setenv("XDG_DATA_HOME", str(shell.folder / "data"))
    made = Audited(shell, shorten_all)
    made.add("one.json", messages)
    return made


def renamed(messages: list[Any], words: str) -> list[Any]:
    return [{**messages[0], "content": words}, *messages[1:]]


def test_a_session_that_somebody_made_up_is_found_by_key_and_by_anchor(audited: Audited) -> None:
    """Exit code 1; before, 0 and what vouches for the lines."""
    whole = audited.ask("verify", "--anchor")
    assert whole.exit_code == 0
    assert "with the seal of the key" in whole.stdout

    audited.forge_a_session()

    by_key = audited.ask("verify")
    assert by_key.exit_code == 1
    assert "lacking the seal of the key" in by_key.stdout
    audited.key.unlink()
    by_anchor = audited.ask("verify", "--anchor")
    assert by_anchor.exit_code == 1
    assert by_anchor.stdout.startswith("NOT proven")
    assert "1 line in 1 chain later than the anchor knows: nothing vouches for them" in by_anchor.stdout


def test_without_key_and_anchor_verify_says_what_it_cannot_know(audited: Audited) -> None:
    """The hashes are right, and anybody can compute them."""
    audited.forge_a_session()
    audited.key.unlink()
    found = audited.ask("verify")

    assert found.exit_code == 0
    assert "whoever can write the file can have made up any line (audit --key FILE names it)" in found.stdout


def test_lines_that_are_later_than_the_anchor_are_the_writers_where_the_key_says_so(audited: Audited) -> None:
    """A process that was killed before it could keep the anchor."""
    sink = JsonlSink(audited.trail, key=audited.key.read_bytes())
    sink.emit_many(Batch("ab" * 16, [b'{"kind":"x"}']))
    found = audited.ask("verify", "--anchor")

    assert found.exit_code == 0
    assert "1 line in 1 chain later than the anchor knows: the key vouches for them" in found.stdout


def test_a_trail_is_proved_in_another_place_with_an_anchor_or_a_key_that_came_along(
    audited: Audited, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where neither the store nor the key is; and a copy that was cut off is found there."""
    there = tmp_path_factory.mktemp("there")
    anchor, key, trail = there / "anchor.json", there / "audit.key", there / "copy.jsonl"
    assert audited.ask("anchor", "-o", anchor).exit_code == 0
    shutil.copy(audited.trail, trail)
    shutil.copy(audited.key, key)
    monkeypatch.setenv("XDG_DATA_HOME", str(there / "data"))

    no_anchor = audited.ask("verify", "--anchor", trail=trail)
    assert (no_anchor.exit_code, "--anchor-file FILE" in no_anchor.stderr) == (2, True)
    assert audited.ask("verify", "--anchor-file", anchor, trail=trail).exit_code == 0
    by_key = audited.ask("verify", "--json", trail=trail, before=("--key", str(key)))
    assert json.loads(by_key.stdout)["sealed"] == len(audited.lines())
    trail.write_bytes(b"".join(audited.lines()[:-1]))
    assert "cut off" in audited.ask("verify", "--anchor-file", anchor, trail=trail).stdout


def test_a_key_that_is_not_the_trails_is_said_to_be_none(audited: Audited) -> None:
    """It is not proven, and not called changed either."""
    audited.key.write_bytes(b"o" * 32)
    found = audited.ask("verify")

    assert found.exit_code == 1
    assert found.stdout.startswith("NOT proven")
    assert "audit --key FILE names another" in found.stdout
    assert audited.ask("verify", "--anchor").exit_code == 0


@pytest.mark.parametrize("out", ["trail.jsonl", "store/originals.sqlite3", "data/jev-engine/audit.key"])
def test_an_anchor_is_written_over_nothing_of_the_trail(audited: Audited, out: str) -> None:
    """Neither trail nor store nor key."""
    path = audited.shell.folder / out
    before = path.read_bytes()

    assert audited.ask("anchor", "-o", path).exit_code == 2
    assert path.read_bytes() == before


def test_a_session_goes_by_its_name_its_file_its_digest_or_the_beginning_of_that(
    audited: Audited, messages: Any
) -> None:
    """In every command; what `list` shows is enough."""
    one = audited.sessions()[0]
    named = audited.shell.run("compress", audited.shell.folder / "one.json", "--json")
    name = json.loads(named.stdout)["stats"]["session"]
    other = audited.add("other.json", renamed(messages, "Another."))
    shown = re.findall(r"session ([0-9a-f]+)", audited.ask("list").stdout)
    assert len(shown) == 2

    for given in (one, shown[0], one[:5], name, str(audited.shell.folder / "one.json")):
        before = ("--session", given)
        assert audited.sessions(*before) == [one]
        tail = audited.ask("tail", before=before).stdout.splitlines()
        assert {json.loads(line)["session"] for line in tail} == {one}
        verified = json.loads(audited.ask("verify", "--anchor", "--json", before=before).stdout)
        assert (verified["sessions"], verified["lines"]) == (1, len(tail))
    assert audited.ask("purge", other, "--yes").exit_code == 0
    assert audited.sessions() == [one]


def test_a_claude_code_session_goes_by_its_id(
    audited: Audited, claude_rows: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was read, where Claude Code keeps it."""
    session = "0f8fad5b-d9cb-469f-a165-70867728950e"
    projects = audited.shell.folder / "claude" / "projects" / "-work"
    projects.mkdir(parents=True)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(audited.shell.folder / "claude"))
    rows = "".join([json.dumps({**row, "sessionId": session}) + "\n" for row in claude_rows])
    (projects / f"{session}.jsonl").write_text(rows)
    audited.add("cc.jsonl", rows)
    (newest,) = set(audited.sessions()) - set(audited.sessions()[:1])

    assert audited.sessions("--session", session) == [newest]


@pytest.mark.parametrize("command", ["list", "stats", "show", "tail", "verify", "export"])
def test_an_unknown_session_is_refused_with_what_there_is(audited: Audited, command: str) -> None:
    """Not taken for an empty one."""
    (one,) = audited.sessions()
    for given in ("nobody", "", one[:-1] + "x"):
        done = audited.ask(command, before=("--session", given))
        assert done.exit_code == 2, command
        assert one[:12] in done.stderr
    assert audited.ask("purge", "nobody", "--yes").exit_code == 2


def test_a_beginning_that_several_sessions_share_is_refused(audited: Audited) -> None:
    """With enough of each to tell them apart."""
    sink = JsonlSink(audited.trail, key=audited.key.read_bytes())
    for chain in ("abcd1" + "0" * 27, "abcd2" + "0" * 27):
        sink.emit_many(Batch(chain, [b'{"kind":"x"}']))
    done = audited.ask("list", before=("--session", "abcd"))

    assert done.exit_code == 2
    assert "2 sessions of this trail begin with 'abcd': abcd10000000, abcd20000000" in done.stderr


@pytest.mark.parametrize("words", ["list", "show", "explain t1", "stats", "export", "report -o -", "answers -o -"])
def test_every_reader_is_told_that_a_trail_was_changed(audited: Audited, words: str) -> None:
    """Once, where no script reads; nothing is said of one that was not."""
    command = words.split()
    told = "Warning: this trail is not what was written"
    assert told not in audited.ask(*command).stderr

    audited.trail.write_bytes(audited.trail.read_bytes().replace(b'"openai"', b'"opena1"', 1))
    changed = audited.ask(*command)
    assert (changed.exit_code, changed.stderr.count(told)) == (0, 1)
    assert json.loads(audited.ask("list", "--json").stdout)["doubt"].startswith("this trail is not")


def test_a_store_that_cannot_be_read_hides_no_change(audited: Audited) -> None:
    """The anchor in it is missing, the rest is looked at."""
    audited.shell.store.write_bytes(b"no store" * 1_000)
    assert audited.ask("list").stderr == ""

    audited.trail.write_bytes(audited.trail.read_bytes().replace(b'"openai"', b'"opena1"', 1))
    assert "this trail is not what was written" in audited.ask("list").stderr
    assert audited.ask("verify", "--anchor").exit_code == 2


def test_a_key_that_is_none_keeps_nobody_from_reading(audited: Audited) -> None:
    """It is named; `verify`, which needs it, refuses."""
    audited.key.write_bytes(b"short")
    listed = audited.ask("list")

    assert (listed.exit_code, "is no key" in listed.stderr) == (0, True)
    assert audited.ask("verify").exit_code == 2


def test_replay_is_told_too(audited: Audited) -> None:
    """Of a trail that was cut off, which its anchor shows."""
    audited.trail.write_bytes(audited.trail.read_bytes() + audited.lines()[-1])
    done = audited.ask("replay", "--input", audited.shell.folder / "one.json")

    assert "this trail is not what was written" in done.stderr


def test_a_trail_of_a_newer_version_is_read_with_a_word_about_it(audited: Audited) -> None:
    """What only that version knows is left out, and nothing is called lost."""
    before = audited.ask("list").stdout
    heads: dict[str, Head] = {}
    made = []
    for raw in audited.lines():
        line = parse(raw)
        assert line is not None
        event = json.loads(line.event)
        event["origin"]["engine_version"] = "9.9"
        written = json.dumps({**event, "news": 1}).encode()
        head = heads.get(line.chain, Head(0, START))
        start, heads[line.chain] = seal(
            line.chain, head, written, with_prev=line.chain not in heads, key=audited.key.read_bytes()
        )
        made.append(start + written + LINE_END)
    audited.trail.write_bytes(b"".join(made))
    done = audited.ask("list")

    assert done.stdout == before
    assert "written by version 9.9" in done.stderr
    assert "left out" in done.stderr


def test_a_purge_is_seen_by_whoever_looks(audited: Audited, messages: Any) -> None:
    """In `verify`, `list` and `tail`, with how many lines and when."""
    lines = len(audited.lines())
    gone = audited.sessions()[0]
    audited.add("other.json", renamed(messages, "Another."))
    assert f"{lines} lines taken out" in audited.ask("purge", gone[:8], "--yes").stdout

    for command in ("verify", "list"):
        assert re.search(rf"Purged 2\d+-.* UTC: {lines} lines of session {gone[:12]}\.", audited.ask(command).stdout)
    (purged,) = json.loads(audited.ask("verify", "--anchor", "--json").stdout)["purged"]
    assert (purged["sessions"], purged["lines"]) == ([gone], lines)
    assert json.loads(audited.ask("tail", "-n", "1").stdout)["reason"] == "purged"


def test_tail_waits_for_a_trail_that_is_not_there_and_ends_with_ctrl_c(audited: Audited) -> None:
    """Without a word about sessions; without -f it is a plain error."""
    none = audited.shell.folder / "later.jsonl"
    assert audited.ask("tail", trail=none).exit_code == 2
    line = [sys.executable, "-m", "jev_engine", "audit", "--file", str(none), "tail", "-f"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        # Whenever it starts to wait: what is written before, it prints, and what is written later.
        shutil.copy(audited.trail, none)
        assert json.loads(reader.stdout.readline())["kind"] == "pass_started"
        reader.send_signal(signal.SIGINT)
        _, errors = reader.communicate(timeout=20)

    assert (reader.returncode, errors) == (0, "")


def test_two_anchors_at_once_are_refused(audited: Audited) -> None:
    """One of them is meant."""
    anchor = audited.shell.folder / "a.json"
    audited.ask("anchor", "-o", anchor)

    assert audited.ask("verify", "--anchor", "--anchor-file", anchor).exit_code == 2


def test_a_time_that_cannot_be_is_no_fault_of_ours(audited: Audited) -> None:
    """An upkeep line with the key's seal may say anything."""
    start = time.monotonic()
    sink = JsonlSink(audited.trail, key=audited.key.read_bytes())
    sink.emit_many(Batch("upkeep", [b'{"at":1e300,"reason":"purged","until":{"ab":[9,"00"]}}']))

    assert "Purged at no time that can be" in audited.ask("verify").stdout
    assert time.monotonic() - start < 10
