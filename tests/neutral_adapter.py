"""A host format for tests: the neutral form of the golden vectors, where a call carries a copy of its result.

Rows are `{role, text, toolUses: [{tool_use_id, tool, input, text?, isError?}], toolResults?: [{tool_use_id, text,
isError}]}`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jev_engine import hookimpl
from jev_engine.host import RowChange
from jev_engine.transcript import Transcript, TranscriptBuilder

__all__ = ["NeutralAdapter", "register_adapters"]


class NeutralAdapter:
    """Reads and edits the neutral form; both copies of a result are edited alike."""

    name = "neutral"
    is_read_only = False
    can_delete = True
    edit_persists = True
    copies_in_call_row = True

    def sniff(self, messages: Sequence[Any]) -> bool:
        return all(isinstance(row, dict) and "toolUses" in row for row in messages)

    def read(self, messages: Sequence[Any]) -> Transcript:
        builder = TranscriptBuilder(messages)
        for row, message in enumerate(messages):
            for slot, answer in enumerate(message.get("toolResults", ())):
                builder.result(row, answer["tool_use_id"], answer["text"], is_error=answer["isError"], place=slot)
            if message.get("toolResults") and not message["text"]:
                continue
            is_human = message["role"] == "user" and not message.get("toolResults")
            entry = builder.entry(row, message["role"], message["text"], is_human=is_human)
            for slot, use in enumerate(message["toolUses"]):
                arguments = json.dumps(use["input"], ensure_ascii=False, separators=(",", ":"))
                builder.call(entry, use["tool_use_id"], use["tool"], arguments, slot)
        return builder.finish()

    def edit(self, message: Any, change: RowChange) -> Any | None:
        edited = {**message, "toolUses": _edited(message["toolUses"], change)}
        if "toolResults" in message:
            edited["toolResults"] = _edited(message["toolResults"], change)
        if message["text"] or edited["toolUses"] or edited.get("toolResults"):
            return edited
        return None

    def check(self, before: Any, after: Any, change: RowChange) -> str | None:
        if list(before) != list(after) or any(before[f] != after[f] for f in before if f not in BLOCKS):
            return "fields changed"
        for field in BLOCKS:
            if field in before and not _same_blocks(before[field], after[field], change):
                return f"{field} are not what was decided"
        return None

    def dump(self, message: Any) -> Any:
        return message

    def load(self, data: Any) -> Any:
        return data


BLOCKS = ("toolUses", "toolResults")


def _edited(blocks: list[Any], change: RowChange) -> list[Any]:
    gone = {call.call_id for call in change.removed}
    texts = {call.call_id: text for call, text in change.results}
    return [
        {**block, "text": texts[block["tool_use_id"]]} if block["tool_use_id"] in texts else block
        for block in blocks
        if block["tool_use_id"] not in gone
    ]


def _same_blocks(before: list[Any], after: list[Any], change: RowChange) -> bool:
    gone = {call.call_id for call in change.removed}
    texts = {call.call_id: text for call, text in change.results}
    expected = [block for block in before if block["tool_use_id"] not in gone]
    return len(expected) == len(after) and all(
        new == {**old, "text": texts[old["tool_use_id"]]} if old["tool_use_id"] in texts else new is old
        for old, new in zip(expected, after, strict=True)
    )


@hookimpl
def register_adapters(register: Any) -> None:
    register(NeutralAdapter())
