"""A pass once more, from input and recorded answers: the same bytes, or what another setting would have kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jev_engine import events
from jev_engine.answers import Belief, RawAnswer
from jev_engine.audit.digests import Keyed
from jev_engine.audit.records import LookBack, PassTold
from jev_engine.audit.telling import PRIVATE_SETTINGS, plain_name
from jev_engine.config import EngineConfig, make_config
from jev_engine.judges import JudgeRequest, Verdict
from jev_engine.judges.belief import prior_for
from jev_engine.result import CompressionResult
from jev_engine.store import Original, OriginalStore
from jev_engine.store.memory import MemoryStore
from jev_engine.transcript import ToolCall, Transcript

__all__ = [
    "SEEDS",
    "Check",
    "RecordedJudge",
    "RecordedStore",
    "Swept",
    "config_of",
    "differences",
    "digests_of",
    "is_decided",
    "is_made_from",
    "judge_of",
    "pin_rule",
    "said_nothing",
    "store_of",
    "swept",
    "thresholds_of",
    "unknown_settings",
]

SEEDS = (0.10, 0.35)
"""Thresholds of the experiment that `keep_result` comes from; always in the table."""
TENTHS = 10
"""Besides them the table parts the answers of a pass into so many equal shares."""


class Check(NamedTuple):
    """One thing that was compared."""

    what: str
    is_same: bool
    detail: str = ""


class RecordedJudge:
    """Gives the answers of a pass again: as they were believed, or as they were said."""

    name = "recorded"

    def __init__(
        self,
        units: Mapping[int, events.Unit],
        *,
        as_said: bool = False,
        is_calibrated: bool = True,
        belief: Belief | None = None,
    ) -> None:
        self.is_calibrated = is_calibrated
        self.belief = belief or Belief()
        self._units = units
        self._as_said = as_said

    async def judge(self, request: JudgeRequest) -> Verdict:
        """The recorded answers; units without one stay without one."""
        verdict = Verdict()
        for call in request.candidates:
            unit = self._units.get(call.number)
            answer = None if unit is None else said_of(unit) if self._as_said else believed_of(unit)
            # Answers of a judge that has to be weighed: the local judge's own come from the engine.
            if answer is not None and (self.is_calibrated or (unit is not None and unit.raw_result is not None)):
                verdict.answers[call.key] = answer
        return verdict


def believed_of(unit: events.Unit) -> RawAnswer | None:
    """What was believed about a unit; None where nobody answered."""
    return None if unit.p_result is None else RawAnswer(unit.p_call, unit.p_result)


def said_of(unit: events.Unit) -> RawAnswer | None:
    """What the judge said about a unit, or the local judge where that one said nothing; None where nobody did."""
    return believed_of(unit) if unit.raw_result is None else RawAnswer(unit.raw_call, unit.raw_result)


def judge_of(told: PassTold, config: EngineConfig) -> RecordedJudge:
    """Who answers in a pass under these settings.

    Thresholds take answers as they were said. A price takes them as they were believed; where thresholds had taken raw
    ones, they are weighed against the local judge as a pass would.
    """
    if config.policy == "threshold":
        # Answers without signal were left aside, and the local judge does not stand in for them at a threshold.
        return RecordedJudge({} if said_nothing(told) else told.units, as_said=True)
    if _policy_of(told) == "threshold" and not told.is_calibrated:
        belief = prior_for(told.answered.model if told.answered else None)
        return RecordedJudge(told.units, as_said=True, is_calibrated=False, belief=belief)
    return RecordedJudge(told.units)


def said_nothing(told: PassTold) -> bool:
    """Whether a judge answered and none of its answers was taken: they hardly differed."""
    answers = told.answered.answers + told.asked.remembered if told.answered and told.asked else 0
    return answers > 0 and all(unit.raw_result is None for unit in told.units.values())


class RecordedStore(MemoryStore):
    """Gives units the references they had, and knows the markers of earlier passes.

    `references` are by unit key, for units that went out. `chars` are lengths by reference, as the trail tells them:
    what `behind`, the real store, no longer knows goes by its reference instead of its key, and digests of the input
    differ. `not_saved` are the keys of units whose original could not be saved.
    """

    def __init__(
        self,
        references: Mapping[str, str],
        chars: Mapping[str, int],
        behind: OriginalStore,
        not_saved: Iterable[str] = (),
    ) -> None:
        super().__init__()
        self._references = references
        self._chars = chars
        self._behind = behind
        self._not_saved = frozenset(not_saved)

    def reference(self, session: str, key: str) -> str:
        """The recorded reference; another one for units that had stayed."""
        return self._references.get(key) or super().reference(session, key)

    async def save(self, originals: Sequence[Original]) -> set[str]:
        """Save originals, except those the pass could not save."""
        return await super().save([each for each in originals if each.key not in self._not_saved])

    async def read(self, reference: str, *, session: str | None = None) -> Original:
        """One original of the real store; raises StoreError."""
        return await self._behind.read(reference, session=session)

    async def known(self, references: Iterable[str]) -> dict[str, tuple[str, int]]:
        """What the real store knows, and every reference an earlier pass of the trail gave."""
        asked = list(references)
        found = await self._behind.known(asked)
        return {**{each: (each, self._chars[each]) for each in asked if each in self._chars}, **found}


def store_of(
    told: PassTold, calls: Sequence[ToolCall], chars: Mapping[str, int], behind: OriginalStore
) -> RecordedStore:
    """The store of a pass, for the calls of its input with their keys."""
    keys = {call.number: call.key for call in calls}
    mine = [(keys[number], unit) for number, unit in told.units.items() if number in keys]
    references = {key: unit.reference for key, unit in mine if unit.reference}
    return RecordedStore(references, chars, behind, [key for key, unit in mine if unit.guard == "store first"])


def unknown_settings(told: PassTold) -> list[str]:
    """Settings of a pass that this version does not have."""
    return [name for name in _settings_of(told) if name not in EngineConfig.model_fields]


def config_of(told: PassTold, **other: Any) -> EngineConfig:
    """The settings of a pass, with others in their place; raises ConfigError.

    Patterns that protect and the goal are not in a trail; what they pinned is.
    """
    settings = {name: value for name, value in _settings_of(told).items() if name in EngineConfig.model_fields}
    given = {name: value for name, value in other.items() if value is not None}
    config = make_config(**{**settings, **given})
    # Whoever decided units without an answer has done so: those that are left stay. Where answers are weighed once
    # more, it is the local judge's turn once more.
    weighs_again = config.policy == "worth" and _policy_of(told) == "threshold"
    return config if weighs_again else config.model_copy(update={"undecided": "keep"})


def _settings_of(told: PassTold) -> dict[str, Any]:
    settings = told.started.settings if told.started else {}
    return {name: value for name, value in settings.items() if name not in PRIVATE_SETTINGS}


def _policy_of(told: PassTold) -> str:
    return next((rule.policy for rule in told.rules.values()), "")


def pin_rule(units: Mapping[int, events.Unit]) -> Any:
    """A rule that pins what the pass had not judged, whatever the reason was."""
    return lambda call: None if call.number in units else "not judged in the recorded pass"


def digests_of(told: PassTold, key: bytes | None) -> Keyed | None:
    """Makes digests as the pass did; None where this is not its key."""
    keyed = None if key is None else Keyed(key)
    is_its_own = keyed is not None and told.started is not None and told.started.key_digest == keyed.key_digest
    return keyed if is_its_own else None


def is_decided(told: PassTold) -> bool:
    """Whether every decision of a pass is told; a pass that failed or was cut off before has none."""
    proposed = told.proposed
    return proposed is not None and proposed.kept + proposed.truncated + proposed.removed == len(told.units)


def is_made_from(told: PassTold, transcript: Transcript, keyed: Keyed | None) -> bool:
    """Whether a pass was made from this history.

    By the keyed digest of its content, and by what had left it before; without the key by tools and lengths alone.
    """
    started, calls = told.started, transcript.calls
    if started is None or (len(transcript.messages), len(calls)) != (started.messages, started.calls):
        return False
    # A digest is the same before and after results were shortened: keys are those of the originals.
    if {call.number for call in calls if call.marked is not None} != _out_before(told):
        return False
    if keyed is not None:
        return keyed.of_input(transcript) == started.input_digest
    shapes = {call.number: (plain_name(call.tool), len(call.result or "")) for call in calls}
    return all(shapes.get(row.number) == (row.tool, row.chars) for row in told.rows)


def _out_before(told: PassTold) -> set[int]:
    return {unit.number for unit in told.pinned.values() if unit.reference is not None}


def differences(told: PassTold, done: CompressionResult, keyed: Keyed | None) -> list[Check]:
    """A replayed pass against the recorded one. `keyed` makes digests with the trail's key; None without it."""
    is_input = is_made_from(told, done.transcript, keyed)
    how = "input" if keyed is not None else "input, by tools and lengths"
    lost = [call for call in done.transcript.calls if call.marked is not None and call.marked == call.reference]
    store = f", or it is: the store does not know {len(lost):,} of its originals (audit --store FILE)" if lost else ""
    checks = [Check(how, is_input, "" if is_input else f"another history than the pass was made from{store}")]
    if told.proposed is not None:
        was, now = told.proposed.outcome, done.outcome
        checks.append(Check("outcome", was == now, f"{now} instead of {was}"))
    checks.append(_actions(told, done))
    end = told.end
    if isinstance(end, events.Committed):
        after = done.stats.messages_after
        checks.append(Check("messages", after == end.messages_after, f"{after:,} of {end.messages_after:,}"))
    if keyed is None:
        return checks
    digests = {d.call.number: keyed.digest(d.text) for d in done.decisions if d.action != "keep"}
    wrong = [f"t{unit.number}" for unit in told.out if digests.get(unit.number) != unit.text_digest]
    checks.append(Check("every replacement, byte for byte", not wrong, _some(wrong)))
    if isinstance(end, events.Committed):
        of_input = keyed.of_input(done.transcript)
        output = keyed.of_output(of_input, done.transcript, done.ledger, digests.values())
        checks.append(Check("the whole history, byte for byte", output == end.output_digest))
    return checks


def _actions(told: PassTold, done: CompressionResult) -> Check:
    found = {d.call.number: d.action for d in done.decisions}
    wrong = [n for n in {*found, *told.units} if found.get(n) != (told.units[n].action if n in told.units else None)]
    return Check("every decision", not wrong, _some([f"t{n}" for n in sorted(wrong)]))


def _some(labels: Sequence[str]) -> str:
    return f"differs at {', '.join(labels[:8])}{' …' if len(labels) > 8 else ''}" if labels else ""


class Swept(NamedTuple):
    """What one threshold would have done."""

    threshold: float
    below: int
    """Answers below it."""
    outcome: str
    out: int
    freed_tokens: int
    expected_misses: float | None
    """None where answers are raw: their sum is no expectation."""
    sum_of_answers: float
    looked_back: int
    """Units it would have let go that were looked back at later; known of those only that went."""


def thresholds_of(told: PassTold) -> list[float]:
    """Thresholds that say something about the answers of a pass: those of the seeds, and its tenths."""
    answers = sorted([answer.p_result or 0.0 for unit in told.units.values() if (answer := said_of(unit)) is not None])
    places = [max(1, len(answers) * tenth // TENTHS) - 1 for tenth in range(1, TENTHS + 1)] if answers else []
    return sorted({*SEEDS, *[_just_above(answers[place]) for place in places]})


def _just_above(answer: float) -> float:
    """The next number of two digits: a result stays from the threshold on."""
    if answer <= 0.0:
        return 0.0001
    digits = 1 - math.floor(math.log10(answer))
    steps: int = math.floor(answer * 10.0**digits) + 1
    return min(1.0, round(steps / 10.0**digits, digits))


def swept(threshold: float, done: CompressionResult, backs: Sequence[LookBack], told: PassTold) -> Swept:
    """One row of the table, from a pass under that threshold."""
    answers = [answer.p_result for unit in told.units.values() if (answer := said_of(unit)) is not None]
    out = [d for d in done.decisions if d.action != "keep"]
    missed = {back.reference for back in backs}
    numbers = {unit.number for unit in told.out if unit.reference in missed}
    return Swept(
        threshold,
        below=len([p for p in answers if p is not None and p < threshold]),
        outcome=done.outcome,
        out=len(out),
        freed_tokens=done.stats.freed_tokens,
        expected_misses=done.stats.expected_misses if told.is_calibrated else None,
        sum_of_answers=done.stats.expected_misses,
        looked_back=len([d for d in out if d.call.number in numbers]),
    )
