"""What a host does between passes."""

from __future__ import annotations

from typing import Literal

from jev_engine.events.event import Event

__all__ = ["ModelCalled", "SessionEnded", "SessionRotated", "SessionStarted", "ToolCalled", "ToolFinished"]


class ToolCalled(Event):
    """A tool is about to run."""

    kind: Literal["tool_called"] = "tool_called"
    tool: str
    call: str
    """Keyed digest of the call's id."""
    argument_chars: int
    argument_digest: str
    """Keyed digest of tool and arguments: the same call made again has the same one."""


class ToolFinished(Event):
    """A tool has run."""

    kind: Literal["tool_finished"] = "tool_finished"
    tool: str
    call: str
    result_chars: int
    is_error: bool = False
    ms: float | None = None


class ModelCalled(Event):
    """The agent's model is called, or was."""

    kind: Literal["model_called"] = "model_called"
    model: str | None = None
    messages: int | None = None
    max_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    ms: float | None = None


class SessionStarted(Event):
    """A session began or was taken up again."""

    kind: Literal["session_started"] = "session_started"
    source: str | None = None
    model: str | None = None


class SessionRotated(Event):
    """The host gave the conversation a new name; `successor` is its keyed digest."""

    kind: Literal["session_rotated"] = "session_rotated"
    successor: str
    reason: str | None = None


class SessionEnded(Event):
    """A session ended."""

    kind: Literal["session_ended"] = "session_ended"
    reason: str | None = None
