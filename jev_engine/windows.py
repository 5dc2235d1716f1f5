"""A history too long for one state, shown in windows.

Each window holds the goal, the newest rows, one span of old rows, and later rows that mention what the span is about.
Every unit lies in exactly one span, so every unit is decided at any length, and a request never grows with the history.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from jev_engine.state import State, abridge, cut, envelope, quote, render
from jev_engine.tokens import TWENTIETHS, cost
from jev_engine.transcript import Entry, ToolCall, Transcript

__all__ = ["windows"]

# Windows render old rows with short inputs: a span then holds about three times as many units.
WINDOW_STAGE = 2
# Of the state's room: what the newest rows, and later mentions, may take.
TAIL_SHARE = 0.25
MENTION_SHARE = 0.08
# So many of each at most.
MENTIONS_PER_WINDOW = 12
TAIL_ROWS = 12
# Names that matter stand at the beginning of an input, and looking for them is the slowest part of a window.
NAMED_INPUT_CHARS, NAMED_TEXT_CHARS = 400, 4_000
# A file name: the one kind of word that ties later text to an earlier call in every harness seen.
NAME = re.compile(r"(?<![\w.-])[\w-]{2,60}\.[A-Za-z]\w{0,7}(?![\w-])")


def windows(
    transcript: Transcript,
    candidates: Sequence[ToolCall],
    costs: Sequence[int],
    *,
    context: str,
    goal: str,
    state_room: int,
    request_room: int,
    most: int | None = None,
) -> list[tuple[State, list[ToolCall]]]:
    """States and the units to ask about in each; rooms and costs in twentieths of a token, `most` units in one."""
    wanted = {call.number: amount for call, amount in zip(candidates, costs, strict=True)}
    frame = cost(envelope(context, goal, [])) + TWENTIETHS
    tail_from, tail = _tail(transcript.entries, wanted, int(state_room * TAIL_SHARE))
    fixed = frame + sum(size for _, size in tail)
    mentions = _Mentions(transcript.entries, tail_from) if len(transcript.entries) > TAIL_ROWS else None
    spare = int(state_room * MENTION_SHARE) if mentions else 0
    made: list[tuple[State, list[ToolCall]]] = []
    span = _Span()

    def close() -> None:
        nonlocal span
        if span.asked:
            later, extra = mentions.after(span.last_row, span.asked, spare) if mentions else ([], 0)
            text = envelope(context, goal, [*span.drawn, *later, *(drawn for drawn, _ in tail)])
            made.append((State(text, "window", fixed + span.cost + extra, span.shown), span.asked))
        span = _Span()

    limit = (state_room - fixed - spare, request_room - fixed - spare)
    for piece in _pieces(transcript.entries[:tail_from], wanted, (limit[0] // PIECES, limit[1] // PIECES)):
        full = span.cost + piece.cost > limit[0]
        asking = span.cost + span.asking + piece.cost + piece.asking
        many = most is not None and len(span.asked) + len(piece.asked) > most
        if span.asked and (full or many or asking > limit[1]):
            close()
        elif span.drawn and full:
            # Nobody to ask about in this span: old talk that nothing hangs on.
            span = _Span()
        span.add(piece)
    close()
    return made


class _Span:
    """Old rows as JSON text, measured together, and the units in them."""

    __slots__ = ("asked", "asking", "cost", "drawn", "last_row", "shown")

    def __init__(self) -> None:
        self.drawn: list[str] = []
        self.shown: list[ToolCall] = []
        self.asked: list[ToolCall] = []
        self.cost = 0
        self.asking = 0
        """What the questions about `asked` cost."""
        self.last_row = 0

    def add(self, other: _Span) -> None:
        self.drawn += other.drawn
        self.shown += other.shown
        self.asked += other.asked
        self.cost += other.cost
        self.asking += other.asking
        self.last_row = other.last_row


# Rows are measured a few at a time, which takes a third of measuring each; so coarse may a window's filling be.
PIECE_CHARS = 2_000
# A piece takes at most this part of a window's room for state and questions.
PIECES = 32


def _pieces(entries: Sequence[Entry], wanted: Mapping[int, int], limit: tuple[int, int]) -> Iterator[_Span]:
    """Old rows in small spans: up to 2,000 characters, and a small part of the room for state and questions."""
    piece = _Span()
    chars = 0
    most_chars = min(PIECE_CHARS, limit[0] // 5)
    for entry in entries:
        for part in _split(entry):
            drawn = render(part, WINDOW_STAGE, is_brief=True)
            if drawn is None:
                continue
            asked = [call for call in part.calls if call.number in wanted]
            asking = sum([wanted[call.number] for call in asked])
            if piece.drawn and (chars + len(drawn) > most_chars or piece.asking + asking > limit[1]):
                piece.cost = cost(",".join(piece.drawn)) + TWENTIETHS
                yield piece
                piece, chars = _Span(), 0
            piece.drawn.append(drawn)
            piece.shown += part.calls
            piece.asked += asked
            piece.asking += asking
            piece.last_row = entry.row
            chars += len(drawn)
    if piece.drawn:
        piece.cost = cost(",".join(piece.drawn)) + TWENTIETHS
        yield piece


# Turns with more calls are drawn in several rows.
CALLS_PER_PIECE = 40


def _split(entry: Entry) -> list[Entry]:
    if len(entry.calls) <= CALLS_PER_PIECE and len(entry.text) <= 2_000:
        return [entry]
    parts = []
    for start in range(0, max(1, len(entry.calls)), CALLS_PER_PIECE):
        part = Entry(entry.row, entry.role, "" if start else abridge(entry.text), entry.turn, images=entry.images)
        part.calls = entry.calls[start : start + CALLS_PER_PIECE]
        parts.append(part)
    return parts


def _tail(entries: Sequence[Entry], wanted: Mapping[int, int], room: int) -> tuple[int, list[tuple[str, int]]]:
    """The newest rows that fit the room, texts abridged, and the index of the first of them.

    Rows with units to ask about belong to a span, so the newest rows start after the last of those.
    """
    tail: list[tuple[str, int]] = []
    start = len(entries)
    for index in range(len(entries) - 1, max(-1, len(entries) - 1 - TAIL_ROWS), -1):
        entry = entries[index]
        if any(call.number in wanted for call in entry.calls):
            break
        short = Entry(entry.row, entry.role, abridge(entry.text), entry.turn, images=entry.images)
        short.calls = entry.calls[:CALLS_PER_PIECE]
        drawn = render(short, 3, is_brief=True)
        size = cost(drawn) + TWENTIETHS if drawn is not None else 0
        if size > room or len(short.calls) < len(entry.calls):
            break
        room -= size
        start = index
        if drawn is not None:
            tail.append((drawn, size))
    return start, tail[::-1]


class _Mentions:
    """Later rows by the file names they mention."""

    def __init__(self, entries: Sequence[Entry], end: int) -> None:
        self._entries = entries
        self._by_name: dict[str, list[int]] = defaultdict(list)
        for index, entry in enumerate(entries[:end]):
            if entry.text:
                for name in set(NAME.findall(entry.text[:NAMED_TEXT_CHARS])):
                    self._by_name[name].append(index)

    def after(self, row: int, calls: Sequence[ToolCall], room: int) -> tuple[list[str], int]:
        """Text rows after `row` that mention a file of these calls, newest mention of each, within the room."""
        chosen: set[int] = set()
        for call in calls:
            for name in set(NAME.findall(call.arguments[:NAMED_INPUT_CHARS])):
                places = self._by_name.get(name)
                if places and self._entries[places[-1]].row > row:
                    chosen.add(places[-1])
        drawn: list[str] = []
        spent = 0
        for index in sorted(chosen)[-MENTIONS_PER_WINDOW:]:
            entry = self._entries[index]
            text = f'{{"i":{entry.row},"role":"{entry.role}","text":{quote(cut(entry.text, 300))}}}'
            size = cost(text) + TWENTIETHS
            if spent + size > room:
                break
            spent += size
            drawn.append(text)
        return drawn, spent
