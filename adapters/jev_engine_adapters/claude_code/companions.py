"""What came with a result and no plugin is shown: the text of a skill, the pages of a document.

Claude Code puts it into a row of its own, marked `isMeta` and tied to the call by `sourceToolUseID`. A result that is
built anew loses that row, so its text has to travel in the result.

A copy of a session that was only just made may have no file yet, or one without what came before: then the other
sessions of the project are looked through, the newest first. Ids of calls are the provider's, and name one call.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["companions", "find_companions", "newest_first", "session_file", "sessions_beside"]

NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}\Z")
MARK = b'"sourceToolUseID"'
LARGEST_FILE_BYTES = 512 * 1024 * 1024
MOST_FILES_BESIDE = 20


def session_file(session: str, *, agent: str | None = None, folder: str | None = None) -> Path | None:
    """The file of a session, or of one of its subagents, if it is kept; names that are none lead nowhere."""
    if not NAME.match(session) or (agent and not NAME.match(agent)):
        return None
    pattern = f"*/{session}/subagents/agent-{agent}.jsonl" if agent else f"*/{session}.jsonl"
    found = newest_first(_projects(folder).glob(pattern))
    return found[0] if found else None


def sessions_beside(cwd: str, *, folder: str | None = None) -> list[Path]:
    """Files of the sessions of the project in a folder, the newest first."""
    return newest_first((_projects(folder) / re.sub(r"[^A-Za-z0-9]", "-", cwd)).glob("*.jsonl"))[:MOST_FILES_BESIDE]


def _projects(folder: str | None) -> Path:
    return Path(folder or os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "projects"


def newest_first(files: Iterable[Path]) -> list[Path]:
    """Files, the last changed first; what is no file, or is gone by now, is left out."""
    times: list[tuple[float, Path]] = []
    for path in files:
        try:
            found = path.stat()
        except OSError:  # a link that leads nowhere, or a session that was deleted a moment ago
            continue
        if stat.S_ISREG(found.st_mode):
            times.append((found.st_mtime, path))
    return [path for _, path in sorted(times, reverse=True)]


def find_companions(files: Iterable[Path], ids: Iterable[str]) -> dict[str, tuple[str, int]]:
    """The same of several files, until every one of these calls is found."""
    found: dict[str, tuple[str, int]] = {}
    missing = set(ids)
    for file in files:
        if not missing:
            break
        found |= companions(file, missing)
        missing -= set(found)
    return found


def companions(file: Path, ids: Iterable[str]) -> dict[str, tuple[str, int]]:
    """By call id: the text that came with its result, and how many blocks came that are no text.

    Lines that cannot be read are passed over; raises nothing for what a file holds.
    """
    wanted = set(ids)
    texts: dict[str, list[str]] = {}
    others: dict[str, int] = {}
    try:
        if not wanted or file.stat().st_size > LARGEST_FILE_BYTES:
            return {}
        with file.open("rb") as lines:
            rows = [row for line in lines if MARK in line and (row := _row(line)) is not None]
    except OSError:
        return {}
    for row in rows:
        call = row.get("sourceToolUseID")
        if not row.get("isMeta") or call not in wanted:
            continue
        said, count = _content(row)
        texts.setdefault(call, []).extend(text for text in said if text not in texts.get(call, ()))
        others[call] = others.get(call, 0) + count
    return {call: ("\n".join(said), others[call]) for call, said in texts.items()}


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("sourceToolUseID"), str) else None


def _content(row: Mapping[str, Any]) -> tuple[list[str], int]:
    message = row.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [content], 0
    blocks = content if isinstance(content, list) else []
    said = [b["text"] for b in blocks if isinstance(b, dict) and isinstance(b.get("text"), str)]
    return said, len(blocks) - len(said)
