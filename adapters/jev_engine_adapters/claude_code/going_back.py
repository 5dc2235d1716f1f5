"""Back to before a compaction: Claude Code overwrites no row, so the conversation of before is still in its file.

    python -m jev_engine_adapters.claude_code.going_back SESSION.jsonl

writes it beside the session as a new one, and says how to resume that. The session itself stays as it is.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jev_engine.errors import TranscriptError
from jev_engine.written import patched
from jev_engine_adapters.claude_code.chain import is_boundary

__all__ = ["before_last_compaction", "write_session"]


def before_last_compaction(rows: Sequence[Any], session: str) -> list[Any]:
    """The rows that stood before the last compaction, under another session's name.

    Raises TranscriptError where there was none.
    """
    at = max((i for i, row in enumerate(rows) if row.__class__ is dict and is_boundary(row)), default=-1)
    if at < 0:
        raise TranscriptError("this session was never compacted")
    return [{**row, "sessionId": session} if row.__class__ is dict and "sessionId" in row else row for row in rows[:at]]


def write_session(file: Path) -> Path:
    """A new session file beside `file`, as it was before its last compaction.

    Raises TranscriptError, ValueError for a row that is no JSON, or OSError; then nothing was written.
    """
    # Not splitlines(): it also splits at signs, such as U+2028, that stand in JSON as they are.
    lines = [line for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
    rows = [json.loads(line) for line in lines]
    session = str(uuid.uuid4())
    target = file.with_name(f"{session}.jsonl")
    made = before_last_compaction(rows, session)
    # Only the id changes in a line: its numbers and escapes stay as the host wrote them.
    texts = [patched(line, row, new, json.dumps) for line, row, new in zip(lines, rows, made, strict=False)]
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write("".join(f"{text}\n" for text in texts).encode())
    return target


def main() -> int:
    """The command."""
    if len(sys.argv) != 2:
        sys.stderr.write(__doc__ or "")
        return 2
    try:
        made = write_session(Path(sys.argv[1]))
    except (TranscriptError, OSError, ValueError) as error:
        sys.stderr.write(f"Error: {error}\n")
        return 1
    sys.stdout.write(f"claude --resume {made.stem}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
