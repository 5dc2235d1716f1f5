"""What of a history is our own work: markers, and pages of originals that the agent asked back.

Any text may quote either. So each is compared with the original it names before it counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b

from jev_engine.errors import StoreError
from jev_engine.ledger import Ledger, LedgerEntry
from jev_engine.markers import NOTE_REACH_CHARS, find_reference, stands_for
from jev_engine.store import OriginalStore
from jev_engine.store.expand import expanded_reference, is_page_of
from jev_engine.transcript import ToolCall, Transcript

__all__ = ["find_markers", "find_pages", "session_of"]

# How every text of ours begins, markers and the notes behind pages alike.
OURS = "[jev-engine"


def session_of(transcript: Transcript) -> str:
    """A name for a session nobody named: a digest of how it began, so that all its passes get the same one."""
    digest = blake2b(digest_size=8)
    for entry in transcript.entries[:3]:
        digest.update(f"{entry.role}\0{entry.text}\0".encode("utf-8", "surrogatepass"))
    return f"session-{digest.hexdigest()}"


async def find_markers(
    transcript: Transcript, ledger: Ledger, store: OriginalStore, *, kept_chars: int, warnings: list[str]
) -> Ledger:
    """The ledger with the decisions that markers in the history stand for.

    A marker counts as ours if the ledger or the store knows its reference, and it stands where its original stood.
    Where the store cannot be asked, it counts as ours too: doubt keeps. `kept_chars` is the most that is left of a
    result beside its marker.
    """
    # A longer result only quotes a marker: what we leave in place of an original is never so long.
    longest = kept_chars + 2 * NOTE_REACH_CHARS
    seen: dict[str, list[ToolCall]] = {}
    for call in transcript.calls:
        if call.result and len(call.result) <= longest and OURS in call.result:
            reference = find_reference(call.result)
            if reference is not None:
                seen.setdefault(reference, []).append(call)
    if not seen:
        return ledger
    found: list[LedgerEntry] = []
    try:
        known = await store.known(seen)
        for reference, (key, chars) in known.items():
            marker = None if key in ledger else await _at_its_place(seen[reference], reference, key, store)
            if marker is not None:
                found.append(LedgerEntry(key, "truncate", reference, marker.result or "", chars))
    except StoreError as error:
        warnings.append(str(error))
        found = [
            LedgerEntry(calls[0].key or reference, "truncate", reference, calls[0].result or "", 0)
            for reference, calls in seen.items()
        ]
    return ledger.with_entries(found)


async def _at_its_place(calls: list[ToolCall], reference: str, key: str, store: OriginalStore) -> ToolCall | None:
    """Which of these results is the marker of an original, and does not only quote it; raises StoreError."""
    original = (await store.read(reference)).text
    return next((call for call in calls if stands_for(call, key, original)), None)


async def find_pages(calls: Iterable[ToolCall], store: OriginalStore) -> dict[int, str]:
    """Calls whose result is a page of an original the store has, each with the original's reference."""
    ours = [call for call in calls if call.result and OURS in call.result[-NOTE_REACH_CHARS:]]
    pages = {call.number: (call, ref) for call in ours if (ref := expanded_reference(call.result or "")) is not None}
    if not pages:
        return {}
    originals: dict[str, str] = {}
    for _, reference in pages.values():
        if reference not in originals:
            with suppress(StoreError):
                originals[reference] = (await store.read(reference)).text
    return {
        number: reference
        for number, (call, reference) in pages.items()
        if reference in originals and is_page_of(call.result or "", originals[reference])
    }
