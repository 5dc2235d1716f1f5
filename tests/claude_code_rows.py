"""Claude Code session rows for tests, written the way the host writes them."""

from __future__ import annotations

from typing import Any

from jev_engine_adapters.claude_code import adapter


class Session:
    """Writes rows as Claude Code does: each hangs off the one before it, unless told otherwise."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.last: str | None = None

    def row(self, kind: str, *, after: Any = ..., **fields: Any) -> str:
        uuid = f"row-{len(self.rows)}"
        parent = self.last if after is ... else after
        self.rows.append({"parentUuid": parent, "isSidechain": False, "type": kind, "uuid": uuid, **fields})
        if not fields.get("isSidechain"):
            self.last = uuid
        return uuid

    def user(self, content: Any, **fields: Any) -> str:
        return self.row("user", message={"role": "user", "content": content}, **fields)

    def says(self, *blocks: Any, response: str | None = None, **fields: Any) -> str:
        content = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
        message = {"role": "assistant", "id": response, "content": content}
        return self.row("assistant", message=message, **fields)

    def result(self, call_id: str, content: Any, *, is_error: bool = False, **fields: Any) -> str:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": is_error}
        return self.user([block], sourceToolAssistantUUID="row-of-the-call", **fields)

    def unit(self, call_id: str, content: Any = "done", tool: str = "Read") -> None:
        self.says(use(call_id, tool), response=f"response of {call_id}")
        self.result(call_id, content)

    def compaction(self, summary: str = "This session is being continued.", **metadata: Any) -> str:
        logical = self.last
        boundary = self.row(
            "system",
            after=None,
            subtype="compact_boundary",
            logicalParentUuid=logical,
            compactMetadata={"trigger": "auto", **metadata},
        )
        self.user(summary, isCompactSummary=True, isVisibleInTranscriptOnly=True)
        return boundary

    def read(self) -> Any:
        return adapter.read(self.rows)


def use(call_id: Any, tool: Any = "Read", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": tool, "input": arguments}


def thinks(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": "c2ln"}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def image() -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


def outcomes(transcript: Any) -> list[tuple[str, str | None, str | None]]:
    return [(call.call_id, call.result, call.anomaly) for call in transcript.calls]


def texts(transcript: Any) -> list[str]:
    return [entry.text for entry in transcript.entries if entry.text]
