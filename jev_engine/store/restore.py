"""The whole history back: `restore(compress(x)) == x`, after any number of passes and with newer rows behind it.

Each pass leaves a record in the store. The record is found by the first row of a history and a sketch of all rows it
covers, proved by the markers, and undone; then the pass before it is looked for. Where somebody changed the history so
that no record fits, its markers lead back one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from typing import Any, NamedTuple

from jev_engine.errors import AmbiguousRecord, OriginalExpired, OriginalNotFound, OriginalUnreadable
from jev_engine.host import Adapter, RowChange
from jev_engine.ledger import Ledger, assign_keys, content_digest
from jev_engine.markers import find_reference, stands_for
from jev_engine.rebuild import Rebuilt
from jev_engine.store import OriginalStore, PassRecord
from jev_engine.store.expand import expanded_reference
from jev_engine.transcript import ToolCall

__all__ = ["Restored", "Step", "anchor_of", "earlier", "record_pass", "restore", "sketch_of"]

# No session has more passes than this; a loop through the records would end here.
MOST_PASSES = 10_000


class Step(NamedTuple):
    """A history, and the record of the pass that was undone to get there."""

    messages: list[Any]
    record: PassRecord


class Restored(NamedTuple):
    """A history with its originals back."""

    messages: list[Any]
    passes: int
    """Passes that were undone."""
    left: list[str]
    """References of markers that are still in it: their originals cannot be read, or are those of other units."""
    by_marker: int = 0
    """Results put back one by one, because no record of their pass fits a history that was changed since."""
    expired: int = 0
    """Of those that are left, how many originals have expired."""
    near: int = 0
    """Records of passes that begin like this history and do not fit it."""
    steps: Sequence[Step] = ()
    """The history after each pass that was undone, the last pass first."""

    def __repr__(self) -> str:
        return f"<Restored {len(self.messages)} messages, {self.passes} passes undone, {len(self.left)} markers left>"


def record_pass(session: str, messages: Sequence[Any], rebuilt: Rebuilt, adapter: Adapter) -> PassRecord:
    """What a pass did, from its input and output."""
    output = rebuilt.messages
    removed = [row for row, target in enumerate(rebuilt.index_map) if target is None]
    return PassRecord(
        session=session,
        anchor=anchor_of(output, adapter),
        sketch=sketch_of(output, adapter),
        rows_in=len(messages),
        rows_out=len(output),
        removed=removed,
        originals={row: adapter.dump(messages[row]) for row in rebuilt.changes},
    )


async def restore(
    messages: Sequence[Any], store: OriginalStore, adapter: Adapter, *, chosen: int | None = None
) -> Restored:
    """Undo every pass the store has a record of, then put back what single markers lead to; the input is not changed.

    What was removed with its call comes back by the record of its pass only. Raises AmbiguousRecord where records of
    several passes fit and would bring different messages back, unless one of them is `chosen`, and StoreError where the
    store cannot be read.
    """
    steps = [step async for step in _steps(messages, store, adapter, chosen)]
    current, passes = steps[-1].messages if steps else list(messages), len(steps)
    current, back, left, expired = await _by_markers(current, store, adapter)
    near = len(await store.find_passes(anchor_of(current, adapter))) if current and not passes else 0
    return Restored(current, passes, left, back, expired, near, steps)


async def earlier(
    messages: Sequence[Any], store: OriginalStore, adapter: Adapter, *, chosen: int | None = None
) -> AsyncIterator[list[Any]]:
    """A history as it is, then before its last pass, before the one before that, and so on; raises as `restore`."""
    yield list(messages)
    async for step in _steps(messages, store, adapter, chosen):
        yield step.messages


async def _steps(
    messages: Sequence[Any], store: OriginalStore, adapter: Adapter, chosen: int | None
) -> AsyncIterator[Step]:
    current = list(messages)
    # Records of one anchor are undone from the newest to the oldest: none twice, though a history may look alike
    # before and after.
    undone: dict[str, int] = {}
    for _ in range(MOST_PASSES):
        fitting = await _fitting(current, store, adapter, undone)
        if not fitting:
            return
        if len(fitting) > 1:
            fitting = [each for each in fitting if _is_exact(each, adapter)] or fitting
        fit = _choose(fitting, chosen)
        undone[anchor_of(fit.after, adapter)] = fit.number
        current = fit.before
        yield Step(current, fit.record)


class _Fit(NamedTuple):
    """A record that fits a history, and the history before its pass."""

    number: int
    record: PassRecord
    after: list[Any]
    before: list[Any]


async def _fitting(
    messages: list[Any], store: OriginalStore, adapter: Adapter, undone: Mapping[str, int]
) -> list[_Fit]:
    """Records that fit a history and are proved by its markers, the newest first."""
    if not messages:
        return []
    anchor = anchor_of(messages, adapter)
    heads = await store.find_passes(anchor, len(messages))
    sketches = _sketches(messages, {head.rows_out for head in heads}, adapter)
    found: list[_Fit] = []
    for head in heads:
        # Behind the newest that fits only those are of interest that cover the same rows: they may be another's.
        is_rival = not found or head.rows_out == found[0].record.rows_out
        if head.sketch != sketches[head.rows_out] or not is_rival or head.number >= undone.get(anchor, head.number + 1):
            continue
        try:
            record = await store.load_pass(head.number)
        except (OriginalNotFound, OriginalUnreadable):
            continue
        before = _undo(messages, record, adapter)
        if await _is_proved(messages, before, record, store, adapter):
            found.append(_Fit(head.number, record, messages, before))
    return found


def _choose(fitting: Sequence[_Fit], chosen: int | None) -> _Fit:
    """The newest; what is shortened has been proved, what is removed may be another session's with the same rest."""
    newest = fitting[0]
    rivals = [each for each in fitting if each.record.removed and each.before != newest.before]
    if not rivals or not newest.record.removed:
        return newest
    numbers = (newest.number, *[each.number for each in rivals])
    for each in fitting:
        if each.number == chosen:
            return each
    raise AmbiguousRecord(
        f"records {', '.join(map(str, numbers))} of the store fit this history alike and bring different messages back:"
        " what their passes removed has left no trace to tell them apart",
        numbers=numbers,
    )


async def _is_proved(
    after: list[Any], before: list[Any], record: PassRecord, store: OriginalStore, adapter: Adapter
) -> bool:
    """Whether every marker of a pass names the very result that its record would put there."""
    removed = set(record.removed)
    kept = (row for row in range(record.rows_in) if row not in removed)
    changed = {place: row for place, row in enumerate(kept) if row in record.originals}
    # A row may hold several results, whose ids then tell them apart.
    markers = {
        (changed[call.result_row], _name_of(call)): reference
        for call in adapter.read(after[: record.rows_out]).calls
        if call.result_row in changed and (reference := find_reference(call.result or "")) is not None
    }
    transcript = adapter.read(before[: record.rows_in])
    assign_keys(transcript, Ledger())
    known = await store.known(markers.values())
    for call in transcript.calls:
        reference = markers.get((call.result_row, _name_of(call)))
        if reference is None or expanded_reference(call.result or "") == reference:
            continue
        digest = content_digest(call, call.result)
        if reference in known:
            # Another adapter may read ids or arguments otherwise; then the text itself has to be the same.
            is_same = known[reference][0].partition(".")[0] == digest
            if not is_same and not await _reads(store, reference, call.result or ""):
                return False
        elif reference not in (store.reference(record.session, key) for key in (call.key, digest)):
            return False
    return True


async def _reads(store: OriginalStore, reference: str, text: str) -> bool:
    try:
        return (await store.read(reference)).text == text
    except (OriginalNotFound, OriginalExpired, OriginalUnreadable):
        return False


def _is_exact(fit: _Fit, adapter: Adapter) -> bool:
    """Whether a pass over the rows of a record would have made the very rows that are there.

    Histories of the same texts may differ in other fields. Rows that a host has rewritten since are never exact.
    """
    record = fit.record
    removed = set(record.removed)
    place_of = {row: place for place, row in enumerate(r for r in range(record.rows_in) if r not in removed)}
    texts = {
        (call.result_row, _name_of(call)): call.result or ""
        for call in adapter.read(fit.after[: record.rows_out]).calls
    }
    results: dict[int, list[tuple[ToolCall, str]]] = defaultdict(list)
    gone: dict[int, list[ToolCall]] = defaultdict(list)
    for call in adapter.read(fit.before[: record.rows_in]).calls:
        if call.result is None:
            continue
        text = texts.get((place_of.get(call.result_row, -1), _name_of(call)))
        if text is None:
            gone[call.row].append(call)
        elif text != call.result:
            for row in {call.result_row, call.row} if adapter.copies_in_call_row else {call.result_row}:
                results[row].append((call, text))
    for row in record.originals.keys() & place_of.keys():
        made = fit.before[row]
        if results[row] or gone[row]:
            made = adapter.edit(made, RowChange(row, results[row], gone[row]))
        if made != fit.after[place_of[row]]:
            return False
    return True


def _name_of(call: ToolCall) -> str:
    # An id that is no text may be nested without end; its unit is never shortened.
    return call.call_id if isinstance(call.call_id, str) else ""


async def _by_markers(
    messages: list[Any], store: OriginalStore, adapter: Adapter
) -> tuple[list[Any], int, list[str], int]:
    """The history with every result back that its own marker leads to; how many, and what is left, expired or not."""
    marked = [
        (call, reference)
        for call in adapter.read(messages).calls
        if (reference := find_reference(call.result or "")) is not None
    ]
    known = await store.known({reference for _, reference in marked})
    changes: dict[int, list[tuple[ToolCall, str]]] = {}
    left: list[str] = []
    expired = 0
    for call, reference in marked:
        try:
            original = (await store.read(reference)).text
        except (OriginalNotFound, OriginalExpired, OriginalUnreadable) as error:
            if reference in known or isinstance(error, OriginalExpired):
                left.append(reference)
                expired += isinstance(error, OriginalExpired)
            continue
        if reference in known and stands_for(call, known[reference][0], original):
            for row in {call.result_row, call.row} if adapter.copies_in_call_row else {call.result_row}:
                changes.setdefault(row, []).append((call, original))
    out = list(messages)
    back: set[int] = set()
    for row, results in changes.items():
        change = RowChange(row, results)
        edited = adapter.edit(messages[row], change)
        if edited is not None and adapter.check(messages[row], edited, change) is None:
            out[row] = edited
            back.update(call.number for call, _ in results)
    return out, len(back), left, expired


def _undo(messages: list[Any], record: PassRecord, adapter: Adapter) -> list[Any]:
    removed = set(record.removed)
    position = 0
    restored: list[Any] = []
    for row in range(record.rows_in):
        if row in record.originals:
            restored.append(adapter.load(record.originals[row]))
        else:
            restored.append(messages[position])
        if row not in removed:
            position += 1
    return restored + messages[record.rows_out :]


def anchor_of(messages: Sequence[Any], adapter: Adapter) -> str:
    """Digest of the first row, by which records are found."""
    return sketch_of(messages[:1], adapter)


def sketch_of(messages: Sequence[Any], adapter: Adapter) -> str:
    """Digest of what rows look like: role, length and start of the text, number of calls.

    Enough to tell histories apart, at a small part of the cost of hashing them.
    """
    return _sketches(messages, {len(messages)}, adapter)[len(messages)]


def _sketches(messages: Sequence[Any], lengths: AbstractSet[int], adapter: Adapter) -> dict[int, str]:
    """Sketches of the first rows of a history, for several numbers of rows in one go."""
    dump = adapter.dump
    digest = blake2b(digest_size=16)
    found: dict[int, str] = {}
    start = 0
    for end in sorted(lengths):
        rows = "".join([_sketch(dump(message)) for message in messages[start:end]])
        digest.update(rows.encode("utf-8", "surrogatepass"))
        found[end] = digest.hexdigest()
        start = end
    return found


def _sketch(row: Any) -> str:
    if row.__class__ is not dict and not isinstance(row, Mapping):
        return f"{type(row).__name__};"
    wrapped = row.get("message")  # a row of a session file
    row = wrapped if isinstance(wrapped, Mapping) else row
    content = row.get("content")
    calls = row.get("tool_calls")
    made = len(calls) if calls.__class__ is list else 0
    role = row.get("role")
    if role.__class__ is not str:
        role = type(role).__name__  # it may be nested without end
    if content.__class__ is str:
        return f"{role}|{made}|{len(content)} {content[:40]};"
    if content.__class__ is not list:
        return f"{role}|{made}|{type(content).__name__};"
    sizes = [size for part in content if isinstance(part, Mapping) and (size := _size(part)) is not None]
    return f"{role}|{made}|{len(content)} {sizes};"


def _size(part: Mapping[Any, Any]) -> int | None:
    """Characters of a part's text, or of the result it holds; None for a part of another kind."""
    text = part.get("text")
    if isinstance(text, str):
        return len(text)
    result = part.get("content") if part.get("type") == "tool_result" else None
    if isinstance(result, str):
        return len(result)
    if not isinstance(result, list):
        return None
    return sum(len(each["text"]) for each in result if isinstance(each, Mapping) and isinstance(each.get("text"), str))
