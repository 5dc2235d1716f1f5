"""Messages as Hermes holds them: Chat Completions rows with fields of its own.

What differs from the plain shape: ids come in two fields, provider items are tied to the calls of their row, and the
host writes user rows in its own name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jev_engine.host import RowChange
from jev_engine.transcript import Entry, Transcript, TranscriptBuilder
from jev_engine_adapters.openai import messages as shape

__all__ = ["PERSISTED", "HermesAdapter", "adapter", "for_host"]

PERSISTED = "_db_persisted"
"""The host's mark on rows its database has; rows of a rewritten history must not carry it."""
# Items of the Responses API, signed blocks and thought signatures: a provider refuses them without their calls.
BOUND_FIELDS = ("codex_reasoning_items", "codex_message_items", "anthropic_content_blocks", "reasoning_details")
# User rows the host writes: flagged, or known by how they begin (the flags are lost when a session is loaded again).
HOST_FLAGS = (
    "_todo_snapshot_synthetic", "_empty_recovery_synthetic", "_verification_stop_synthetic", "_pre_verify_synthetic",
    "_compressed_summary",
)  # fmt: skip
HOST_TEXTS = (
    "[System: ",
    "[Your active task list was preserved across context compression]",
    "[IMPORTANT: Background process ",
    "[CONTEXT COMPACTION",
    "[CONTEXT SUMMARY]:",
    "Continue from the compressed conversation context above.",
)


class HermesAdapter:
    """Lists of messages as Hermes gives them to a context engine."""

    name = "hermes"
    is_read_only = False
    can_delete = True
    edit_persists = True
    copies_in_call_row = False

    def sniff(self, messages: Sequence[Any]) -> bool:
        """Whether these have marks that only Hermes writes."""
        rows = [m for m in messages[:50] if isinstance(m, Mapping)]
        marked = any(PERSISTED in m or "tool_name" in m or "finish_reason" in m for m in rows)
        return marked and shape.sniff(messages)

    def read(self, messages: Sequence[Any]) -> Transcript:
        """The transcript of a list of messages; odd rows are kept and counted."""
        builder = TranscriptBuilder(messages)
        # A result may name either id of its call.
        other_id: dict[str, str] = {}
        for row, message in enumerate(messages):
            if message.__class__ is not dict and not isinstance(message, Mapping):
                builder.skip(row, "not a message")
                continue
            role = message.get("role")
            if role == "tool":
                _read_result(builder, row, message, other_id)
            elif role == "assistant":
                _read_assistant(builder, row, message, other_id)
            elif role in ("user", "system", "developer"):
                content = message.get("content")
                text, images = (content, 0) if content.__class__ is str else shape.text_of(content)
                human = role == "user" and not _host_written(message, text)
                builder.entry(row, "user" if role == "user" else "system", text, is_human=human, images=images)
            else:
                builder.skip(row, "unknown role", shape.text_of(message.get("content"))[0])
        return builder.finish()

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


def _read_assistant(
    builder: TranscriptBuilder, row: int, message: Mapping[str, Any], other_id: dict[str, str]
) -> Entry:
    entry = shape.read_assistant(builder, row, message)
    calls = message.get("tool_calls")
    if any(message.get(field) for field in BOUND_FIELDS):
        entry.is_bound = True
    for call in calls if isinstance(calls, list) else ():
        if not isinstance(call, Mapping):
            continue
        if call.get("extra_content"):
            entry.is_bound = True
        first, second = call.get("call_id"), call.get("id")
        if isinstance(first, str) and isinstance(second, str) and first and first != second:
            other_id[second] = first
    return entry


def _read_result(builder: TranscriptBuilder, row: int, message: Mapping[str, Any], other_id: dict[str, str]) -> None:
    named = message.get("tool_call_id") or message.get("call_id")
    if other_id and isinstance(named, str) and named in other_id:
        message = {**message, "tool_call_id": other_id[named]}
    shape.read_result(builder, row, message)


def _host_written(message: Mapping[str, Any], text: str) -> bool:
    if any(message.get(flag) for flag in HOST_FLAGS) or text.startswith(HOST_TEXTS):
        return True
    return shape.host_written(message, text)


def _unmarked(message: Any) -> Any:
    if message.__class__ is dict and PERSISTED in message:
        return {field: value for field, value in message.items() if field != PERSISTED}
    return message


def for_host(given: Any, made: Sequence[Any]) -> Any:
    """What the host gets back: the list it gave where nothing changed, otherwise rows without its database's mark.

    The host compares by value with that mark included, so a history that did not change must keep it.
    """
    return given if made is given else [_unmarked(message) for message in made]


adapter = HermesAdapter()
