"""One pass in a line, for tests in plain code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio

from jev_engine import CompressionResult, ContextEngine, make_config
from jev_engine.judges import Judge
from jev_engine.testing import ScriptedJudge
from jev_engine_adapters.openai import adapter

__all__ = ["NOTHING_MATTERS", "compress", "long_text", "paired"]


def NOTHING_MATTERS(_call: Any) -> tuple[float, float]:  # noqa: N802  # reads as a constant where it is used
    """The script of a judge that would throw everything away."""
    return 0.0, 0.0


def compress(
    messages: Sequence[Any],
    script: Any = NOTHING_MATTERS,
    *,
    judge: Judge | None = None,
    engine: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    **settings: Any,
) -> CompressionResult:
    """A pass with a scripted judge (or `judge`) and settings by name; gain is no matter unless a test asks for it."""
    config = make_config(**{"min_freed_share": 0.0, **settings})
    made = ContextEngine(config=config, judge=judge or ScriptedJudge(script), **(engine or {}))
    return anyio.run(lambda: made.compress(messages, host="openai", **(options or {})))


def long_text(name: str, chars: int = 3_000) -> str:
    """Text of a result that is long enough to be judged."""
    line = f"line of {name} with words in it\n"
    return (line * (chars // len(line) + 1))[:chars]


def paired(messages: Sequence[Any]) -> bool:
    """Every result follows its call, every call but the last row's has a result, and no list of calls is empty."""
    transcript = adapter.read(messages)
    shells = [m for m in messages if isinstance(m, dict) and m.get("tool_calls") == []]
    open_calls = [call for call in transcript.calls if call.is_open]
    return not transcript.odd and not shells and not open_calls
