"""A session file to resume from, made of another one and a pass over it.

The new session has an id of its own in every row. Thinking behind the first edit is left out where the model binds it
to its history; the rows that held nothing else go, and what hung below them hangs below their parents.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jev_engine.reasoning import binds_reasoning
from jev_engine_adapters.claude_code.companions import newest_first
from jev_engine_adapters.claude_code.thinking import THINKING, first_edited, is_thinking_only, thinking_behind

__all__ = ["NewSession", "latest_session", "new_session", "session_file"]

LINKS = ("parentUuid", "logicalParentUuid", "leafUuid", "sourceToolAssistantUUID")


class NewSession(NamedTuple):
    """Rows to resume from."""

    session: str
    rows: list[Any]
    index_map: list[int | None]
    """For each row of the original its row here, None where it is gone."""
    thinking_removed: int
    """Rows that lost their thinking, or were nothing else."""
    resume: str
    """The command that goes on with it."""


def new_session(before: Sequence[Any], after: Sequence[Any], session: str) -> NewSession:
    """The rows after a pass as a session of its own; the rows given are not changed."""
    first = first_edited(before, after)
    gone: dict[str, Any] = {}
    stripped: dict[int, Any] = {}
    if first is not None and _binds(before):
        for i in thinking_behind(after, first):
            row = after[i]
            uuid = row.get("uuid")
            if is_thinking_only(row) and uuid.__class__ is str and "parentUuid" in row:
                gone[uuid] = row["parentUuid"]
            elif not is_thinking_only(row):
                stripped[i] = _without_thinking(row)
    rows: list[Any] = []
    index_map: list[int | None] = []
    for i, row in enumerate(after):
        if row.__class__ is dict and row.get("uuid") in gone and is_thinking_only(row):
            index_map.append(None)
            continue
        index_map.append(len(rows))
        rows.append(_moved(stripped.get(i, row), session, gone))
    return NewSession(session, rows, index_map, len(gone) + len(stripped), f"claude --resume {session}")


def _binds(rows: Sequence[Any]) -> bool:
    """Whether the model that answered last binds its thinking."""
    for row in reversed(rows):
        message = row.get("message") if row.__class__ is dict and row.get("type") == "assistant" else None
        model = message.get("model") if message.__class__ is dict else None
        if model.__class__ is str and not model.startswith("<"):  # <synthetic>: an error shown to the user
            return binds_reasoning(model)
    return True


def _without_thinking(row: dict[str, Any]) -> dict[str, Any]:
    message = row["message"]
    left = [block for block in message["content"] if not (block.__class__ is dict and block.get("type") in THINKING)]
    return {**row, "message": {**message, "content": left}}


def _moved(row: Any, session: str, gone: dict[str, Any]) -> Any:
    """The row in its new session, its links past rows that are gone."""
    if row.__class__ is not dict:
        return row
    changed: dict[str, Any] = {}
    if row.get("sessionId").__class__ is str:
        changed["sessionId"] = session
    for field in LINKS:
        link = row.get(field)
        if link.__class__ is str and link in gone:
            seen = set()
            while link in gone and link not in seen:
                seen.add(link)
                link = gone[link]
            changed[field] = link
    return {**row, **changed} if changed else row


def latest_session(folder: Path) -> Path | None:
    """The file of the session that was used last in a folder; None where Claude Code has not been used in it."""
    kept = _projects() / re.sub(r"[^A-Za-z0-9]", "-", str(folder))
    # Files of subagents begin with `agent-` and are no session of a person.
    found = newest_first(path for path in kept.glob("*.jsonl") if not path.name.startswith("agent-"))
    return found[0] if found else None


def session_file(session: str) -> Path | None:
    """The file of a session by its id; None where there is none."""
    is_id = re.fullmatch(r"[0-9a-f-]{36}", session) is not None
    return next(_projects().glob(f"*/{session}.jsonl"), None) if is_id else None


def _projects() -> Path:
    return Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "projects"
