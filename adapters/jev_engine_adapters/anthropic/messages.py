"""Messages of the Messages API to a Transcript.

A message is a row. Calls are `tool_use` blocks of an assistant message, results are `tool_result` blocks of the user
message behind it, mostly several in one. `place` and `result_place` of a call are positions in those lists of blocks.

What ran at the provider (`server_tool_use`, `mcp_tool_use` and their results) is one sealed piece: counted in `odd` as
"server-side tool" and never touched. A third role, `system`, may stand among the messages.

Units that are never judged, by their anomaly: `no usable tool name`, `arguments of unknown shape`, `result of unknown
shape`, `block of unknown type in the result`, `several cache marks in the result`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jev_engine.transcript import Entry, ToolCall, Transcript, TranscriptBuilder
from jev_engine_adapters.openai.messages import host_written

__all__ = ["read", "result_text", "sniff", "text_holder"]

# Block types that only this form has.
_OWN_TYPES = ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use")
_BOUND_TYPES = ("thinking", "redacted_thinking")
# Blocks that cost tokens and are never cut, in a result or beside it.
_MEDIA_TYPES = ("image", "document", "container_upload")
_SNIFF_ROWS = 100

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def sniff(messages: Sequence[Any]) -> bool:
    """Whether some message has a block that only this form has, and none has a field or role of another form."""
    found = False
    for message in messages[:_SNIFF_ROWS]:
        if message.__class__ is not dict:
            continue
        if "tool_calls" in message or "message" in message or message.get("role") == "tool":
            return False
        content = message.get("content")
        if content.__class__ is list and message.get("role") in ("user", "assistant"):
            found = found or any(block.__class__ is dict and block.get("type") in _OWN_TYPES for block in content)
    return found


def read(messages: Sequence[Any]) -> Transcript:
    """The transcript of a list of messages; what is not understood is kept and counted."""
    builder = TranscriptBuilder(messages)
    for row, message in enumerate(messages):
        if message.__class__ is not dict:
            builder.skip(row, "not a message")
            continue
        role, content = message.get("role"), message.get("content")
        if content.__class__ is str:
            if role in ("user", "assistant", "system"):
                human = role == "user" and not host_written(message, content)
                builder.entry(row, role, content, is_human=human)
            else:
                builder.skip(row, "unknown role", content)
        elif content.__class__ is not list:
            builder.skip(row, "content is not text" if role in ("user", "assistant", "system") else "unknown role")
        elif role == "assistant":
            _assistant(builder, row, content)
        elif role == "user":
            _user(builder, row, message, content)
        elif role == "system":
            builder.entry(row, "system", "\n".join(_texts(content)))
        else:
            builder.skip(row, "unknown role", "\n".join(_texts(content)))
    return builder.finish()


def _assistant(builder: TranscriptBuilder, row: int, blocks: list[Any]) -> None:
    entry = builder.entry(row, "assistant", "\n".join(_texts(blocks)))
    reasoning: list[str] = []
    for place, block in enumerate(blocks):
        kind = block.get("type") if block.__class__ is dict else None
        if kind == "tool_use":
            _call(builder, entry, place, block)
        elif kind in _BOUND_TYPES:
            entry.is_bound = True
            if block.get("thinking").__class__ is str:
                reasoning.append(block["thinking"])
        elif kind in _MEDIA_TYPES:
            entry.images += 1
        elif kind != "text" or block.get("text").__class__ is not str:
            builder.odd[_odd(kind)] += 1
    entry.reasoning = "\n".join(reasoning)


def _call(builder: TranscriptBuilder, entry: Entry, place: int, block: dict[str, Any]) -> None:
    name = block.get("name")
    tool = name if name.__class__ is str else ""
    try:
        arguments = _encode(block.get("input"))
    except (RecursionError, TypeError, ValueError):
        arguments = ""
    call = builder.call(entry, block.get("id"), tool, arguments, place)
    if not tool:
        _mark(call, "no usable tool name")
    elif not arguments:
        _mark(call, "arguments of unknown shape")


def _user(builder: TranscriptBuilder, row: int, message: dict[str, Any], blocks: list[Any]) -> None:
    texts: list[str] = []
    images = results = 0
    for place, block in enumerate(blocks):
        kind = block.get("type") if block.__class__ is dict else None
        if kind == "tool_result":
            results += 1
            _result(builder, row, place, block)
        elif kind == "text" and block.get("text").__class__ is str:
            texts.append(block["text"])
        elif kind in _MEDIA_TYPES:
            images += 1
        else:
            builder.odd[_odd(kind)] += 1
    if texts or images or not results:
        # Text beside results is mostly a reminder of the host; a person's words open a message of their own.
        said = [text for text in texts if not host_written(message, text.strip())]
        human = not results and bool(said or images)
        builder.entry(row, "user", "\n".join(texts), is_human=human, images=images)


def _result(builder: TranscriptBuilder, row: int, place: int, block: dict[str, Any]) -> None:
    content = block.get("content")
    if content.__class__ is str:
        text, images, anomaly = content, 0, None
    else:
        text, images, anomaly = result_text(content)
    is_error = block.get("is_error") is True
    call = builder.result(row, block.get("tool_use_id"), text, is_error=is_error, images=images, place=place)
    if call is not None and anomaly is not None:
        _mark(call, anomaly)


def result_text(content: Any) -> tuple[str, int, str | None]:
    """The text of a result that is no plain string, its images, and why it cannot be edited without doubt."""
    if content is None:
        return "", 0, None
    if content.__class__ is not list:
        return "", 0, "result of unknown shape"
    images = marks = 0
    anomaly: str | None = None
    for part in content:
        kind = part.get("type") if part.__class__ is dict else None
        if kind in _MEDIA_TYPES:
            images += 1
        elif kind == "text" and part.get("text").__class__ is str:
            marks += "cache_control" in part
        else:
            anomaly = "block of unknown type in the result"
    return "\n".join(_texts(content)), images, "several cache marks in the result" if marks > 1 else anomaly


def text_holder(parts: list[Any]) -> int:
    """Position of the text part that holds a shortened result: the one with the cache mark, else the first."""
    places = [place for place, part in enumerate(parts) if part["type"] == "text"]
    return next((place for place in places if "cache_control" in parts[place]), places[0])


def _texts(blocks: list[Any]) -> list[str]:
    return [
        block["text"]
        for block in blocks
        if block.__class__ is dict and block.get("type") == "text" and block.get("text").__class__ is str
    ]


def _odd(kind: Any) -> str:
    if kind.__class__ is str and kind.endswith(("_tool_use", "_tool_result")):
        return "server-side tool"
    return "block of unknown type"


def _mark(call: ToolCall, anomaly: str) -> None:
    if call.anomaly is None:
        call.anomaly = anomaly
