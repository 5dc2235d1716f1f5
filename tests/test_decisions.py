"""Answers become decisions: thresholds, the price of `worth`, missing answers, guards, evidence."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from passing import long_text

from jev_engine.answers import Evidence, Probability, RawAnswer
from jev_engine.config import EngineConfig, make_config
from jev_engine.decisions import Decision, decide, price_of, weigh
from jev_engine.ledger import Ledger, assign_keys
from jev_engine.sizes import measure
from jev_engine.testing import call, result, transcript_of, user
from jev_engine.transcript import ToolCall

THRESHOLD = make_config(policy="threshold", keep_result=0.5, keep_call=0.3, guards=False)
CHANCE = st.floats(0, 1)


def units(*sizes: int) -> list[ToolCall]:
    rows = [row for n, size in enumerate(sizes) for row in (call("read", n=n), result(long_text(str(n), size)))]
    transcript = transcript_of(user("Go."), *rows)
    assign_keys(transcript, Ledger())
    measure(transcript)
    return transcript.calls


def decided(
    made: list[ToolCall], answers: list[tuple[float, float]], config: EngineConfig, **options: Any
) -> list[Decision]:
    believed = {c.key: Probability(*answer, "judge", None) for c, answer in zip(made, answers, strict=True)}
    return decide(made, believed, config, **{"shorten_only": frozenset(), **options})


@pytest.mark.parametrize(
    ("p_call", "p_result", "action"),
    [
        (0.0, 0.5, "keep"),
        (1.0, 0.49, "truncate"),
        (0.3, 0.0, "truncate"),
        (0.29, 0.0, "remove"),
        (0.0, 1.0, "keep"),
    ],
)
def test_two_thresholds_make_three_actions(p_call: float, p_result: float, action: str) -> None:
    """The border belongs to keeping."""
    (decision,) = decided(units(900), [(p_call, p_result)], THRESHOLD)

    assert decision.action == action


def test_a_unit_that_may_not_go_is_shortened_and_says_so() -> None:
    """Where the adapter cannot delete, or the turn has text."""
    made = units(900)
    (decision,) = decided(made, [(0.0, 0.0)], THRESHOLD, shorten_only={1})

    assert decision.action == "truncate"
    assert "without trace" in decision.reason


def test_a_unit_nobody_answered_for_is_kept() -> None:
    """The rule for missing answers."""
    for config in (THRESHOLD, EngineConfig()):
        (decision,) = decide(units(9_000), {}, config, shorten_only=frozenset())

        assert (decision.action, decision.reason) == ("keep", "no answer")


@given(CHANCE, st.integers(1, 50_000), st.integers(1, 50_000))
def test_a_price_grows_with_need_and_falls_with_what_is_freed(p: float, tokens: int, freed: int) -> None:
    """Loss over gain, in model calls saved and lost."""
    config = EngineConfig()
    price = price_of(p, tokens, freed, config)

    assert price >= 0
    assert price_of(min(1.0, p + 0.1), tokens, freed, config) >= price
    assert price_of(p, tokens, freed + 100, config) <= price
    assert price_of(p, tokens, freed, make_config(miss_cost=10)) >= price


def test_what_frees_nothing_has_no_price() -> None:
    """It never goes, whatever the target."""
    assert price_of(0.0, 10, 0, EngineConfig()) == math.inf


def test_worth_takes_in_order_of_need_per_token_up_to_the_price() -> None:
    """A large unit of small need goes, a small one of the same need stays; calls always stay."""
    made = units(60_000, 600, 60_000)
    answers = [(0.0, 0.005), (0.0, 0.3), (0.0, 0.99)]

    assert [d.action for d in decided(made, answers, EngineConfig())] == ["truncate", "keep", "keep"]


def test_a_miss_that_costs_more_keeps_more() -> None:
    """The user's one knob."""
    made = units(*[6_000] * 8)
    answers = [(1.0, p) for p in (0.001, 0.004, 0.01, 0.02, 0.05, 0.1, 0.3, 0.9)]
    kept = [
        sum(d.action == "keep" for d in decided(made, answers, make_config(miss_cost=cost)))
        for cost in (0, 1, 5, 20, 500)
    ]

    assert kept == sorted(kept)
    assert kept[0] < kept[-1]


def test_a_target_raises_the_price_in_the_same_order() -> None:
    """Beyond the settings' price only as far as the target asks, least need per token first."""
    made = units(*[20_000] * 4)
    answers = [(1.0, p) for p in (0.9, 0.3, 0.6, 0.8)]
    freed = made[0].tokens
    for wanted, expected in ((0, []), (1, ["t2"]), (freed + 1, ["t2", "t3"]), (10**9, ["t1", "t2", "t3", "t4"])):
        out = [d for d in decided(made, answers, EngineConfig(), target_free_tokens=wanted) if d.action != "keep"]

        assert [d.label for d in out] == expected
        assert {d.reason for d in out} <= {"taken to reach the target"}


def test_equal_prices_fall_to_the_oldest() -> None:
    """The order depends on nothing but input and answers."""
    made = units(*[20_000] * 3)
    out = decided(made, [(1.0, 0.5)] * 3, EngineConfig(), target_free_tokens=1)

    assert [d.action for d in out] == ["truncate", "keep", "keep"]


@pytest.mark.parametrize(("share", "actions"), [(0.5, {"truncate"}), (0.8, {"remove", "truncate"})])
def test_no_pass_removes_more_than_its_share(share: float, actions: set[str]) -> None:
    """The guard turns all removals into shortenings, not some."""
    config = make_config(policy="threshold", max_removed_share=share)
    out = decided(units(*[900] * 4), [(0.0, 0.0)] * 3 + [(1.0, 0.0)], config)

    assert {d.action for d in out} == actions


# --- weighing -------------------------------------------------------------------------------------------------------


def weighed(answers: Any, local: Any, **options: Any) -> Any:
    made = units(*[900] * len(answers))
    settings = {
        "is_calibrated": False,
        "evidence": Evidence(),
        "local_decides": True,
        "config": EngineConfig(),
        **options,
    }
    raw = {c.key: RawAnswer(*a) for c, a in zip(made, answers, strict=True) if a is not None}
    mine = {c.key: RawAnswer(*a) for c, a in zip(made, local, strict=True) if a is not None}
    believed, warning = weigh(made, raw, mine, **settings)
    return [believed.get(c.key) for c in made], warning


def test_a_calibrated_judge_is_taken_at_its_word() -> None:
    """Whatever the local judge says."""
    ((believed,), _) = weighed([(0.2, 0.9)], [(1.0, 0.01)], is_calibrated=True)

    assert believed[:3] == (0.2, 0.9, "judge")


@given(CHANCE, CHANCE)
def test_an_uncalibrated_answer_moves_the_local_one_by_a_bounded_step(p_local: float, raw: float) -> None:
    """Odds change at most 4.5 times either way, and in the direction of the answer."""
    believed = Evidence().step(p_local, raw)
    local = min(1 - 1e-6, max(1e-6, p_local))
    odds = (believed / (1 - believed)) / (local / (1 - local))

    assert 1 / 4.6 < odds < 4.6
    assert (odds >= 0.999) == (raw >= 0.15 or math.isclose(odds, 1.0, rel_tol=1e-3))


@pytest.mark.parametrize("answer", [math.nan, math.inf, -0.1, 1.3, None])
@pytest.mark.parametrize("policy", ["worth", "threshold"])
def test_an_answer_that_is_no_probability_counts_as_missing(answer: Any, policy: str) -> None:
    """A NaN compared with a threshold would read as "drop"."""
    config = make_config(policy=policy)
    for is_calibrated in (True, False):
        options = {"is_calibrated": is_calibrated, "config": config, "local_decides": False}
        ((believed,), _) = weighed([(0.0, answer)], [None], **options)
        ((by_call,), _) = weighed([(answer, 0.0)], [None], **options)

        assert believed is None
        assert by_call[:2] == (1.0, 0.0)


def test_a_missing_answer_is_the_local_judges_or_nobodys() -> None:
    """As the setting `undecided` says."""
    ((mine,), _) = weighed([None], [(1.0, 0.2)])
    ((nobody,), _) = weighed([None], [(1.0, 0.2)], local_decides=False)

    assert mine[:3] == (1.0, 0.2, "local")
    assert nobody is None


def test_answers_without_spread_are_no_signal() -> None:
    """Twenty units within 0.02 of each other: the local judge decides alone, and the pass warns."""
    flat = [(0.5, 0.15 + 0.0005 * n) for n in range(20)]
    believed, warning = weighed(flat, [(1.0, 0.3)] * 20)
    few, no_warning = weighed(flat[:19], [(1.0, 0.3)] * 19)

    assert {b.source for b in believed} == {"local"}
    assert "no signal" in warning
    assert {b.source for b in few} == {"judge+local"}
    assert no_warning is None
