"""A history too long for one state, shown in windows.

Each window holds the goal, the newest rows, one span of old rows, and later rows that mention what the span is about.
Every unit lies in exactly one span, so every unit is decided at any length, and a request never grows with the history.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from jev_engine.state import State, abridge, cut, envelope, quote, render
from jev_engine.tokens import TWENTIETHS, cost
from jev_engine.transcript import Entry, ToolCall, Transcript

__all__ = ["windows"]

# Windows render old rows with short inputs: a span then holds about three times as many units.
WINDOW_STAGE = 2
# Of the state's room: what the newest rows, and later mentions, may take.
TAIL_SHARE = 0.25
MENTION_SHARE = 0.08
MENTIONS_PER_WINDOW = 12
TAIL_ROWS = 12
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
) -> list[tuple[State, list[ToolCall]]]:
    """States and the units to ask about in each; rooms and costs in twentieths of a token."""
    wanted = {call.number: amount for call, amount in zip(candidates, costs, strict=True)}
    frame = cost(envelope(context, goal, [])) + TWENTIETHS
    tail_from, tail = _tail(transcript.entries, wanted, int(state_room * TAIL_SHARE))
    fixed = frame + sum(size for _, size in tail)
    mentions = _Mentions(transcript.entries, tail_from) if len(transcript.entries) > TAIL_ROWS else None
    spare = int(state_room * MENTION_SHARE) if mentions else 0
    made: list[tuple[State, list[ToolCall]]] = []
    span: list[str] = []
    shown: list[ToolCall] = []
    asked: list[ToolCall] = []
    size = asking = 0
    last_row = 0

    def close() -> None:
        nonlocal span, shown, asked, size, asking
        if asked:
            later, extra = mentions.after(last_row, asked, spare) if mentions else ([], 0)
            text = envelope(context, goal, [*span, *later, *(drawn for drawn, _ in tail)])
            made.append((State(text, "window", fixed + size + extra, shown), asked))
        span, shown, asked, size, asking = [], [], [], 0, 0

    for drawn, amount, calls, row in _pieces(transcript.entries[:tail_from]):
        mine = [call for call in calls if call.number in wanted]
        questions = sum(wanted[call.number] for call in mine)
        full = fixed + size + amount + spare > state_room
        if asked and (full or fixed + size + amount + spare + asking + questions > request_room):
            close()
        elif span and full:
            # Nobody to ask about in this span: old talk; keep the newest half for what comes.
            span, shown, size = [], [], 0
        span.append(drawn)
        shown.extend(calls)
        asked.extend(mine)
        size += amount
        asking += questions
        last_row = row
    close()
    return made


def _pieces(entries: Sequence[Entry]) -> list[tuple[str, int, list[ToolCall], int]]:
    """Old rows as JSON text with their cost; a row with very many calls comes in several pieces."""
    pieces: list[tuple[str, int, list[ToolCall], int]] = []
    for entry in entries:
        for part in _split(entry):
            drawn = render(part, WINDOW_STAGE)
            if drawn is not None:
                pieces.append((drawn, cost(drawn) + TWENTIETHS, part.calls, entry.row))
    return pieces


CALLS_PER_PIECE = 40


def _split(entry: Entry) -> list[Entry]:
    if len(entry.calls) <= CALLS_PER_PIECE and len(entry.text) <= 2_000:
        return [entry]
    parts = []
    for start in range(0, max(1, len(entry.calls)), CALLS_PER_PIECE):
        part = Entry(entry.row, entry.role, "" if start else abridge(entry.text), entry.turn)
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
        short = Entry(entry.row, entry.role, abridge(entry.text), entry.turn)
        short.calls = entry.calls[:CALLS_PER_PIECE]
        drawn = render(short, 3)
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
                for name in set(NAME.findall(entry.text[:20_000])):
                    self._by_name[name].append(index)

    def after(self, row: int, calls: Sequence[ToolCall], room: int) -> tuple[list[str], int]:
        """Text rows after `row` that mention a file of these calls, newest mention of each, within the room."""
        chosen: set[int] = set()
        for call in calls:
            for name in set(NAME.findall(call.arguments[:2_000])):
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
