"""Token estimates: the honest rule, its samples, and the correction by reported usage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import texts

from jev_engine.sizes import measure
from jev_engine.testing import call, result, transcript_of, user
from jev_engine.tokens import UsageCorrection, cost, estimate_tokens, reference_tokens, sample_cost, sample_tokens


@given(texts)
def test_the_honest_rule_never_counts_less_than_one_token_per_cjk_sign(text: str) -> None:
    """Whatever stands around them."""
    signs = sum("\u3000" <= sign <= "\uffff" and not "\ud800" <= sign <= "\udfff" for sign in text)

    assert estimate_tokens(text) >= signs


@given(st.lists(texts, max_size=5))
def test_parts_never_cost_less_than_the_whole_by_more_than_a_word(parts: list[str]) -> None:
    """States are summed up from parts: a sum may be high, a little low only where a word was cut."""
    assert sum(cost(part) for part in parts) >= cost("".join(parts)) - 20 * len(parts) - 320


@given(texts)
def test_both_rules_take_any_text(text: str) -> None:
    """Half characters and control characters included; nothing costs less than nothing."""
    assert reference_tokens(text) >= 0
    assert sample_tokens(text) >= 0
    assert (estimate_tokens(text) == 0) == (not text.strip(" \t\n\x0b\x0c\r\x1c\x1d\x1e\x1f"))


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"def parse_{n}(path):\n    return open(path, {n}).read()\n" for n in range(400)),
        "The quick brown fox. " * 600,
    ],
    ids=["code", "prose"],
)
def test_a_sample_comes_close_to_the_exact_estimate(text: str) -> None:
    """For ordinary texts, at the same work for any length."""
    assert 0.75 <= sample_cost(text) / cost(text) <= 1.35


@pytest.mark.parametrize("width", [10, 40, 79, 80, 81, 82, 120, 160, 163])
def test_a_table_of_any_width_is_not_taken_for_one_of_its_columns(width: int) -> None:
    """Rows as long as the distance of the sampled signs."""
    for row in (" " * (width // 2) + "words of it" * 20, "words of it" * 20 + " " * (width // 2)):
        text = (row[: width - 1] + "\n") * (32_000 // width)

        assert 0.4 <= sample_cost(text) / max(1, cost(text)) <= 3


def test_dense_runs_of_words_and_rulers_are_no_dense_runs() -> None:
    """Half a token a sign is for hex and base64, not for a long lower-case word."""
    assert estimate_tokens("a" * 64) == 11
    assert estimate_tokens("0123456789abcdef" * 4) == 32


@pytest.mark.parametrize("text", ["x", ".", "1", "go", "数"])
def test_a_session_of_one_short_word_is_not_without_tokens(text: str) -> None:
    """None at all would read as a session that is not there."""
    assert measure(transcript_of(user(text))).total_tokens == 1
    assert measure(transcript_of(user(""))).total_tokens == 0


def test_images_cost_a_flat_amount() -> None:
    """As part of the history's size."""
    transcript = transcript_of(user("x"), call("screenshot"), result("short"))
    plain = measure(transcript).total_tokens
    transcript.calls[0].images = 2
    transcript.entries[0].images = 1

    assert measure(transcript).total_tokens - plain == 3 * 1_600


def test_a_counter_of_the_host_replaces_estimates() -> None:
    """Results are then counted by it, each on its own."""
    transcript = transcript_of(user("x"), call("read"), result("y" * 900))
    measure(transcript, counter=len)

    assert transcript.calls[0].tokens == 900


def test_usage_corrects_estimates() -> None:
    """By the factor between what was estimated and what was billed."""
    correction = UsageCorrection()
    correction.report(estimated_tokens=1_000, reported_tokens=1_300)

    assert correction.apply(10_000) == 13_000


@pytest.mark.parametrize(("estimated", "reported"), [(0, 100), (100, 0), (-5, 100), (100, 1_000), (1_000, 100)])
def test_nonsense_corrects_nothing(estimated: int, reported: int) -> None:
    """Numbers that cannot describe the same history are ignored."""
    correction = UsageCorrection()
    correction.report(estimated_tokens=estimated, reported_tokens=reported)

    assert correction.apply(500) == 500
