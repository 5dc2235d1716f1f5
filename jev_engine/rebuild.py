"""Messages and a ledger become the shorter history; a side-by-side walk proves that nothing else changed.

`apply` is pure and idempotent: messages that are already out stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from jev_engine.errors import RebuildError
from jev_engine.host import Adapter, RowChange
from jev_engine.ledger import KeyCache, Ledger, assign_keys
from jev_engine.transcript import Entry, ToolCall, Transcript

__all__ = ["Rebuilt", "apply", "plan_changes", "rebuild", "validate"]


class Rebuilt:
    """A history after its edits."""

    __slots__ = ("changes", "index_map", "messages")

    def __init__(self, messages: Any, changes: dict[int, RowChange], index_map: Sequence[int | None]) -> None:
        self.messages = messages
        """The new list, or the input object itself where nothing changed."""
        self.changes = changes
        """By row of the input."""
        self.index_map = index_map
        """For each row of the input its row in the output, None where it is gone."""

    @property
    def is_shorter(self) -> bool:
        """Whether messages are gone."""
        return len(self.messages) < len(self.index_map)


def apply(messages: Sequence[Any], ledger: Ledger, adapter: Adapter, cache: KeyCache | None = None) -> Any:
    """The history with the decisions of a ledger in force; the same object where none applies."""
    if not len(ledger):
        return messages
    transcript = adapter.read(messages)
    repeated = assign_keys(transcript, ledger, cache)
    return rebuild(transcript, plan_changes(transcript, ledger, adapter, repeated), adapter).messages


def plan_changes(
    transcript: Transcript, ledger: Ledger, adapter: Adapter, repeated: Iterable[str] = ()
) -> dict[int, RowChange]:
    """What a ledger changes in which row. Units that are out already, open or ambiguous are left alone."""
    changes: dict[int, RowChange] = {}
    repeated = frozenset(repeated)
    in_force = ledger.by_key
    copies = adapter.copies_in_call_row
    for call in transcript.calls:
        entry = in_force.get(call.key)
        if entry is None or call.result is None or call.anomaly or call.result == entry.text:
            continue
        if entry.action == "truncate":
            for row in (call.result_row, call.row) if copies else (call.result_row,):
                known = changes.get(row)
                if known is None:
                    changes[row] = RowChange(row, ((call, entry.text),))
                else:
                    known.results = (*known.results, (call, entry.text))
        elif call.key.partition(".")[0] not in repeated:
            # One of several equal units must leave a trace, or the others could not be told apart next time.
            for row in (call.row, call.result_row):
                known = changes.get(row)
                if known is None:
                    changes[row] = RowChange(row, (), (call,))
                else:
                    known.removed = (*known.removed, call)
    return changes


def rebuild(transcript: Transcript, changes: dict[int, RowChange], adapter: Adapter) -> Rebuilt:
    """Carry out changes; every other message leaves as the same object."""
    messages = transcript.messages
    if not changes:
        return Rebuilt(messages, changes, range(len(messages)))
    output = list(messages)
    gone: list[int] = []
    for row, change in changes.items():
        edited = adapter.edit(messages[row], change)
        if edited is None:
            gone.append(row)
        output[row] = edited
    if not gone:
        return Rebuilt(output, changes, range(len(messages)))
    lost = set(gone)
    index_map: list[int | None] = []
    position = 0
    for row in range(len(messages)):
        if row in lost:
            index_map.append(None)
        else:
            index_map.append(position)
            position += 1
    return Rebuilt([m for row, m in enumerate(output) if row not in lost], changes, index_map)


def validate(transcript: Transcript, rebuilt: Rebuilt, adapter: Adapter) -> None:
    """Walk input and output side by side; raises RebuildError at the first difference that is no decided edit.

    Each row of the output is the same object as in the input, or its own edit and nothing more, or gone with its unit.
    Where units were removed, the output is also read afresh and its pairs are compared with those the input had;
    without removals every id is the same object at the same place, so the pairs are the same.
    """
    messages, output, changes = transcript.messages, rebuilt.messages, rebuilt.changes
    entries = {entry.row: entry for entry in transcript.entries} if rebuilt.is_shorter else {}
    position = 0
    for row, before in enumerate(messages):
        change = changes.get(row)
        after = output[position] if position < len(output) else None
        if change is None:
            if position >= len(output) or after is not before:
                raise RebuildError(f"message {row} is not the same object")
            position += 1
            continue
        if change.removed and adapter.edit(before, change) is None:
            if not _may_go(entries.get(row), row, change):
                raise RebuildError(f"message {row} left the history although something of it stays")
            continue
        if position >= len(output):
            raise RebuildError(f"message {row} is lost")
        if after is before:
            raise RebuildError(f"message {row} should have changed")
        problem = adapter.check(before, after, change)
        if problem is not None:
            raise RebuildError(f"message {row}: {problem}")
        position += 1
    if position != len(output):
        raise RebuildError(f"{len(output) - position} messages were added")
    if any(change.removed for change in changes.values()):
        _compare_pairs(transcript, adapter.read(output), changes)


def _may_go(entry: Entry | None, row: int, change: RowChange) -> bool:
    """A row may go with its units: it held their results, or their calls and no text."""
    if change.results:
        return False
    if entry is None or not entry.calls:
        return all(call.result_row == row for call in change.removed) and (entry is None or not entry.text.strip())
    removed = {call.number for call in change.removed}
    return not entry.text.strip() and all(call.number in removed for call in entry.calls)


def _compare_pairs(before: Transcript, after: Transcript, changes: dict[int, RowChange]) -> None:
    texts: dict[int, str] = {}
    removed: set[int] = set()
    for change in changes.values():
        texts.update({call.number: text for call, text in change.results})
        removed.update(call.number for call in change.removed)
    expected = [call for call in before.calls if call.number not in removed]
    if len(expected) != len(after.calls):
        raise RebuildError(f"{len(expected)} calls should be left, {len(after.calls)} are")
    for old, new in zip(expected, after.calls, strict=True):
        wanted = texts.get(old.number, old.result)
        if (old.call_id, old.tool, old.arguments) != (new.call_id, new.tool, new.arguments):
            raise RebuildError(f"call {old.label} changed")
        if new.result != wanted or old.is_error != new.is_error or old.images != new.images:
            raise RebuildError(f"result of {old.label} is not what was decided")
    if before.odd != after.odd:
        raise RebuildError("rows that could not be understood changed")


def units_of(changes: dict[int, RowChange]) -> dict[int, ToolCall]:
    """The units that changes touch, by number."""
    return {
        call.number: call for change in changes.values() for call in [*(c for c, _ in change.results), *change.removed]
    }
