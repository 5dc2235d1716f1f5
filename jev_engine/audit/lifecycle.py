"""What a host told, as the event it stands for: the one step between a host's hooks and the trail.

Each host maps its own hooks to `Told` in `jev_engine_adapters/<host>/lifecycle.py`; `tell` makes digests of what is
content and hands the event to the sinks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from jev_engine import events

__all__ = ["Told", "length_of", "model_called", "rotated", "text_of", "tool_called", "tool_finished"]

# Beyond this depth a value is only named: a payload may hold itself.
DEEPEST = 20


class Told(NamedTuple):
    """An event before it has a digest: what a host said, in our words."""

    kind: type[events.Event]
    session: str
    """The host's own name for it; only its keyed digest is written down."""
    facts: dict[str, Any]
    digests: Mapping[str, str] = MappingProxyType({})
    """Facts that are content: their keyed digest is told instead."""


def tool_called(session: str, tool: Any, call_id: Any, arguments: Any) -> Told:
    """A tool is about to run."""
    given = text_of(arguments)
    facts = {"tool": str(tool or ""), "argument_chars": len(given)}
    return Told(events.ToolCalled, session, facts, {"call": text_of(call_id), "argument_digest": f"{tool}\0{given}"})


def tool_finished(
    session: str, tool: Any, call_id: Any, result: Any, *, is_error: bool = False, ms: Any = None
) -> Told:
    """A tool has run."""
    facts = {"tool": str(tool or ""), "result_chars": length_of(result), "is_error": is_error, "ms": _number(ms)}
    return Told(events.ToolFinished, session, facts, {"call": text_of(call_id)})


def model_called(session: str, **facts: Any) -> Told:
    """The agent's model is called, or was; numbers that are none are left out."""
    model = facts.pop("model", None)
    ms = _number(facts.pop("ms", None))
    numbers = {name: int(value) for name, value in facts.items() if _number(value) is not None}
    return Told(events.ModelCalled, session, {"model": str(model) if model else None, "ms": ms, **numbers})


def rotated(session: str, successor: str, reason: str | None = None) -> Told:
    """The conversation goes on under another name."""
    return Told(events.SessionRotated, session, {"reason": reason}, {"successor": successor})


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def text_of(value: Any, depth: int = 0) -> str:
    """A value as text, the same for equal values: for digests and lengths only."""
    if isinstance(value, str):
        return value
    if depth >= DEEPEST:
        return type(value).__name__
    if isinstance(value, dict):
        parts = sorted(f"{key}:{text_of(item, depth + 1)}" for key, item in value.items())
        return "{" + ",".join(parts) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join([text_of(item, depth + 1) for item in value]) + "]"
    return "" if value is None else str(value)


def length_of(value: Any) -> int:
    """Characters of a result: of its texts, where it is made of parts."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Iterable) and not isinstance(value, dict | bytes):
        texts = [part.get("text") for part in value if isinstance(part, dict)]
        sizes = [len(text) for text in texts if isinstance(text, str)]
        if sizes and len(sizes) == len(texts):
            return sum(sizes)
    return len(text_of(value))
