"""The questions put about a unit: versioned wording sets, and their packing into requests.

A wording set is one thing: context line and both questions were tried together and keep one version.
Ids are not shown to a model, so each question names its unit itself.

>>> from jev_engine.testing import call, result, transcript_of
>>> unit = transcript_of(call("read", path="a.py"), result("x" * 900)).calls[0]
>>> sorted(questions_for(unit, WORDING))
['call_t1', 'result_t1']
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from jev_engine.tokens import TWENTIETHS, cost
from jev_engine.transcript import ToolCall

__all__ = ["WORDING", "Wording", "pack", "question_cost", "questions_for"]

# Enough for a path or the start of a command; the state shows the whole input beside the label.
INPUT_CHARS = 60
# Of a tool's name.
TOOL_CHARS = 60
PLACE = re.compile(r"\{(label|tool|input|chars)\}")


class Wording(NamedTuple):
    """One wording set. The templates may use {label}, {tool}, {input} and {chars}."""

    version: str
    """Changes whenever a word does: answers to different versions are never mixed."""
    context: str
    """The first line of the state: how to read it."""
    call: str
    call_true: str
    call_false: str
    result: str
    result_true: str
    result_false: str


# Positive statements, criteria for both sides, nothing about running a tool again: a clause of that kind pulled
# real answers down by up to 0.6, and criteria raised the ranking from AUC .54 to .72 (fast-jev-compaction issues 26
# and 52).
WORDING = Wording(
    version="jev-engine-2",
    context=(
        "The history of an agent that works with tools, oldest message first. "
        "A call is shown with its label, tool and input; its output as a note of its size, or by its start and end. "
        "The agent goes on from the end of this history. Each question is about one call in it."
    ),
    call="The coming work builds on the fact that call {label} ({tool} {input}) was made.",
    call_true="A coming step depends on this one, for example because it changed something.",
    call_false="Everything left to do stands without it.",
    result="The coming work uses details of the output of call {label} ({tool} {input}, {chars} characters).",
    result_true="A coming step uses exact names, numbers, code or messages from this output.",
    result_false="The output is used up, shown again later, or replaced by a newer one.",
)


def describe(call: ToolCall) -> str:
    """The start of a unit's arguments on one line."""
    return " ".join(call.arguments[: 2 * INPUT_CHARS].split())[:INPUT_CHARS]


@lru_cache(maxsize=64)
def _pieces(template: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Literal parts of a template and the names between them."""
    parts = PLACE.split(template)
    return tuple(parts[::2]), tuple(parts[1::2])


def _fill(template: str, words: dict[str, str]) -> str:
    # `str.format` would run on what a session wrote into the words; joining known parts does not.
    literals, names = _pieces(template)
    filled = [literals[0]]
    for name, literal in zip(names, literals[1:], strict=True):
        filled += (words[name], literal)
    return "".join(filled)


def questions_for(call: ToolCall, wording: Wording) -> dict[str, dict[str, Any]]:
    """Both questions about a unit, by question id, in the wire form of a yes/no question."""
    label = call.label
    words = {
        "label": label,
        "tool": call.tool[:TOOL_CHARS],
        "input": describe(call),
        "chars": f"{len(call.result or ''):,}",
    }
    return {
        f"call_{label}": _question(_fill(wording.call, words), wording.call_true, wording.call_false),
        f"result_{label}": _question(_fill(wording.result, words), wording.result_true, wording.result_false),
    }


def _question(instructions: str, true: str, false: str) -> dict[str, Any]:
    return {"type": "noul", "instructions": instructions, "criteria": {"true": true, "false": false}}


@lru_cache(maxsize=64)
def fixed_cost(wording: Wording) -> int:
    """What both questions cost apart from the unit's own words, in twentieths."""
    words = "".join(part for part in wording[2:])
    # The JSON around both: keys, types, criteria names, quotes and braces.
    frame = '"call_":{"type":"noul","instructions":"","criteria":{"true":"","false":""}},' * 2
    return cost(words) + cost(frame)


def question_cost(call: ToolCall, fixed: int) -> int:
    """What both questions about a unit cost, in twentieths of a token; never less than the rendered questions do."""
    words = encode_basestring(f"{call.tool[:TOOL_CHARS]} {describe(call)}")
    # The label stands in both ids and both questions, the size in one. A label is a letter and up to 8 digits.
    return fixed + 2 * cost(words) + 10 * (4 * len(str(call.number)) + 12) + TWENTIETHS


def pack(calls: Sequence[ToolCall], costs: Sequence[int], room: int, most: int | None = None) -> list[list[ToolCall]]:
    """Calls in order, in as few lists as fit `room` twentieths and `most` calls each.

    A unit beyond the room stands alone.
    """
    packed: list[list[ToolCall]] = []
    used = room + 1
    for call, amount in zip(calls, costs, strict=True):
        if used + amount > room or len(packed[-1]) == most:
            packed.append([])
            used = 0
        packed[-1].append(call)
        used += amount
    return packed
