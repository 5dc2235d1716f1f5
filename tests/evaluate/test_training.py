"""Training: the module that is written says what the fitted model says, and the same seed gives the same module."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy", reason="NOT CHECKED: training needs the train extra")
pytest.importorskip("lightgbm", reason="NOT CHECKED: training needs the train extra")

from jev_engine.evaluate.folds import Folds, load_folds, save_folds  # noqa: E402  # behind the skip
from jev_engine.evaluate.generate import weights_source  # noqa: E402  # behind the skip
from jev_engine.evaluate.model import (  # noqa: E402  # behind the skip
    BLEND,
    LEAF_STEPS,
    _fit_booster,
    fit_blend,
    size_weights,
)
from jev_engine.evaluate.vocabulary import (  # noqa: E402  # behind the skip
    Vocabulary,
    hash_token,
    load_vocabulary,
    save_vocabulary,
)  # fmt: skip
from jev_engine.judges.features import FEATURES  # noqa: E402  # behind the skip


@pytest.fixture(scope="module")
def drawn():
    """Rows in which size and age decide."""
    random = np.random.default_rng(0)
    features = random.gamma(2.0, 2.0, (4_000, len(FEATURES)))
    odds = features[:, FEATURES.index("chars")] - 0.5 * features[:, FEATURES.index("age")] - 4
    return features, random.uniform(size=4_000) < 1 / (1 + np.exp(-odds))


@pytest.fixture(scope="module")
def blend(drawn):
    features, needed = drawn
    return fit_blend(features, needed, np.ones(len(needed)), seed=1)


def module_of(blend):
    space = {}
    exec(weights_source(blend, "v", "test"), space)  # noqa: S102  # the generated module is what is tested
    return space["log_odds"]


def test_the_written_module_says_what_the_model_says(drawn, blend):
    """Everywhere, and at the limits of its splits too: the blend is rounded as it is written."""
    features, _ = drawn
    rows = features[:1_000].copy()
    rows[:500] = np.round(rows[:500])
    rows[:100] = 0
    log_odds = module_of(blend)
    written = np.array([log_odds(row) for row in rows.tolist()])

    assert np.abs(written - blend.log_odds(rows)).max() < 0.001


def test_the_shipped_module_is_what_its_blend_would_be_written_as(root):
    """Its header names the command, and its trees are sums of whole steps."""
    source = (root / "jev_engine" / "judges" / "weights.py").read_text(encoding="utf-8")

    assert "python -m jev_engine.evaluate.train" in source
    assert f"/ {LEAF_STEPS}" in source


def test_rounding_moves_the_fitted_boosters_little(drawn):
    """Whole steps in the leaves and short limits: under 0.03 log-odds for nine rows in ten."""
    features, needed = drawn
    member = BLEND[0]
    columns = [FEATURES.index(name) for name in member.columns]
    weights = size_weights(features)
    rounded = fit_blend(features, needed, np.ones(len(needed)), 1, [member]).log_odds(features)
    exact = _fit_booster(features[:, columns], needed, weights, 1, member).predict(features[:, columns], raw_score=True)

    assert np.quantile(np.abs(rounded - exact), 0.9) < 0.03


def test_the_model_learns(drawn, blend):
    features, needed = drawn
    log_odds = blend.log_odds(features)

    assert log_odds[needed].mean() > log_odds[~needed].mean() + 1


def test_the_same_seed_writes_the_same_module(drawn, blend):
    features, needed = drawn
    again = fit_blend(features, needed, np.ones(len(needed)), seed=1)

    assert weights_source(again, "v", "test") == weights_source(blend, "v", "test")


def test_fold_predictions_survive_being_stored(tmp_path):
    folds = Folds(
        "abc", "h2", np.array(["one", "two"]), np.array([0, 1], np.int16), np.array([20, 30], np.int32),
        np.array([0, 2, 3]), np.array([1, 2, 1], np.int32), np.array([-3.2, 0.5, -7.1]),
    )  # fmt: skip
    save_folds(folds, tmp_path / "folds.npz")
    back = load_folds(tmp_path / "folds.npz")

    assert (back.corpus, back.label) == ("abc", "h2")
    assert back.by_place()["one", 0, 20] == pytest.approx({1: -3.2, 2: 0.5}, abs=0.001)
    assert back.by_place()["two", 1, 30] == pytest.approx({1: -7.1}, abs=0.001)


def test_shipped_fold_predictions_are_there():
    folds = load_folds()

    assert len(folds.number) == len(folds.log_odds) == folds.starts[-1]


def test_a_vocabulary_is_stored_as_hashes(tmp_path):
    """And no text of anybody's session."""
    save_vocabulary(Vocabulary(frozenset(map(hash_token, [b"common_name", b"other_name"])), {}), tmp_path / "v.bin")
    back = load_vocabulary(tmp_path / "v.bin")

    assert b"common" not in (tmp_path / "v.bin").read_bytes()
    assert back.of_project("any")(b"common_name")
    assert not back.of_project("any")(b"rare_name")


def test_vocabularies_add_up():
    one = Vocabulary(frozenset(), {"p": frozenset([hash_token(b"in_project")])})
    both = one | load_vocabulary()

    assert both.of_project("p")(b"in_project")
    assert not both.of_project("q")(b"in_project")
    assert both.common
