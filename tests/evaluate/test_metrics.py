"""Measures of a judge and of policies, on numbers small enough to check by hand."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy", reason="NOT CHECKED: metrics need the evaluate extra")

from jev_engine.evaluate.hindsight import Evidence  # noqa: E402  # behind the skip
from jev_engine.evaluate.metrics import (  # noqa: E402  # behind the skip
    Cut,
    at_budget,
    auc,
    average_precision,
    brier,
    ece,
    keep_last,
    match_keep_last,
    outcome_of,
    resample,
    score,
    spend_budget,
)  # fmt: skip


def cut(chars, evidence=(), needed=(), context=10_000, session="s"):
    flags = np.zeros(len(chars), bool)
    flags[list(needed)] = True
    return Cut((session, "p", "h", 0, 1), np.array(chars), flags, context, list(evidence))


def removing(count, *units):
    flags = np.zeros(count, bool)
    flags[list(units)] = True
    return flags


def test_auc_counts_pairs_in_the_right_order():
    labels = np.array([True, False, True, False])

    assert auc(labels, np.array([0.9, 0.1, 0.4, 0.6])) == pytest.approx(0.75)
    assert auc(labels, np.array([0.5, 0.5, 0.5, 0.5])) == pytest.approx(0.5)


def test_auc_with_weights_equals_auc_of_repeated_rows():
    labels, scores = np.array([True, False, True]), np.array([0.3, 0.5, 0.8])

    assert auc(labels, scores, np.array([2.0, 1.0, 1.0])) == pytest.approx(
        auc(labels[[0, 0, 1, 2]], scores[[0, 0, 1, 2]])
    )


def test_average_precision_is_the_mean_precision_at_hits():
    assert average_precision(np.array([True, False, True]), np.array([0.9, 0.5, 0.1])) == pytest.approx((1 + 2 / 3) / 2)


def test_brier_is_the_mean_squared_error():
    assert brier(np.array([True, False]), np.array([0.8, 0.4])) == pytest.approx((0.04 + 0.16) / 2)


def test_ece_is_zero_for_calibrated_probabilities():
    labels = np.array([True] * 2 + [False] * 8)

    assert ece(labels, np.full(10, 0.2), bins=1) == pytest.approx(0.0)
    assert ece(labels, np.full(10, 0.5), bins=1) == pytest.approx(0.3)


def test_an_atom_is_lost_only_when_all_its_holders_are_gone():
    """Joint drops: copies are free."""
    evidence = [Evidence(1, (0, 1), 9, 2, b"x")]
    two = cut([500, 500], evidence)

    assert not two.missed(removing(2, 1)).any()
    assert two.missed(removing(2, 0, 1)).tolist() == [False, True]


def test_a_miss_takes_two_points_in_one_message():
    evidence = [Evidence(0, (0,), 9, 1, b"x"), Evidence(0, (0,), 12, 1, b"y")]

    assert not cut([500], evidence).missed(removing(1, 0)).any()
    assert cut([500], [*evidence, Evidence(0, (0,), 9, 1, b"z")]).missed(removing(1, 0)).all()


def test_a_result_shorter_than_its_marker_is_not_removed():
    outcome = outcome_of(cut([50, 1_080]), removing(2, 0, 1))

    assert outcome.removed == 1
    assert outcome.freed == pytest.approx(0.1)


def test_keep_last_removes_all_older_ones():
    assert keep_last(cut([500] * 5), 3).tolist() == [True, True, False, False, False]


def test_a_budget_is_spent_on_the_cheapest_characters_first():
    """In order of P per character, never on the newest three."""
    probabilities = np.array([0.2, 0.2, 0.01, 0.0, 0.0, 0.0])
    removed = spend_budget(cut([1_000, 4_000, 500, 500, 500, 500]), probabilities, 0.25)

    assert removed.tolist() == [False, True, True, False, False, False]


def test_a_budget_reports_expected_and_actual_misses():
    evidence = [Evidence(0, (0,), 9, 2, b"x")]
    found = at_budget([cut([1_000, 500, 500, 500], evidence, [0])], [np.array([0.4, 0.0, 0.0, 0.0])], 0.5, times=5)

    assert found.predicted == pytest.approx(0.4)
    assert found.actual == 1.0
    assert found.any_miss == 1.0


def test_a_perfect_judge_misses_nothing_at_equal_freed():
    evidence = [Evidence(0, (0,), 9, 2, b"x")]
    cuts = [cut([900] * 20, evidence, [0], session=name) for name in "abcd"]
    matched = match_keep_last(cuts, [np.where(each.needed, 0.9, 0.01) for each in cuts], count=10, times=20)

    assert matched.baseline == 1.0
    assert matched.fewer == 1.0


def test_resampling_counts_whole_sessions():
    drawn = list(resample(["a", "a", "b"], 20, seed=1))

    assert len(drawn) == 20
    for weights in drawn:
        assert weights[0] == weights[1]
        assert weights[0] + weights[2] == 2


def test_scores_come_with_their_intervals():
    random = np.random.default_rng(0)
    p = random.uniform(0, 0.5, 400)
    found = score(random.uniform(0, 1, 400) < p, p, [str(i % 20) for i in range(400)], times=30)

    for point, low, high in (found.auc, found.ap, found.brier, found.ece, found.ratio):
        assert low <= high
        assert np.isfinite(point)
    assert found.rows == 400
