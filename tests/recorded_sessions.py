"""Small recorded sessions of our own: an agent reads files, and sometimes writes what one of them said much earlier."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Message = dict[str, Any]

FAR_BACK = 9
"""How many calls back the result stands that the agent quotes."""


def source_line(session: int, number: int, line: int) -> str:
    """A line of source that stands in one result of one session only."""
    return f"def handler_s{session}_r{number}_{line}(request): return process_s{session}_{number}x{line}(request)"


def source_text(session: int, number: int, lines: int = 40) -> str:
    """The text of one result."""
    return "\n".join(source_line(session, number, line) for line in range(lines))


def call(number: int, tool: str = "Read", **arguments: Any) -> Message:
    """A message of the assistant with one call."""
    made = {"name": tool, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": made}],
    }


def result(number: int, text: str, *, is_error: bool = False) -> Message:
    """The result of that call."""
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text, "is_error": is_error}


def recorded(session: int, calls: int = 40, quoted: Sequence[int] = (20, 27, 34)) -> list[Message]:
    """A session of so many reads; after each call in `quoted` the agent writes two lines of a result far back."""
    messages: list[Message] = [{"role": "user", "content": f"Port module s{session} to the new interface."}]
    for number in range(calls):
        messages += [
            call(number, file_path=f"/work/src/s{session}/part_{number}.py"),
            result(number, source_text(session, number)),
        ]
        if number in quoted:
            far = number - FAR_BACK
            text = "\n".join(source_line(session, far, line) for line in (11, 12))
            messages.append({"role": "assistant", "content": f"It has to go on like this:\n{text}"})
    messages.append({"role": "assistant", "content": "Done."})
    return messages


def record(session: int, project: str = "ours/site", harness: str = "claude-code", **shape: Any) -> dict[str, Any]:
    """One line of a corpus."""
    messages = shape.pop("messages", None) or recorded(session, **shape)
    return {"session": f"s{session}", "source": project, "harness": harness, "messages": messages}


def write_corpus(path: Path, records: Sequence[dict[str, Any]]) -> Path:
    """Write them, one a line."""
    path.write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")
    return path
