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
    """Units of that tool that stayed."""
    control_looked_back: int
    """Of those, how many were called again all the same."""

    @property
    def rate(self) -> float:
        """Look-backs a unit that went out, less what happens to units that stay; 0 at least."""
        control = self.control_looked_back / self.control_calls if self.control_calls else 0.0
        return max(0.0, (self.looked_back / self.out if self.out else 0.0) - control)


def regrets(trail: TrailRead) -> list[Regret]:
    """By tool, most regretted first. Outcomes exist for what went out only; what stayed is the control."""
    out: dict[str, set[str]] = {}
    stayed: dict[str, set[tuple[str, int]]] = {}
    for told in trail.passes.values():
        is_committed = isinstance(told.end, events.Committed)
        for unit in told.units.values():
            if unit.action != "keep" and is_committed and unit.reference:
                out.setdefault(unit.tool, set()).add(unit.reference)
            elif unit.action == "keep":
                stayed.setdefault(unit.tool, set()).add((told.session, unit.number))
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


def stats_of(trail: TrailRead) -> dict[str, Any]:
    """All numbers as plain JSON values. Tokens are estimates, times are milliseconds, prices are dollars."""
    passes = list(trail.passes.values())
    committed = [(told, told.end) for told in passes if isinstance(told.end, events.Committed)]
    backs = trail.look_backs()
    out = {unit.reference for told, _ in committed for unit in told.out}
    missed = {back.reference for back in backs if back.reference in out}
    times = sorted([told.end.ms for told in passes if told.end is not None])
    answered = [told.answered for told in passes if told.answered is not None]
    return {
        "sessions": len({told.session for told in passes}),
        "passes": len(passes),
        "outcomes": dict(Counter([told.outcome for told in passes]).most_common()),
        "units_out": len(out),
        "freed_tokens": sum([end.freed_tokens for _, end in committed]),
        "expected_misses": sum([end.expected_misses for _, end in committed]),
        "observed_misses": len(missed),
        "look_backs": dict(Counter([back.kind for back in backs if back.reference is not None])),
        "control_look_backs": len([back for back in backs if back.reference is None]),
        "regret_by_tool": {r.tool: {**r._asdict(), "rate": r.rate} for r in regrets(trail) if r.out},
        "ms_median": statistics.median(times) if times else None,
        "ms_slowest": times[-1] if times else None,
        "judge_requests": sum([each.requests for each in answered]),
        "judge_tokens": sum([each.input_tokens for each in answered]),
        "judge_price": sum([each.price for each in answered if each.price is not None]),
        "judge_failures": dict(Counter([failure for told in passes for failure in told.failures])),
        "unreadable_lines": trail.unreadable,
    }
