"""What the plugin inside Claude Code sends: one slim entry for each row of the conversation.

    {"i": 3, "role": "assistant", "text": "", "calls": [{"id": "toolu_1", "name": "Bash", "input": {…}}], "results": []}
    {"i": 4, "role": "user", "text": "", "calls": [], "results": [{"id": "toolu_1", "text": "…", "error": false}]}

`i` is the row's place in the plugin's own list; whatever the plugin is told refers to it, so that texts and arguments
never travel back and cannot change on their way. A row that holds thinking only arrives as an assistant entry without
text and calls. `nontext` marks a result that holds more than its text, an image most often.

Where a tool or command asks, `marker` is the id in a marker among the results of the conversation: the newest, or the
one that is asked for. A copy of a session goes on with the markers of the one it came from, whose originals they name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jev_engine.audit.lifecycle import Told
from jev_engine.host import RowChange
from jev_engine.transcript import Transcript, TranscriptBuilder
from jev_engine_adapters.claude_code.companions import (
    companions,
    find_companions,
    session_file,
    sessions_beside,
)
from jev_engine_adapters.claude_code.lifecycle import told
from jev_engine_adapters.claude_code.messages import CLEARED_NOTE, arguments_text, host_wrote, is_launch
from jev_engine_adapters.claude_code.operations import Operations, edited_rows, resume_safe

__all__ = ["PluginAdapter", "adapter"]

SUMMARY_OPEN = "This session is being continued from a previous conversation"
# The command as the host records it: the name may be led by the plugin's.
PIN_COMMAND = re.compile(
    r"<command-name>/(?:jev-engine:)?jev</command-name>(?:(?!<command-name>).)*?<command-args>\s*pin\s+([^<]{1,300}?)\s*</command-args>",
    re.DOTALL,
)
FIELDS = ("i", "role", "text", "calls", "results")


class PluginAdapter:
    """Conversations as the plugin sends them."""

    name = "claude-code-plugin"
    is_read_only = False
    can_delete = True
    edit_persists = True
    copies_in_call_row = False
    host_keeps_rows = True
    """Claude Code only appends to its session files: everything before a compaction is still there."""
    never_judged = ("Skill",)
    """Tools whose results are instructions."""

    def sniff(self, messages: Sequence[Any]) -> bool:
        """Whether the first entries are slim ones."""
        some = messages[:5]
        return bool(some) and all(isinstance(m, Mapping) and all(f in m for f in FIELDS) for m in some)

    def read(self, messages: Sequence[Any]) -> Transcript:
        """The transcript; entries that are not understood are kept and counted."""
        builder = TranscriptBuilder(messages)
        for row, entry in enumerate(messages):
            if entry.__class__ is not dict or not _is_plain(entry):
                builder.skip(row, "not an entry")
            elif entry["role"] == "assistant":
                made = builder.entry(row, "assistant", entry["text"])
                for place, call in enumerate(entry["calls"]):
                    _read_call(builder, made, place, call)
            else:
                for place, result in enumerate(entry["results"]):
                    _read_result(builder, row, place, result)
                text = entry["text"]
                if text or not entry["results"]:
                    human = not entry["results"] and not text.startswith(SUMMARY_OPEN) and not host_wrote(text)
                    builder.entry(row, "user", text, is_human=human)
        return builder.finish()

    def edit(self, message: Any, change: RowChange) -> Any | None:
        """A changed copy of an entry, or None where nothing of it is left."""
        texts = {call.result_place: text for call, text in change.results}
        out = {call.result_place for call in change.removed if call.result_row == change.row}
        gone = {call.place for call in change.removed if call.row == change.row}
        results = [
            {**result, "text": texts[place]} if place in texts else result
            for place, result in enumerate(message["results"])
            if place not in out
        ]
        calls = [call for place, call in enumerate(message["calls"]) if place not in gone]
        if not (results or calls or message["text"].strip()):
            return None
        return {**message, "calls": calls, "results": results}

    def check(self, before: Any, after: Any, change: RowChange) -> str | None:
        """What differs beyond the change; written apart from `edit` on purpose."""
        if after.__class__ is not dict or list(after) != list(before):
            return "fields added, lost or moved"
        for field, value in before.items():
            if field not in ("calls", "results") and after[field] is not value:
                return f"field {field!r} changed"
        gone = {id(before["calls"][c.place]) for c in change.removed if c.row == change.row}
        if not _are_same(after["calls"], [call for call in before["calls"] if id(call) not in gone]):
            return "calls that stay were changed"
        out = {id(before["results"][c.result_place]) for c in change.removed if c.result_row == change.row}
        kept = [result for result in before["results"] if id(result) not in out]
        if after["results"].__class__ is not list or len(after["results"]) != len(kept):
            return "wrong number of results left"
        decided = {id(before["results"][call.result_place]): text for call, text in change.results}
        return next(
            (p for o, n in zip(kept, after["results"], strict=True) if (p := _check_result(o, n, decided))), None
        )

    def dump(self, message: Any) -> Any:
        """The entry itself: it is plain JSON already."""
        return message

    def load(self, data: Any) -> Any:
        """The entry itself."""
        return data

    def operations(self, before: Sequence[Any], after: Sequence[Any], given: Mapping[str, Any]) -> Operations:
        """What the plugin has to build so that its conversation becomes `after`, and stays so when it is resumed.

        `given` is the plugin's request: the session's file holds what came with results and no plugin is shown.
        """
        file = _file_of(given)
        calls = [call for entry in after for call in entry["calls"]]
        beside = {} if file is None else companions(file, [call["id"] for call in calls])
        missing = [call["id"] for call in calls if call["name"] in self.never_judged and call["id"] not in beside]
        if missing:
            files = sessions_beside(str(given.get("cwd") or ""), folder=given.get("config_dir") or None)
            beside |= find_companions(files, missing)
        return resume_safe(before, after, beside)

    def edits(self, before: Sequence[Any], after: Sequence[Any]) -> Operations:
        """The same for a history that the host's own summariser works on: only rows that changed are rebuilt."""
        return edited_rows(before, after)

    def told(self, payload: Mapping[str, Any]) -> Told | None:
        """The event that the payload of a hook stands for."""
        return told(payload)

    def pins(self, messages: Sequence[Any]) -> tuple[str, ...]:
        """What the user has said must never be judged, by `/jev pin …` in this conversation."""
        texts = [
            m["text"]
            for m in messages
            if m.__class__ is dict and m.get("role") == "user" and "jev" in str(m.get("text"))
        ]
        return tuple(dict.fromkeys(found for text in texts for found in PIN_COMMAND.findall(text)))


def _file_of(given: Mapping[str, Any]) -> Path | None:
    """The file of the session that asks."""
    agent, folder = given.get("agent_id"), given.get("config_dir")
    return session_file(str(given.get("session_id")), agent=agent or None, folder=folder or None)


def _is_plain(entry: dict[str, Any]) -> bool:
    return (
        entry.get("role") in ("user", "assistant")
        and entry.get("text").__class__ is str
        and entry.get("calls").__class__ is list
        and entry.get("results").__class__ is list
    )


def _read_call(builder: TranscriptBuilder, entry: Any, place: int, call: Any) -> None:
    given = call if call.__class__ is dict else {}
    name, arguments = given.get("name"), arguments_text(given.get("input"))
    tool = name if name.__class__ is str else ""
    made = builder.call(entry, given.get("id"), tool, arguments or "", place)
    if made.anomaly is None and (not tool or arguments is None):
        made.anomaly = "arguments of unknown shape" if tool else "no usable tool name"


def _read_result(builder: TranscriptBuilder, row: int, place: int, result: Any) -> None:
    given = result if result.__class__ is dict else {}
    text = given.get("text")
    shown = text if text.__class__ is str else ""
    images = int(bool(given.get("nontext")))
    call = builder.result(row, given.get("id"), shown, is_error=given.get("error") is True, images=images, place=place)
    if call is None or call.anomaly is not None:
        return
    if text.__class__ is not str:
        call.anomaly = "result of unknown shape"
    elif text == CLEARED_NOTE:
        call.anomaly = "cleared by the host"
    elif is_launch(text, None):
        call.anomaly = "answer arrives later"


def _are_same(found: Any, expected: list[Any]) -> bool:
    return (
        found.__class__ is list
        and len(found) == len(expected)
        and all(a is b for a, b in zip(found, expected, strict=True))
    )


def _check_result(before: Any, after: Any, decided: Mapping[int, str]) -> str | None:
    text = decided.get(id(before))
    if text is None:
        return None if after is before else "a result that stays was changed"
    if after.__class__ is not dict or list(after) != list(before):
        return "fields of a result added, lost or moved"
    if any(after[field] is not value for field, value in before.items() if field != "text"):
        return "a result changed beyond its text"
    return None if after["text"] == text and after["text"].__class__ is str else "result is not the decided text"


adapter = PluginAdapter()
