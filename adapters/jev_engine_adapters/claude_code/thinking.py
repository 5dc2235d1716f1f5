"""Signed thinking blocks that an edit may void.

Newer models bind a thinking block to everything before it: change an earlier message, and that block and every later
one is refused, unless the request asks for such blocks to be dropped. Blocks are never edited. Who writes a session
file either keeps them, and says so, or leaves out those behind the first edit; the functions here tell which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jev_engine_adapters.claude_code.chain import live_rows

__all__ = ["first_edited", "is_thinking_only", "thinking_behind"]

THINKING = ("thinking", "redacted_thinking")


def _kinds(row: Any) -> list[Any]:
    message = row.get("message") if row.__class__ is dict and row.get("type") == "assistant" else None
    content = message.get("content") if message.__class__ is dict else None
    blocks = content if content.__class__ is list else []
    return [block.get("type") if block.__class__ is dict else None for block in blocks]


def is_thinking_only(row: Any) -> bool:
    """Whether a row is an assistant row that holds thinking and nothing else."""
    kinds = _kinds(row)
    return bool(kinds) and all(kind in THINKING for kind in kinds)


def first_edited(before: Sequence[Any], after: Sequence[Any]) -> int | None:
    """The first row that is another object after a pass; None where none is."""
    return next((i for i, (old, new) in enumerate(zip(before, after, strict=False)) if old is not new), None)


def thinking_behind(rows: Sequence[Any], first: int) -> list[int]:
    """Rows from `first` on that the model still sees and that hold thinking."""
    seen = live_rows(rows).rows
    return [i for i in sorted(seen) if i >= first and any(kind in THINKING for kind in _kinds(rows[i]))]
