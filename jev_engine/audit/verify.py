"""Whether a trail is what was written: every line, in its place, and with the anchor also its end."""

from __future__ import annotations

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jev_engine.audit.chain import START, Head, Line, digest_of
from jev_engine.audit.files import read_lines, trail_files
from jev_engine.audit.jsonl import UPKEEP
from jev_engine.errors import AuditError

__all__ = ["Fault", "Verified", "verify"]


# What may be left of a word, a number or an escape that was cut.
PIECE = re.compile(r"|t|tr|tru|f|fa|fal|fals|n|nu|nul|-|[.eE][-+]?|\\?u[0-9a-f]{0,3}")
START_OF_LINE = b'{"chain":"'


class Fault(NamedTuple):
    """One thing that is wrong, and where."""

    file: str
    line: int
    what: str


class Verified(NamedTuple):
    """What a look at every line came to."""

    lines: int
    heads: dict[str, Head]
    """End of each chain."""
    faults: list[Fault]
    torn: int
    """Lines that a writer did not finish: nothing of theirs was ever whole."""
    begun_later: int
    """Chains whose first lines were taken out by the size limit or a purge, and are accounted for."""

    @property
    def is_whole(self) -> bool:
        """Nothing is wrong."""
        return not self.faults


class _Look:
    def __init__(self) -> None:
        self.heads: dict[str, Head] = {}
        self.faults: list[Fault] = []
        self.gone: set[tuple[str, int, str]] = set()
        """Ends of what was taken out, as the upkeep chain says."""
        self.open: list[tuple[Fault, tuple[str, int, str]]] = []
        """Lines whose predecessor is not there, until the upkeep chain accounts for it."""
        self.lines = self.torn = 0

    def take(self, file: str, number: int, raw: bytes, line: Line | None) -> None:
        self.lines += 1
        if line is None:
            if _is_torn(raw):
                self.torn += 1
            else:
                self.faults.append(Fault(file, number, "is no line of a trail: it was changed or added"))
            return
        head = self.heads.get(line.chain)
        prev = line.prev if line.prev is not None else head.hash if head else START
        self.heads[line.chain] = Head(line.n, line.hash)
        if digest_of(prev, line.n, line.event) != line.hash:
            what = "does not fit its hash: it was changed, or lines before it were removed, added or reordered"
            self.faults.append(Fault(file, number, what))
            return
        expected = head or Head(0, START)
        if (line.n - 1, prev) != expected:
            what = (
                f"is number {line.n:,} of its session, expected was {expected.lines + 1:,}: lines are missing or moved"
            )
            fault = Fault(file, number, what)
            self.open.append((fault, (line.chain, line.n - 1, prev)))
        if line.chain == UPKEEP:
            try:
                until = json.loads(line.event)["until"].items()
                self.gone.update((chain, count, digest) for chain, (count, digest) in until)
            except (ValueError, TypeError, KeyError, AttributeError):
                self.faults.append(Fault(file, number, "says nothing of what was taken out: it was made up"))


def verify(path: Path, anchor: Mapping[str, Head] | None = None) -> Verified:
    """Read every line of every file of a trail; with `anchor` also find out whether its end is there.

    Raises AuditError where there is no trail, or a file cannot be read.
    """
    files = trail_files(path)
    if not files:
        raise AuditError(f"no trail at {str(path)!r}")
    look = _Look()
    for file in files:
        for number, raw, line in read_lines(file):
            look.take(file.name, number, raw, line)
    begun_later = 0
    for fault, before in look.open:
        if before in look.gone:
            begun_later += 1
        else:
            look.faults.append(fault)
    if anchor is not None:
        look.faults.extend(_against(anchor, look, files[-1].name))
    return Verified(look.lines, look.heads, sorted(look.faults), look.torn, begun_later)


def _against(anchor: Mapping[str, Head], look: _Look, file: str) -> list[Fault]:
    faults = []
    for chain, known in anchor.items():
        found = look.heads.get(chain)
        if (chain, *known) in look.gone:
            continue
        if found is None or found.lines < known.lines:
            have = found.lines if found else 0
            what = f"session {chain}: the anchor knows {known.lines:,} lines, {have:,} are there: the end was cut off"
            faults.append(Fault(file, 0, what))
        elif found.lines == known.lines and found.hash != known.hash:
            faults.append(Fault(file, 0, f"session {chain}: ends otherwise than the anchor says: it was written anew"))
    return faults


def _is_torn(raw: bytes) -> bool:
    """A line whose writer died: the start of one, JSON as far as it goes, without the end of one."""
    text = raw.rstrip(b"\n")
    if not (text.startswith(START_OF_LINE) or START_OF_LINE.startswith(text)) or text.endswith(b"}}"):
        return False
    try:
        # A character of several bytes may have been cut too.
        whole = getincrementaldecoder("utf-8")().decode(text)
        json.loads(whole)
    except json.JSONDecodeError as error:
        rest = whole[error.pos :]
        return error.msg.startswith("Unterminated string") or PIECE.fullmatch(rest) is not None
    except ValueError:
        return False
    return False  # nothing is missing, and still it is no line of ours
