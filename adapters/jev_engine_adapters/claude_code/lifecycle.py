"""Hook payloads of Claude Code, as events: the JSON object a hook gets on standard input.

A summariser runs as a fork and stops like a subagent of no type: that is no subagent. `SessionStart` with source
`compact` or `fork` is not the start of a conversation but another stretch of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jev_engine import events
from jev_engine.audit.lifecycle import Told, tool_called, tool_finished

__all__ = ["HOOKS", "told"]

Payload = Mapping[str, Any]


def _session(given: Payload) -> str:
    return str(given.get("session_id") or "")


def _started(given: Payload) -> Told:
    facts = {"source": given.get("source"), "model": given.get("model")}
    return Told(events.SessionStarted, _session(given), {k: str(v) for k, v in facts.items() if v})


def _ended(given: Payload) -> Told:
    reason = given.get("reason")
    return Told(events.SessionEnded, _session(given), {"reason": str(reason) if reason else None})


def _before_tool(given: Payload) -> Told:
    return tool_called(_session(given), given.get("tool_name"), given.get("tool_use_id"), given.get("tool_input"))


def _after_tool(given: Payload) -> Told:
    return _finished(given, is_error=False)


def _failed_tool(given: Payload) -> Told:
    return _finished(given, is_error=True)


def _finished(given: Payload, *, is_error: bool) -> Told:
    return tool_finished(
        _session(given),
        given.get("tool_name"),
        given.get("tool_use_id"),
        given.get("error") if is_error else given.get("tool_response"),
        is_error=is_error,
        ms=given.get("duration_ms"),
    )


HOOKS: Mapping[str, Callable[[Payload], Told]] = {
    "SessionStart": _started,
    "SessionEnd": _ended,
    "PreToolUse": _before_tool,
    "PostToolUse": _after_tool,
    "PostToolUseFailure": _failed_tool,
}
"""What is listened to, by the hook's name. No hook tells of a call of the model, nor of its max_tokens."""


def told(given: Payload) -> Told | None:
    """The event a payload stands for; None for hooks that stand for none."""
    mapped = HOOKS.get(str(given.get("hook_event_name")))
    return None if mapped is None else mapped(given)
