"""The edits a pass makes in one row: the result the model sees, and the second copy the host keeps beside it.

A row of results holds the block the model sees (`message.content`) and the host's own record of the same output
(`toolUseResult`), whose shape belongs to the tool: `stdout` of a shell, `file.content` without line numbers of a
reader, a list of file names. Both end up with the same text. The record keeps its shape, because the host draws its
screen from it: strings that repeat the result are replaced by the new text; everything else in it stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jev_engine.host import RowChange
from jev_engine.transcript import ToolCall

__all__ = ["check", "copies_in", "edit"]

RECORD = "toolUseResult"
# Shorter strings of a record are names, flags and receipts, not a copy of the output.
COPY_CHARS = 120
# A line is a sample if it is long enough not to be found in a result by chance.
SAMPLE_CHARS = 12
DEEPEST = 20


def edit(row: Any, change: RowChange) -> dict[str, Any]:
    """A changed copy of a row of results."""
    message = row["message"]
    content = list(message["content"])
    record = row.get(RECORD)
    for call, text in change.results:
        block = content[call.result_place]
        content[call.result_place] = {**block, "content": _edit_content(block.get("content"), text)}
        record = _edit_record(record, call.result or "", text)
    edited = {**row, "message": {**message, "content": content}}
    if RECORD in row:
        edited[RECORD] = record
    return edited


def _edit_content(content: Any, text: str) -> Any:
    """The content with its text replaced: the first text block holds it, the other text blocks go, images stay."""
    if content.__class__ is not list:
        return text
    at = next((place for place, block in enumerate(content) if _is_text(block)), None)
    if at is None:
        return [{"type": "text", "text": text}, *content]
    kept = [block for place, block in enumerate(content) if place == at or not _is_text(block)]
    return [{**block, "text": text} if _is_text(block) else block for block in kept]


def _is_text(block: Any) -> bool:
    return block.__class__ is dict and block.get("type") == "text"


def _edit_record(value: Any, result: str, text: str, depth: int = 0) -> Any:
    """The host's record with what repeats the result replaced; the same object where nothing does."""
    if value.__class__ is str:
        return text if _repeats(value, result) else value
    if depth >= DEEPEST:
        return value
    if value.__class__ is list:
        if _is_list_of_copies(value, result):
            return [text]
        made = [_edit_record(item, result, text, depth + 1) for item in value]
        return value if all(a is b for a, b in zip(made, value, strict=True)) else made
    if value.__class__ is dict:
        fields = {name: _edit_record(item, result, text, depth + 1) for name, item in value.items()}
        return value if all(fields[name] is item for name, item in value.items()) else fields
    return value


def _repeats(value: str, result: str) -> bool:
    """Whether a string of the record is output that the result shows too, numbered or cut as it may be there."""
    if not value or not result:
        return False
    if value == result:
        return True
    if len(value) < COPY_CHARS:
        return False
    if value in result or (len(result) >= COPY_CHARS and result in value):
        return True
    lines = [line for line in value.split("\n") if len(line.strip()) >= SAMPLE_CHARS]
    if not lines:
        return False
    return any(line.strip() in result for line in (lines[0], lines[len(lines) // 2], lines[-1]))


def _is_list_of_copies(value: list[Any], result: str) -> bool:
    """Names found by a search, say: each is short, together they are the output."""
    return (
        len(value) > 1
        and all(item.__class__ is str for item in value)
        and sum(map(len, value)) >= COPY_CHARS
        and value[0] in result
        and value[-1] in result
    )


def copies_in(value: Any, result: str) -> Iterator[str]:
    """What in a host's record repeats a result."""
    waiting = [(value, 0)]
    while waiting:
        value, depth = waiting.pop()
        if value.__class__ is str:
            if _repeats(value, result):
                yield value
        elif value.__class__ is list and _is_list_of_copies(value, result):
            yield "\n".join(value)
        elif value.__class__ in (list, dict) and depth < DEEPEST:
            items = value.values() if value.__class__ is dict else value
            waiting.extend((item, depth + 1) for item in items)


def check(before: Any, after: Any, change: RowChange) -> str | None:
    """What differs between a row and its edit beyond the change; written apart from `edit` on purpose."""
    if after.__class__ is not dict or list(after) != list(before):
        return "fields added, lost or moved"
    for field, value in before.items():
        if field not in ("message", RECORD) and after[field] is not value:
            return f"field {field!r} changed"
    problem = _check_message(before["message"], after["message"], change)
    if problem is None and RECORD in before:
        problem = _check_record(before[RECORD], after[RECORD], [(c.result or "", text) for c, text in change.results])
    return problem


def _check_message(before: Any, after: Any, change: RowChange) -> str | None:
    if after.__class__ is not dict or list(after) != list(before):
        return "fields of the message added, lost or moved"
    for field, value in before.items():
        if field != "content" and after[field] is not value:
            return f"field {field!r} of the message changed"
    old, new = before["content"], after["content"]
    if new.__class__ is not list or len(new) != len(old):
        return "blocks added or lost"
    texts = {call.result_place: (call, text) for call, text in change.results}
    for place, block in enumerate(old):
        if place in texts:
            problem = _check_block(block, new[place], *texts[place])
            if problem is not None:
                return problem
        elif new[place] is not block:
            return f"block {place} changed"
    return None


def _check_block(before: Any, after: Any, call: ToolCall, text: str) -> str | None:
    if after.__class__ is not dict or list(after) != list(dict.fromkeys([*before, "content"])):
        return "fields of the result added, lost or moved"
    for field, value in before.items():
        if field != "content" and after[field] is not value:
            return f"field {field!r} of the result changed"
    if before.get("tool_use_id") != call.call_id:
        return "another result stands there now"
    old, new = before.get("content"), after["content"]
    if old.__class__ is not list:
        return None if new.__class__ is str and new == text else "result is not the decided text"
    if new.__class__ is not list:
        return "result is no longer a list"
    said = [block for block in new if _is_text(block)]
    others = [block for block in new if not _is_text(block)]
    kept = [block for block in old if not _is_text(block)]
    if len(said) != 1 or said[0].get("text") != text:
        return "result blocks are not the decided text"
    if len(others) != len(kept) or any(a is not b for a, b in zip(others, kept, strict=True)):
        return "a block that stays was changed"
    first = next((block for block in old if _is_text(block)), {"type": "text", "text": ""})
    if list(said[0]) != list(first) or any(said[0][f] is not v for f, v in first.items() if f not in ("text", "type")):
        return "fields of the text block changed"
    return None


def _check_record(before: Any, after: Any, texts: list[tuple[str, str]], depth: int = 0) -> str | None:
    """Same shape, and every string as it was, or the decided text where it repeated a result."""
    if before is after:
        left = any(copy != text for result, text in texts for copy in copies_in(before, result))
        return "a second copy of the result is left" if left else None
    if depth >= DEEPEST or after.__class__ is not before.__class__:
        return "the host's record of the result changed its shape"
    if before.__class__ is str:
        allowed = [text for result, text in texts if _repeats(before, result)]
        return None if after in allowed else "the host's record of the result changed"
    if before.__class__ is list:
        if len(after) == 1 and len(before) > 1:
            allowed = [text for result, text in texts if _is_list_of_copies(before, result)]
            return None if after[0] in allowed else "the host's record of the result lost items"
        pairs = list(zip(before, after, strict=False)) if len(after) == len(before) else None
    elif before.__class__ is dict:
        pairs = [(before[name], after[name]) for name in before] if list(after) == list(before) else None
    else:
        return None if before == after else "the host's record of the result changed"
    if pairs is None:
        return "the host's record of the result lost or got parts"
    found = (_check_record(old, new, texts, depth + 1) for old, new in pairs)
    return next((problem for problem in found if problem is not None), None)
