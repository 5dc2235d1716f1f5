"""What of a history is our own work: markers, and pages of originals that the agent asked back."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from jev_engine.errors import StoreError
from jev_engine.ledger import Ledger, LedgerEntry
from jev_engine.markers import NOTE_REACH_CHARS, find_reference
from jev_engine.store import OriginalStore
from jev_engine.store.expand import expanded_reference
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

    A marker counts as ours if the ledger or the store knows its reference. Where the store cannot be asked, it counts
    as ours too: doubt keeps. `kept_chars` is the most that is left of a result beside its marker.
    """
    # A longer result only quotes a marker: what we leave in place of an original is never so long.
    longest = kept_chars + 2 * NOTE_REACH_CHARS
    calls = [c for c in transcript.calls if c.result and len(c.result) <= longest and OURS in c.result]
    seen: dict[str, ToolCall] = {
        reference: call
        # A quote stands behind the marker it quotes, so the first of several counts.
        for call in reversed(calls)
        if (reference := find_reference(call.result or "")) is not None
    }
    if not seen:
        return ledger
    try:
        known = await store.known(seen)
    except StoreError as error:
        warnings.append(str(error))
        known = {reference: (call.key or reference, 0) for reference, call in seen.items()}
    return ledger.with_entries(
        LedgerEntry(key, "truncate", reference, seen[reference].result or "", chars)
        for reference, (key, chars) in known.items()
        if key not in ledger
    )


async def find_pages(calls: Iterable[ToolCall], store: OriginalStore) -> dict[int, str]:
    """Calls whose result is a page of an original the store has, each with the original's reference."""
    ours = [call for call in calls if call.result and OURS in call.result[-NOTE_REACH_CHARS:]]
    pages = {call.number: ref for call in ours if (ref := expanded_reference(call.result or "")) is not None}
    if not pages:
        return {}
    try:
        known = await store.known(pages.values())
    except StoreError:
        return {}
    return {number: reference for number, reference in pages.items() if reference in known}
