"""What a trail comes to: freed, looked back at, predicted against observed, cost, time, failures."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any, NamedTuple

from jev_engine import events
from jev_engine.audit.records import TrailRead

__all__ = ["Regret", "regrets", "stats_of"]


class Regret(NamedTuple):
    """How often what went out of one tool was needed again."""

    tool: str
    out: int
    looked_back: int
    control_calls: int
    """Calls of that tool whose result was in the history when a pass looked for calls that are made again."""
    control_looked_back: int
    """Of those, how many had been made again all the same."""

    @property
    def rate(self) -> float:
        """Look-backs a unit that went out, less what happens to results that are still there; 0 at least."""
        control = self.control_looked_back / self.control_calls if self.control_calls else 0.0
        return max(0.0, (self.looked_back / self.out if self.out else 0.0) - control)


def regrets(trail: TrailRead) -> list[Regret]:
    """By tool, most regretted first. Outcomes exist for what went out only; what is still there is the control."""
    out: dict[str, set[str]] = {}
    for told in trail.passes.values():
        if isinstance(told.end, events.Committed):
            for unit in told.out:
                if unit.reference:
                    out.setdefault(unit.tool, set()).add(unit.reference)
    stayed = _control(trail)
    backs, control = Counter[str](), Counter[str]()
    seen = set()
    for back in trail.look_backs():
        if back.reference is None:
            control[back.tool] += 1
        elif back.reference not in seen and back.reference in out.get(back.tool, ()):
            seen.add(back.reference)
            backs[back.tool] += 1
    made = [
        Regret(tool, len(out.get(tool, ())), backs[tool], len(stayed.get(tool, ())), control[tool])
        for tool in {*out, *stayed}
    ]
    return sorted(made, key=lambda regret: (-regret.rate, -regret.out, regret.tool))


def _control(trail: TrailRead) -> dict[str, set[tuple[str, int]]]:
    """Session and number, by tool, of every call that a pass could have found made again with its result still there.

    Judged or not, and whatever became of it afterwards. A pass looks only where something was out when it began.
    """
    found: dict[str, set[tuple[str, int]]] = {}
    for told in trail.passes.values():
        if told.started is not None and told.started.already_out:
            for row in told.rows:
                if isinstance(row, events.Unit) or row.reference is None:
                    found.setdefault(row.tool, set()).add((told.session, row.number))
    return found


def stats_of(trail: TrailRead) -> dict[str, Any]:
    """All numbers as plain JSON values. Tokens are estimates, times are milliseconds, prices are dollars."""
    passes = list(trail.passes.values())
    committed = [(told, told.end) for told in passes if isinstance(told.end, events.Committed)]
    backs = trail.look_backs()
    table = regrets(trail)
    out = {unit.reference for told, _ in committed for unit in told.out}
    missed = {back.reference for back in backs if back.reference in out}
    times = sorted([told.end.ms for told in passes if told.end is not None])
    answered = [told.answered for told in passes if told.answered is not None]
    asked = [told for told in passes if told.asked is not None]
    uncalibrated = [end.expected_misses for told, end in committed if not told.is_calibrated]
    prices = [each.price for each in answered if each.price is not None]
    return {
        "sessions": len({told.session for told in passes}),
        "passes": len(passes),
        "outcomes": dict(Counter([told.outcome for told in passes]).most_common()),
        "units_out": len(out),
        "freed_tokens": sum([end.freed_tokens for _, end in committed]),
        "expected_misses": sum([end.expected_misses for _, end in committed]),
        "expected_misses_uncalibrated": sum(uncalibrated),
        "is_calibrated": not uncalibrated,
        "observed_misses": len(missed),
        "look_backs": dict(Counter([back.kind for back in backs if back.reference is not None])),
        "control_look_backs": len([back for back in backs if back.reference is None]),
        "control_calls": sum([r.control_calls for r in table]),
        "regret_by_tool": {r.tool: {**r._asdict(), "rate": r.rate} for r in table if r.out},
        "ms_median": statistics.median(times) if times else None,
        "ms_slowest": times[-1] if times else None,
        "judge_requests": sum([each.requests for each in answered]),
        "judge_sent_bytes": sum([each.sent_bytes for each in answered]),
        "judge_endpoints": sorted({told.asked.endpoint for told in asked if told.asked and told.asked.endpoint}),
        "judge_passes_not_told": len([told for told in asked if told.answered is None]),
        "judge_tokens": sum([each.input_tokens for each in answered]),
        "judge_price": sum(prices) if prices else None,
        "judge_requests_without_price": sum([each.requests for each in answered if each.price is None]),
        "judge_failures": dict(Counter([failure for told in passes for failure in told.failures])),
        "unreadable_lines": trail.unreadable,
        "newer_version": trail.newer,
        "doubt": trail.doubt,
    }
