"""The host-neutral view of a history: entries, tool calls and their pairing.

Adapters feed rows to a `TranscriptBuilder`; pairing lives here and nowhere else.

>>> builder = TranscriptBuilder([{"role": "assistant"}, {"role": "tool"}])
>>> entry = builder.entry(0, "assistant", "")
>>> _ = builder.call(entry, "c1", "read", "{}")
>>> builder.result(1, "c1", "file text")
<ToolCall t1 'read' row 0, 9 chars>
>>> [(call.label, call.tool, call.result) for call in builder.finish().calls]
[('t1', 'read', 'file text')]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

__all__ = ["Entry", "ToolCall", "Transcript", "TranscriptBuilder"]


class ToolCall:
    """One unit: a call and, once it has arrived, its result.

    Plain slots instead of a model: a history holds tens of thousands of them.
    """

    __slots__ = (
        "anomaly",
        "arguments",
        "call_id",
        "images",
        "is_error",
        "key",
        "marked",
        "number",
        "original_chars",
        "place",
        "reference",
        "result",
        "result_place",
        "result_row",
        "row",
        "tokens",
        "tool",
        "turn",
    )

    def __init__(self, number: int, call_id: Any, tool: str, arguments: str, row: int, place: Any, turn: int) -> None:
        self.number = number
        """1-based position among all calls of the history."""
        self.call_id = call_id
        """The host's id, not trusted to be unique."""
        self.tool = tool
        self.arguments = arguments
        """The arguments as text, as the host wrote them where it wrote text."""
        self.row = row
        """Index of the message that holds the call."""
        self.place = place
        """Where in that message; meaning belongs to the adapter."""
        self.turn = turn
        """Number of the model response the call belongs to."""
        self.result_row = -1
        """Index of the message that holds the result, -1 while the call is open."""
        self.result_place: Any = None
        self.result: str | None = None
        """The text of the result; None while the call is open."""
        self.is_error = False
        self.images = 0
        """Images in the result: they cost tokens, are never judged and never cut."""
        self.anomaly: str | None = None
        """Why this unit cannot be addressed without doubt."""
        self.key = ""
        """Identity by content and occurrence, see `ledger.assign_keys`."""
        self.marked: str | None = None
        """Key of the ledger entry in force for this unit: its result is a marker, or becomes one again."""
        self.original_chars = 0
        """Characters of the original, for units that are out already."""
        self.reference = ""
        """The id by which the original can be asked for."""
        self.tokens = 0
        """Estimated tokens of the result."""

    @property
    def label(self) -> str:
        """Short name used in states, reports and on the command line, such as `t1`."""
        return f"t{self.number}"

    @property
    def is_open(self) -> bool:
        """No result has arrived yet."""
        return self.result is None

    def __repr__(self) -> str:
        size = "open" if self.result is None else f"{len(self.result)} chars"
        return f"<ToolCall {self.label} {self.tool!r} row {self.row}, {size}>"


class Entry:
    """One message of the history as the engine sees it; rows that only carry results have no entry."""

    __slots__ = ("calls", "images", "is_bound", "is_human", "reasoning", "role", "row", "text", "turn")

    def __init__(self, row: int, role: str, text: str, turn: int, *, is_human: bool = False, images: int = 0) -> None:
        self.row = row
        self.role = role
        """`user`, `assistant`, `system`, or `other` for anything that is kept without being understood."""
        self.text = text
        self.turn = turn
        self.is_human = is_human
        """Written by a person, not by the host in the name of the user."""
        self.images = images
        self.reasoning = ""
        """Reasoning the host keeps readable; judged by nobody, changed by nobody."""
        self.is_bound = False
        """Carries signed or reasoning items that share the fate of its calls: they are shortened at most."""
        self.calls: Sequence[ToolCall] = ()

    def __repr__(self) -> str:
        return f"<Entry row {self.row} {self.role}, {len(self.text)} chars, {len(self.calls)} calls>"


class Transcript:
    """A history read by an adapter. `messages` are the host's own objects, by reference."""

    __slots__ = ("calls", "entries", "messages", "odd")

    def __init__(self, messages: Sequence[Any], entries: list[Entry], calls: list[ToolCall], odd: Counter[str]) -> None:
        self.messages = messages
        self.entries = entries
        """In the order of the history."""
        self.calls = calls
        """In the order they were made."""
        self.odd = odd
        """What could not be paired or understood, by kind: kept as it is and counted."""

    def __repr__(self) -> str:
        return f"<Transcript of {len(self.messages)} messages, {len(self.calls)} calls>"

    def bound_turns(self) -> set[int]:
        """Turns that carry bound items: their calls are shortened at most, whatever the settings."""
        return {e.turn for e in self.entries if e.is_bound}

    def spoken_turns(self) -> set[int]:
        """Turns whose calls may not go without trace: the assistant wrote text in them, or they carry bound items."""
        return {
            e.turn for e in self.entries if e.role == "assistant" and (e.is_bound or (e.text and not e.text.isspace()))
        }

    def chars(self) -> int:
        """All text of the history: messages, arguments and results."""
        calls = self.calls
        texts = sum([len(e.text) for e in self.entries])
        return texts + sum([len(c.arguments) + (len(c.result) if c.result is not None else 0) for c in calls])


class TranscriptBuilder:
    """Collects rows in order and pairs calls with results by occurrence.

    A call opens its id, the next result with that id closes it.
    Where two calls with one id are open at once, or a call gets two results, the units concerned carry an anomaly.
    """

    def __init__(self, messages: Sequence[Any]) -> None:
        self._messages = messages
        self._entries: list[Entry] = []
        self._calls: list[ToolCall] = []
        self._open: dict[Any, Any] = {}
        self._closed: dict[Any, ToolCall] = {}
        self._turn = 0
        self._turn_id: Any = None
        self._in_turn = False
        self.odd: Counter[str] = Counter()

    def entry(
        self, row: int, role: str, text: str, *, is_human: bool = False, images: int = 0, response_id: Any = None
    ) -> Entry:
        """Add a message. Assistant rows in a run, or with one `response_id`, are one turn."""
        if role == "assistant":
            same = (self._in_turn and self._turn_id is None) if response_id is None else response_id == self._turn_id
            if not same:
                self._turn += 1
            self._turn_id = response_id
            self._in_turn = True
        else:
            self._in_turn = False
        entry = Entry(row, role, text, self._turn, is_human=is_human, images=images)
        self._entries.append(entry)
        return entry

    def call(self, entry: Entry, call_id: Any, tool: str, arguments: str, place: Any = None) -> ToolCall:
        """Add a call made in `entry`."""
        calls = self._calls
        call = ToolCall(len(calls) + 1, call_id, tool, arguments, entry.row, place, entry.turn)
        calls.append(call)
        if isinstance(entry.calls, list):
            entry.calls.append(call)
        else:  # most rows have none, and need no list
            entry.calls = [call]
        if call_id.__class__ is not str or not call_id:
            call.anomaly = "no usable id"
            self.odd["call without usable id"] += 1
            return call
        waiting = self._open.get(call_id)
        if waiting is None:
            self._open[call_id] = call
        else:
            together = waiting if waiting.__class__ is list else [waiting]
            together.append(call)
            self._open[call_id] = together
            for each in together:
                each.anomaly = "id open twice"
            self.odd["id open twice"] += 1
        return call

    def result(
        self, row: int, call_id: Any, text: str, *, is_error: bool = False, images: int = 0, place: Any = None
    ) -> ToolCall | None:
        """Add a result; returns the call it closes, or None for one that closes nothing."""
        self._in_turn = False
        usable = call_id.__class__ is str
        waiting = self._open.pop(call_id, None) if usable else None
        if waiting is None:
            earlier = self._closed.get(call_id) if usable else None
            if earlier is not None:
                earlier.anomaly = "two results"
                self.odd["second result"] += 1
            else:
                self.odd["result without call"] += 1
            self._entries.append(Entry(row, "other", text, self._turn, images=images))
            return None
        if waiting.__class__ is list:
            call = waiting.pop(0)
            self._open[call_id] = waiting if len(waiting) > 1 else waiting[0]
        else:
            call = waiting
        call.result_row = row
        call.result_place = place
        call.result = text
        call.is_error = is_error
        call.images = images
        self._closed[call_id] = call
        return call  # type: ignore[no-any-return]  # `_open` holds a call or a list of them

    def skip(self, row: int, kind: str, text: str = "") -> None:
        """Keep a row that is not understood, and count it under `kind`."""
        self._in_turn = False
        self.odd[kind] += 1
        self._entries.append(Entry(row, "other", text, self._turn))

    def finish(self) -> Transcript:
        """The transcript of all rows added so far."""
        return Transcript(self._messages, self._entries, self._calls, self.odd)
