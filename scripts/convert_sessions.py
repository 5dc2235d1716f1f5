"""Convert recorded agent sessions of several hosts into the corpus form of `jev-engine evaluate`, redacted.

    python scripts/convert_sessions.py --project owner/name sessions/*.jsonl -o corpus.jsonl.gz

One line of the result is one session: `session`, `source` (the project), `harness`, `model`, `path` and `messages` in
Chat
Completions form, with `reasoning`, `is_error`, `compact_boundary` and `compact_summary` where the host recorded them.
Known formats: claude-code, codex, opencode, pi, swe-agent, openai. docs/rebuild-a-corpus.md tells the whole way.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redact_sessions import redact_messages
from session_formats import READERS, Message

LEAST_CALLS = 15
"""Sessions with fewer results cannot be cut [jev_engine.evaluate.corpus]."""


def load(text: str) -> Any:
    """A file as one document or as a list of rows."""
    try:
        return json.loads(text)
    except ValueError:
        rows = [json.loads(line) for line in text.split("\n") if line.strip()]
        return [row for row in rows if isinstance(row, dict)]


def recognise(document: Any) -> str:
    """The format of a document; raises ValueError."""
    if isinstance(document, dict):
        if "trajectory" in document:
            return "swe-agent"
        rows = document.get("messages") or []
        return "opencode" if rows and "parts" in rows[0] else "openai"
    kinds = {row.get("type") for row in document}
    if kinds & {"response_item", "turn_context", "session_meta"}:
        return "codex"
    if "message" in kinds and all("message" in row for row in document if row.get("type") == "message"):
        return "pi"
    if kinds & {"user", "assistant"}:
        return "claude-code"
    if any("role" in row for row in document):
        return "openai"
    raise ValueError("none of the known formats; name it with --format")


# --- the command ------------------------------------------------------------------------------------------------------


def tidy(messages: Sequence[Message]) -> list[Message]:
    """Without empty answers, results nobody asked for and calls nobody answered."""
    made = {call["id"] for message in messages for call in message.get("tool_calls") or ()}
    answered = {message.get("tool_call_id") for message in messages if message["role"] == "tool"}
    kept = []
    for message in messages:
        if message["role"] == "tool" and message.get("tool_call_id") not in made:
            continue
        if message.get("tool_calls"):
            message["tool_calls"] = [call for call in message["tool_calls"] if call["id"] in answered]
        if not message.get("tool_calls"):
            message.pop("tool_calls", None)
        if message["role"] != "assistant" or any(
            message.get(field) for field in ("content", "reasoning", "tool_calls")
        ):
            kept.append(message)
    return kept


def convert(text: str, project: str, path: str, form: str = "auto") -> dict[str, Any]:
    """One session file as one record of the corpus; raises ValueError."""
    document = load(text)
    harness = recognise(document) if form == "auto" else form
    messages, model = READERS[harness](document)
    messages = tidy(messages)
    redact_messages(messages)
    session = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return {
        "session": session,
        "source": project,
        "harness": harness,
        "model": model,
        "path": path,
        "messages": messages,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="Convert recorded agent sessions into a corpus, redacted.")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--project", required=True, help="owner/name of the repository the sessions worked on")
    parser.add_argument("--format", default="auto", choices=["auto", *READERS])
    parser.add_argument("--least-calls", type=int, default=LEAST_CALLS, help="leave out sessions with fewer results")
    parser.add_argument("-o", "--out", type=Path, required=True, help="corpus to add to: .jsonl or .jsonl.gz")
    chosen = parser.parse_args(arguments)
    taken = 0
    seen_calls: set[str] = set()
    opener = gzip.open if chosen.out.suffix == ".gz" else open
    with opener(chosen.out, "at", encoding="utf-8") as stream:
        for path in chosen.files:
            try:
                record = convert(path.read_text(encoding="utf-8"), chosen.project, path.name, chosen.format)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                print(f"{path}: left out: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            calls = {str(m["tool_call_id"]) for m in record["messages"] if m["role"] == "tool"}
            # Resumed sessions copy what went before: the one with the shared calls that came first stays.
            is_copy = record["harness"] != "swe-agent" and len(calls & seen_calls) > len(calls) / 2
            if len(calls) >= chosen.least_calls and not is_copy:
                seen_calls |= calls
                stream.write(json.dumps(record, ensure_ascii=False) + "\n")
                taken += 1
    print(f"{taken} of {len(chosen.files)} sessions added to {chosen.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
