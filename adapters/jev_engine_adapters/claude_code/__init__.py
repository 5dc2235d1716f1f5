"""Claude Code session files (`~/.claude/projects/<project>/<session>.jsonl`), read and write.

>>> from jev_engine_adapters.claude_code import adapter
>>> adapter.read([{"type": "user", "message": {"role": "user", "content": "Fix the parser."}}]).entries
[<Entry row 0 user, 15 chars, 0 calls>]

`messages` reads rows and their content blocks, `chain` finds the rows the model still sees, `edits` shortens results
in both places a row holds them, `thinking` says which signed blocks an edit may void, `offline` makes a session of its
own of what a pass left. `plugin` is the other half: what
the plugin inside Claude Code is told and what it is told to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jev_engine_adapters.claude_code import edits
from jev_engine_adapters.claude_code.messages import looks_like_session, read_rows
from jev_engine_adapters.claude_code.offline import NewSession, latest_session, new_session, session_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from jev_engine.host import RowChange
    from jev_engine.transcript import Transcript

__all__ = ["ClaudeCodeAdapter", "adapter"]


class ClaudeCodeAdapter:
    """Session files; each message is one row, as parsed from its line.

    Rows keep their links: calls are shortened, never removed, so every `parentUuid` still leads somewhere. An edit
    changes no thinking block; whether the provider still takes those behind it is said by `thinking`.
    """

    name = "claude-code"
    is_read_only = False
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
        """A copy of a row whose results, and the host's record of them, have other texts."""
        return edits.edit(message, change)

    def check(self, before: Any, after: Any, change: RowChange) -> str | None:
        """What differs beyond the change, a second copy of the result that stayed included."""
        return edits.check(before, after, change)

    def dump(self, message: Any) -> Any:
        """Rows are plain JSON values already."""
        return message

    def load(self, data: Any) -> Any:
        """The row that `dump` was given."""
        return data

    def new_session(self, before: Sequence[Any], after: Sequence[Any], session: str) -> NewSession:
        """What a pass made of a session, as a session of its own to resume from."""
        return new_session(before, after, session)

    def session_id(self, rows: Sequence[Any]) -> str | None:
        """The id that rows of a session file carry; None where none does."""
        return next(
            (id_ for row in rows if row.__class__ is dict and (id_ := row.get("sessionId")).__class__ is str), None
        )

    def latest_session(self, folder: Path) -> Path | None:
        """The file of the session that was used last in a folder."""
        return latest_session(folder)

    def session_file(self, session: str) -> Path | None:
        """The file of a session by its id."""
        return session_file(session)


adapter = ClaudeCodeAdapter()
