"""What a middleware sees of a run: its thread, a prompt that was too long, and what the audit trail is told of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from jev_engine.audit.lifecycle import Told, model_called, tool_called, tool_finished
from jev_engine.engine import ContextEngine
from jev_engine.trail import Trail

__all__ = ["Teller", "ToolRun", "is_overflow", "thread_of", "thread_of_runtime"]

logger = logging.getLogger("jev_engine")

OVERFLOWS = ("context_length_exceeded", "context length", "prompt is too long", "maximum context", "too many tokens",
             "input is too long", "exceeds the maximum number of tokens", "context window")  # fmt: skip
"""How providers say it: OpenAI, Anthropic, Bedrock, Gemini, and servers that speak their forms."""


def thread_of(config: Any) -> str | None:
    """The thread a run belongs to, from its configuration; None where it has none."""
    given = config.get("configurable") if isinstance(config, Mapping) else None
    thread = given.get("thread_id") if isinstance(given, Mapping) else None
    return None if thread is None else str(thread)


def thread_of_runtime(runtime: Any) -> str | None:
    """The thread a node or hook runs for; None where it has none."""
    thread = getattr(getattr(runtime, "execution_info", None), "thread_id", None)
    if thread is not None:
        return str(thread)
    from langgraph.config import get_config  # noqa: PLC0415  # only within a run of LangGraph

    try:
        return thread_of(get_config())
    except RuntimeError:
        return None


def is_overflow(error: BaseException) -> bool:
    """Whether a model's error says that the prompt was too long."""
    if any(kind.__name__ == "ContextOverflowError" for kind in type(error).__mro__):
        return True
    status = getattr(error, "status_code", None)
    text = str(error)[:2_000].lower()
    return status in (None, 400, 413) and any(words in text for words in OVERFLOWS)


class Teller:
    """Tells an engine's audit trail what its middleware sees. Without sinks nothing is made."""

    def __init__(self, engine: ContextEngine) -> None:
        self._sinks = engine.sinks

    def tell(self, told: Told) -> None:
        """One event of the host; what cannot be told is left out."""
        try:
            Trail(self._sinks, host="langgraph", is_pass=False).tell(told)
        except Exception as error:  # noqa: BLE001  # what cannot be told must not stop what it tells of
            logger.warning("an event of the host could not be told: %s", type(error).__name__)

    def model_called(self, request: Any, messages: Sequence[Any]) -> None:
        """The model is about to be called."""
        if self._sinks:
            settings = request.model_settings
            limit = settings.get("max_tokens", settings.get("max_completion_tokens"))
            told = {"model": _name_of(request.model), "messages": len(messages), "max_tokens": limit}
            self.tell(model_called(thread_of_runtime(request.runtime) or "", **told))

    def model_replied(self, request: Any, response: Any) -> None:
        """The model has replied."""
        if not self._sinks:
            return
        replies = getattr(response, "result", None) or [response]
        usage = getattr(replies[0], "usage_metadata", None) or {}
        details = usage.get("input_token_details") or {}
        told = {
            "model": _name_of(request.model),
            "input_tokens": usage.get("input_tokens"),
            "output_tokens": usage.get("output_tokens"),
            "cached_tokens": details.get("cache_read"),
        }
        self.tell(model_called(thread_of_runtime(request.runtime) or "", **told))

    def tool_called(self, request: Any) -> ToolRun:
        """A tool is about to run; tell the returned run how it ended."""
        return ToolRun(self, request)

    def __bool__(self) -> bool:
        return bool(self._sinks)


class ToolRun:
    """One call of a tool, from start to end."""

    def __init__(self, teller: Teller, request: Any) -> None:
        self._teller = teller
        self._started = time.perf_counter()
        if not teller:
            return
        call = request.tool_call
        self._thread = thread_of(getattr(request.runtime, "config", None)) or ""
        self._tool, self._id = str(call.get("name") or ""), call.get("id")
        teller.tell(tool_called(self._thread, self._tool, self._id, call.get("args")))

    def returned(self, answer: Any) -> None:
        """It returned a ToolMessage, or a command."""
        content = getattr(answer, "content", "")
        self._ended(content, is_error=getattr(answer, "status", None) == "error")

    def failed(self, error: Exception) -> None:
        """It raised; only the length of its words is told."""
        self._ended(str(error), is_error=True)

    def _ended(self, content: Any, *, is_error: bool) -> None:
        if self._teller:
            ms = (time.perf_counter() - self._started) * 1_000
            self._teller.tell(tool_finished(self._thread, self._tool, self._id, content, is_error=is_error, ms=ms))


def _name_of(model: Any) -> str | None:
    name = getattr(model, "model_name", None) or getattr(model, "model", None)
    return name if isinstance(name, str) else type(model).__name__
