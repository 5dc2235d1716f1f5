"""The chain of a trail that says what was taken out of the others, so that the rest can still be proved."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import NamedTuple

from jev_engine.audit.chain import Head

__all__ = ["PURGED", "UPKEEP", "UPKEEP_START", "Taken", "note_of", "read_note"]

UPKEEP = "upkeep"
"""Its name."""
UPKEEP_START = f'{{"chain":"{UPKEEP}",'.encode()
"""How its lines begin."""
PURGED = "purged"
"""The reason of lines that a person took out."""


class Taken(NamedTuple):
    """Lines that were taken out."""

    at: float
    """Seconds since the epoch."""
    reason: str
    """`purged` or `size limit`."""
    until: dict[str, Head]
    """The last line that went, by chain."""
    lines: int | None = None
    """How many a purge took."""


def note_of(reason: str, until: Mapping[str, Head], lines: int | None = None) -> bytes:
    """What the upkeep chain says about lines that go."""
    told = {"kind": "gone", "at": time.time(), "reason": reason, "until": {c: list(head) for c, head in until.items()}}
    return json.dumps(told if lines is None else {**told, "lines": lines}, separators=(",", ":")).encode()


def read_note(event: bytes) -> Taken | None:
    """What a line of that chain says; None where it says nothing of the kind."""
    try:
        told = json.loads(event)
        until = {str(chain): Head(int(count), str(digest)) for chain, (count, digest) in told["until"].items()}
        lines = told.get("lines")
        return Taken(float(told["at"]), str(told["reason"]), until, None if lines is None else int(lines))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
