"""What a trail teaches: answers with their outcomes for `jev-engine calibrate`, and tools whose output is often missed.

Outcomes exist for what went out only: what stayed could not be missed. So a map fitted on them holds where judges let
things go, and the pull towards the prior map holds elsewhere. Calls are also made again while their result is still
there; that share, the control, is taken off.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from jev_engine import events
from jev_engine.answers import Evidence, logit
from jev_engine.audit.records import TrailRead
from jev_engine.audit.stats import Regret, regrets
from jev_engine.transcript import ToolCall

__all__ = ["FEWEST_OUT", "MISSED_RATE", "Outcome", "RegretRule", "outcomes"]

FEWEST_OUT = 20
"""Of a tool with fewer units out nothing is concluded: one miss of ten is no rate."""
MISSED_RATE = 0.15
"""A tool whose output is looked back at this often, above the control, is protected: three times the share of results
that are needed at all. That is 4.9 % of those older than three calls, counted at 2,262 cuts of 291 public sessions by
what the agents wrote later (`evaluate.hindsight`); on the corpus of docs/evidence.md it is 4.4 %."""


class Outcome(NamedTuple):
    """One answer of a judge, and whether what it let go was needed."""

    judge: str
    model: str
    question_version: str
    raw: float
    p_local: float
    needed: bool


def outcomes(trail: TrailRead, evidence: Evidence) -> list[Outcome]:
    """Answers about units that went out in committed passes, each original once.

    `evidence` is the map in force when they were made: by it the local judge's answer is worked out from what was
    believed. Look-backs that the control explains are taken off, always the same ones.
    """
    expanded = {b.reference for b in trail.look_backs() if b.kind == "expanded" and b.reference}
    refetched = {b.reference for b in trail.look_backs() if b.kind == "refetched" and b.reference} - expanded
    made: dict[str, Outcome] = {}
    for told in trail.passes.values():
        if not isinstance(told.end, events.Committed):
            continue
        model = (told.answered.model if told.answered else None) or ""
        for unit in told.out:
            if unit.reference and unit.raw_result is not None and unit.p_result is not None:
                rule = told.rules[unit.number]
                local = unit.p_result if unit.by == "judge" else _before(unit.p_result, unit.raw_result, evidence)
                version = (rule.question_version or "").rpartition("/")[2]
                outcome = Outcome(rule.judge or "", model, version, unit.raw_result, local, needed=False)
                made.setdefault(unit.reference, outcome)
    explained = _explained(trail, refetched & made.keys(), len(made))
    needed = (expanded | refetched) - explained
    return [outcome._replace(needed=reference in needed) for reference, outcome in made.items()]


def _before(p: float, raw: float, evidence: Evidence) -> float:
    """The local judge's probability, from the one after the answer."""
    move = evidence.weight * (logit(raw) - logit(evidence.typical))
    return 1 / (1 + math.exp(min(evidence.clip, max(-evidence.clip, move)) - logit(p)))


def _explained(trail: TrailRead, refetched: Iterable[str], out: int) -> set[str]:
    """As many of the calls made again as would have been made again with the result still there."""
    table = regrets(trail)
    stayed = sum([regret.control_calls for regret in table])
    again = sum([regret.control_looked_back for regret in table])
    count = round(out * again / stayed) if stayed else 0
    # By digest: which ones are taken off depends on nothing but their names.
    return set(sorted(refetched, key=lambda name: blake2b(name.encode(), digest_size=8).digest())[:count])


class RegretRule:
    """A pin rule: output of tools that was often missed stays. Opt-in, from a trail."""

    def __init__(self, table: Iterable[Regret], *, fewest: int = FEWEST_OUT, rate: float = MISSED_RATE) -> None:
        self.tools: dict[str, float] = {
            regret.tool: regret.rate for regret in table if regret.out >= fewest and regret.rate >= rate
        }
        """Rate of misses above the control, by the tools that are protected."""

    def __call__(self, call: ToolCall) -> str | None:
        """The reason, for a call of such a tool."""
        rate = self.tools.get(call.tool)
        return None if rate is None else f"often missed: {rate:.0%} of what went out of {call.tool} was needed again"
