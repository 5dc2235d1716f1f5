"""A pass once more, from input and recorded answers: the same bytes, or what another setting would have kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jev_engine import events
from jev_engine.answers import RawAnswer
from jev_engine.audit.digests import Keyed
from jev_engine.audit.records import LookBack, PassTold
from jev_engine.config import EngineConfig, make_config
from jev_engine.judges import JudgeRequest, Verdict
from jev_engine.result import CompressionResult
from jev_engine.store.memory import MemoryStore
from jev_engine.transcript import ToolCall

__all__ = [
    "SWEEP",
    "Check",
    "RecordedJudge",
    "RecordedStore",
    "Swept",
    "config_of",
    "differences",
    "pin_rule",
    "references_of",
    "swept",
]

SWEEP = tuple(round(0.10 + 0.05 * step, 2) for step in range(13))
"""Thresholds of the table, 0.10 to 0.70: the default of `keep_result`, 0.35, is among them."""
# Settings that hold the user's own words: a trail tells their number or length only, see `telling.settings_of`.
PRIVATE = ("goal", "protect_tools", "protect_paths", "protect_ids")


class Check(NamedTuple):
    """One thing that was compared."""

    what: str
    is_same: bool
    detail: str = ""


class RecordedJudge:
    """Gives the answers of a pass again: as they were believed, or as they were said where thresholds take those."""

    name = "recorded"
    is_calibrated = True

    def __init__(self, units: Mapping[int, events.Unit], *, as_said: bool = False) -> None:
        self._units = units
        self._as_said = as_said

    async def judge(self, request: JudgeRequest) -> Verdict:
        """The recorded answers; units without one stay without one."""
        verdict = Verdict()
        for call in request.candidates:
            unit = self._units.get(call.number)
            if unit is None or unit.p_result is None:
                continue
            if self._as_said and unit.raw_result is not None:
                verdict.answers[call.key] = RawAnswer(unit.raw_call, unit.raw_result)
            else:
                verdict.answers[call.key] = RawAnswer(unit.p_call, unit.p_result)
        return verdict


class RecordedStore(MemoryStore):
    """Gives units the references they had, and knows the markers of earlier passes.

    `chars` are lengths by reference, as the trail tells them; `keys` are unit keys by reference, as far as the real
    store still knows them. Without its key a unit gets one of its own, and digests of the input differ.
    """

    def __init__(
        self, references: Mapping[str, str], chars: Mapping[str, int], keys: Mapping[str, str] | None = None
    ) -> None:
        super().__init__()
        self._references = references
        self._chars = chars
        self._keys = {} if keys is None else keys

    def reference(self, session: str, key: str) -> str:
        """The recorded reference; another one for units that had stayed."""
        return self._references.get(key) or super().reference(session, key)

    async def known(self, references: Any) -> dict[str, tuple[str, int]]:
        """Every reference an earlier pass of the trail gave."""
        return {
            each: (self._keys.get(each, f"out-{each}"), self._chars[each]) for each in references if each in self._chars
        }


def config_of(told: PassTold, **other: Any) -> EngineConfig:
    """The settings of a pass, with others in their place; raises ConfigError.

    Patterns that protect and the goal are not in a trail; what they pinned is.
    """
    settings = dict(told.started.settings) if told.started else {}
    for name in PRIVATE:
        settings.pop(name, None)
    given = {name: value for name, value in other.items() if value is not None}
    return make_config(**{**settings, "undecided": "keep", **given})


def pin_rule(units: Mapping[int, events.Unit]) -> Any:
    """A rule that pins what the pass had not judged, whatever the reason was."""
    return lambda call: None if call.number in units else "not judged in the recorded pass"


def references_of(told: PassTold, calls: Sequence[ToolCall]) -> dict[str, str]:
    """The recorded references by unit key."""
    units = told.units
    return {
        call.key: reference
        for call in calls
        if (unit := units.get(call.number)) is not None and (reference := unit.reference)
    }


def differences(told: PassTold, done: CompressionResult, keyed: Keyed | None) -> list[Check]:
    """A replayed pass against the recorded one. `keyed` makes digests with the trail's key; None without it."""
    checks = [_actions(told, done)]
    end = told.end
    if isinstance(end, events.Committed):
        after = done.stats.messages_after
        checks.append(Check("messages", after == end.messages_after, f"{after:,} of {end.messages_after:,}"))
    if keyed is None:
        return checks
    digests = {d.call.number: keyed.digest(d.text) for d in done.decisions if d.action != "keep"}
    of_input = keyed.of_input(done.transcript)
    wrong = [f"t{unit.number}" for unit in told.out if digests.get(unit.number) != unit.text_digest]
    checks.append(Check("every replacement, byte for byte", not wrong, _some(wrong)))
    if told.started is not None:
        same = of_input == told.started.input_digest
        checks.insert(0, Check("input", same, "" if same else "another history than the pass was made from"))
    if isinstance(end, events.Committed):
        output = keyed.of_output(of_input, done.transcript, done.ledger, digests.values())
        same = output == end.output_digest
        checks.append(Check("the whole history, byte for byte", same))
    return checks


def _actions(told: PassTold, done: CompressionResult) -> Check:
    found = {d.call.number: d.action for d in done.decisions}
    wrong = [
        f"t{n}" for n in {*found, *told.units} if found.get(n) != (told.units[n].action if n in told.units else None)
    ]
    return Check("every decision", not wrong, _some(sorted(wrong)))


def _some(labels: Sequence[str]) -> str:
    return f"differs at {', '.join(labels[:8])}{' …' if len(labels) > 8 else ''}" if labels else ""


class Swept(NamedTuple):
    """What one threshold would have done."""

    threshold: float
    out: int
    freed_tokens: int
    expected_misses: float
    looked_back: int
    """Units it would have let go that were looked back at later."""


def swept(threshold: float, done: CompressionResult, backs: Sequence[LookBack], told: PassTold) -> Swept:
    """One row of the table, from a pass under that threshold."""
    out = [d for d in done.decisions if d.action != "keep"]
    missed = {back.reference for back in backs}
    numbers = {unit.number for unit in told.out if unit.reference in missed}
    freed, misses = done.stats.freed_tokens, done.stats.expected_misses
    return Swept(threshold, len(out), freed, misses, len([d for d in out if d.call.number in numbers]))
