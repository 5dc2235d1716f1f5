"""The whole history back: `restore(compress(x)) == x`, after any number of passes and with newer rows behind it.

Each pass leaves a record in the store. The record is found by the first row of a history, proved by a sketch of all
rows it covers, and undone; then the pass before it is looked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from typing import Any, NamedTuple

from jev_engine.host import Adapter
from jev_engine.markers import find_reference
from jev_engine.rebuild import Rebuilt
from jev_engine.store import OriginalStore, PassRecord

__all__ = ["Restored", "anchor_of", "earlier", "record_pass", "restore", "sketch_of"]

# No session has more passes than this; a loop through the records would end here.
MOST_PASSES = 10_000


class Restored(NamedTuple):
    """A history with its originals back."""

    messages: list[Any]
    passes: int
    """Passes that were undone."""
    left: list[str]
    """References of markers that are still in it, because no record of their pass fits this history."""

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


async def restore(messages: Sequence[Any], store: OriginalStore, adapter: Adapter) -> Restored:
    """Undo every pass the store has a record of; the input is not changed."""
    states = [state async for state in earlier(messages, store, adapter)]
    current, passes = states[-1], len(states) - 1
    left = [ref for call in adapter.read(current).calls if (ref := find_reference(call.result or "")) is not None]
    known = await store.known(left)
    return Restored(current, passes, [reference for reference in left if reference in known])


async def earlier(messages: Sequence[Any], store: OriginalStore, adapter: Adapter) -> AsyncIterator[list[Any]]:
    """A history as it is, then before its last pass, before the one before that, and so on."""
    current = list(messages)
    # Records of one anchor are undone from the newest to the oldest: none twice, though a history may look alike
    # before and after.
    undone: dict[str, int] = {}
    for _ in range(MOST_PASSES):
        yield current
        record = await _matching(current, store, adapter, undone)
        if record is None:
            return
        current = _undo(current, record, adapter)


async def _matching(
    messages: list[Any], store: OriginalStore, adapter: Adapter, undone: dict[str, int]
) -> PassRecord | None:
    if not messages:
        return None
    anchor = anchor_of(messages, adapter)
    heads = await store.find_passes(anchor, len(messages))
    sketches = _sketches(messages, {head.rows_out for head in heads}, adapter)
    for head in heads:
        if head.sketch == sketches[head.rows_out] and (anchor not in undone or head.number < undone[anchor]):
            undone[anchor] = head.number
            return await store.load_pass(head.number)
    return None


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
