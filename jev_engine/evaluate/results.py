"""Replayed sessions as columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jev_engine.evaluate.bootstrap import Bootstrap, Measure
from jev_engine.evaluate.metrics import Scores, score
from jev_engine.evaluate.policies import POLICIES
from jev_engine.evaluate.replay import PASS_FIELDS

__all__ = ["AGE_EDGES", "SIZE_EDGES", "Results", "Units"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

JUDGED_AGE = 3
"""Judges are measured on results older than this: newer ones are pinned."""
AGE_EDGES = (1, 2, 3, 5, 10, 20, 40, 80, 160)
SIZE_EDGES = (300, 1_500, 4_000, 10_000, 30_000)
"""Upper edges of the classes of age in calls and of size in characters."""
SCORE_TIMES = 100
"""Bootstrap samples for the measures of a judge: each sorts all rows anew, and there are many parts."""
FEW_NEEDED = 10
"""Fewer needed results than this say nothing about a judge."""
FEW_SESSIONS = 3
"""Nor do results from fewer sessions than this: there is nothing to resample."""


class Units(NamedTuple):
    """Every result at every cut."""

    session: NDArray[np.str_]
    project: NDArray[np.str_]
    harness: NDArray[np.str_]
    kind: NDArray[np.str_]
    age: Floats
    size: Floats
    needed: Flags
    refetched: Flags
    local: Floats
    rules: Floats
    asked: Floats
    """NaN where the asked judge said nothing."""

    def where(self, chosen: Flags) -> Units:
        """Those units alone."""
        return Units._make(column[chosen] for column in self)


class Results:
    """What was replayed, by cut; figures are computed where they are asked for."""

    def __init__(self, sessions: Sequence[dict[str, Any]], seed: int) -> None:
        self.sessions = [session for session in sessions if session["cuts"]]
        self.lookbacks = [session for session in sessions if session["lookback"]]
        self.cuts = [cut for session in self.sessions for cut in session["cuts"]]
        self.seed = seed
        counts = [len(session["cuts"]) for session in self.sessions]
        self.session, self.project, self.harness = (
            np.repeat(np.array([session[field] for session in self.sessions], dtype=np.str_), counts)
            for field in ("session", "project", "harness")
        )
        self.boot = Bootstrap(self.session.tolist(), seed)
        self.column = cache(self._column)
        self.scores = cache(self._scores)

    @cached_property
    def policies(self) -> list[str]:
        """Names of the policies that were replayed, in the order of the table of policies."""
        known = self.cuts[0]["policies"]
        return [policy.name for policy in POLICIES if policy.name in known]

    def of(self, field: str) -> Floats:
        """One number of every cut."""
        return np.array([cut[field] for cut in self.cuts], np.float64)

    def _column(self, policy: str, field: str) -> Floats:
        place = PASS_FIELDS.index(field)
        return np.array([cut["policies"][policy][place] for cut in self.cuts], np.float64)

    def freed(self, policy: str) -> Floats:
        """Share of all characters of each history that a policy frees."""
        return self.column(policy, "freed_chars") / np.maximum(1, self.of("chars"))

    @cached_property
    def needed(self) -> Floats:
        """Needed results of each cut."""
        return np.array([sum(cut["needed"]) for cut in self.cuts], np.float64)

    @cached_property
    def units(self) -> Units:
        """Every result at every cut, the pinned newest ones too."""
        counts = [len(cut["age"]) for cut in self.cuts]

        def join(field: str) -> Floats:
            return np.concatenate([np.array(cut[field], np.float64) for cut in self.cuts])

        def answers(judge: str) -> Floats:
            return np.concatenate([np.array(cut["p"][judge], np.float64) for cut in self.cuts])

        return Units(
            np.repeat(self.session, counts),
            np.repeat(self.project, counts),
            np.repeat(self.harness, counts),
            np.array([kind for cut in self.cuts for kind in cut["kind"]]),
            join("age"),
            join("size"),
            join("needed") > 0,
            join("refetched") > 0,
            answers("local"),
            answers("rules"),
            answers("asked"),
        )

    @cached_property
    def judged(self) -> Units:
        """The results older than the newest three."""
        return self.units.where(self.units.age > JUDGED_AGE)

    def _scores(self, judge: str, field: str = "", name: str = "") -> Scores | None:
        """Ranking and calibration of a judge, over all or one part; None where too little is known."""
        units = self.judged
        p = np.asarray(getattr(units, judge))
        known = np.isfinite(p)
        if field:
            known &= np.asarray(getattr(units, field)) == name
        needed, sessions = units.needed[known], units.session[known].tolist()
        with_need = len(np.unique(units.session[known][needed]))
        if needed.sum() < FEW_NEEDED or with_need < FEW_SESSIONS or needed.all():
            return None
        with np.errstate(invalid="ignore"):  # a sample may draw no session with a need: it says nothing
            return score(needed, p[known], sessions, SCORE_TIMES, self.seed)

    @cached_property
    def unseen_sessions(self) -> int:
        """Sessions for which the local judge's answers come from a fold that left their project out."""
        return sum(all(cut["unseen"] for cut in session["cuts"]) for session in self.sessions)

    def select(self, chosen: Flags) -> Results:
        """The results of the cuts that are marked, with intervals of their own."""
        part = []
        at = 0
        for session in self.sessions:
            count = len(session["cuts"])
            cuts = [cut for cut, keep in zip(session["cuts"], chosen[at : at + count], strict=True) if keep]
            at += count
            part.append({**session, "cuts": cuts})
        return Results(part, self.seed)

    def sweep(self, names: Sequence[str]) -> tuple[Floats, Floats, Floats]:
        """Share freed, misses and expected misses of each session under each of these policies, most freed first."""
        freed = np.array([self.boot.per_session(self.freed(name)) for name in names])
        order = np.argsort(-freed.mean(1), kind="stable")
        missed = np.array([self.boot.per_session(self.column(name, "missed")) for name in names])
        predicted = np.array([self.boot.per_session(self.column(name, "predicted")) for name in names])
        return freed[order], missed[order], predicted[order]

    def at_freed(self, names: Sequence[str], target: float) -> Floats | None:
        """Misses of each session where these policies free so much on average, mixing two; None if none can."""
        if not names:
            return None
        freed, missed, _ = self.sweep(names)
        means = freed.mean(1)
        for upper in range(len(means) - 1):
            high, low = means[upper], means[upper + 1]
            if high >= target >= low:
                share = (target - low) / (high - low) if high > low else 1.0
                return np.asarray(share * missed[upper] + (1 - share) * missed[upper + 1])
        return None

    def fewer_at_freed(self, names: Sequence[str], base: str) -> tuple[Floats | None, Measure]:
        """Misses per session at the average freed of another policy, and how many fewer than it has."""
        misses = self.at_freed(names, float(self.boot.per_session(self.freed(base)).mean()))
        if misses is None:
            return None, Measure(float("nan"))
        return misses, self.boot.fewer(misses, self.boot.per_session(self.column(base, "missed")))
