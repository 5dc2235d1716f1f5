"""Anthropic Messages API, read and write.

>>> from jev_engine_adapters.anthropic import adapter
>>> adapter.read([{"role": "user", "content": [{"type": "text", "text": "Fix the parser."}]}]).entries
[<Entry row 0 user, 15 chars, 0 calls>]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jev_engine.host import RowChange
from jev_engine.transcript import Transcript
from jev_engine_adapters.anthropic import edits
from jev_engine_adapters.anthropic import messages as shape

__all__ = ["AnthropicAdapter", "adapter"]


class AnthropicAdapter:
    """Lists of messages as the Messages API takes them. A client sends the originals again with every request."""

    name = "anthropic"
    is_read_only = False
    can_delete = True
    edit_persists = False
    copies_in_call_row = False

    def sniff(self, messages: Sequence[Any]) -> bool:
        """Whether these look like Messages API messages; texts alone look like any other form."""
        return shape.sniff(messages)

    def read(self, messages: Sequence[Any]) -> Transcript:
        """The transcript of a list of messages."""
        return shape.read(messages)

    def edit(self, message: Any, change: RowChange) -> Any | None:
        """A changed copy of one message, or None where nothing of it is left."""
        return edits.edit(message, change)

    def check(self, before: Any, after: Any, change: RowChange) -> str | None:
        """What differs beyond the change."""
        return edits.check(before, after, change)

    def dump(self, message: Any) -> Any:
        """The message itself: it is plain JSON already."""
        return message

    def load(self, data: Any) -> Any:
        """The message itself."""
        return data


adapter = AnthropicAdapter()
