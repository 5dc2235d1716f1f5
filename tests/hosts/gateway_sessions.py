"""Real session files of other people, put where the real Claude Code looks for them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hosts.claude_code_lab import Lab, texts

__all__ = ["SESSIONS", "put", "said"]

SESSIONS = [
    "compactions-micro-and-full", "images", "local-commands", "no-compaction", "parallel-calls", "three-compactions",
    "two-compactions-unanswered-calls", "unanswered-call",
]  # fmt: skip


def put(lab: Lab, file: Path) -> Path:
    """A session file where the CLI looks for it."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    lab.session = [row["sessionId"] for row in rows if isinstance(row, dict) and "sessionId" in row][-1]
    folder = lab.home / ".claude" / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(lab.project))
    folder.mkdir(parents=True)
    return Path(shutil.copy(file, folder / f"{lab.session}.jsonl"))


def said(messages: Sequence[Any]) -> list[str]:
    """Texts of user and assistant, without what the host puts there anew for each request."""
    return [text for text in texts([m for m in messages if m["role"] != "system"]) if "<system-reminder>" not in text]
