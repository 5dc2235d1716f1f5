"""Which units may not be judged, each with its reason.

A pinned unit stays exactly as it is. The order of the checks is the order of the reasons shown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from fnmatch import translate
from functools import lru_cache

from jev_engine.config import EngineConfig
from jev_engine.tokens import TWENTIETHS, sample_cost
from jev_engine.transcript import ToolCall, Transcript

__all__ = ["PinRule", "Pins", "pin", "shorten_only"]

PinRule = Callable[[ToolCall], str | None]
"""A rule of the user's or of a plugin: the reason why a unit may not be judged, or None."""

# Tools whose results are answers of people, reports of helper agents, or definitions the agent works with.
# Names as the hosts write them, lower case: Claude Code, Codex, opencode, pi, Hermes.
HUMAN_TOOLS = frozenset({"ask_user", "askuserquestion", "ask_human", "question", "request_user_input", "clarify"})
HELPER_TOOLS = frozenset({"task", "agent", "spawn_agent", "wait_agent", "delegate_task", "subagent"})
DEFINITION_TOOLS = frozenset({"toolsearch", "tool_search", "list_tools", "list_mcp_tools", "skill", "load_skill"})
# Files that tell the agent how to work: losing one loses a rule, not a fact.
INSTRUCTION_FILES = re.compile(
    r"(?:agents|claude|gemini|skill|copilot-instructions|conventions)\.md|\.cursorrules|\.clinerules|\.windsurfrules",
    re.IGNORECASE,
)
# A name of at least two words that starts with one of these leaves a mark on the world outside the work tree,
# and what it returns is the receipt. Objects that live in the session itself are no such mark.
SIDE_EFFECTS = frozenset(
    "send post publish deploy release submit create delete remove cancel book order buy pay transfer refund charge "
    "invite approve reject merge close assign schedule upload update modify".split()
)
OWN_OBJECTS = frozenset("file files folder directory dir plan todo todos task tasks memory note notes cell".split())
# What the beginning of a failed result says where a person or a policy did not let the call run.
REFUSALS = ("denied", "rejected", "refused", "not allowed", "doesn't want", "does not want", "declined")
# Words of a name in camel case, snake case or capitals.
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


class Pins:
    """The outcome of pinning."""

    __slots__ = ("candidates", "reasons", "rows")

    def __init__(self) -> None:
        self.reasons: dict[int, str] = {}
        """Why a unit is not judged, by call number."""
        self.candidates: list[ToolCall] = []
        """Units that may be judged, in the order of the history."""
        self.rows: frozenset[int] = frozenset()
        """Rows of the protected first message and the protected end."""

    def counts(self) -> dict[str, int]:
        """How many units each reason pins, most first."""
        return dict(Counter(self.reasons.values()).most_common())


def pin(transcript: Transcript, config: EngineConfig, *, rules: Sequence[PinRule] = ()) -> Pins:
    """Sort the units of a history into candidates and pinned ones.

    A rule that raises pins the unit it was asked about.
    """
    pins = Pins()
    calls = transcript.calls
    newest = _newest(transcript, config)
    pins.rows = newest | {0} if config.pin_first_message else newest
    protected_ids = frozenset(config.protect_ids)
    tool_pattern = _pattern(config.protect_tools)
    path_pattern = _path_pattern(config.protect_paths)
    first_newest = len(calls) - config.pin_newest_calls
    tail_start = _tail_start(calls, newest, first_newest, config)
    short = config.pin_short_chars
    for index, call in enumerate(calls):
        result = call.result
        if result is None:
            reason: str | None = "open"
        elif call.anomaly:
            reason = f"ambiguous: {call.anomaly}"
        elif call.marked is not None:
            reason = "already out"
        elif config.pin_first_message and 0 in (call.row, call.result_row):
            reason = "first message"
        elif index >= tail_start and (index >= first_newest or call.row in newest or call.result_row in newest):
            reason = "newest"
        elif protected_ids and (call.label in protected_ids or call.call_id in protected_ids):
            reason = "protected id"
        elif tool_pattern is not None and tool_pattern.fullmatch(call.tool.lower()):
            reason = "protected tool"
        elif path_pattern is not None and _names_path(path_pattern, call.arguments):
            reason = "protected path"
        elif len(result) <= short:
            reason = "short"
        else:
            reason = _kind_reason(call, result) if config.extra_pins else None
        if reason is None and rules:
            reason = _ask(rules, call)
        if reason is None:
            pins.candidates.append(call)
        else:
            pins.reasons[call.number] = reason
    return pins


def shorten_only(
    candidates: Sequence[ToolCall],
    transcript: Transcript,
    *,
    can_delete: bool,
    guards: bool,
    repeated: Container[str] = (),
) -> set[int]:
    """Numbers of candidates that have to leave a trace: they may be shortened, but not removed with their call.

    `repeated` are keys of units that several units share; one of them has to stay, or they could not be told apart.
    """
    if not can_delete:
        return {call.number for call in candidates}
    spoken = transcript.spoken_turns() if guards else transcript.bound_turns()
    stay = {
        call.number
        for call in candidates
        if call.turn in spoken or call.images or call.key.partition(".")[0] in repeated
    }
    if candidates and not any(entry.text.strip() for entry in transcript.entries):
        # Without a word all of it might go, and an empty history has no record by which it could be brought back.
        stay.add(candidates[-1].number)
    return stay


def _newest(transcript: Transcript, config: EngineConfig) -> frozenset[int]:
    count = config.pin_newest_messages
    total = len(transcript.messages)
    return frozenset(range(max(0, total - count), total)) if count else frozenset()


def _tail_start(calls: list[ToolCall], newest: frozenset[int], first_newest: int, config: EngineConfig) -> int:
    """Index of the first call that the token limit of the protected end covers; the newest turn always is."""
    limit = config.pin_newest_tokens * TWENTIETHS
    spent = 0
    for index in range(len(calls) - 1, -1, -1):
        call = calls[index]
        if index < first_newest and call.row not in newest and call.result_row not in newest:
            # Rows of older units may still reach into the protected rows, so this ends the count, not the search.
            return 0
        spent += sample_cost(call.result or "")
        if spent > limit and call.turn != calls[-1].turn:
            return index + 1
    return 0


def _pattern(patterns: Iterable[str]) -> re.Pattern[str] | None:
    joined = "|".join(translate(pattern.lower()) for pattern in patterns)
    return re.compile(joined) if joined else None


def _path_pattern(patterns: Iterable[str]) -> re.Pattern[str] | None:
    # From any folder on; a star at the start takes all folders by itself.
    plain = [_plain_path(pattern.lower()) for pattern in patterns]
    joined = "|".join(("" if p.startswith("*") else "(?s:.*/)?") + translate(p) for p in plain)
    return re.compile(joined) if joined else None


def _plain_path(pattern: str) -> str:
    """A path pattern as it is compared: `./src/*` means `src/*`, and a folder, `src/`, all that is in it."""
    while pattern.startswith("./"):
        pattern = pattern[2:].lstrip("/")
    return f"{pattern}*" if pattern.endswith("/") or not pattern else pattern


# Text that can be part of a path, in arguments written as JSON.
PATH_PIECE = re.compile(r"[^\s\"'`,;:|<>(){}\[\]=*?\\]{1,400}")


def _names_path(pattern: re.Pattern[str], arguments: str) -> bool:
    """Whether the arguments name a path that matches, in whole or from one of its folders on."""
    return any(pattern.fullmatch(piece) for piece in PATH_PIECE.findall(arguments.lower()))


def _kind_reason(call: ToolCall, result: str) -> str | None:
    return _tool_reason(call.tool) or _content_reason(call, result)


@lru_cache(maxsize=1_024)
def _tool_reason(tool: str) -> str | None:
    name = tool.rsplit("__", 1)[-1]
    lower = name.lower()
    if lower in HUMAN_TOOLS:
        return "human answer"
    if lower in HELPER_TOOLS:
        return "helper report"
    if lower in DEFINITION_TOOLS:
        return "definition"
    words = [word.lower() for word in WORD.findall(name)]
    if len(words) > 1 and words[0] in SIDE_EFFECTS and not OWN_OBJECTS.intersection(words[1:]):
        return "receipt"
    return None


def _content_reason(call: ToolCall, result: str) -> str | None:
    arguments = call.arguments
    maybe = ".md" in arguments or ".MD" in arguments or "rules" in arguments
    if maybe and INSTRUCTION_FILES.search(arguments[:4_000]):
        return "instructions"
    if call.is_error and any(phrase in result[:300].lower() for phrase in REFUSALS):
        return "refusal"
    return None


def _ask(rules: Sequence[PinRule], call: ToolCall) -> str | None:
    for rule in rules:
        try:
            reason = rule(call)
        except Exception as error:  # noqa: BLE001  # a rule of somebody else's; whatever it raises, doubt keeps
            return f"pin rule failed: {type(error).__name__}"
        if reason:
            return str(reason)
    return None
