"""Chat Completions messages: reading, and the small edits a pass makes in one message.

Other hosts that speak this shape build on these functions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jev_engine.host import RowChange
from jev_engine.transcript import Entry, ToolCall, Transcript, TranscriptBuilder

# Items that a provider ties to the calls of the same message: Responses-API reasoning, signed thinking.
BOUND_FIELDS = ("codex_reasoning_items", "reasoning_items", "reasoning_details", "thinking_blocks")
RARE_FIELDS = frozenset((*BOUND_FIELDS, "reasoning", "reasoning_content", "function_call"))
# Tuples, not sets: a `type` or `role` of any kind, hashable or not, can be looked up in them.
IMAGE_TYPES = ("image_url", "image", "input_image")
TEXT_TYPES = ("text", "input_text", "output_text", None)
# Marks by which hosts say that they, not the user, wrote a user row.
HOST_MARKS = ("meta", "isMeta", "compact_summary", "synthetic")


def sniff(messages: Sequence[Any]) -> bool:
    """Whether these look like Chat Completions messages."""
    rows = [m for m in messages[:50] if isinstance(m, Mapping)]
    known = sum(1 for m in rows if m.get("role") in ("system", "developer", "user", "assistant", "tool"))
    return bool(rows) and known * 2 > len(rows) and not any(isinstance(m.get("message"), Mapping) for m in rows)


def read(messages: Sequence[Any]) -> Transcript:
    """The transcript of a list of messages; rows that are not understood are kept and counted."""
    builder = TranscriptBuilder(messages)
    for row, message in enumerate(messages):
        if message.__class__ is not dict and not isinstance(message, Mapping):
            builder.skip(row, "not a message")
            continue
        role = message.get("role")
        if role == "tool":
            read_result(builder, row, message)
        elif role == "assistant":
            read_assistant(builder, row, message)
        elif role in ("user", "system", "developer"):
            content = message.get("content")
            text, images = (content, 0) if content.__class__ is str else text_of(content)
            human = role == "user" and not host_written(message, text)
            builder.entry(row, "user" if role == "user" else "system", text, is_human=human, images=images)
        else:
            builder.skip(row, "unknown role", text_of(message.get("content"))[0])
    return builder.finish()


def read_assistant(builder: TranscriptBuilder, row: int, message: Mapping[str, Any]) -> Entry:
    """Add an assistant message and its calls."""
    content = message.get("content")
    text, images = (content, 0) if content.__class__ is str else text_of(content)
    entry = builder.entry(row, "assistant", text, images=images, response_id=message.get("response_id"))
    if not RARE_FIELDS.isdisjoint(message):
        reasoning = message.get("reasoning") or message.get("reasoning_content")
        if isinstance(reasoning, str):
            entry.reasoning = reasoning
        # Readable reasoning too: it would leave with a row that has nothing left.
        entry.is_bound = bool(entry.reasoning) or any(message.get(field) for field in BOUND_FIELDS)
        if message.get("function_call"):
            builder.odd["legacy function call"] += 1
    if content.__class__ is list and any(_is_bound_part(part) for part in content):
        entry.is_bound = True
    calls = message.get("tool_calls")
    if calls is None or calls == []:
        return entry
    if not isinstance(calls, list):
        builder.odd["tool calls not a list"] += 1
        return entry
    for slot, call in enumerate(calls):
        read_call(builder, entry, slot, call)
    return entry


def _is_bound_part(part: Any) -> bool:
    return isinstance(part, Mapping) and (part.get("type") in ("thinking", "redacted_thinking") or "signature" in part)


def read_call(builder: TranscriptBuilder, entry: Entry, slot: int, call: Any) -> None:
    """Add one element of `tool_calls`; what is no plain function call is counted and left alone."""
    function = call.get("function") if call.__class__ is dict or isinstance(call, Mapping) else None
    if function.__class__ is dict or isinstance(function, Mapping):
        arguments = function.get("arguments")
    elif isinstance(call, Mapping) and isinstance(call.get("custom"), Mapping):
        function = call["custom"]
        arguments = function.get("input")
    else:
        builder.odd["provider-side tool" if isinstance(call, Mapping) and "type" in call else "odd tool call"] += 1
        return
    name = function.get("name")
    builder.call(
        entry,
        call.get("call_id") or call.get("id"),
        name if isinstance(name, str) else "",
        arguments if arguments.__class__ is str else plain_json(arguments),
        slot,
    )


def read_result(builder: TranscriptBuilder, row: int, message: Mapping[str, Any]) -> ToolCall | None:
    """Add a tool message."""
    content = message.get("content")
    call_id = message.get("tool_call_id") or message.get("call_id")
    is_error = message.get("is_error") is True or message.get("status") == "error"
    if content.__class__ is str:
        return builder.result(row, call_id, content, is_error=is_error)
    text, images = text_of(content)
    call = builder.result(row, call_id, text, is_error=is_error, images=images)
    if call is not None and content is not None and not isinstance(content, list):
        call.anomaly = call.anomaly or "content is not text"
        builder.odd["content is not text"] += 1
    return call


def text_of(content: Any) -> tuple[str, int]:
    """The text of a `content` value and the number of images in it; never the bytes of an image."""
    if isinstance(content, str):
        return content, 0
    if content is None:
        return "", 0
    if not isinstance(content, list):
        return plain_json(content), 0
    texts: list[str] = []
    images = 0
    for part in content:
        text = part_text(part)
        if text is not None:
            texts.append(text)
        elif isinstance(part, Mapping) and part.get("type") in IMAGE_TYPES:
            images += 1
    return "\n".join(texts), images


def part_text(part: Any) -> str | None:
    """The text of one content part; None where it is something else."""
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and part.get("type") in TEXT_TYPES and isinstance(part.get("text"), str):
        return str(part["text"])
    return None


def plain_json(value: Any) -> str:
    """A value as JSON text; values JSON cannot hold, too deep or holding themselves, become their type's name."""
    if value is None:
        return ""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return f"<{type(value).__name__}>"


def host_written(message: Mapping[str, Any], text: str) -> bool:
    """Whether a user row was written by the host: flagged as such, or one block in a tag such as <system-reminder>."""
    if any(message.get(mark) for mark in HOST_MARKS):
        return True
    if not text.startswith("<"):
        return False
    name = text[1:64].split(">", 1)[0].split(" ", 1)[0]
    return name.replace("-", "").replace("_", "").isalnum() and text.rstrip().endswith(f"</{name}>")


def edit(message: Mapping[str, Any], change: RowChange) -> dict[str, Any] | None:
    """A changed copy of a message, or None where nothing of it is left."""
    if message.get("role") == "tool":
        if change.removed:
            return None
        content = message.get("content")
        new = change.results[0][1]
        return {**message, "content": new if content.__class__ is str else edit_parts(content, new)}
    gone = {call.place for call in change.removed}
    left = [call for slot, call in enumerate(message["tool_calls"]) if slot not in gone]
    if left:
        return {**message, "tool_calls": left}
    if _is_blank(message.get("content")) and not message.get("function_call"):
        return None
    return {field: value for field, value in message.items() if field != "tool_calls"}


def _is_blank(content: Any) -> bool:
    """Whether a content value says nothing: providers refuse messages and text parts without a visible sign."""
    if isinstance(content, list):
        return all((text := part_text(part)) is not None and not text.strip() for part in content)
    return not (content.strip() if isinstance(content, str) else content)


def edit_parts(parts: Any, new: str) -> list[Any]:
    """The parts with their text replaced: the first text part holds it, the others go, images stay."""
    edited: list[Any] = []
    done = False
    for part in parts:
        if part_text(part) is None:
            edited.append(part)
        elif not done:
            edited.append(new if isinstance(part, str) else {**part, "text": new})
            done = True
    return edited


def check(before: Mapping[str, Any], after: Any, change: RowChange) -> str | None:
    """What differs between a message and its edit beyond the change; written apart from `edit` on purpose."""
    if after.__class__ is not dict:
        return "message is no longer a dict"
    if before.get("role") == "tool":
        if change.removed or len(change.results) != 1:
            return "result should be gone"
        return _check_fields(before, after, "content") or _check_content(before["content"], after, *change.results[0])
    if change.results:
        return "call message holds no result"
    old, new = before["tool_calls"], after.get("tool_calls")
    gone = {call.place for call in change.removed}
    if len(gone) == len(old):
        if new is not None or "tool_calls" in after:
            return "empty tool calls"
        return _check_fields({k: v for k, v in before.items() if k != "tool_calls"}, after, None)
    if new.__class__ is not list or len(new) != len(old) - len(gone):
        return "wrong number of calls left"
    kept = iter(new)
    for slot, call in enumerate(old):
        if slot not in gone and next(kept) is not call:
            return "a call that stays was changed"
    return _check_fields(before, after, "tool_calls")


def _check_fields(before: Mapping[str, Any], after: Mapping[str, Any], edited: str | None) -> str | None:
    if list(before) != list(after):
        return "fields added, lost or moved"
    for field, value in before.items():
        if field != edited and after[field] is not value:
            return f"field {field!r} changed"
    return None


def _check_content(before: Any, after: Mapping[str, Any], call: ToolCall, new: str) -> str | None:
    content = after["content"]
    if text_of(before)[0] != call.result:
        return "the result changed while the pass ran"
    if before.__class__ is str:
        return None if content == new and content.__class__ is str else "result is not the decided text"
    if content.__class__ is not list or text_of(content)[0] != new:
        return "result parts are not the decided text"
    kept = [part for part in before if part_text(part) is None]
    if len(content) != len(kept) + 1 or any(a is not b for a, b in zip(kept, _not_text(content), strict=True)):
        return "a part that stays was changed"
    first = next(part for part in before if part_text(part) is not None)
    if isinstance(first, Mapping):
        text_part = next(part for part in content if part_text(part) is not None)
        return _check_fields(first, text_part, "text")
    return None


def _not_text(parts: Sequence[Any]) -> list[Any]:
    return [part for part in parts if part_text(part) is None]
