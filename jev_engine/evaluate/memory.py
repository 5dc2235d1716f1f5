"""Project memory: two numbers per project, learned from the hindsight labels of its finished sessions.

The shipped judge says how needed a result looks; the memory says how far to believe that in this project:
`logit p' = slope * logit p + intercept`. With few sessions it stays near (1, 0), which is the shipped judge.
What is stored are counts per bin of the judge's log-odds, so sessions can be added one by one and nothing of their
text is kept. Pure Python; it pays from about six sessions (on 243 sessions of five projects).

>>> memory = ProjectMemory()
>>> memory.fit()
(1.0, 0.0)
>>> memory.add_session([0.3] * 100, [False] * 98 + [True] * 2)
>>> slope, intercept = memory.fit()
>>> recall(0.3, (slope, intercept)) < 0.2
True
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["ProjectMemory", "recall"]

BINS_PER_UNIT = 10
"""Bins per unit of log-odds: rounding moves a probability by at most 1.3 points."""
LIMIT = 12.0
"""Log-odds beyond this are as good as certain and would only pull the fit."""
SLOPE_RIDGE = 3.0
INTERCEPT_RIDGE = 1.0
"""Strength of the pull towards (1, 0), in weighted units; chosen on leave-one-project-out predictions of the corpus
(docs/training-report.md), the same for every project."""
SESSION_POWER = 0.5
"""A session of n rows weighs n ** 0.5: its rows are cuts of one history and far from independent."""
STEPS = 25
"""Newton steps; a handful suffices, the rest is for histograms with an extreme bin."""


class ProjectMemory:
    """Counts of one project: for each bin of the judge's log-odds, the weight seen and the weight needed."""

    __slots__ = ("bins", "sessions")

    def __init__(self) -> None:
        self.bins: dict[int, tuple[float, float]] = {}
        self.sessions = 0

    def add_session(self, predicted: Iterable[float], needed: Iterable[bool]) -> None:
        """Add one finished session: the shipped judge's P(needed) of each unit and cut, and what hindsight says."""
        pairs = list(zip(predicted, needed, strict=True))
        if not pairs:
            return
        weight = len(pairs) ** (SESSION_POWER - 1)
        for p, was_needed in pairs:
            place = round(_logit(p) * BINS_PER_UNIT)
            total, hits = self.bins.get(place, (0.0, 0.0))
            self.bins[place] = (total + weight, hits + weight * was_needed)
        self.sessions += 1

    def fit(self) -> tuple[float, float]:
        """Slope and intercept of the log-odds (Platt scaling) by penalised maximum likelihood; (1, 0) without rows."""
        slope, intercept = 1.0, 0.0
        rows = [(place / BINS_PER_UNIT, total, hits) for place, (total, hits) in sorted(self.bins.items())]
        for _ in range(STEPS):
            d_slope, d_intercept = SLOPE_RIDGE * (slope - 1), INTERCEPT_RIDGE * intercept
            ss, si, ii = SLOPE_RIDGE, 0.0, INTERCEPT_RIDGE
            for z, total, hits in rows:
                p = _sigmoid(slope * z + intercept)
                error, curve = total * p - hits, total * p * (1 - p)
                d_slope += error * z
                d_intercept += error
                ss += curve * z * z
                si += curve * z
                ii += curve
            determinant = ss * ii - si * si
            step_slope = (ii * d_slope - si * d_intercept) / determinant
            step_intercept = (ss * d_intercept - si * d_slope) / determinant
            # Newton may overshoot far from the optimum; half a unit a step always arrives within STEPS.
            slope -= max(-0.5, min(0.5, step_slope))
            intercept -= max(-0.5, min(0.5, step_intercept))
            if abs(step_slope) + abs(step_intercept) < 1e-9:
                break
        return max(0.0, slope), intercept

    def as_dict(self) -> dict[str, Any]:
        """Numbers only, for storing as JSON."""
        bins = [[place, total, hits] for place, (total, hits) in sorted(self.bins.items())]
        return {"version": 1, "sessions": self.sessions, "bins": bins}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> ProjectMemory:
        """The memory written by `as_dict`."""
        if stored.get("version") != 1:
            raise ValueError(f"unknown version of a project memory: {stored.get('version')!r}")
        memory = cls()
        memory.sessions = int(stored["sessions"])
        memory.bins = {int(place): (float(total), float(hits)) for place, total, hits in stored["bins"]}
        return memory


def recall(p: float, memory: tuple[float, float]) -> float:
    """A probability of the shipped judge as this project's memory sees it: its log-odds scaled and shifted."""
    slope, intercept = memory
    return _sigmoid(slope * _logit(p) + intercept)


def _logit(p: float) -> float:
    edge = 1e-6
    p = min(1 - edge, max(edge, p))
    return max(-LIMIT, min(LIMIT, math.log(p / (1 - p))))


def _sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-max(-LIMIT * 3, min(LIMIT * 3, z))))
