"""The small edits a pass makes in one message, and the check of one edit, written apart from each other on purpose.

A shortened result keeps its block: id, flags and cache mark stay, its images too. A removed unit takes its block from
each of the two messages; a message without blocks goes.
"""

from __future__ import annotations

from typing import Any

from jev_engine.host import RowChange
from jev_engine.transcript import ToolCall
from jev_engine_adapters.anthropic.messages import result_text, text_holder

__all__ = ["check", "edit"]


def edit(message: dict[str, Any], change: RowChange) -> dict[str, Any] | None:
    """A changed copy of a message, or None where nothing of it is left."""
    blocks = list(message["content"])
    for call, text in change.results:
        block = blocks[call.result_place]
        blocks[call.result_place] = {**block, "content": _shorter(block["content"], text)}
    if change.removed:
        gone = {_place_in(call, change.row) for call in change.removed}
        blocks = [block for place, block in enumerate(blocks) if place not in gone]
        if not blocks:
            return None
    return {**message, "content": blocks}


def _place_in(call: ToolCall, row: int) -> int:
    return int(call.place if call.row == row else call.result_place)


def _shorter(content: Any, text: str) -> Any:
    if content.__class__ is str:
        return text
    holder = text_holder(content)
    return [
        {**part, "text": text} if place == holder else part
        for place, part in enumerate(content)
        if place == holder or part["type"] != "text"
    ]


def check(before: dict[str, Any], after: Any, change: RowChange) -> str | None:
    """What differs between a message and its edit beyond the change."""
    if after.__class__ is not dict or list(before) != list(after):
        return "fields added, lost or moved"
    for field, value in before.items():
        if field != "content" and after[field] is not value:
            return f"field {field!r} changed"
    old, new = before["content"], after["content"]
    gone = {_place_in(call, change.row) for call in change.removed}
    if new.__class__ is not list or not new or len(new) != len(old) - len(gone):
        return "wrong number of blocks left"
    texts = {call.result_place: (call, text) for call, text in change.results}
    if not texts.keys().isdisjoint(gone):
        return "a unit is both shortened and removed"
    left = iter(new)
    for place, block in enumerate(old):
        if place in gone:
            continue
        kept = next(left)
        problem = _check_result(block, kept, *texts[place]) if place in texts else None
        if problem is not None:
            return problem
        if place not in texts and kept is not block:
            return "a block that stays was changed"
    return None


def _check_result(before: dict[str, Any], after: Any, call: ToolCall, text: str) -> str | None:
    if after.__class__ is not dict or list(before) != list(after):
        return "fields of a result added, lost or moved"
    for field, value in before.items():
        if field != "content" and after[field] is not value:
            return f"field {field!r} of a result changed"
    old, new = before["content"], after["content"]
    if old.__class__ is str:
        if old != call.result:
            return "the result changed while the pass ran"
        return None if new.__class__ is str and new == text else "result is not the decided text"
    if result_text(old)[0] != call.result:
        return "the result changed while the pass ran"
    return _check_parts(old, new, text)


def _check_parts(old: list[Any], new: Any, text: str) -> str | None:
    media = [part for part in old if part["type"] != "text"]
    if new.__class__ is not list or len(new) != len(media) + 1:
        return "wrong number of parts left"
    kept = [part for part in new if not (part.__class__ is dict and part.get("type") == "text")]
    if len(kept) != len(media) or any(a is not b for a, b in zip(media, kept, strict=True)):
        return "a part that stays was changed"
    [holder] = [part for part in new if part.__class__ is dict and part.get("type") == "text"]
    if holder.get("text") != text:
        return "result is not the decided text"
    texts = [part for part in old if part["type"] == "text"]
    marked = [part for part in texts if "cache_control" in part]
    source = marked[0] if marked else texts[0]
    if list(source) != list(holder) or any(holder[f] is not v for f, v in source.items() if f != "text"):
        return "a field of the text part changed"
    before_it = sum(1 for part in old[: next(i for i, p in enumerate(old) if p is source)] if part["type"] != "text")
    return None if new.index(holder) == before_it else "the text part moved"
