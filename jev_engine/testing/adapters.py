"""The conformance suite for adapters, reading and writing apart."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

from jev_engine.errors import AdapterError, TranscriptError
from jev_engine.host import Adapter, RowChange
from jev_engine.ledger import Ledger, LedgerEntry, assign_keys
from jev_engine.rebuild import apply, plan_changes, rebuild, validate
from jev_engine.testing.reports import Report, Skipped
from jev_engine.transcript import ToolCall, Transcript

__all__ = ["check_adapter"]

SHORT = "[left out]"
OTHER = "[something else]"
REMOVE = ""
# Rows no host writes: they may be counted, they may not stop the rest.
ODD_ROWS: tuple[Any, ...] = (None, 42, "text", [], {}, {"role": "no such role", "type": "no such type"})


def check_adapter(make_adapter: Callable[[], Adapter], make_messages: Callable[[], Sequence[Any]]) -> Report:
    """Check an adapter on a sample history with at least two finished calls, made afresh for every check.

    An adapter that reads only says so by raising AdapterError from `edit`: its write checks are skipped with that
    reason.
    """
    report = Report(f"adapter {make_adapter().name}")
    suite = _Suite(make_adapter, make_messages)
    for name, work in (
        ("sniff knows its own messages", suite.sniffs_own),
        ("sniff takes anything and recognises no odd rows", suite.sniffs_anything),
        ("read finds finished calls", suite.finds_calls),
        ("read changes nothing", suite.reads_without_change),
        ("read says the same twice", suite.reads_the_same_twice),
        ("rows are in range and in order", suite.keeps_order),
        ("odd rows stop nothing", suite.survives_odd_rows),
        ("dump is plain JSON and load gives the row back", suite.dumps_and_loads),
        ("is_read_only says whether edit is refused", suite.says_whether_it_writes),
        ("edit shortens one result and nothing else", suite.shortens_one),
        ("edit shortens all results and nothing else", suite.shortens_all),
        ("edit changes no input", suite.edits_a_copy),
        ("edit removes one unit and nothing else", suite.removes_one),
        ("edit removes all units and leaves nothing empty", suite.removes_all),
        ("apply twice equals once", suite.applies_twice),
        ("check passes what edit made", suite.check_passes_edits),
        ("check sees another text", suite.check_sees_other_text),
        ("check sees any other difference", suite.check_sees_differences),
    ):
        report.add(name, work)
    return report


class _Suite:
    def __init__(self, make_adapter: Callable[[], Adapter], make_messages: Callable[[], Sequence[Any]]) -> None:
        self.adapter = make_adapter()
        self.fresh = make_messages

    def read(self, messages: Sequence[Any] | None = None) -> Transcript:
        return self.adapter.read(self.fresh() if messages is None else messages)

    def sniffs_own(self) -> str | None:
        return None if self.adapter.sniff(self.fresh()) else "its own messages are not recognised"

    def sniffs_anything(self) -> str | None:
        odd: list[list[Any]] = [[], list(ODD_ROWS), [[[]]], [{"role": {"a": 1}}]]
        for rows in odd:
            self.adapter.sniff(rows)
        return "odd rows are taken for its own" if self.adapter.sniff(list(ODD_ROWS)) else None

    def finds_calls(self) -> str | None:
        found = _finished(self.read())
        return None if len(found) >= 2 else f"{len(found)} finished calls in the sample, two are needed"

    def reads_without_change(self) -> str | None:
        messages = self.fresh()
        before, rows = copy.deepcopy(messages), list(messages)
        transcript = self.adapter.read(messages)
        if messages != before or any(a is not b for a, b in zip(rows, messages, strict=True)):
            return "reading changed the input"
        return None if transcript.messages is messages else "transcript.messages is not the list it was given"

    def reads_the_same_twice(self) -> str | None:
        messages = self.fresh()
        return _difference(self.read(messages), self.read(messages), {}, set())

    def keeps_order(self) -> str | None:
        transcript = self.read()
        rows = len(transcript.messages)
        if [call.number for call in transcript.calls] != list(range(1, len(transcript.calls) + 1)):
            return "calls are not numbered in order"
        for call in transcript.calls:
            if not 0 <= call.row < rows or (call.result is not None and not 0 <= call.result_row < rows):
                return f"{call.label} lies outside of the history"
            if call.result is not None and call.result_row < call.row:
                return f"{call.label} has its result before the call"
        places = [entry.row for entry in transcript.entries]
        return None if places == sorted(places) else "entries are out of order"

    def survives_odd_rows(self) -> str | None:
        plain = [call.result for call in self.read().calls]
        found = self.read([*self.fresh(), *ODD_ROWS])
        if [call.result for call in found.calls] != plain:
            return "odd rows at the end change the calls before them"
        try:
            self.read(list(ODD_ROWS))
        except TranscriptError:
            return None
        return None

    def dumps_and_loads(self) -> str | None:
        for row, message in enumerate(self.fresh()):
            data = self.adapter.dump(message)
            if self.adapter.load(json.loads(json.dumps(data))) != message:
                return f"message {row} does not come back"
        return None

    def decided(self, *actions: tuple[ToolCall, str], transcript: Transcript) -> dict[int, RowChange]:
        """Changes for units of a transcript, by a ledger as the engine makes them."""
        assign_keys(transcript, Ledger())
        entries = [
            LedgerEntry(call.key, "remove" if text == REMOVE else "truncate", "jx-" + "0" * 16, text, 1)
            for call, text in actions
        ]
        return plan_changes(transcript, Ledger.of(entries), self.adapter)

    def changed(self, numbers: Callable[[list[ToolCall]], list[ToolCall]], text: str) -> str | None:
        messages = self.fresh()
        transcript = self.read(messages)
        chosen = numbers(_finished(transcript))
        self.must_allow(transcript, text)
        changes = self.decided(*((call, text) for call in chosen), transcript=transcript)
        rebuilt = rebuild(transcript, changes, self.adapter)
        validate(transcript, rebuilt, self.adapter)
        removed = {call.number for call in chosen} if text == REMOVE else set()
        texts = {} if text == REMOVE else {call.number: text for call in chosen}
        if _empties(rebuilt.messages) > _empties(messages):
            return "something empty is left behind"
        return _difference(transcript, self.read(rebuilt.messages), texts, removed)

    def must_allow(self, transcript: Transcript, text: str) -> None:
        if text == REMOVE and not self.adapter.can_delete:
            raise Skipped("can_delete is False")
        call = _finished(transcript)[0]
        try:
            self.adapter.edit(transcript.messages[call.result_row], RowChange(call.result_row, ((call, SHORT),)))
        except AdapterError as error:
            raise Skipped(str(error)) from None

    def says_whether_it_writes(self) -> str | None:
        try:
            self.must_allow(self.read(), SHORT)
        except Skipped:
            return None if self.adapter.is_read_only else "edit is refused"
        return "edit is not refused" if self.adapter.is_read_only else None

    def shortens_one(self) -> str | None:
        return self.changed(lambda calls: calls[:1], SHORT)

    def shortens_all(self) -> str | None:
        return self.changed(lambda calls: calls, SHORT)

    def removes_one(self) -> str | None:
        return self.changed(lambda calls: calls[:1], REMOVE)

    def removes_all(self) -> str | None:
        return self.changed(lambda calls: calls, REMOVE)

    def edits_a_copy(self) -> str | None:
        messages = self.fresh()
        before = copy.deepcopy(messages)
        transcript = self.read(messages)
        self.must_allow(transcript, SHORT)
        changes = self.decided(*((call, SHORT) for call in _finished(transcript)), transcript=transcript)
        rebuild(transcript, changes, self.adapter)
        return None if messages == before else "editing changed the input"

    def applies_twice(self) -> str | None:
        messages = self.fresh()
        transcript = self.read(messages)
        self.must_allow(transcript, SHORT)
        assign_keys(transcript, Ledger())
        ledger = Ledger.of(
            [LedgerEntry(c.key, "truncate", "jx-1", f"{SHORT} {c.label}", 1) for c in _finished(transcript)]
        )
        once = apply(messages, ledger, self.adapter)
        twice = apply(once, ledger, self.adapter)
        return None if twice is once else "a second application changes the history again"

    def edits(self) -> list[tuple[Any, Any, RowChange]]:
        """Before, after and change of every row that shortening all results touches."""
        transcript = self.read()
        self.must_allow(transcript, SHORT)
        changes = self.decided(*((call, SHORT) for call in _finished(transcript)), transcript=transcript)
        rows = transcript.messages
        return [(rows[row], self.adapter.edit(rows[row], change), change) for row, change in changes.items()]

    def check_passes_edits(self) -> str | None:
        problems = [
            problem for before, after, change in self.edits() if (problem := self.adapter.check(before, after, change))
        ]
        return problems[0] if problems else None

    def check_sees_other_text(self) -> str | None:
        for before, _, change in self.edits():
            other = self.adapter.edit(before, RowChange(change.row, [(call, OTHER) for call, _ in change.results]))
            if self.adapter.check(before, other, change) is None:
                return f"another text in message {change.row} goes unnoticed"
        return None

    def check_sees_differences(self) -> str | None:
        for before, after, change in self.edits():
            for where, corrupted in _corruptions(after):
                if self.adapter.check(before, corrupted, change) is None:
                    return f"a change at {where} of message {change.row} goes unnoticed"
        return None


def _finished(transcript: Transcript) -> list[ToolCall]:
    return [call for call in transcript.calls if call.result is not None and not call.anomaly]


def _difference(before: Transcript, after: Transcript, texts: dict[int, str], removed: set[int]) -> str | None:
    expected = [call for call in before.calls if call.number not in removed]
    if len(expected) != len(after.calls):
        return f"{len(after.calls)} calls where {len(expected)} belong"
    for old, new in zip(expected, after.calls, strict=True):
        if (old.call_id, old.tool, old.arguments, old.is_error) != (new.call_id, new.tool, new.arguments, new.is_error):
            return f"{old.label} is another call"
        if new.result != texts.get(old.number, old.result):
            return f"{old.label} has another result"
    spoken = [(e.role, e.text) for e in before.entries if e.text]
    return None if spoken == [(e.role, e.text) for e in after.entries if e.text] else "texts changed"


def _empties(value: Any) -> int:
    """How many empty texts, lists and objects a value holds."""
    if isinstance(value, dict):
        return (not value) + sum(_empties(item) for item in value.values())
    if isinstance(value, list):
        return (not value) + sum(_empties(item) for item in value)
    return int(value == "")


def _corruptions(value: Any, where: str = "the top") -> list[tuple[str, Any]]:
    """Copies of a plain value with one place changed each; none for what is no plain value."""
    made: list[tuple[str, Any]]
    if isinstance(value, dict):
        made = [(f"{where}, field lost", {n: v for n, v in value.items() if n != name}) for name in value]
        made.append((f"{where}, field added", {**value, "no such field": 1}))
        for name, item in value.items():
            made.extend((path, {**value, name: changed}) for path, changed in _corruptions(item, f"field {name!r}"))
        return made
    if isinstance(value, list):
        made = [(f"{where}, item lost", value[:slot] + value[slot + 1 :]) for slot in range(len(value))]
        for slot, item in enumerate(value):
            changed = _corruptions(item, f"{where}, item {slot}")
            made.extend((path, [*value[:slot], new, *value[slot + 1 :]]) for path, new in changed)
        return made
    if isinstance(value, str):
        return [(where, value + "!"), (where, value[1:])] if value else [(where, "!")]
    return []
