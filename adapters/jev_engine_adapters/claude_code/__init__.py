"""Claude Code session files (`~/.claude/projects/<project>/<session>.jsonl`): read now, written later.

>>> from jev_engine_adapters.claude_code import adapter
>>> adapter.read([{"type": "user", "message": {"role": "user", "content": "Fix the parser."}}]).entries
[<Entry row 0 user, 15 chars, 0 calls>]

`messages` reads rows and their content blocks, `chain` finds the rows the model still sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jev_engine.errors import AdapterError
from jev_engine_adapters.claude_code.messages import looks_like_session, read_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jev_engine.host import RowChange
    from jev_engine.transcript import Transcript

__all__ = ["ClaudeCodeAdapter", "adapter"]

_READ_ONLY = (
    "writing Claude Code session files is not supported yet: a changed row would not survive `claude --resume` "
    "(thinking blocks and parent links have to change with it). Reading, judging and inspecting them is."
)


class ClaudeCodeAdapter:
    """Reads a session file; each message is one row, as parsed from its line."""

    name = "claude-code"
    is_read_only = True
    can_delete = False
    edit_persists = True
    copies_in_call_row = False

    def sniff(self, messages: Sequence[Any]) -> bool:
        """Whether a list of parsed rows looks like a Claude Code session file."""
        return looks_like_session(messages)

    def read(self, messages: Sequence[Any]) -> Transcript:
        """The conversation as the model sees it; everything else is kept and counted in `odd`."""
        return read_rows(messages)

    def edit(self, message: Any, change: RowChange) -> Any | None:
        """Refused: see the message of the error."""
        raise AdapterError(_READ_ONLY)

    def check(self, before: Any, after: Any, change: RowChange) -> str | None:
        """Refused, as `edit` is."""
        raise AdapterError(_READ_ONLY)

    def dump(self, message: Any) -> Any:
        """Rows are plain JSON values already."""
        return message

    def load(self, data: Any) -> Any:
        """The row that `dump` was given."""
        return data


adapter = ClaudeCodeAdapter()
