"""The ways in which a growing session is kept small, put to the real engine as settings and a judge.

An arm is a line of settings, who answers, and what may be thawed. Any arm can be varied:

>>> parse_arm("worth 5, trigger_share=0.5").config(100_000).trigger_share
0.5
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from jev_engine.answers import RawAnswer
from jev_engine.config import EngineConfig
from jev_engine.errors import ConfigError
from jev_engine.evaluate.policies import BASE_RATE, SELECT
from jev_engine.hookspecs import hookimpl
from jev_engine.judges import JudgeRequest, Verdict
from jev_engine.judges.features import FEATURES, FeatureCache, tabulate
from jev_engine.judges.local import is_unfamiliar, probabilities_of
from jev_engine.transcript import ToolCall, Transcript

if TYPE_CHECKING:
    from jev_engine.evaluate.fold_models import Forest

__all__ = ["ARMS", "BASE", "NOTHING", "SHIPPED", "Arm", "ArmJudge", "FrozenZone", "choose_arms", "parse_arm"]

Way = Literal["none", "summary", "every", "local", "constant"]
Thaw = Literal["worth", "never", "always"]

_AGE = FEATURES.index("age")


class Arm(NamedTuple):
    """One way to keep a session small."""

    name: str
    way: Way
    """Who answers: `local` the judge, `constant` one probability for all, `every` takes out all that is not pinned;
    `summary` hands over at the trigger, `none` never does anything."""
    settings: Mapping[str, Any]
    """For `EngineConfig`, without the window."""
    thaw: Thaw = "worth"

    def config(self, window_tokens: int) -> EngineConfig:
        """Its settings in this window; raises ValidationError."""
        return EngineConfig(**{**self.settings, "window_tokens": window_tokens})


def _keep_last(count: int, name: str, **settings: Any) -> Arm:
    return Arm(name, "every", {**SELECT, "pin_newest_calls": count, **settings})


NOTHING = "no compaction"
SHIPPED = "worth 5"
"""The default settings."""
BASE = "keep last 10, minimum gain"
"""What the default is compared with: the same triggers, the same minimum gain."""
MINIMUM_GAIN = {"min_freed_share": EngineConfig().min_freed_share}

ARMS: tuple[Arm, ...] = (
    Arm(NOTHING, "none", {}),
    _keep_last(3, "keep last 3"),
    _keep_last(3, "keep last 3, minimum gain", **MINIMUM_GAIN),
    _keep_last(10, "keep last 10"),
    _keep_last(10, BASE, **MINIMUM_GAIN),
    Arm("summary at the trigger", "summary", {}),
    Arm("worth 1", "local", {"miss_cost": 1.0}),
    Arm("worth 3", "local", {"miss_cost": 3.0}),
    Arm(SHIPPED, "local", {"miss_cost": 5.0}),
    Arm("worth 10", "local", {"miss_cost": 10.0}),
    Arm("worth 5, constant p", "constant", {"miss_cost": 5.0}),
    Arm("worth 5, never thaw", "local", {"miss_cost": 5.0}, "never"),
    Arm("worth 5, always thaw", "local", {"miss_cost": 5.0}, "always"),
)
"""Every arm there is, in the order of the tables."""


def parse_arm(text: str) -> Arm:
    """An arm by name, with other settings behind commas; raises ValueError that says what is known."""
    known = {arm.name: arm for arm in ARMS}
    name, settings = text.strip(), {}
    while name not in known and "," in name:
        name, _, last = name.rpartition(",")
        setting, is_one, value = last.strip().partition("=")
        if not is_one:
            raise ValueError(f"{last.strip()!r} is neither part of an arm's name nor a setting such as miss_cost=5")
        settings[setting] = _value(value)
    if name not in known:
        raise ValueError(f"no arm goes by {name!r}; there are {', '.join(known)}")
    if not settings:
        return known[name]
    arm = known[name]._replace(name=text.strip(), settings={**known[name].settings, **settings})
    arm.config(EngineConfig().window_tokens)
    return arm


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def choose_arms(names: Iterable[str] = ()) -> list[Arm]:
    """The arms of these names, and always the one that does nothing; all without names.

    Raises ValueError, also for settings that are not allowed.
    """
    wanted = list(names)
    if not wanted:
        return list(ARMS)
    try:
        found = {arm.name: arm for arm in [ARMS[0], *map(parse_arm, wanted)]}
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return list(found.values())


class FrozenZone:
    """Pins everything before the last edit: what `never thaw` does."""

    __name__ = "frozen_zone"

    def __init__(self) -> None:
        self.first_row = 0
        """Results before this row stay as they are."""

    def reason(self, call: ToolCall) -> str | None:
        """Why a unit may not be judged."""
        return "frozen zone" if call.result_row < self.first_row else None

    @hookimpl
    def register_pins(self, register: Any) -> None:
        """Hand itself to an engine."""
        register(self.reason)


class ArmJudge:
    """The judge of an arm. The local one answers with a model that never saw the project, where there is one.

    Answers to a history that looks the same are given again: arms part only at their first different pass.
    """

    name = "arm"
    is_calibrated = True

    def __init__(self, cache: FeatureCache, forest: Forest | None) -> None:
        self.way: Way = "local"
        self._cache = cache
        self._forest = forest
        self._known: dict[int, dict[str, RawAnswer]] = {}

    async def judge(self, request: JudgeRequest) -> Verdict:
        """Answer for the candidates."""
        candidates = request.candidates
        if self.way == "local":
            calls = request.transcript.calls
            seen = hash((tuple([(c.key, c.marked) for c in calls]), tuple([c.number for c in candidates])))
            if seen not in self._known:
                self._known[seen] = self._local(request.transcript, {call.number for call in candidates})
            return Verdict(dict(self._known[seen]))
        answer = RawAnswer(1.0, 0.0 if self.way == "every" else BASE_RATE)
        return Verdict({call.key: answer for call in candidates})

    def _local(self, transcript: Transcript, wanted: set[int]) -> dict[str, RawAnswer]:
        from jev_engine.judges import weights  # noqa: PLC0415  # generated: fold models do without

        table = tabulate(transcript, self._cache)
        found = list(table.each_row(wanted))
        if not found:
            return {}
        rows = [row for _, row in found]
        log_odds = [weights.log_odds(row) for row in rows] if self._forest is None else self._forest.log_odds(rows)
        unfamiliar = is_unfamiliar(table)
        answers = {}
        for (i, row), odds in zip(found, log_odds, strict=True):
            p = probabilities_of(table.timeline.units[i], row[_AGE], float(odds), None, is_unfamiliar=unfamiliar)
            answers[table.calls[i].key] = RawAnswer(*p)
        return answers
