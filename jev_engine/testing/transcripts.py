"""Small histories in a few words, in Chat Completions form.

>>> messages = history(user("Fix it."), call("read", path="a.py"), result("def f(): ..."), assistant("Done."))
>>> [m["role"] for m in messages]
['user', 'assistant', 'tool', 'assistant']
>>> transcript_of(*messages).calls
[<ToolCall t1 'read' row 1, 12 chars>]
"""

from __future__ import annotations

import json
from typing import Any

from jev_engine.transcript import Transcript, TranscriptBuilder

__all__ = ["assistant", "call", "calls", "history", "result", "system", "transcript_of", "user"]

Message = dict[str, Any]


def system(text: str) -> Message:
    """A system message."""
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    """A message a person wrote."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    """A message of the assistant without calls."""
    return {"role": "assistant", "content": text}


def call(tool: str, *, text: str | None = None, call_id: str | None = None, **arguments: Any) -> Message:
    """A message of the assistant with one call; without `call_id`, `history` numbers it."""
    return calls((tool, arguments), text=text, call_ids=None if call_id is None else [call_id])


def calls(*made: tuple[str, Any], text: str | None = None, call_ids: list[str] | None = None) -> Message:
    """A message of the assistant with several calls, each `(tool, arguments)`."""
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [
            {
                "id": "" if call_ids is None else call_ids[slot],
                "type": "function",
                "function": {
                    "name": tool,
                    "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
                },
            }
            for slot, (tool, arguments) in enumerate(made)
        ],
    }


def result(content: Any, *, call_id: str | None = None, is_error: bool = False) -> Message:
    """A tool message; without `call_id` it answers the oldest call that is still open."""
    message: Message = {"role": "tool", "tool_call_id": call_id, "content": content}
    if is_error:
        message["is_error"] = True
    return message


def history(*messages: Message) -> list[Message]:
    """The messages as a list, with ids filled in where the builders left them open."""
    waiting: list[str] = []
    number = 0
    for message in messages:
        for made in message.get("tool_calls") or []:
            if isinstance(made, dict):
                number += 1
                made["id"] = made.get("id") or f"call_{number}"
                waiting.append(made["id"])
        if message.get("role") == "tool":
            if message.get("tool_call_id") is None and waiting:
                message["tool_call_id"] = waiting[0]
            if message.get("tool_call_id") in waiting:
                waiting.remove(message["tool_call_id"])
    return list(messages)


def transcript_of(*messages: Message) -> Transcript:
    """The transcript of such messages, read without any adapter."""
    rows = history(*messages)
    builder = TranscriptBuilder(rows)
    for row, message in enumerate(rows):
        if message["role"] == "tool":
            builder.result(row, message["tool_call_id"], message["content"], is_error=message.get("is_error", False))
            continue
        entry = builder.entry(row, message["role"], message["content"] or "", is_human=message["role"] == "user")
        for slot, made in enumerate(message.get("tool_calls", ())):
            builder.call(entry, made["id"], made["function"]["name"], made["function"]["arguments"], slot)
    return builder.finish()
