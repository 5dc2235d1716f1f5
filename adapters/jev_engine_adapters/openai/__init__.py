"""OpenAI Chat Completions messages, read and write.

>>> from jev_engine_adapters.openai import adapter
>>> adapter.read([{"role": "user", "content": "Fix the parser."}]).entries
[<Entry row 0 user, 15 chars, 0 calls>]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jev_engine.host import RowChange
from jev_engine.transcript import Transcript
from jev_engine_adapters.openai import messages as shape

__all__ = ["OpenAIAdapter", "adapter"]


class OpenAIAdapter:
    """Lists of Chat Completions messages."""

    name = "openai"
    is_read_only = False
    can_delete = True
    edit_persists = True
    copies_in_call_row = False

    def sniff(self, messages: Sequence[Any]) -> bool:
        """Whether these look like Chat Completions messages."""
        return shape.sniff(messages)

    def read(self, messages: Sequence[Any]) -> Transcript:
        """The transcript of a list of messages."""
        return shape.read(messages)

    def edit(self, message: Any, change: RowChange) -> Any | None:
        """A changed copy of one message, or None where nothing of it is left."""
        return shape.edit(message, change)

    def check(self, before: Any, after: Any, change: RowChange) -> str | None:
        """What differs beyond the change."""
        return shape.check(before, after, change)

    def dump(self, message: Any) -> Any:
        """The message itself: it is plain JSON already."""
        return message

    def load(self, data: Any) -> Any:
        """The message itself."""
        return data


adapter = OpenAIAdapter()
