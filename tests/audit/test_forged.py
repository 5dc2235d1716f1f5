"""Nobody who writes the trail, and has neither key nor anchor, goes unseen; and no honest writer is suspected."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jev_engine.audit.anchor import FileAnchor
from jev_engine.audit.chain import LINE_END, START, Head, Line, body_of, hash_of, parse, seal_of
from jev_engine.audit.files import trail_files
from jev_engine.audit.jsonl import JsonlSink, purge_session
from jev_engine.audit.upkeep import note_of
from jev_engine.audit.verify import Verified, verify
from jev_engine.errors import AuditError
from jev_engine.events.batch import Batch

KEY = b"k" * 32
SESSIONS = ("aa", "bb", "cc")


class Died(BaseException):
    """The machine took the process away."""


@contextmanager
def a_machine_that_dies(monkeypatch: pytest.MonkeyPatch, at: int | None, of_a_write: int) -> Iterator[None]:
    """At its n-th call of the system that changes a file; of a write, some bytes may have arrived before."""
    calls = 0

    def counted(name: str) -> Any:
        work = getattr(os, name)

        def call(*given: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at:
                if name in ("writev", "write"):
                    raw = b"".join(given[1]) if name == "writev" else given[1]
                    write(given[0], raw[: len(raw) * of_a_write // 10])
                raise Died
            if at is not None and calls > at:
                raise Died  # nothing happens after it
            return work(*given)

        return call

    write = os.write
    with monkeypatch.context() as patched:
        for name in ("writev", "write", "replace", "rename", "unlink"):
            patched.setattr(os, name, counted(name))
        yield


class Honest:
    """Two processes that write one trail, small files, and die whenever the test likes."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "t.jsonl"
        (folder / "kept").mkdir()
        self.anchor_path = folder / "kept" / "anchor"
        self.sinks: dict[int, JsonlSink] = {}
        self.count = 0

    def sink(self, process: int) -> JsonlSink:
        if process not in self.sinks:
            anchor = FileAnchor(self.anchor_path)
            self.sinks[process] = JsonlSink(self.path, key=KEY, max_bytes=1_800, max_files=3, anchor=anchor)
        return self.sinks[process]

    def write(self, process: int, session: str, events: int) -> None:
        self.count += 1
        lines = [b'{"kind":"x","id":"%d-%d","words":"%s"}' % (self.count, n, b"w" * 50) for n in range(events)]
        self.sink(process).emit_many(Batch(session, lines))

    def purge(self, process: int, session: str) -> None:
        with suppress(AuditError):  # nothing of it is there
            purge_session(self.sink(process), session)

    def act(self, action: tuple[Any, ...]) -> None:
        what, process, session, events = action
        if what == "write":
            self.write(process, session, events)
        elif what == "flush":
            self.sink(process).flush()
        elif what == "purge":
            self.purge(process, session)
        else:  # killed between two steps
            self.sinks.pop(process, None)

    def looked_at(self, **given: Any) -> Verified:
        return verify(self.path, **given)

    @property
    def anchor(self) -> dict[str, Head]:
        return FileAnchor(self.anchor_path).read()


def acts(*names: str) -> st.SearchStrategy[Any]:
    return st.tuples(st.sampled_from(names), st.integers(0, 1), st.sampled_from(SESSIONS), st.integers(1, 6))


@given(
    steps=st.lists(
        st.tuples(acts("write", "write", "write", "flush", "purge", "kill"), st.one_of(st.none(), st.integers(1, 9)),
                  st.integers(0, 10)),
        min_size=1, max_size=14,
    )
)  # fmt: skip
def test_no_honest_writer_is_suspected(tmp_path_factory: pytest.TempPathFactory, steps: list[Any]) -> None:
    """Dead between two steps or within one, mid-write, rotated, purged, in two processes, with an anchor that lags."""
    honest = Honest(tmp_path_factory.mktemp("honest"))
    honest.write(0, "aa", 1)
    monkeypatch = pytest.MonkeyPatch()
    taken_away = [honest.anchor]
    for action, dies_at, of_a_write in steps:
        try:
            with a_machine_that_dies(monkeypatch, dies_at, of_a_write):
                honest.act(action)
        except Died:
            honest.sinks.pop(action[1], None)

        found = honest.looked_at(key=KEY, anchor=honest.anchor)
        assert found.is_whole, found
        assert honest.looked_at(key=KEY).is_whole
        assert honest.looked_at().is_whole
        assert not honest.looked_at(anchor=honest.anchor).faults  # later lines are no fault, only unproven
        for older in taken_away:  # by somebody who keeps it, and the key
            assert honest.looked_at(key=KEY, anchor=older).is_whole
        taken_away.append(honest.anchor)


def test_an_anchor_that_lags_is_told_and_proves_nothing_of_what_is_later(tmp_path: Path) -> None:
    """A process that was killed before it could keep the anchor: the key still vouches for its lines."""
    honest = Honest(tmp_path)
    honest.write(0, "aa", 3)
    honest.act(("flush", 0, "", 0))
    honest.write(0, "aa", 2)
    honest.write(0, "bb", 1)

    found = honest.looked_at(anchor=honest.anchor)
    assert (found.faults, found.later, found.unproven) == ([], {"aa": 2, "bb": 1}, 3)
    assert not found.is_whole
    assert honest.looked_at(anchor=honest.anchor, key=KEY).is_whole


class Forger:
    """Has the files, and nothing else: recomputes every hash, and keeps the seals or makes some up."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[Line] = [
            line for file in trail_files(path) for raw in file.read_bytes().splitlines() if (line := parse(raw))
        ]

    def write(self, *, key: bytes | None = None) -> None:
        """All into one file, each chain from where it began."""
        for file in trail_files(self.path):
            file.unlink()
        heads: dict[str, Head] = {}
        made = []
        for line in self.lines:
            is_first = line.chain not in heads
            head = heads.get(line.chain) or Head(line.n - 1, line.prev or START)
            body = body_of(head.hash, head.lines + 1, line.event)
            sealed = line.seal if key is None else seal_of(key, line.chain, body)
            heads[line.chain] = Head(head.lines + 1, hash_of(body, sealed))
            told = {"chain": line.chain, "n": head.lines + 1, "prev": head.hash if is_first else None, "seal": sealed}
            kept = {name: value for name, value in told.items() if value is not None}
            start = json.dumps({**kept, "hash": heads[line.chain].hash}, separators=(",", ":"))[:-1].encode()
            start += b',"event":'
            made.append(start + line.event + LINE_END)
        self.path.write_bytes(b"".join(made))

    def append(self, chain: str, event: bytes) -> None:
        self.lines.append(Line(chain, 1, None, None, "", event))

    def act(self, what: str, at: int) -> None:
        line = self.lines[at % len(self.lines)]
        index = self.lines.index(line)
        if what == "remove":
            del self.lines[index]
        elif what == "remove a session, and say it was purged":
            end = [each for each in self.lines if each.chain == line.chain][-1]
            self.lines = [each for each in self.lines if each.chain != line.chain]
            self.append("upkeep", note_of("purged", {line.chain: Head(end.n, end.hash)}, 1))
        elif what == "cut off the end, and say it was the size limit":
            self.lines.remove(end := [each for each in self.lines if each.chain == line.chain][-1])
            self.append("upkeep", note_of("size limit", {line.chain: Head(end.n, end.hash)}))
        elif what == "change":
            self.lines[index] = line._replace(event=line.event.replace(b'"x"', b'"y"'))
        elif what == "append to a session":
            self.append(line.chain, b'{"kind":"x","id":"forged"}')
        elif what == "begin a session":
            self.append("f" * 32, b'{"kind":"x","id":"forged"}')
        elif what == "copy as another session":
            self.lines += [each._replace(chain="dd") for each in self.lines if each.chain == line.chain]
        elif what == "double":
            self.lines.insert(index, line)


FORGERIES = (
    "remove", "remove a session, and say it was purged", "cut off the end, and say it was the size limit", "change",
    "append to a session", "begin a session", "copy as another session", "double",
)  # fmt: skip


def told_in(path: Path) -> dict[str, list[bytes]]:
    """What each session says, in its order."""
    told: dict[str, list[bytes]] = {}
    for file in trail_files(path):
        for raw in file.read_bytes().splitlines():
            if (line := parse(raw)) is not None:
                told.setdefault(line.chain, []).append(line.event)
    return told


@given(
    steps=st.lists(acts("write", "write", "flush", "purge", "kill"), max_size=8),
    forgeries=st.lists(st.tuples(st.sampled_from(FORGERIES), st.integers(0, 99)), min_size=1, max_size=3),
    key=st.sampled_from([None, b"f" * 32]),
)
def test_no_forger_goes_unseen(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], forgeries: list[Any], key: bytes | None
) -> None:
    """Whatever is done to the lines, with every hash made right again: the anchor shows it, with the key or without."""
    honest = Honest(tmp_path_factory.mktemp("forged"))
    honest.write(0, "aa", 2)
    for step in steps:
        honest.act(step)
    honest.sink(0).flush()
    honest.write(0, "bb", 2)
    honest.act(("flush", 0, "", 0))
    before = told_in(honest.path)
    forger = Forger(honest.path)
    for what, at in forgeries:
        if forger.lines:
            forger.act(what, at)
    forger.write(key=key)

    if told_in(honest.path) != before:
        assert not honest.looked_at(anchor=honest.anchor).is_whole
        assert not honest.looked_at(anchor=honest.anchor, key=KEY).is_whole


@pytest.mark.parametrize("what", FORGERIES)
def test_the_key_alone_shows_each_forgery(tmp_path: Path, what: str) -> None:
    """Also where no anchor was kept; all but a plain cut at the end, which only the anchor knows."""
    honest = Honest(tmp_path)
    for session in ("aa", "bb", "aa"):
        honest.write(0, session, 3)
    forger = Forger(honest.path)
    forger.act(what, 1)
    forger.write()

    assert honest.looked_at().is_whole  # anybody can compute the hashes
    assert not honest.looked_at(key=KEY).is_whole


def test_a_trail_of_another_key_is_no_proof(tmp_path: Path) -> None:
    """Made by somebody else from the first line to the last, or simply written under another key."""
    honest = Honest(tmp_path)
    honest.write(0, "aa", 3)
    honest.act(("flush", 0, "", 0))

    found = honest.looked_at(key=b"o" * 32)
    assert (found.faults, found.sealed, found.unproven, found.is_whole) == ([], 0, 3, False)
    assert honest.looked_at(key=b"o" * 32, anchor=honest.anchor).is_whole  # the anchor does not need the key


def after_a_torn_line(folder: Path, torn: bytes) -> Verified:
    """A line that was cut off, and a writer that goes on behind it."""
    honest = Honest(folder)
    honest.write(0, "aa", 2)
    with honest.path.open("ab") as file:
        file.write(torn)
    honest.act(("kill", 0, "", 0))
    honest.write(0, "aa", 2)
    return honest.looked_at(key=KEY)


@pytest.mark.parametrize(
    "torn",
    [
        b'{"cha',
        b'{"chain":"a',
        b'{"chain":"aa","n',
        b'{"chain":"aa","n":3',
        b'{"chain":"aa","n":3,"hash":"00',
        b'{"chain":"new","n":1,"prev":"0',
    ],
)
def test_a_line_that_its_writer_did_not_finish_is_no_fault(tmp_path: Path, torn: bytes) -> None:
    """It is the start of the one that had to come."""
    found = after_a_torn_line(tmp_path, torn)

    assert (found.torn, found.faults) == (1, [])


@pytest.mark.parametrize(
    "torn",
    [
        b'{"chain":"abc","n":3',
        b'{"chain":"aa","n":4,',
        b'{"chain":"aa","n":2,"hash":"00',
        b'{"chain":"aa","n":03',
        b'{"chain":"aa","n":31,"hash":"0',
        b'{"chain":"aa","n":%s,' % (b"9" * 5_000),
        b'{"chain":"%s","n":1,' % (b"a" * 65),
        b'{"chain":"aa","words":"',
    ],
)
def test_any_other_beginning_of_a_line_was_put_there(tmp_path: Path, torn: bytes) -> None:
    """Of a session that is not there, or with another number than the one its session goes on with."""
    found = after_a_torn_line(tmp_path, torn)

    assert (found.torn, [fault.line for fault in found.faults]) == (0, [3])


def test_lines_that_were_purged_and_are_back_are_named(tmp_path: Path) -> None:
    """Their seals are good: it was a purge that was broken off, or somebody kept a copy."""
    honest = Honest(tmp_path)
    honest.write(0, "aa", 3)
    copy = honest.path.read_bytes()
    honest.write(0, "bb", 1)
    honest.purge(0, "aa")
    assert honest.looked_at(key=KEY).unfinished == []
    honest.path.write_bytes(copy + honest.path.read_bytes())

    assert honest.looked_at(key=KEY).unfinished == ["aa"]


@pytest.mark.parametrize("dies_at", range(1, 14))
def test_a_purge_that_is_broken_off_leaves_a_whole_trail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: int
) -> None:
    """After any step, of a session in several files, with lines that were cut off; and a second purge ends it."""
    honest = Honest(tmp_path)
    honest.write(0, "aa", 3)
    honest.write(0, "bb", 5)
    for torn in (b'{"chain":"aa","n":4,"hash":"00', b'{"chain":"aa","n":7'):
        with honest.path.open("ab") as file:
            file.write(torn)
        honest.act(("kill", 0, "", 0))
        honest.write(0, "aa", 3)
    assert len(trail_files(honest.path)) == 3
    with suppress(Died), a_machine_that_dies(monkeypatch, dies_at, of_a_write=5):
        honest.purge(1, "aa")

    found = honest.looked_at(key=KEY, anchor=honest.anchor)
    assert (found.faults, found.is_whole) == ([], True)
    assert not honest.looked_at(anchor=honest.anchor).faults
    honest.sinks.clear()
    honest.purge(1, "aa")
    found = honest.looked_at(key=KEY, anchor=honest.anchor)
    assert (found.is_whole, found.unfinished) == (True, [])
    assert b'"chain":"aa"' not in b"".join([each.read_bytes() for each in trail_files(honest.path)])


def test_an_upkeep_line_is_believed_as_far_as_key_or_anchor_go(tmp_path: Path) -> None:
    """Where both are missing, there is nothing to hold against it."""
    honest = Honest(tmp_path)
    for session in ("aa", "bb"):
        honest.write(0, session, 3)
    honest.act(("flush", 0, "", 0))
    forger = Forger(honest.path)
    forger.act("remove a session, and say it was purged", 0)
    forger.write()

    for proofs in ({"key": KEY, "anchor": honest.anchor}, {"anchor": honest.anchor}):
        found = honest.looked_at(**proofs)
        assert found.taken == []
        assert "the end was cut off" in found.faults[0].what
    assert [note.reason for note in honest.looked_at().taken] == ["purged"]


def test_a_purge_says_what_it_took(tmp_path: Path) -> None:
    """When, of which session, and how many lines; its end stays known over rotations."""
    honest = Honest(tmp_path)
    honest.write(0, "aa", 3)
    honest.purge(0, "aa")

    (taken,) = honest.looked_at(key=KEY).taken
    assert (taken.reason, list(taken.until), taken.lines) == ("purged", ["aa"], 3)
    for session in ("aa", "bb", "cc") * 12:
        honest.write(0, session, 4)
        assert honest.looked_at(key=KEY).is_whole


def test_a_line_says_nothing_else_when_its_seal_is_moved(tmp_path: Path) -> None:
    """A seal holds for one place in one session."""
    honest = Honest(tmp_path)
    honest.write(0, "aa", 4)
    lines = [json.loads(line) for line in honest.path.read_bytes().splitlines()]

    assert len({line["seal"] for line in lines}) == 4
    swapped = honest.path.read_bytes().replace(lines[1]["seal"].encode(), lines[2]["seal"].encode())
    honest.path.write_bytes(swapped)
    assert not honest.looked_at().is_whole
