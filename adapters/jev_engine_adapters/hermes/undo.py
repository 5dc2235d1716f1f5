"""The newest pass taken back: its markers give way to the originals, as the record of their pass has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jev_engine.errors import OriginalExpired, OriginalNotFound, OriginalUnreadable
from jev_engine.markers import find_reference
from jev_engine.store import OriginalStore
from jev_engine.store.restore import anchor_of, restore
from jev_engine.transcript import ToolCall
from jev_engine_adapters.hermes.messages import adapter
from jev_engine_adapters.hermes.state import Out
from jev_engine_adapters.openai.messages import text_of

__all__ = ["Undone", "undo_last"]


class Undone:
    """A history with the results of its newest pass back."""

    def __init__(self, messages: Sequence[Any]) -> None:
        self.messages = list(messages)
        self.count = 0
        """Results or messages that came back as they were."""
        self.left = 0
        """Results whose row is in no record and cannot be made again from their text."""


async def undo_last(store: OriginalStore, session: str, messages: Sequence[Any], last: Sequence[Out]) -> Undone:
    """The history as it was before its newest pass.

    Without a pass in memory, or where the pass removed calls or handed over, everything the store has a record of comes
    back. Raises StoreError.
    """
    wanted = {each.reference for each in last}
    removed = any(each.is_removed for each in last)
    done = Undone(messages)
    transcript = adapter.read(messages)
    found = {call.number: find_reference(call.result or "") for call in transcript.calls}
    ours = [call for call in transcript.calls if found[call.number] in wanted]
    if not ours or removed:
        whole = await restore(messages, store, adapter)
        done.messages, done.count = list(whole.messages), whole.passes
        return done
    texts: dict[int, str] = {}
    for call in ours:
        try:
            texts[call.number] = (await store.read(found[call.number] or "", session=session)).text
        except (OriginalNotFound, OriginalExpired):
            done.left += 1
    contents = await _recorded(store, messages, ours, texts)
    for call in ours:
        if call.number not in texts:
            continue
        row = messages[call.result_row]
        if call.number in contents:
            content = contents[call.number]
        elif isinstance(row["content"], str):
            content = texts[call.number]
        else:
            # Where one part ended and the next began is not in the text.
            done.left += 1
            continue
        done.messages[call.result_row] = {**row, "content": content}
        done.count += 1
    return done


async def _recorded(
    store: OriginalStore, messages: Sequence[Any], ours: Sequence[ToolCall], texts: Mapping[int, str]
) -> dict[int, Any]:
    """Contents of the results' own rows, from the newest record that has each: its text is proof that it is the one.

    A record need not fit the whole history: the host may have changed other rows since.
    """
    found: dict[int, Any] = {}
    # Plain texts need no record, and reading one costs as much as the history is long.
    parted = [
        call for call in ours if call.number in texts and not isinstance(messages[call.result_row]["content"], str)
    ]
    for head in await store.find_passes(anchor_of(messages, adapter)) if parted else ():
        if len(found) == len(parted):
            break
        try:
            record = await store.load_pass(head.number)
        except (OriginalNotFound, OriginalUnreadable):
            continue
        rows = [row for row in record.originals.values() if isinstance(row, Mapping) and "content" in row]
        for call in parted:
            if call.number in found:
                continue
            same = [row for row in rows if row.get("tool_call_id") == messages[call.result_row].get("tool_call_id")]
            content = next((row["content"] for row in same if text_of(row["content"])[0] == texts[call.number]), None)
            if content is not None:
                found[call.number] = content
    return found
