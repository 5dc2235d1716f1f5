"""The file: appended whole, chained, repaired, rotated, purged, and its owner's only (fault A34)."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jev_engine.audit.anchor import FileAnchor
from jev_engine.audit.files import older_files, trail_files
from jev_engine.audit.jsonl import JsonlSink, purge_session
from jev_engine.audit.upkeep import UPKEEP
from jev_engine.audit.verify import verify
from jev_engine.errors import AuditError
from jev_engine.events import ModelCalled, Origin
from jev_engine.events.batch import Batch

KEY = b"k" * 32
ORIGIN = Origin(actor="host", host="openai", engine_version="0")


def line_of(number: int, session: str = "5e55") -> bytes:
    event = ModelCalled(
        id=f"{number:032x}", at=1.0, origin=ORIGIN, session=session, pass_id="", sequence=number, model="m" * 50
    )
    return event.model_dump_json(exclude_none=True).encode()


def batch_of(count: int, session: str = "5e55", start: int = 0) -> Batch:
    return Batch(session, [line_of(start + n, session) for n in range(count)])


def sink_at(path: Path, **settings: Any) -> JsonlSink:
    return JsonlSink(path, key=KEY, **settings)


def whole(path: Path) -> bool:
    found = verify(path, FileAnchor.beside(path).read())
    assert not found.faults, found.faults
    return True


def test_what_is_written_can_be_proved(tmp_path: Path) -> None:
    """One record a line, all of them whole, readable by the owner only; a second sink goes on where the first ended."""
    path = tmp_path / "t.jsonl"
    for start in (0, 5):
        sink = sink_at(path)
        sink.emit_many(batch_of(5, start=start))
        sink.close()

    lines = path.read_text().splitlines()
    assert [json.loads(line)["n"] for line in lines] == list(range(1, 11))
    assert [json.loads(line)["event"]["sequence"] for line in lines] == list(range(10))
    for each in (path, FileAnchor.beside(path).path, path.with_name("t.jsonl.lock")):
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
    assert FileAnchor.beside(path).read()["5e55"].lines == 10
    assert whole(path)


@pytest.mark.parametrize(
    "torn",
    [
        b'{"a":',
        b'{"chain":"5e55","n":3,"hash":"00',
        '{"chain":"5e55","n":3,"hash":"0","event":{"tool":"ä'.encode()[:-1],
    ],
)
def test_a_torn_tail_costs_no_whole_record(tmp_path: Path, torn: bytes) -> None:
    """A34: a line that was cut off, then two events; every whole record is there, before and after it."""
    path = tmp_path / "t.jsonl"
    sink = sink_at(path)
    sink.emit_many(batch_of(2))
    sink.close()
    with path.open("ab") as file:
        file.write(torn)
    sink = sink_at(path)
    sink.emit_many(batch_of(2, start=2))
    sink.close()

    whole_lines = [json.loads(line) for line in path.read_bytes().split(b"\n") if line.endswith(b"}}")]
    assert [line["n"] for line in whole_lines] == [1, 2, 3, 4]
    found = verify(path, FileAnchor.beside(path).read())
    if torn.startswith(b'{"chain"'):
        assert found.is_whole
        assert found.torn == 1
    else:
        assert [fault.line for fault in found.faults] == [3]  # nothing of ours begins so: somebody else wrote it


def test_a_writer_that_is_killed_loses_no_whole_record(tmp_path: Path) -> None:
    """With SIGKILL, in the middle of writing; what had been written stays, and another process goes on."""
    path = tmp_path / "t.jsonl"
    code = (
        "import sys; sys.path.insert(0, sys.argv[2]); from test_jsonl import *\n"
        "sink = sink_at(Path(sys.argv[1]))\n"
        "for start in range(0, 10**9, 50):\n"
        "    sink.emit_many(batch_of(50, start=start)); print(start + 50, flush=True)\n"
    )
    command = [sys.executable, "-c", code, str(path), str(Path(__file__).parent)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    told = 0
    while told < 500:
        told = int(writer.stdout.readline())
    writer.send_signal(signal.SIGKILL)
    told = int(([told, *writer.stdout.read().split()])[-1])
    writer.wait()
    writer.stdout.close()
    sink = sink_at(path)
    sink.emit_many(batch_of(1))
    sink.close()

    found = verify(path, FileAnchor.beside(path).read())
    assert not found.faults
    assert found.heads["5e55"].lines >= told + 1


def write_many(path: str, session: str) -> None:
    sink = sink_at(Path(path))
    for start in range(0, 200, 10):
        sink.emit_many(batch_of(10, session, start))
    sink.close()


def test_several_processes_write_one_trail(tmp_path: Path) -> None:
    """Two of them even one session: no line is torn, doubled or out of its chain."""
    path = tmp_path / "t.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(str(path), session)) for session in ("aa", "aa", "bb")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert whole(path)
    heads = verify(path).heads
    assert (heads["aa"].lines, heads["bb"].lines) == (400, 200)


def test_rotation_stays_within_its_size_and_can_be_proved(tmp_path: Path) -> None:
    """A small limit here, a million events in benchmarks/audit.py."""
    path = tmp_path / "t.jsonl"
    limit, files = 20_000, 3
    sink = sink_at(path, max_bytes=limit, max_files=files)
    for start in range(0, 2_000, 100):
        sink.emit_many(batch_of(100, f"{start % 300:04d}", start))
    sink.close()

    assert len(trail_files(path)) == files
    assert sum(each.stat().st_size for each in trail_files(path)) <= limit * files
    assert all(stat.S_IMODE(each.stat().st_mode) == 0o600 for each in trail_files(path))
    assert whole(path)
    again = sink_at(path, max_bytes=limit, max_files=files)
    again.emit_many(batch_of(3, "0000"))
    again.close()
    assert whole(path)


def test_a_purged_session_leaves_nothing_and_the_rest_can_be_proved(tmp_path: Path) -> None:
    """The upkeep line keeps number and hash of what went; the session may begin again."""
    path = tmp_path / "t.jsonl"
    sink = sink_at(path, max_bytes=4_000)
    for start in range(0, 30, 3):
        sink.emit_many(batch_of(3, "aa" if start % 2 else "bb", start))
    sink.flush()
    assert older_files(path)
    taken = purge_session(sink, "aa")
    sink.emit_many(batch_of(2, "aa", 100))
    sink.close()

    assert taken == 15
    text = b"".join(each.read_bytes() for each in trail_files(path))
    assert text.count(b'"chain":"aa"') == 2
    assert text.count(f'"chain":"{UPKEEP}"'.encode()) == 1
    assert whole(path)
    with pytest.raises(AuditError, match="no line of that session"):
        purge_session(sink_at(path), "cc")


def test_a_folder_that_cannot_be_written_is_a_plain_error(tmp_path: Path) -> None:
    """With path, cause and remedy. The engine counts it; nobody's pass falls over it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(AuditError, match=r"t\.jsonl.*Not a directory.*name another file"):
        sink_at(tmp_path / "file" / "t.jsonl").emit_many(batch_of(1))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # from 3.12 on, where other threads run
def test_a_fork_writes_with_its_own_handle(tmp_path: Path) -> None:
    """Parent and child go on with one chain."""
    path = tmp_path / "t.jsonl"
    sink = sink_at(path)
    sink.emit_many(batch_of(1))
    child = os.fork()
    if child == 0:
        sink.emit_many(batch_of(1))
        os._exit(0)
    os.waitpid(child, 0)
    sink.emit_many(batch_of(1))
    sink.close()

    assert whole(path)
    assert verify(path).heads["5e55"].lines == 3
