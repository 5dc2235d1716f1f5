"""The judge's model: the mean log-odds of a few small boosters and one logistic regression.

Trees find the corners, the logistic keeps its head outside the training projects; each booster sees other columns.
Needs numpy and lightgbm (the `train` extra). What is fitted here is written out by `weights_source` as plain Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jev_engine.judges.features import FEATURES

__all__ = ["BLEND", "LEAF_STEPS", "LINEAR_LIMIT", "NOT_ZERO", "PLAIN", "Blend", "Linear", "Member", "Tree", "fit_blend"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

LINEAR_RIDGE = 3.0
"""Pull of the logistic's coefficients towards 0 on standardised columns."""
LINEAR_LIMIT = (-9.0, 3.0)
"""Log-odds of the logistic stay in here: a straight line outside its training data knows no bounds."""
NEWTON_STEPS = 30
"""At most; fitting ends when a step moves no coefficient by 1e-8."""
TYPICAL_CHARS = 3_000
"""A result of this size weighs 1; the median read has 2,700 characters."""
SIZE_WEIGHTS = (0.3, 3.0)
"""Least and largest weight by size."""
LEAF_STEPS = 250
"""Leaves are whole numbers of 1 / 250: a sum of 50 is off by 0.01 log-odds, and the module shrinks by a tenth."""
MOVED_SHARE = 0.001
"""Share of the training rows that may change sides where a limit is written with fewer digits."""
NOT_ZERO = 1e-9
"""The limit that parts 0 from every other value of a column without negative ones."""


class Member(NamedTuple):
    """One part of the blend."""

    name: str
    columns: tuple[str, ...]
    trees: int
    """0 for the logistic."""
    leaves: int
    rate: float
    share: float
    """Its weight in the mean."""
    by_size: bool
    """Whether large results weigh more in its training."""
    options: tuple[tuple[str, Any], ...] = ()
    """Further settings of lightgbm."""


_BASE = FEATURES[: FEATURES.index("reuse")]
_STYLE = FEATURES[FEATURES.index("reuse") : FEATURES.index("rank_chars")]
# Turns hold one call in one harness and six in another: an age in turns does not carry over to unseen projects.
_NO_TURNS = tuple(name for name in _BASE if name != "age_turns")
# What kind of file it is says more about the project than about the result.
_NO_FILE_TYPE = tuple(name for name in _NO_TURNS if name not in ("partial", "is_code", "is_test", "is_doc"))
_RANDOM_SPLITS = (("extra_trees", True), ("colsample_bytree", 0.3))
_SIMPLE = ("age", "chars", *[name for name in FEATURES if name.startswith("kind_") and name != "kind_share"])
# How long and how busy the session is says more about the harness than about the result.
_NO_SESSION = tuple(
    name
    for name in _BASE
    if name not in ("age_share", "age_turns", "age_users", "units", "edits", "edits_10", "reads_10", "context",
                    "same_kind_after", "written_10")
)  # fmt: skip

BLEND = (
    Member("style", (*_NO_TURNS, *_STYLE), 50, 16, 0.1, 2, by_size=True, options=_RANDOM_SPLITS),
    Member("style, all sizes alike", (*_BASE, *_STYLE), 50, 16, 0.1, 1, by_size=False, options=_RANDOM_SPLITS),
    Member("quoted", (*_NO_FILE_TYPE, "quoted"), 50, 16, 0.1, 2, by_size=False, options=_RANDOM_SPLITS),
    Member("without the session", _NO_SESSION, 90, 8, 0.1, 1, by_size=True, options=_RANDOM_SPLITS),
    Member("linear", _BASE, 0, 0, 0.0, 1, by_size=True),
)
"""What ships; how it was chosen is told in docs/training-report.md."""
PLAIN = (Member("age, size and kind", _SIMPLE, 100, 15, 0.05, 1, by_size=False),)
"""The judge of age, size and kind alone, to compare with."""


class Tree(NamedTuple):
    """A split, or a leaf where there are no branches."""

    column: int
    limit: float
    """Rows with a smaller value go `low`."""
    low: Tree | None
    high: Tree | None
    value: float
    """Of a leaf: log-odds in whole steps of `1 / LEAF_STEPS`."""

    def log_odds(self, features: Floats) -> Floats:
        """The value of the leaf that each row falls into, in steps."""
        if self.low is None or self.high is None:
            return np.full(len(features), self.value)
        is_low = features[:, self.column] < self.limit
        found = np.empty(len(features))
        found[is_low] = self.low.log_odds(features[is_low])
        found[~is_low] = self.high.log_odds(features[~is_low])
        return found


class Linear(NamedTuple):
    """A fitted logistic regression on raw columns: `bias + sum(weights * row)`."""

    bias: float
    weights: Floats
    """One per column of `FEATURES`, 0 where unused."""


class Blend:
    """A fitted blend, rounded as it is written out: what is measured is what ships."""

    __slots__ = ("forests", "linears", "members")

    def __init__(self, members: Sequence[Member], forests: list[list[Tree]], linears: list[Linear]) -> None:
        self.members = members
        self.forests = forests
        """The trees of each booster, with columns of `FEATURES`."""
        self.linears = linears

    def log_odds(self, features: Floats) -> Floats:
        """Weighted mean of the log-odds of the parts."""
        parts = [np.sum([tree.log_odds(features) for tree in trees], 0) / LEAF_STEPS for trees in self.forests]
        parts += [np.clip(features @ linear.weights + linear.bias, *LINEAR_LIMIT) for linear in self.linears]
        return np.asarray(np.average(parts, axis=0, weights=self.shares()), np.float64)

    def shares(self) -> list[float]:
        """Weights of the parts in the mean: boosters first, then logistics."""
        trees = [member.share for member in self.members if member.trees]
        return trees + [member.share for member in self.members if not member.trees]


def _rounded(node: dict[str, Any], columns: Sequence[int], values: Sequence[Floats]) -> Tree:
    """A tree of lightgbm with short numbers; `values` are the sorted values of each of its columns."""
    if "leaf_value" in node:
        return Tree(-1, 0.0, None, None, float(round(node["leaf_value"] * LEAF_STEPS)))
    low, high = (_rounded(node[side], columns, values) for side in ("left_child", "right_child"))
    if low.low is None and high.low is None and low.value == high.value:
        return low
    place = node["split_feature"]
    return Tree(columns[place], _short_limit(node["threshold"], values[place]), low, high, 0.0)


def _short_limit(threshold: float, values: Floats) -> float:
    """The limit with the fewest digits that puts all but a few rows on the side where `value <= threshold` put them."""
    below = np.searchsorted(values, threshold, side="right")
    if values[0] >= 0 and np.searchsorted(values, 0.0, side="right") == below:
        return NOT_ZERO
    limit = threshold
    for digits in range(1, 6):
        limit = float(f"{threshold:.{digits}g}")
        if abs(int(np.searchsorted(values, limit)) - int(below)) <= MOVED_SHARE * len(values):
            break
    return limit


def size_weights(features: Floats) -> Floats:
    """Weight of each row by the size of its result: what is freed lies in large results, and so do the misses."""
    chars = np.expm1(features[:, FEATURES.index("chars")])
    return np.clip((chars / TYPICAL_CHARS) ** 0.5, *SIZE_WEIGHTS)


def fit_blend(features: Floats, needed: Flags, weights: Floats, seed: int, members: Sequence[Member] = BLEND) -> Blend:
    """Fit all parts; the same data and seed give the same blend."""
    forests, linears = [], []
    by_size = weights * size_weights(features)
    for member in members:
        columns = [FEATURES.index(name) for name in member.columns]
        weighed = by_size if member.by_size else weights
        if member.trees:
            booster = _fit_booster(features[:, columns], needed, weighed, seed, member)
            values = [np.sort(features[:, column]) for column in columns]
            trees = booster.dump_model()["tree_info"]
            forests.append([_rounded(each["tree_structure"], columns, values) for each in trees])
        else:
            linears.append(_fit_linear(features, columns, needed, weighed))
    return Blend(members, forests, linears)


def _fit_booster(features: Floats, needed: Flags, weights: Floats, seed: int, member: Member) -> Any:
    import lightgbm  # noqa: PLC0415  # only training needs it

    settings = {
        "objective": "binary",
        "num_leaves": member.leaves,
        "learning_rate": member.rate,
        # Strongly held back: there are nine projects only, and half of the rows come from one.
        "min_child_samples": 100,
        "reg_lambda": 5.0,
        "colsample_bytree": 0.7,
        "subsample": 0.8,
        "subsample_freq": 1,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "seed": seed,
        "verbose": -1,
        **dict(member.options),
    }
    data = lightgbm.Dataset(features, needed.astype(np.float64), weight=weights, free_raw_data=True)
    return lightgbm.train(settings, data, member.trees)


def _fit_linear(features: Floats, columns: Sequence[int], needed: Flags, weights: Floats) -> Linear:
    """Ridge logistic regression by Newton's method on standardised columns."""
    chosen = features[:, columns]
    mean, spread = chosen.mean(0), chosen.std(0)
    spread[spread == 0] = 1.0
    design = np.column_stack([np.ones(len(chosen)), (chosen - mean) / spread])
    ridge = np.full(design.shape[1], LINEAR_RIDGE)
    ridge[0] = 1e-9  # the intercept is free
    beta = np.zeros(design.shape[1])
    for _ in range(NEWTON_STEPS):
        p = 1 / (1 + np.exp(-np.clip(design @ beta, -30, 30)))
        gradient = design.T @ (weights * (p - needed)) + ridge * beta
        curve = (design * (weights * p * (1 - p))[:, None]).T @ design + np.diag(ridge)
        step = np.linalg.solve(curve, gradient)
        beta -= step
        if np.abs(step).max() < 1e-8:
            break
    full = np.zeros(len(FEATURES))
    full[list(columns)] = beta[1:] / spread
    return Linear(float(beta[0] - (beta[1:] * mean / spread).sum()), full)
