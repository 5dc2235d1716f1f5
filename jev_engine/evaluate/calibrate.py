"""Fit how far to believe a judge, from recorded answers and what hindsight says of them. Pure Python.

The map is the one of `answers.Evidence`: `logit p = logit p_local + clip(a (logit raw - logit t), ±c)`.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, product
from typing import Any

from jev_engine.answers import Belief, Evidence, logit
from jev_engine.audit.outcomes import Outcome
from jev_engine.calibration import Calibration

__all__ = ["PRIOR", "fit_calibrations", "fit_evidence", "log_loss", "read_answers", "reliability"]

BINS_PER_UNIT = 20
"""Bins per unit of log-odds while fitting: rounding moves a probability by at most 0.6 points."""
PRIOR = Belief().result
"""What is believed before anything is fitted."""
WEIGHTS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
CLIPS = (0.5, 1.0, 1.5, 2.0, 3.0)
"""First grid; finer ones follow around the best. A clip over 3 would let one answer change odds 20 times."""
PLACES = (0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9)
"""Quantiles of the raw answers tried as the one that says nothing."""
ROUNDS = 5
"""Finer grids around the best point so far: their step halves from 0.5 to 0.03."""
PULL = 1.0
"""Strength of the pull towards the prior map, in units of log loss: outweighed by a few dozen rows."""
FEWEST_ROWS, FEWEST_NEEDED = 50, 5
"""Less than this is not fitted: three numbers need more than a handful of needed results."""


def read_answers(lines: Iterable[str]) -> list[Outcome]:
    """Answers from JSON Lines with `raw`, `p_local`, `needed`, and `judge`, `model`, `question_version` where known.

    Raises ValueError that names the line.
    """
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record: Mapping[str, Any] = json.loads(line)
            raw, p_local = float(record["raw"]), float(record["p_local"])
            needed = record["needed"]
        except (TypeError, KeyError, ValueError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"line {number} is no recorded answer: {what}") from None
        if not (0 <= raw <= 1 and 0 <= p_local <= 1 and needed in (0, 1)):
            raise ValueError(f"line {number}: raw and p_local are probabilities, needed is true or false")
        judge, model, wording = (str(record.get(name) or "") for name in ("judge", "model", "question_version"))
        found.append(Outcome(judge, model, wording, raw, p_local, bool(needed)))
    return found


def log_loss(answers: Sequence[Outcome], evidence: Evidence) -> float:
    """Mean log loss after one map."""
    total = 0.0
    for answer in answers:
        p = evidence.step(answer.p_local, answer.raw)
        total -= math.log(p if answer.needed else 1 - p)
    return total / len(answers)


def fit_evidence(answers: Sequence[Outcome]) -> Evidence:
    """The map with the least log loss, pulled towards the prior one; deterministic."""
    prior = PRIOR
    binned: Counter[tuple[int, int, bool]] = Counter()
    for answer in answers:
        place = round(logit(answer.p_local) * BINS_PER_UNIT), round(logit(answer.raw) * BINS_PER_UNIT)
        binned[*place, answer.needed] += 1
    rows = [(a / BINS_PER_UNIT, b / BINS_PER_UNIT, needed, n) for (a, b, needed), n in sorted(binned.items())]
    raws = sorted(logit(answer.raw) for answer in answers)

    def cost(weight: float, typical: float, clip: float) -> float:
        pull = (weight - prior.weight) ** 2 + (typical - logit(prior.typical)) ** 2 + (clip - prior.clip) ** 2
        total = PULL * pull
        for z_local, z_raw, needed, count in rows:
            z = z_local + min(clip, max(-clip, weight * (z_raw - typical)))
            total += count * _softplus(-z if needed else z)
        return total

    typicals = sorted({logit(prior.typical), *[raws[int(place * (len(raws) - 1))] for place in PLACES]})
    best = min(product(WEIGHTS, typicals, CLIPS), key=lambda point: cost(*point))
    width = (0.5, 0.5, 0.5)
    for _ in range(ROUNDS):
        weights, places, clips = ((value - step, value, value + step) for value, step in zip(best, width, strict=True))
        points = [point for point in product(weights, places, clips) if point[0] >= 0 and 0 < point[2] <= CLIPS[-1]]
        best = min([best, *points], key=lambda point: cost(*point))
        width = (width[0] / 2, width[1] / 2, width[2] / 2)
    weight, typical, clip = best
    return Evidence(round(weight, 4), round(1 / (1 + math.exp(-typical)), 4), round(clip, 4))


def _softplus(z: float) -> float:
    """`log(1 + e^z)`: the log loss of a probability given by its log-odds."""
    return max(z, 0.0) + math.log1p(math.exp(-abs(z)))


def fit_calibrations(answers: Sequence[Outcome]) -> tuple[list[Calibration], list[str]]:
    """One map per judge, model and wording, and why others got none."""
    groups: dict[tuple[str, str, str], list[Outcome]] = defaultdict(list)
    for answer in answers:
        groups[answer[:3]].append(answer)
    fitted, refused = [], []
    for names, group in sorted(groups.items()):
        needed = sum(answer.needed for answer in group)
        if len(group) < FEWEST_ROWS or min(needed, len(group) - needed) < FEWEST_NEEDED:
            title = " / ".join(name or "any" for name in names)
            refused.append(f"{title}: {len(group)} answers, {needed} needed; at least {FEWEST_ROWS} answers with "
                           f"{FEWEST_NEEDED} needed and {FEWEST_NEEDED} not are wanted")  # fmt: skip
            continue
        evidence = fit_evidence(group)
        losses = log_loss(group, PRIOR), log_loss(group, evidence)
        fitted.append(Calibration(*names, evidence, len(group), needed, *losses))
    return fitted, refused


def reliability(pairs: Sequence[tuple[float, bool]], bins: int = 10) -> list[tuple[float, float, int]]:
    """Mean probability, share needed and rows in bins of equal mass, lowest first."""
    ordered = sorted(pairs)
    edges = [round(place * len(ordered) / bins) for place in range(bins + 1)]
    found = []
    for start, stop in pairwise(edges):
        part = ordered[start:stop]
        if part:
            found.append((sum(p for p, _ in part) / len(part), sum(was for _, was in part) / len(part), len(part)))
    return found
