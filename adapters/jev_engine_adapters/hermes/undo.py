"""The newest pass taken back: its markers give way to the originals, read from the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jev_engine.errors import OriginalNotFound
from jev_engine.host import RowChange
from jev_engine.markers import find_reference
from jev_engine.rebuild import rebuild
from jev_engine.store import OriginalStore
from jev_engine.store.restore import restore
from jev_engine_adapters.hermes.messages import adapter
from jev_engine_adapters.hermes.state import Out

__all__ = ["undo_last"]


async def undo_last(
    store: OriginalStore, session: str, messages: Sequence[Any], last: Sequence[Out]
) -> tuple[list[Any], int]:
    """The history as it was before its newest pass, and how many results or messages came back.

    Without a pass in memory, or where the pass removed calls or handed over, everything the store has a record of comes
    back. Raises StoreError.
    """
    wanted = {each.reference for each in last}
    removed = any(each.is_removed for each in last)
    transcript = adapter.read(messages)
    found = {call.number: find_reference(call.result or "") for call in transcript.calls}
    ours = [call for call in transcript.calls if found[call.number] in wanted]
    if not ours or removed:
        whole = await restore(messages, store, adapter)
        return list(whole.messages), whole.passes
    changes = {}
    for call in ours:
        reference = found[call.number] or ""
        try:
            original = await store.read(reference, session=session)
        except OriginalNotFound:
            continue
        changes[call.result_row] = RowChange(call.result_row, ((call, original.text),))
    return list(rebuild(transcript, changes, adapter).messages), len(changes)
