"""Reasoning that is bound to the history before it: what has to be left out once that history was shortened.

Newer models of Anthropic sign a thinking block together with everything before it. After an edit the signature no
longer fits, and the provider refuses the request, or drops this block and all later ones. So a pass strips the
reasoning between its first edit and the end of the history it saw. Reasoning written later is bound to the shortened
history and stays valid, because a ledger only grows.

What is out is known by digests of the blocks themselves, kept in the thread's state: the same messages and state give
the same view, whatever happened to the rows around them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Literal

from jev_engine_adapters.langgraph.messages import kind_of

__all__ = ["BoundReasoning", "bound_digests", "strip"]

BoundReasoning = Literal["auto", "strip", "keep"]
"""`auto`: of messages of Claude whose model checks; `strip`: of any message; `keep`: of none."""
CLAUDE_BLOCKS = frozenset({"thinking", "redacted_thinking"})
UNCHECKED = re.compile(r"claude-(?:[1-4]\b|[a-z]+-[1-4]\b)")
"""Models up to Claude 4 do not check what stands before a block, but want the newest one back while a tool is in use:
their reasoning is left alone."""
ALL_BLOCKS = CLAUDE_BLOCKS | {"reasoning", "reasoning_content"}


def bound_digests(messages: Sequence[Any], after_row: int, rule: BoundReasoning) -> set[str]:
    """Digests of the reasoning behind a row that an edit of this row makes invalid."""
    if rule == "keep":
        return set()
    return {
        _digest(block)
        for message in messages[after_row + 1 :]
        if kind_of(message) == "ai" and message.content.__class__ is list
        for block in message.content
        if _is_bound(block, message, rule)
    }


def _is_bound(block: Any, message: Any, rule: BoundReasoning) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    if rule == "strip":
        return kind in ALL_BLOCKS
    told = message.response_metadata
    names = [told.get(name) for name in ("model_provider", "model_name", "model", "model_id", "provider")]
    text = " ".join([name.lower() for name in names if isinstance(name, str)])
    if UNCHECKED.search(text):
        return False
    # LangChain's own form of a thinking block is `reasoning`; its signature stands beside it.
    return kind in CLAUDE_BLOCKS or (kind == "reasoning" and ("claude" in text or "anthropic" in text))


def strip(messages: Sequence[Any], digests: Iterable[str]) -> Any:
    """The messages without reasoning of these digests; the same object where none is there."""
    digests = frozenset(digests)
    if not digests:
        return messages
    output = list(messages)
    changed = False
    for row, message in enumerate(messages):
        if kind_of(message) != "ai" or message.content.__class__ is not list:
            continue
        left = [block for block in message.content if not _is_out(block, digests)]
        if len(left) < len(message.content):
            output[row] = message.model_copy(update={"content": left})
            changed = True
    return output if changed else messages


def _is_out(block: Any, digests: frozenset[str]) -> bool:
    return isinstance(block, dict) and block.get("type") in ALL_BLOCKS and _digest(block) in digests


def _digest(block: dict[str, Any]) -> str:
    text = json.dumps(block, sort_keys=True, default=repr)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
