"""Means and ratios over sessions with 95 % bootstrap intervals.

Every session counts once, however many cuts it has; the same resampled sessions serve every figure of one report, so
that differences are paired.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bootstrap", "Measure"]

Floats = NDArray[np.float64]

TIMES = 1_000
"""Samples behind each interval: its ends then move by about a tenth of its width from seed to seed."""


class Measure(NamedTuple):
    """A number, its 95 % interval where it has one, and how it is written."""

    value: float
    low: float | None = None
    high: float | None = None
    form: str = "%"
    """`%` for a share written in per cent, otherwise a format such as `.2f`."""

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return self._one(self.value)
        return f"{self._one(self.value)} [{self._one(self.low)}, {self._one(self.high)}]"

    def interval(self) -> str:
        """The interval alone, as short as it goes; empty where there is none."""
        if self.low is None or self.high is None:
            return ""
        return f"{self._one(self.low)}…{self._one(self.high)}"

    def middle(self) -> str:
        """The number alone."""
        return self._one(self.value)

    def _one(self, value: float) -> str:
        if not np.isfinite(value):
            return "-"
        text = f"{100 * value:.1f}" if self.form == "%" else f"{value:{self.form}}"
        return text.lstrip("-") if float(text.replace(",", "")) == 0 else text

    def as_json(self) -> dict[str, float | None]:
        """Its numbers, unrounded; None for what is not finite."""
        values = {"value": self.value, "low": self.low, "high": self.high}
        return {name: None if x is None or not np.isfinite(x) else float(x) for name, x in values.items()}


class Bootstrap:
    """Cluster bootstrap of one set of rows: whole sessions are resampled; intervals are 95 % percentile intervals."""

    def __init__(self, sessions: Sequence[str], seed: int, times: int = TIMES) -> None:
        names, self._session_of = np.unique(np.asarray(sessions), return_inverse=True)
        self.count = len(names)
        """Sessions."""
        self._rows = np.bincount(self._session_of, minlength=self.count)
        random = np.random.default_rng(seed)
        even = np.full(self.count, 1 / max(1, self.count))
        self._weights = random.multinomial(self.count, even, size=times).astype(np.float64)

    def per_session(self, values: Floats) -> Floats:
        """The mean of each session's rows."""
        sums = np.bincount(self._session_of, np.asarray(values, np.float64), self.count)
        return np.asarray(sums / self._rows)

    def mean(self, values: Floats, form: str = "%") -> Measure:
        """The mean over sessions of the mean of their rows."""
        means = self.per_session(values)
        return self._measure(float(means.mean()), self._weights @ means / self.count, form)

    def ratio(self, top: Floats, bottom: Floats, form: str = "%") -> Measure:
        """The ratio of two such means."""
        return self.ratio_of_sessions(self.per_session(top), self.per_session(bottom), form)

    def ratio_of_sessions(self, top: Floats, bottom: Floats, form: str = "%") -> Measure:
        """The ratio of two sums over sessions, given per session."""
        if not bottom.sum():
            return Measure(float("nan"), None, None, form)
        below = self._weights @ bottom
        kept = below > 0
        return self._measure(float(top.sum() / bottom.sum()), (self._weights @ top)[kept] / below[kept], form)

    def fewer(self, mine: Floats, base: Floats) -> Measure:
        """How much smaller one sum over sessions is than another, as a share of the other; both given per session."""
        ratio = self.ratio_of_sessions(mine, base)
        if ratio.low is None or ratio.high is None:
            return ratio
        return Measure(1 - ratio.value, 1 - ratio.high, 1 - ratio.low)

    def _measure(self, value: float, samples: Floats, form: str) -> Measure:
        low, high = np.percentile(samples, [2.5, 97.5])
        return Measure(value, float(low), float(high), form)
