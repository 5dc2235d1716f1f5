"""What a request holds beside texts and results: system prompt, tools, reasoning, what a provider's tools returned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from jev_engine.tokens import estimate_tokens, sample_tokens
from jev_engine_adapters.langgraph.messages import CALL_BLOCKS, kind_of
from jev_engine_adapters.openai.messages import IMAGE_TYPES, part_text, plain_json, text_of

__all__ = ["overhead_tokens"]

MOST_TOOLS = 1_000
_known_tools: dict[tuple[int, str], int] = {}


def overhead_tokens(messages: Sequence[Any], system: Any = None, tools: Iterable[Any] = ()) -> int:
    """Estimated tokens of all that a transcript has no place for."""
    total = 0 if system is None else estimate_tokens(text_of(system.content)[0])
    for tool in tools:
        total += _tool_tokens(tool)
    for message in messages:
        if kind_of(message) == "ai" and message.content.__class__ is list:
            total += sum([_block_tokens(block) for block in message.content])
    return total


def _block_tokens(block: Any) -> int:
    if not isinstance(block, dict) or part_text(block) is not None:
        return 0
    if block.get("type") in (*CALL_BLOCKS, *IMAGE_TYPES):
        return 0  # counted as the call's arguments, and as an image
    return sample_tokens(plain_json(block))


def _tool_tokens(tool: Any) -> int:
    if isinstance(tool, dict):
        return estimate_tokens(plain_json(tool))
    # An estimate by identity: a schema takes milliseconds to write, and tools live as long as their agent.
    key = (id(tool), str(tool.name))
    known = _known_tools.get(key)
    if known is None:
        if len(_known_tools) > MOST_TOOLS:
            _known_tools.clear()
        schema: Any = getattr(tool, "tool_call_schema", None)
        described = schema.model_json_schema() if hasattr(schema, "model_json_schema") else schema
        known = _known_tools[key] = estimate_tokens(f"{tool.name} {tool.description} {plain_json(described)}")
    return known
