"""How good a judge and a policy are: ranking, calibration, and what is missed for what is freed.

Intervals are 95 % bootstrap intervals over sessions. A miss is a removed unit that was needed; an atom is lost only
when all results that held it are gone. Needs numpy (the `evaluate` extra).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jev_engine.evaluate.hindsight import THETA, Evidence

__all__ = [
    "Budget", "Cut", "Matched", "Outcome", "Scores", "at_budget", "auc", "average_precision", "brier", "ece",
    "keep_last", "match_keep_last", "outcome_of", "resample", "score", "spend_budget",
]  # fmt: skip

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

STUB_CHARS = 80
"""Characters that a removed result still costs: its marker."""
PINNED = 3
"""The newest results stay in every policy."""
ECE_BINS = 10
"""Bins of equal mass."""


class Cut:
    """One imagined compaction: the units before it, and what hindsight says would have been lost."""

    __slots__ = (
        "_flat", "_group", "_group_unit", "_points", "_starts", "age", "chars", "context_chars", "harness", "needed",
        "project", "row", "segment", "session",
    )  # fmt: skip

    def __init__(
        self,
        place: tuple[str, str, str, int, int],
        chars: NDArray[np.int64],
        needed: Flags,
        context_chars: int,
        evidence: Sequence[Evidence],
    ) -> None:
        self.session, self.project, self.harness, self.segment, self.row = place
        self.chars = chars
        self.needed = needed
        self.context_chars = context_chars
        self.age = len(chars) - np.arange(len(chars))
        """1 for the newest result."""
        groups: dict[tuple[int, int], int] = {}
        self._group = np.array([groups.setdefault((e.unit, e.used_at), len(groups)) for e in evidence], np.int64)
        self._group_unit = np.array([unit for unit, _ in groups], np.int64)
        self._points = np.array([e.points for e in evidence], np.float64)
        self._flat = np.array([unit for e in evidence for unit in e.holders], np.int64)
        self._starts = np.cumsum([0, *[len(e.holders) for e in evidence]])[:-1]

    @property
    def candidates(self) -> Flags:
        """Units a policy may remove: not among the newest, and longer than the marker."""
        return (self.age > PINNED) & (self.chars > STUB_CHARS)

    def missed(self, removed: Flags) -> Flags:
        """Which units are missed when these are removed together."""
        found = np.zeros(len(self.chars), bool)
        if not len(self._group):
            return found
        lost = np.logical_and.reduceat(removed[self._flat], self._starts)
        points = np.bincount(self._group, self._points * lost, len(self._group_unit))
        found[self._group_unit[points >= THETA]] = True
        return found


class Outcome(NamedTuple):
    """What one policy does at one cut."""

    freed: float
    """Share of all context characters."""
    removed: int
    missed: int
    predicted: float
    """Sum of P(needed) over what was removed; 0 where the policy has no judge."""


def auc(labels: Flags, scores: Floats, weights: Floats | None = None) -> float:
    """Area under the ROC curve: the chance that a needed unit scores above one that is not; ties count half."""
    weight = np.ones(len(scores)) if weights is None else weights
    order = np.argsort(scores, kind="stable")
    positive = np.where(labels, weight, 0.0)[order]
    negative = np.where(labels, 0.0, weight)[order]
    _, first = np.unique(scores[order], return_index=True)
    above, below = np.add.reduceat(positive, first), np.add.reduceat(negative, first)
    under = np.cumsum(below) - below
    return float((above * (under + below / 2)).sum() / (positive.sum() * negative.sum()))


def average_precision(labels: Flags, scores: Floats, weights: Floats | None = None) -> float:
    """Average precision: the area under precision over recall, as a step function; tied scores are one step."""
    weight = np.ones(len(scores)) if weights is None else weights
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(np.where(labels, weight, 0.0)[order])
    shown = np.cumsum(weight[order])
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    hits, shown = hits[last], shown[last]
    gained = np.diff(hits, prepend=0.0)
    return float((gained * hits / np.maximum(shown, 1e-12)).sum() / hits[-1])


def brier(labels: Flags, scores: Floats, weights: Floats | None = None) -> float:
    """Brier score: the mean squared error of the probabilities."""
    return float(np.average((scores - labels) ** 2, weights=weights))


def ece(labels: Flags, scores: Floats, weights: Floats | None = None, bins: int = ECE_BINS) -> float:
    """Expected calibration error: the mean gap of predicted and actual share, over `bins` bins of equal mass."""
    weight = np.ones(len(scores)) if weights is None else weights
    order = np.argsort(scores, kind="stable")
    mass = np.cumsum(weight[order])
    bin_of = np.minimum((mass - 1e-9) / mass[-1] * bins, bins - 1e-9).astype(int)
    predicted = np.bincount(bin_of, (scores * weight)[order], bins)
    actual = np.bincount(bin_of, (labels * weight)[order], bins)
    return float(np.abs(predicted - actual).sum() / mass[-1])


def resample(names: Sequence[str], times: int, seed: int) -> Iterator[Floats]:
    """Cluster bootstrap by session: of each of `times` samples, how often each row counts; one weight a row."""
    _, inverse = np.unique(np.asarray(names), return_inverse=True)
    sessions = int(inverse.max()) + 1
    random = np.random.default_rng(seed)
    for _ in range(times):
        counts = np.bincount(random.integers(0, sessions, sessions), minlength=sessions)
        yield counts[inverse].astype(np.float64)


class Scores(NamedTuple):
    """Quality of probabilities: point value, then lower and upper end of the interval."""

    auc: tuple[float, float, float]
    ap: tuple[float, float, float]
    brier: tuple[float, float, float]
    ece: tuple[float, float, float]
    ratio: tuple[float, float, float]
    """Predicted over actual number of needed units."""
    rows: int
    base_rate: float


def score(labels: Flags, scores: Floats, sessions: Sequence[str], times: int = 200, seed: int = 1) -> Scores:
    """All measures of one judge, with 95 % percentile intervals of the bootstrap over sessions."""

    def measure(weights: Floats) -> list[float]:
        chosen = weights > 0
        y, p, w = labels[chosen], scores[chosen], weights[chosen]
        share = float((p * w).sum() / max(1e-9, (y * w).sum()))
        return [auc(y, p, w), average_precision(y, p, w), brier(y, p, w), ece(y, p, w), share]

    point = measure(np.ones(len(scores)))
    samples = [measure(weights) for weights in resample(sessions, times, seed)]
    low, high = np.nanpercentile(samples, [2.5, 97.5], axis=0) if samples else (point, point)
    five = [(a, float(b), float(c)) for a, b, c in zip(point, low, high, strict=True)]
    return Scores(five[0], five[1], five[2], five[3], five[4], len(scores), float(labels.mean()))


def outcome_of(cut: Cut, removed: Flags, needed: Floats | None = None) -> Outcome:
    """What removing these units frees and misses; `needed` are the judge's probabilities, if there is one."""
    going = removed & (cut.chars > STUB_CHARS)
    freed = float((cut.chars[going] - STUB_CHARS).sum()) / max(1, cut.context_chars)
    predicted = 0.0 if needed is None else float(needed[going].sum())
    return Outcome(freed, int(going.sum()), int(cut.missed(going).sum()), predicted)


def keep_last(cut: Cut, count: int) -> Flags:
    """Remove all but the newest `count` results."""
    return np.asarray(cut.age > count)


def spend_budget(cut: Cut, needed: Floats, budget: float) -> Flags:
    """Remove in order of P(needed) per character while the sum of P stays within the budget."""
    indices = np.flatnonzero(cut.candidates)
    order = indices[np.argsort(needed[indices] / cut.chars[indices], kind="stable")]
    count = int(np.searchsorted(np.cumsum(needed[order]), budget, side="right"))
    removed = np.zeros(len(cut.chars), bool)
    removed[order[:count]] = True
    return removed


def _by_session(cuts: Sequence[Cut], outcomes: Sequence[Outcome]) -> Floats:
    """Mean outcome per session, so that long sessions do not outvote the rest."""
    _, inverse = np.unique([cut.session for cut in cuts], return_inverse=True)
    values = np.array(outcomes, np.float64)
    sums = np.stack([np.bincount(inverse, values[:, column]) for column in range(values.shape[1])], 1)
    return np.asarray(sums / np.bincount(inverse)[:, None])


def _interval(function: Callable[[Floats], float], sessions: Floats, times: int, seed: int) -> tuple[float, float]:
    random = np.random.default_rng(seed)
    count = len(sessions)
    samples = [function(sessions[random.integers(0, count, count)]) for _ in range(times)]
    low, high = np.percentile(samples, [2.5, 97.5])
    return float(low), float(high)


class Matched(NamedTuple):
    """A judge against keep-last-N at the same average share freed."""

    freed: float
    budget: float
    """The sum of P(needed) per cut that frees as much."""
    baseline: float
    """Misses per compaction of keep-last-N."""
    misses: float
    predicted: float
    fewer: float
    """Share of the baseline's misses that do not happen."""
    low: float
    high: float


def match_keep_last(cuts: Sequence[Cut], needed: Sequence[Floats], count: int = 10, times: int = 1000) -> Matched:
    """Spend, at every cut, the budget at which the average freed equals that of keep-last-`count`."""
    base = _by_session(cuts, [outcome_of(cut, keep_last(cut, count)) for cut in cuts])

    def spend(budget: float) -> Floats:
        pairs = zip(cuts, needed, strict=True)
        return _by_session(cuts, [outcome_of(cut, spend_budget(cut, p, budget), p) for cut, p in pairs])

    low, high = 0.02, 12.0
    budget = high
    for _ in range(16):
        budget = (low * high) ** 0.5
        low, high = (budget, high) if spend(budget)[:, 0].mean() < base[:, 0].mean() else (low, budget)
    mine = spend(budget)
    both = np.column_stack([base[:, 2], mine[:, 2]])

    def fewer(rows: Floats) -> float:
        return float(1 - rows[:, 1].sum() / max(1e-9, rows[:, 0].sum()))

    ends = _interval(fewer, both, times, seed=2)
    freed, baseline = float(base[:, 0].mean()), float(base[:, 2].mean())
    misses, predicted = float(mine[:, 2].mean()), float(mine[:, 3].mean())
    return Matched(freed, budget, baseline, misses, predicted, fewer(both), *ends)


class Budget(NamedTuple):
    """A fixed budget of expected misses per compaction, and what came of it."""

    budget: float
    freed: float
    predicted: float
    actual: float
    ratio: float
    """Predicted over actual misses."""
    low: float
    high: float
    any_miss: float
    """Share of cuts with at least one miss."""


def at_budget(cuts: Sequence[Cut], needed: Sequence[Floats], budget: float, times: int = 1000) -> Budget:
    """Spend the same budget at every cut."""
    pairs = zip(cuts, needed, strict=True)
    outcomes = [outcome_of(cut, spend_budget(cut, p, budget), p) for cut, p in pairs]
    sessions = _by_session(cuts, outcomes)

    def ratio(rows: Floats) -> float:
        return float(rows[:, 3].sum() / max(1e-9, rows[:, 2].sum()))

    ends = _interval(ratio, sessions, times, seed=3)
    any_miss = float(np.mean([outcome.missed > 0 for outcome in outcomes]))
    freed, _, actual, predicted = (float(value) for value in sessions.mean(0))
    return Budget(budget, freed, predicted, actual, ratio(sessions), *ends, any_miss)
