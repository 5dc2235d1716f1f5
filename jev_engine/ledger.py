"""The decisions in force for a session, as plain data, and the identity of the units they are about.

A ledger only grows. Two ledgers of one session merge as a join: in any order, any number of times, to the same result.

>>> a = Ledger.of([LedgerEntry("k1", "truncate", "jx-1", "[left out]", 900)])
>>> b = Ledger.of([LedgerEntry("k1", "remove", "jx-1", "", 900), LedgerEntry("k2", "truncate", "jx-2", "[out]", 70)])
>>> a.merge(b) == b.merge(a) == a.merge(b).merge(a)
True
>>> Ledger.from_json(a.to_json()) == a
True
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from jev_engine.errors import TranscriptError
from jev_engine.transcript import ToolCall, Transcript

__all__ = ["Ledger", "LedgerEntry", "assign_keys", "content_digest"]

LEDGER_VERSION = 1
_STRENGTH = {"truncate": 0, "remove": 1}


class LedgerEntry(NamedTuple):
    """One decision in force."""

    key: str
    """The unit, see `assign_keys`."""
    action: Literal["truncate", "remove"]
    reference: str
    """The id by which the original can be asked for."""
    text: str
    """What stands in place of the result: kept lines and the marker. Empty for removed units."""
    chars: int
    """Characters of the original result."""

    def __repr__(self) -> str:
        # Without the text: kept lines are lines of the session.
        return f"<LedgerEntry {self.action} {self.reference}: {self.chars} chars>"


class Ledger:
    """Decisions by unit key. Treat it as frozen: `with_entries` and `merge` return new ones."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[str, LedgerEntry] = {}

    @classmethod
    def of(cls, entries: Iterable[LedgerEntry]) -> Ledger:
        """A ledger of these entries."""
        return cls().with_entries(entries)

    def with_entries(self, entries: Iterable[LedgerEntry]) -> Ledger:
        """A ledger that also holds these; of two for one unit the stronger stays, the smaller of two equally strong."""
        ledger = Ledger()
        merged = ledger._entries
        merged.update(self._entries)
        for entry in entries:
            known = merged.get(entry.key)
            if known is None or _rank(entry) > _rank(known):
                merged[entry.key] = entry
        return ledger

    def merge(self, other: Ledger) -> Ledger:
        """The join of both: of two decisions about a unit the stronger one, in whatever order they are merged."""
        return self.with_entries(other)

    def get(self, key: str) -> LedgerEntry | None:
        """The decision for a unit, if there is one."""
        return self._entries.get(key)

    @property
    def by_key(self) -> Mapping[str, LedgerEntry]:
        """All decisions by unit key."""
        return self._entries

    def __iter__(self) -> Iterator[LedgerEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self._entries == other._entries

    def __hash__(self) -> int:
        return hash(frozenset(self._entries.values()))

    def __repr__(self) -> str:
        return f"<Ledger of {len(self)} decisions>"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, sorted by key."""
        return {
            "version": LEDGER_VERSION,
            "entries": [list(self._entries[key]) for key in sorted(self._entries)],
        }

    @classmethod
    def from_json(cls, data: Any) -> Ledger:
        """The ledger that `to_json` wrote; raises TranscriptError for anything else."""
        try:
            if data["version"] != LEDGER_VERSION:
                message = f"ledger version {data['version']!r} is not {LEDGER_VERSION}"
                raise TranscriptError(message)
            entries = [LedgerEntry(*entry) for entry in data["entries"]]
            if any(e.action not in _STRENGTH for e in entries):
                message = "ledger holds an unknown action"
                raise TranscriptError(message)
        except (TypeError, KeyError) as error:
            message = f"not a ledger: {error}"
            raise TranscriptError(message) from None
        return cls.of(entries)


def _rank(entry: LedgerEntry) -> tuple[int, tuple[int, ...]]:
    # The order among equally strong entries is arbitrary but total, so that the join does not depend on its order.
    return _STRENGTH[entry.action], tuple(-ord(sign) for sign in json.dumps(entry[2:]))


def content_digest(call: ToolCall, result: str | None) -> str:
    """Digest of a unit: id, tool, arguments and result (16 bytes, hex)."""
    # An id that is no text may be nested without end; its unit is never judged.
    call_id = call.call_id if call.call_id.__class__ is str else ""
    body = f"{call_id}\0{call.tool}\0{call.arguments}\0{'' if result is None else result}"
    return blake2b(body.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class KeyCache(dict[tuple[Any, ...], str]):
    """Digests by the strings they are made of: CPython keeps a string's hash, so a known unit costs one look-up."""


def assign_keys(transcript: Transcript, ledger: Ledger, cache: KeyCache | None = None) -> set[str]:
    """Give every unit its key and note which results are markers of the ledger.

    A key is the digest of the content and, from the second unit of the same content on, its occurrence.
    A unit whose result is a marker has the key of the unit it stands for, so that occurrences are counted alike
    before and after a pass. Returns the digests that occur more than once: such units are shortened at most.
    """
    cache = KeyCache() if cache is None else cache
    by_text = {entry.text: entry for entry in ledger if entry.action == "truncate"}
    in_force = ledger.by_key
    counts: dict[str, int] = {}
    for call in transcript.calls:
        result = call.result
        marked = by_text.get(result) if result is not None and by_text else None
        if marked is not None:
            call.marked = call.key = marked.key
            call.reference, call.original_chars = marked.reference, marked.chars
            digest = marked.key.partition(".")[0]
            counts[digest] = counts.get(digest, 0) + 1
            continue
        strings = (call.call_id if call.call_id.__class__ is str else None, call.tool, call.arguments, result)
        known = cache.get(strings)
        if known is None:
            known = cache[strings] = content_digest(call, result)
        occurrence = counts.get(known, 0)
        counts[known] = occurrence + 1
        call.key = known if not occurrence else f"{known}.{occurrence}"
        entry = in_force.get(call.key)
        if entry is not None:
            # A host that sends originals again: the decision is in force, the text is still there.
            call.marked, call.reference, call.original_chars = call.key, entry.reference, entry.chars
    return {digest for digest, count in counts.items() if count > 1}
