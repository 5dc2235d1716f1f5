"""The judge that ships: P(result needed) and P(call matters) from features and fixed weights.

No network, no key, no dependency; the same history gives the same numbers. How good it is, measured on projects it
was not trained on: docs/training-report.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Container, Sequence

from jev_engine.answers import RawAnswer
from jev_engine.judges import JudgeRequest, Verdict, weights
from jev_engine.judges.features import FEATURES, FeatureCache, FeatureTable, tabulate
from jev_engine.judges.timeline import UnitFacts
from jev_engine.transcript import ToolCall, Transcript

__all__ = [
    "FeatureCache",
    "LocalJudge",
    "floor_of",
    "is_tiny",
    "is_unfamiliar",
    "local_probabilities",
    "p_call_of",
    "p_result_of",
    "probabilities_of",
]

LOWEST, HIGHEST = 0.0003, 0.97
"""No answer is surer than this: the rarest class of results is needed once in 1,000."""

_SIZES = (300, 1_500, 4_000, 10_000, 30_000)
_NEEDED_BY_SIZE = (0.001, 0.025, 0.068, 0.13, 0.23, 0.32)
"""Needed results by size in characters, measured over 2,262 cuts of 291 public sessions."""
_AGES = (3, 5, 10, 20, 40, 80, 160)
_NEED_BY_AGE = (2.3, 1.94, 1.92, 1.59, 0.76, 0.43, 0.24, 0.14)
"""Needed by age in calls, over the mean of 4.9 % of results older than three, same place."""
FLOOR_LOWEST = 0.005
"""A floored answer is never below this, however small or old the result; five times the class of small results."""
FLOOR_AGE = 0.43
"""Nor does age push it below the factor of 41 to 80 calls: how need fades in unfamiliar work was not measured."""
_WITHOUT_FLOOR = frozenset(("edit", "meta", "test", "build"))
"""Kinds known by the tool, not by the text: their results are needed once in 300 or less."""
_FLOOR_BY_KIND = {"search": 0.55, "git": 0.51, "list": 0.35, "shell": 0.12}
"""Needed by kind over the mean of 4.9 %, same place (2.7, 2.5, 1.7, 0.6 %): these kinds are known by the tool."""
TINY_CHARS, TINY_PLAIN_CHARS = 150, 50
"""Results below these sizes (code, and text that may say more per character) with at most one atom and no line hold
nothing to lose: no weights are asked. They are a third of all units, and the default profile pins them anyway."""
TINY_NEEDED = 0.001
"""Needed share of results below 300 characters, same place."""
UNFAMILIAR_SHARE = 0.5
"""Share of units from tools nothing is known about, above which the whole session counts as unfamiliar."""

_CALL_BY_CLASS = {
    "edit": 0.059, "test": 0.073, "subagent": 0.037, "change": 0.027, "git": 0.024, "other": 0.023, "mcp": 0.023,
    "meta": 0.013, "read": 0.001, "search": 0.001, "web": 0.001,
}  # fmt: skip
"""Calls that are needed, by class, over 76,549 calls of those sessions; web: 0 of 181, shown as one in a thousand."""
_CALL_AGES = (5, 10, 20, 40, 80)
_CALL_BY_AGE = (4.7, 3.5, 2.6, 1.9, 1.2, 0.6)
_EDIT_BY_AGE = (13.4, 10.4, 6.9, 4.7, 3.4, 1.5)
_CALL_CHARS = (100, 300, 1_000, 3_000)
_CALL_BY_CHARS = (0.8, 1.5, 3.4, 5.2, 13.7)
"""Per cent by age in calls (all, edits) and by argument size in characters, same place; the means are 2.1 and 5.9."""
_CALL_MEAN, _EDIT_MEAN = 2.1, 5.9
CHARS_POWER = 0.5
"""Argument size goes in by its root: class already holds most of it (edits are the calls with long arguments)."""

_AGE = FEATURES.index("age")


def _step(value: float, edges: tuple[int, ...]) -> int:
    """The place of a value among edges; an edge belongs to the step below it."""
    return bisect_left(edges, value)


def p_call_of(call_class: str, age: float, argument_chars: int) -> float:
    """P(knowing the call still matters) from the fixed table."""
    step = _step(age, _CALL_AGES)
    by_age = _EDIT_BY_AGE[step] / _EDIT_MEAN if call_class == "edit" else _CALL_BY_AGE[step] / _CALL_MEAN
    by_chars: float = (_CALL_BY_CHARS[_step(argument_chars, _CALL_CHARS)] / _CALL_MEAN) ** CHARS_POWER
    if call_class == "edit":  # an average edit has about 1,000 characters: its own size says less still
        by_chars = by_chars**CHARS_POWER
    return min(0.9, _CALL_BY_CLASS[call_class] * by_age * by_chars)


def floor_of(unit: UnitFacts, age: float, *, is_unfamiliar: bool) -> float:
    """The least P(result needed) where the judge is outside its training, 0 where it is at home.

    No evidence is not evidence of no need: a result whose text gives no names, or that stands in a session of tools
    nothing is known about, is worth at least what results of its size and age are worth on average.
    """
    facts = unit.facts
    if unit.info.kind in _WITHOUT_FLOOR or facts.chars < TINY_PLAIN_CHARS:
        return 0.0
    if not (facts.is_plain or is_unfamiliar or (unit.info.kind in ("api", "mcp") and not facts.atoms)):
        return 0.0
    by_age = max(FLOOR_AGE, _NEED_BY_AGE[_step(age, _AGES)])
    by_kind = _FLOOR_BY_KIND.get(unit.info.kind, 1.0)
    return max(FLOOR_LOWEST, _NEEDED_BY_SIZE[_step(facts.chars, _SIZES)] * by_age * by_kind)


def is_tiny(unit: UnitFacts) -> bool:
    """Too small to hold anything that could be missed."""
    facts = unit.facts
    if len(facts.atoms) > 1 or facts.lines:
        return False
    return facts.chars < (TINY_PLAIN_CHARS if facts.is_plain else TINY_CHARS)


def is_unfamiliar(table: FeatureTable) -> bool:
    """Most of the session's tools are unknown, so what was learned from known ones may not hold."""
    units = table.timeline.units
    return sum([unit.info.kind == "api" for unit in units]) > UNFAMILIAR_SHARE * len(units)


def p_result_of(log_odds: float, memory: tuple[float, float] | None) -> float:
    """Log-odds of the shipped weights as a probability, moved by the project's memory if there is one."""
    if memory is not None:
        slope, intercept = memory
        log_odds = slope * log_odds + intercept
    return min(HIGHEST, max(LOWEST, 1 / (1 + math.exp(-max(-30.0, min(30.0, log_odds))))))


def local_probabilities(
    transcript: Transcript,
    cache: FeatureCache,
    memory: tuple[float, float] | None = None,
    wanted: Container[int] | None = None,
) -> dict[int, tuple[float, float]]:
    """(P(call matters), P(full result needed)) of every closed unit, by `ToolCall.number`.

    `wanted` are numbers of calls, where not all are asked for. `memory` are the slope and intercept of this project's
    memory; without it the shipped judge answers alone.
    """
    table = tabulate(transcript, cache)
    unfamiliar = is_unfamiliar(table)
    answers = {}
    for i, row in table.each_row(wanted):
        call, unit = table.calls[i], table.timeline.units[i]
        log_odds = weights.log_odds(row)
        answers[call.number] = probabilities_of(unit, row[_AGE], log_odds, memory, is_unfamiliar=unfamiliar)
    return answers


def probabilities_of(
    unit: UnitFacts, age: float, log_odds: float, memory: tuple[float, float] | None, *, is_unfamiliar: bool
) -> tuple[float, float]:
    """(P(call matters), P(full result needed)) of one unit from the log-odds of its weights, within what is known."""
    p_result = TINY_NEEDED if is_tiny(unit) else p_result_of(log_odds, memory)
    floor = floor_of(unit, age, is_unfamiliar=is_unfamiliar)
    return p_call_of(unit.info.call_class, age, unit.argument_chars), max(p_result, floor)


class LocalJudge:
    """The shipped judge with its cache of facts about texts; `memory` is what was learned about the user's project."""

    name = "local"
    version = weights.VERSION
    """Of its weights."""
    is_calibrated = True

    def __init__(self, memory: tuple[float, float] | None = None) -> None:
        self.memory = memory
        self._cache = FeatureCache()

    def answers(
        self, transcript: Transcript, candidates: Sequence[ToolCall], memory: tuple[float, float] | None = None
    ) -> dict[str, RawAnswer]:
        """Both probabilities of each candidate, by unit key."""
        if not candidates:
            return {}
        wanted = {call.number for call in candidates}
        known = local_probabilities(transcript, self._cache, memory or self.memory, wanted)
        return {call.key: RawAnswer(*known[call.number]) for call in candidates if call.number in known}

    async def judge(self, request: JudgeRequest) -> Verdict:
        """Answer for the candidates; never fails and never waits."""
        return Verdict(self.answers(request.transcript, request.candidates))
