"""Recorded sessions: one JSON object a line, OpenAI-like messages with `reasoning` and `compact_boundary`.

A session is split at its real compactions: each segment was one uninterrupted context.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jev_engine.transcript import ToolCall, Transcript, TranscriptBuilder

__all__ = [
    "Segment", "Session", "corpus_hash", "cuts_of", "parse_session", "read_lines", "read_messages", "read_sessions",
    "units_of",
]  # fmt: skip

SEGMENT_RESULTS = 12
"""Results a segment needs to be looked at."""
CUT_RESULTS = 16
"""Results a segment needs to be cut."""
FIRST_CUTS = (10, 15, 20, 30)
"""Results before the first cuts; later cuts follow at +25 %, at least +15."""
AFTER_CUT = 5
"""Results that must follow a cut, so that there is a future to look into."""


class Session:
    """One recorded session."""

    __slots__ = ("harness", "messages", "project", "session_id")

    def __init__(self, session_id: str, project: str, harness: str, messages: list[dict[str, Any]]) -> None:
        self.session_id = session_id
        self.project = project
        """The repository it worked on: sessions of one project are never split between training and test."""
        self.harness = harness
        self.messages = messages

    def segments(self) -> list[Segment]:
        """Its uninterrupted contexts that are long enough to say something."""
        edges = [i for i, message in enumerate(self.messages) if message.get("compact_boundary")]
        starts = [0, *[edge + 1 for edge in edges]]
        found = []
        for number, (start, stop) in enumerate(zip(starts, [*edges, len(self.messages)], strict=True)):
            messages = self.messages[start:stop]
            if sum(message["role"] == "tool" for message in messages) >= SEGMENT_RESULTS:
                found.append(Segment(self, number, messages))
        return found


class Segment:
    """One uninterrupted context of a session."""

    __slots__ = ("messages", "number", "session", "transcript", "units")

    def __init__(self, session: Session, number: int, messages: list[dict[str, Any]]) -> None:
        self.session = session
        self.number = number
        self.messages = messages
        self.transcript = read_messages(messages)
        self.units = units_of(self.transcript)

    def before(self, row: int) -> Transcript:
        """The history as it stood before message `row`, read afresh: nothing of the future is in it."""
        return read_messages(self.messages[:row])


def read_messages(messages: Sequence[dict[str, Any]]) -> Transcript:
    """The transcript of messages in the corpus' own form."""
    builder = TranscriptBuilder(messages)
    for row, message in enumerate(messages):
        role = message["role"]
        text = message.get("content") or ""
        if role == "tool":
            builder.result(row, message.get("tool_call_id"), text, is_error=bool(message.get("is_error")))
            continue
        by_host = message.get("meta") or message.get("compact_summary")
        entry = builder.entry(row, role, text, is_human=role == "user" and not by_host)
        entry.reasoning = message.get("reasoning") or message.get("reasoning_content") or ""
        for place, call in enumerate(message.get("tool_calls") or ()):
            function = call["function"]
            builder.call(entry, call.get("id"), function["name"] or "", function["arguments"] or "", place)
    return builder.finish()


def units_of(transcript: Transcript) -> list[ToolCall]:
    """The calls that have a result, in the order the results arrived."""
    closed = [call for call in transcript.calls if call.result is not None]
    return sorted(closed, key=lambda call: (call.result_row, call.number))


def cuts_of(segment: Segment) -> list[int]:
    """Message rows at which a compaction is imagined: after a whole response and its results."""
    units = segment.units
    total = len(units)
    if total < CUT_RESULTS:
        return []
    counts = list(FIRST_CUTS)
    while counts[-1] < total:
        counts.append(counts[-1] + max(15, counts[-1] // 4))
    rows: list[int] = []
    for count in counts:
        if count > total - AFTER_CUT - 1:
            break
        row = units[count - 1].result_row + 1
        while row < len(segment.messages) and segment.messages[row]["role"] == "tool":
            row += 1
        before = sum(unit.result_row < row for unit in units)
        if before <= total - AFTER_CUT and row not in rows[-1:]:
            rows.append(row)
    return rows


def _open_lines(path: Path) -> Iterator[str]:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            yield from stream
    else:
        with path.open(encoding="utf-8") as stream:
            yield from stream


def read_sessions(path: Path) -> Iterator[Session]:
    """The sessions of a corpus file, one at a time."""
    for number, line in enumerate(read_lines(path), 1):
        yield parse_session(line, f"line-{number}")


def parse_session(line: str, name: str = "") -> Session:
    """The session of one line of a corpus file; `name` is used where the line has no id.

    Raises ValueError or TypeError for what is no session.
    """
    record = json.loads(line)
    if not isinstance(record, dict) or not isinstance(record.get("messages"), list):
        raise TypeError("a line is no object with a list of `messages`")
    for place, message in enumerate(record["messages"], 1):
        if not isinstance(message, dict) or not isinstance(message.get("content"), str | None):
            raise TypeError(f"message {place} of a session is no object with a text as its `content`")
    known = record.get("id") or record.get("session") or name
    return Session(str(known), record.get("source") or "unknown", record.get("harness") or "", record["messages"])


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a corpus file that hold a session, unparsed."""
    return (line for line in _open_lines(path) if line.strip())


def corpus_hash(path: Path) -> str:
    """Sixteen hex digits over the text of a corpus, the same packed and unpacked."""
    digest = hashlib.blake2b(digest_size=8)
    for line in _open_lines(path):
        digest.update(line.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
