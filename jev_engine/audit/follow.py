"""A trail as it is being written: every line from now on, over rotations and purges; and the newest before."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from jev_engine.audit.chain import Line, parse
from jev_engine.audit.files import read_lines, trail_files
from jev_engine.audit.upkeep import UPKEEP, read_note

__all__ = ["POLL_SECONDS", "follow", "newest"]

POLL_SECONDS = 0.25
"""Between two looks: a person sees no delay, and a quiet trail costs nothing."""


def follow(path: Path, session: str | None = None) -> Iterator[Line]:
    """Lines written after this call, without end; `session` is a session's keyed digest.

    A trail that is not there yet is waited for. Lines that are no line of a trail are left out: `verify` names them.
    """
    try:
        at = path.stat().st_size
    except FileNotFoundError:
        at = 0
    return _of(session, map(parse, _lines(path, at)))


def newest(path: Path, count: int, session: str | None = None) -> list[Line]:
    """The last lines of a trail; none where there is no trail. Raises AuditError where it cannot be read."""
    lines = (line for file in trail_files(path) for _, _, line in read_lines(file))
    return list(deque(_of(session, lines), maxlen=count))


def _of(session: str | None, lines: Iterable[Line | None]) -> Iterator[Line]:
    """Lines of one session or of all, with what was taken out of it, or out of any."""
    for line in lines:
        if line is None:
            continue
        if line.chain == UPKEEP:
            note = read_note(line.event)
            is_wanted = note is not None and (session is None or session in note.until)
        else:
            is_wanted = session is None or line.chain == session
        if is_wanted:
            yield line


def _lines(path: Path, at: int) -> Iterator[bytes]:
    """Whole lines behind a place; a file that took this one's name is read from its start."""
    while True:
        try:
            file = path.open("rb")
        except FileNotFoundError:
            time.sleep(POLL_SECONDS)
            continue
        with file:
            mine = os.fstat(file.fileno())
            file.seek(at)
            at, rest = 0, b""
            is_last_look = False
            while True:
                rest += file.read()
                *whole, rest = rest.split(b"\n")
                yield from whole
                if is_last_look:
                    break
                time.sleep(POLL_SECONDS)
                # Put aside while it was read: its end is read once more, then the new one.
                is_last_look = not _is_same(path, mine)


def _is_same(path: Path, mine: os.stat_result) -> bool:
    try:
        now = path.stat()
    except FileNotFoundError:
        return False
    return (now.st_dev, now.st_ino) == (mine.st_dev, mine.st_ino)
