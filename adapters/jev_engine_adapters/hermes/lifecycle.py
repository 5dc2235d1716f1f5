"""Plugin hooks of Hermes, as events. All payloads come as keywords; unknown ones are left alone.

`on_session_end` fires at the end of every turn and is no end of a session; `on_session_finalize` is. A session that
starts with `boundary_reason="compression"` is the old one under a new name, which also says that a pass was taken up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jev_engine import events
from jev_engine.audit.lifecycle import Told, model_called, rotated, tool_called, tool_finished

__all__ = ["HOOKS", "told"]

Payload = Mapping[str, Any]


def _session(given: Payload) -> str:
    return str(given.get("session_id") or "")


def _started(given: Payload) -> Told:
    reason = given.get("boundary_reason")
    old = given.get("old_session_id") or given.get("parent_session_id")
    if reason == "compression" and old:
        return rotated(str(old), _session(given), "compression")
    facts = {"source": given.get("platform"), "model": given.get("model")}
    return Told(events.SessionStarted, _session(given), {k: str(v) for k, v in facts.items() if v})


def _ended(given: Payload) -> Told:
    reason = given.get("reason")
    return Told(events.SessionEnded, _session(given), {"reason": str(reason) if reason else None})


def _before_model(given: Payload) -> Told:
    return model_called(
        _session(given),
        model=given.get("model"),
        messages=given.get("message_count"),
        max_tokens=given.get("max_tokens"),
        input_tokens=given.get("approx_input_tokens"),
    )


def _after_model(given: Payload) -> Told:
    usage = given.get("usage") or {}
    seconds = given.get("api_duration")
    return model_called(
        _session(given),
        model=given.get("model"),
        input_tokens=usage.get("prompt_tokens", usage.get("input_tokens")),
        output_tokens=usage.get("completion_tokens", usage.get("output_tokens")),
        ms=seconds * 1_000 if isinstance(seconds, int | float) else None,
    )


def _before_tool(given: Payload) -> Told:
    return tool_called(_session(given), given.get("tool_name"), given.get("tool_call_id"), given.get("args"))


def _after_tool(given: Payload) -> Told:
    failed = bool(given.get("error_type")) or given.get("status") in ("error", "failed")
    return tool_finished(
        _session(given),
        given.get("tool_name"),
        given.get("tool_call_id"),
        given.get("result"),
        is_error=failed,
        ms=given.get("duration_ms"),
    )


HOOKS: Mapping[str, Callable[[Payload], Told]] = {
    "on_session_start": _started,
    "on_session_finalize": _ended,
    "pre_api_request": _before_model,
    "post_api_request": _after_model,
    "pre_tool_call": _before_tool,
    "post_tool_call": _after_tool,
}
"""What is listened to, by the hook's name."""


def told(hook: str, given: Payload) -> Told | None:
    """The event a hook stands for; None for hooks that stand for none."""
    mapped = HOOKS.get(hook)
    return None if mapped is None else mapped(given)
