"""What a judge says about a unit, and how much of it is believed.

>>> prior = Evidence(weight=1.0, typical=0.15, clip=1.5)
>>> round(prior.step(0.05, 0.15), 3), round(prior.step(0.05, 0.90), 3), round(prior.step(0.05, 0.999), 3)
(0.05, 0.191, 0.191)
"""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["Belief", "Evidence", "Probability", "RawAnswer"]

# Log-odds are finite: no answer is surer than one in a million.
EPSILON = 1e-6


class RawAnswer(NamedTuple):
    """What a judge says about one unit, 0 to 1; None where it said nothing."""

    p_call: float | None
    """That the call was made still matters."""
    p_result: float | None
    """The full result is still needed."""


class Probability(NamedTuple):
    """What is believed about one unit, and on whose word."""

    p_call: float
    p_result: float
    source: str
    """`judge`, `local` or `judge+local`."""
    raw: RawAnswer | None
    """What the judge said before calibration."""


def logit(p: float) -> float:
    """Log-odds of a probability."""
    p = min(1 - EPSILON, max(EPSILON, p))
    return math.log(p / (1 - p))


class Evidence(NamedTuple):
    """How far an uncalibrated answer moves the local judge: `logit p = logit p_local + clip(a (logit raw - logit t))`.

    The default is a prior from published answers of jev-1.13.0 (median for results 0.14 to 0.17), not a fit.
    """

    weight: float = 1.0
    """a"""
    typical: float = 0.15
    """t, the raw answer that says nothing."""
    clip: float = 1.5
    """Largest step in log-odds either way: odds change at most 4.5 times."""

    def step(self, p_local: float | None, raw: float | None) -> float:
        """The probability after one answer; without a local one the answer moves even odds."""
        start = 0.5 if p_local is None else p_local
        if raw is None:
            return start
        move = self.weight * (logit(raw) - logit(self.typical))
        z = logit(start) + min(self.clip, max(-self.clip, move))
        return 1 / (1 + math.exp(-z))


class Belief(NamedTuple):
    """How far one judge's answers are believed, for results and for calls: the two lie on different scales.

    The typical answers are published medians of jev-1.13.0: 0.145 for results, 0.30 for calls (fast-jev-compaction
    issues 26, 52 and 56 with pull request 53). That is a prior; a fit replaces it.
    """

    result: Evidence = Evidence(typical=0.145)
    call: Evidence = Evidence(typical=0.30)
    is_fitted: bool = False
    """Fitted to answers and what was needed later, so that probabilities are more than a guess."""
