"""Uses the public API the way callers do. Type-checked, never run."""

from __future__ import annotations

from typing import Any

from jev_engine import CompressionResult, ContextEngine, EngineConfig


async def compress_one_history(messages: list[dict[str, Any]]) -> tuple[float, list[str], list[Any]]:
    engine = ContextEngine(config=EngineConfig(profile="balanced", miss_cost=5))
    result: CompressionResult = await engine.compress(messages, host="openai", focus_topic="the parser", force=True)
    share: float = result.reduction_ratio
    reasons: list[str] = [decision.reason for decision in result.decisions]
    return share, reasons, list(result.messages)


def ask_whether(engine: ContextEngine) -> bool:
    return engine.should_compress(prompt_tokens=150_000)
