"""The short text left in place of an original.

A marker is final and deterministic. It says what was there, how much, that the original is intact, and how to get it;
it names a tool only where that tool is offered. What is kept of the result stands before it: its head, and the lines
that state the outcome.
"""

from __future__ import annotations

import re
from collections import deque
from functools import lru_cache

from jev_engine.config import EngineConfig
from jev_engine.ledger import content_digest
from jev_engine.transcript import ToolCall

__all__ = ["find_reference", "shorten", "stands_for"]

# The id of an original, as a store gives it.
REFERENCE = re.compile(r"\bjx-[0-9a-f]{16}\b")
NOTE_OPEN = "[jev-engine: "
# A kept text is at most its head, its outcome lines, a wrapper and the note: what is longer is no text of ours,
# and only its end has to be looked at.
NOTE_REACH_CHARS = 600

# Line starts by which tools state how something ended: shells, compilers, test runners, interpreters.
# Each is tried at a line break only, so the work grows with the text and nothing else.
OUTCOME = re.compile(
    r"\n(?=[EeFTPpBtn=])(?:[Ee]xit (?:code|status)|Exit code|Process exited|error[:\[]|Error:|ERROR|fatal:|FAIL|panic:"
    r"|Traceback|Tests:|Test Suites:|test result:|=====|BUILD|npm ERR!)"
)
# Of the lines that state an outcome the last ones are looked at.
MOST_PLACES = 6
# The note itself, and what hosts put behind it.
NOTE = re.compile(
    r"\[jev-engine: (?:result of [\w.:/-]{1,60} \([\d,]+ characters\) left out to save room; the original is intact as"
    r" jx-[0-9a-f]{16}: (?:call [\w.:/-]{1,200} with this id to read it|ask the user to restore it if it is needed)"
    r"|[\d,]+ more characters out, intact as jx-[0-9a-f]{16})\]\s*(?:</[A-Za-z][\w.-]{0,63}>\s*)?"
)
# A tag that hosts put around a result, such as <untrusted_tool_result …>: it stays around what is kept.
WRAPPER = re.compile(r"<([A-Za-z][\w.-]{0,63})(?: [^<>\n]{0,400})?>")
CLOSING = re.compile(r"</[A-Za-z][\w.-]{0,63}>")


def shorten(call: ToolCall, reference: str, config: EngineConfig) -> str | None:
    """The text that replaces a result, or None where that would not save enough."""
    result = call.result or ""
    if len(result) <= config.head_chars + config.marker_saves_chars:
        return None
    opening, closing = _wrapper(result)
    head = _head(result[len(opening) :], config.head_chars) if config.head_chars else ""
    outcome = _outcome(result, len(opening) + len(head), config.outcome_chars) if config.outcome_chars else ""
    kept = "\n".join(part for part in (head, outcome) if part)
    kept = f"{opening}{kept}{closing}\n" if kept and opening else f"{kept}\n" if kept else ""
    text = kept + _note(call, len(result) - len(head), reference, config, short=bool(head))
    # A head asked for by the settings stays whole even where the note eats most of what the cut saves.
    least = 1 if config.head_chars else config.marker_saves_chars
    return text if len(result) - len(text) >= least else None


def find_reference(text: str) -> str | None:
    """The reference named by a marker at the end of a text, if there is one."""
    at = text.rfind(NOTE_OPEN, max(0, len(text) - NOTE_REACH_CHARS))
    if at < 0:
        return None
    found = REFERENCE.search(text, at)
    return found.group() if found else None


def stands_for(call: ToolCall, key: str, original: str) -> bool:
    """Whether a result is the marker of its own original: the unit with that key, and nothing but words of it.

    Anything may quote a marker; only the unit that an original came from has its key together with it.
    """
    return key.partition(".")[0] == content_digest(call, original) and _is_made_of(call.result or "", original)


def _is_made_of(text: str, original: str) -> bool:
    at = text.rfind(NOTE_OPEN)
    if at < 0 or NOTE.fullmatch(text, at) is None:
        return False
    lines = {line.removesuffix("…") for line in text[:at].split("\n")} - {"", "```"}
    return all(line in original or WRAPPER.fullmatch(line) or CLOSING.fullmatch(line) for line in lines)


def _note(call: ToolCall, gone_chars: int, reference: str, config: EngineConfig, *, short: bool) -> str:
    if short:
        return f"{NOTE_OPEN}{gone_chars:,} more characters out, intact as {reference}]"
    how = (
        f"call {config.expand_tool} with this id to read it"
        if config.expand_tool
        else "ask the user to restore it if it is needed"
    )
    return (
        f"{NOTE_OPEN}result of {_plain_name(call.tool)} ({gone_chars:,} characters) left out to save room; "
        f"the original is intact as {reference}: {how}]"
    )


@lru_cache(maxsize=256)
def _plain_name(tool: str) -> str:
    """The name of a tool without anything that could end the note or reach a terminal."""
    return re.sub(r"[^\w.:/-]+", "_", tool)[:60] or "tool"


def _wrapper(text: str) -> tuple[str, str]:
    """Opening and closing tag where a result is wrapped in one, such as <untrusted_tool_result …>…</…>."""
    if not text.startswith("<"):
        return "", ""
    found = WRAPPER.match(text)
    if found is None:
        return "", ""
    closing = f"</{found.group(1)}>"
    end = text[-len(closing) - 50 :].rstrip()
    if not end.endswith(closing):
        return "", ""
    opening = found.group()
    if text[len(opening) : len(opening) + 1] == "\n":
        return opening + "\n", "\n" + closing
    return opening, closing


def _head(text: str, limit: int) -> str:
    """The first characters, never half a surrogate pair, and with a code fence closed that it opens."""
    head = text[:limit]
    if "\ud800" <= head[-1:] <= "\udbff" and "\udc00" <= text[limit : limit + 1] <= "\udfff":
        head = head[:-1]
    fences = sum(1 for line in head.split("\n") if line.lstrip().startswith("```"))
    return head + "\n```" if fences % 2 else head


def _outcome(text: str, start: int, limit: int) -> str:
    """The last lines that state an outcome, in their order, within the limit."""
    if OUTCOME.search(text, start) is None and not OUTCOME.match("\n" + text[:20]):
        return ""
    places = deque((found.start() + 1 for found in OUTCOME.finditer(text, start)), maxlen=MOST_PLACES)
    if not start and len(places) < MOST_PLACES and OUTCOME.match("\n" + text[:20]):
        places.appendleft(0)
    lines: list[str] = []
    room = limit
    for place in reversed(places):
        end = text.find("\n", place, place + limit)
        line = text[place : end if end >= 0 else min(len(text), place + limit)].rstrip()
        if len(line) + 1 > room:
            line = line[: max(0, room - 2)] + "…" if room > 40 else ""
        if line and line not in lines:
            lines.append(line)
            room -= len(line) + 1
        if room <= 40:
            break
    return "\n".join(reversed(lines))
