"""A trail as it is being written: every event from now on, over rotations and purges."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from jev_engine import events
from jev_engine.audit.chain import parse
from jev_engine.audit.jsonl import UPKEEP

__all__ = ["POLL_SECONDS", "follow"]

POLL_SECONDS = 0.25
"""Between two looks: a person sees no delay, and a quiet trail costs nothing."""


def follow(path: Path, session: str | None = None) -> Iterator[events.Event]:
    """Events written after this call, without end; `session` is a session's keyed digest.

    A trail that is not there yet is waited for. Lines that are no event are left out: `verify` names them.
    """
    try:
        at = path.stat().st_size
    except FileNotFoundError:
        at = 0
    return _events(path, session, at)


def _events(path: Path, session: str | None, at: int) -> Iterator[events.Event]:
    for raw in _lines(path, at):
        line = parse(raw)
        if line is None or line.chain == UPKEEP or (session is not None and line.chain != session):
            continue
        try:
            event = events.read_event(line.event)
        except ValueError:
            continue
        yield event


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
