"""Callbacks of LangChain, as events: what a `BaseCallbackHandler` is called with, without importing it.

The session is the thread (`metadata["thread_id"]`), which a graph puts into the metadata of every run below it. An end
does not carry metadata, so a `Runs` remembers the thread and tool of each run that began.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jev_engine import events
from jev_engine.audit.lifecycle import Told, model_called, tool_called, tool_finished

__all__ = ["Runs"]

MOST_RUNS = 10_000
"""Runs remembered; the oldest are those whose end never came."""


class Runs:
    """One per handler. `told` is given a callback's name and its arguments as keywords."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, str]] = {}

    def told(self, callback: str, given: Mapping[str, Any]) -> Told | None:
        """The event a callback stands for; None for callbacks that stand for none."""
        if callback == "on_tool_start":
            return self._tool_started(given)
        if callback in ("on_tool_end", "on_tool_error"):
            return self._tool_ended(given, is_error=callback == "on_tool_error")
        if callback in ("on_chat_model_start", "on_llm_start"):
            return self._model_started(given)
        if callback == "on_llm_end":
            return self._model_ended(given)
        if callback == "on_chain_start" and given.get("parent_run_id") is None:
            return Told(events.SessionStarted, self._begin(given, ""), {"source": "run"})
        if callback in ("on_chain_end", "on_chain_error") and given.get("parent_run_id") is None:
            return Told(events.SessionEnded, self._end(given)[0], {"reason": callback.removeprefix("on_chain_")})
        return None

    def _begin(self, given: Mapping[str, Any], name: str) -> str:
        thread = str((given.get("metadata") or {}).get("thread_id") or "")
        if len(self._open) >= MOST_RUNS:
            del self._open[next(iter(self._open))]
        self._open[str(given.get("run_id"))] = (thread, name)
        return thread

    def _end(self, given: Mapping[str, Any]) -> tuple[str, str]:
        return self._open.pop(str(given.get("run_id")), ("", ""))

    def _tool_started(self, given: Mapping[str, Any]) -> Told:
        tool = str((given.get("serialized") or {}).get("name") or given.get("name") or "")
        arguments = given.get("inputs")
        asked = given.get("tool_call_id") or given.get("run_id")
        return tool_called(
            self._begin(given, tool), tool, str(asked), given.get("input_str") if arguments is None else arguments
        )

    def _tool_ended(self, given: Mapping[str, Any], *, is_error: bool) -> Told:
        thread, tool = self._end(given)
        output = given.get("output")
        content = getattr(output, "content", output)
        failed = is_error or getattr(output, "status", None) == "error"
        asked = getattr(output, "tool_call_id", None) or given.get("run_id")
        return tool_finished(thread, tool, str(asked), content, is_error=failed)

    def _model_started(self, given: Mapping[str, Any]) -> Told:
        with_limits = given.get("invocation_params") or (given.get("kwargs") or {}).get("invocation_params") or {}
        model = with_limits.get("model") or with_limits.get("model_name")
        limit = with_limits.get("max_tokens", with_limits.get("max_completion_tokens"))
        batches = given.get("messages") or []
        messages = len(batches[0]) if batches else None
        return model_called(self._begin(given, str(model or "")), model=model, messages=messages, max_tokens=limit)

    def _model_ended(self, given: Mapping[str, Any]) -> Told:
        thread, model = self._end(given)
        usage = _usage(given.get("response"))
        details = usage.get("input_token_details") or {}
        return model_called(
            thread,
            model=model,
            input_tokens=usage.get("input_tokens"),
            output_tokens=usage.get("output_tokens"),
            cached_tokens=details.get("cache_read"),
        )


def _usage(response: Any) -> Mapping[str, Any]:
    """The usage of the first generation of a result, where it says so."""
    try:
        return response.generations[0][0].message.usage_metadata or {}
    except (AttributeError, IndexError, TypeError):
        return {}
