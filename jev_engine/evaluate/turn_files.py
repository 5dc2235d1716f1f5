"""One session of any form, read through its adapter, in the corpus' own form: to be replayed turn by turn."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from jev_engine.evaluate.corpus import Session, read_lines
from jev_engine.transcript import Entry, ToolCall, Transcript

__all__ = ["is_corpus", "session_from"]

Message = dict[str, Any]
CORPUS_KEYS = frozenset(("id", "session", "source", "harness"))
"""What stands beside `messages` in a line of a corpus; a session file of its own has none of it."""


def is_corpus(path: Path) -> bool:
    """Whether a file holds sessions, one JSON object a line; a packed file can be nothing else here."""
    if path.suffix == ".gz":
        return True
    try:
        first = json.loads(next(read_lines(path), ""))
    except ValueError:
        return False
    return isinstance(first, dict) and isinstance(first.get("messages"), list) and bool(CORPUS_KEYS & first.keys())


def session_from(transcript: Transcript, name: str, form: str) -> Session:
    """A session with the same texts, calls and results, whatever form its host writes."""
    results: dict[int, list[ToolCall]] = defaultdict(list)
    for call in transcript.calls:
        if call.result is not None:
            results[call.result_row].append(call)
    entries = {entry.row: entry for entry in transcript.entries}
    messages: list[Message] = []
    for row in range(len(transcript.messages)):
        messages += [_result(call) for call in results.get(row, ())]
        if row in entries and (row not in results or entries[row].text or entries[row].calls):
            messages.append(_entry(entries[row]))
    return Session(name, "", form, messages)


def _result(call: ToolCall) -> Message:
    text = {"role": "tool", "tool_call_id": f"c{call.number}", "content": call.result}
    return {**text, "is_error": True} if call.is_error else text


def _entry(entry: Entry) -> Message:
    role = entry.role if entry.role in ("user", "assistant", "system") else "system"
    message: Message = {"role": role, "content": entry.text}
    if role == "user" and not entry.is_human:
        message["meta"] = True
    if entry.reasoning:
        message["reasoning"] = entry.reasoning
    if entry.calls:
        message["tool_calls"] = [
            {"id": f"c{call.number}", "type": "function", "function": {"name": call.tool, "arguments": call.arguments}}
            for call in entry.calls
        ]
    return message
