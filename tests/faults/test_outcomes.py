"""Outcomes are told apart (A28 of the fault study)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import anyio
import pytest
from passing import NOTHING_MATTERS, compress, long_text

from jev_engine import ContextEngine, make_config
from jev_engine.errors import StoreError
from jev_engine.store.memory import MemoryStore
from jev_engine.testing import ScriptedJudge, assistant, call, history, result, user


def talk(share_of_text: float) -> list[dict[str, object]]:
    """A history of 100,000 characters, so much of it prose."""
    text = round(100_000 * share_of_text)
    return history(
        user("Go."), assistant(long_text("prose", text)), call("x"), result(long_text("a", 100_000 - text)),
        user("On."),
    )  # fmt: skip


def test_a_history_of_prose_is_not_worth_a_pass() -> None:
    """A28: 95 percent text; the outcome names the bar and the gain that was possible."""
    messages = talk(0.95)
    done = compress(messages, pin_newest_calls=0, min_freed_share=0.2)

    assert done.outcome == "not_worth_it"
    assert done.messages is messages
    assert "20%" in done.reason
    assert 0 < done.stats.best_gain_tokens < 0.1 * done.stats.tokens_before
    assert {d.action for d in done.decisions} == {"keep"}


@pytest.mark.parametrize("miss_cost", [7.0, 8.0])
@pytest.mark.parametrize("horizon_calls", [28.0, 30.0])
def test_a_pass_that_is_too_dear_says_how_many_calls_it_would_take(miss_cost: float, horizon_calls: float) -> None:
    """More than are expected to follow; the two parts make up the whole, and each names the setting behind it."""
    messages = json.loads((Path(__file__).parents[2] / "examples/parser_fix.json").read_text())
    config = make_config(miss_cost=miss_cost, horizon_calls=horizon_calls)
    done = anyio.run(ContextEngine(config=config).compress, messages)

    told = re.fullmatch(
        r"it would pay off after (\d+) more calls, (\d+) for the prompt cache that is written anew and (\d+) for"
        r" 0\.\d\d expected misses \(miss_cost\); only (\d+) are expected to follow \(horizon_calls\)",
        done.reason,
    )
    assert done.outcome == "not_worth_it"
    assert told is not None
    total, cache, misses, expected = map(int, told.groups())
    assert total == cache + misses > expected == horizon_calls
    assert min(cache, misses) > 0


def test_nothing_to_prune_says_what_the_best_gain_would_have_been() -> None:
    """A28: the judge wants everything kept."""
    messages = talk(0.1)
    done = compress(messages, lambda _: (1.0, 1.0), pin_newest_calls=0)

    assert done.outcome == "nothing_to_prune"
    assert done.messages is messages
    assert f"{done.stats.best_gain_tokens:,}" in done.reason


def test_saving_less_than_a_quarter_is_not_a_failure() -> None:
    """A28: committed or not worth it, but never `failed`."""
    outcomes = {compress(talk(0.85), pin_newest_calls=0, min_freed_share=bar).outcome for bar in (0.1, 0.24)}

    assert outcomes == {"committed", "not_worth_it"}


def test_a_full_window_that_cannot_be_emptied_is_over_capacity() -> None:
    """A28: everything that may go is out, and what is missing is named."""
    done = compress(talk(0.95), pin_newest_calls=0, options={"current_tokens": 199_000})

    assert done.outcome == "over_capacity"
    assert [d.action for d in done.decisions] == ["truncate"]
    assert "remain" in done.reason


def test_a_failing_store_is_a_failure_and_says_so() -> None:
    """A28: the input object comes back."""

    class Full(MemoryStore):
        async def save(self, originals: object) -> set[str]:
            raise StoreError("disk full")

    messages = talk(0.1)
    done = compress(messages, pin_newest_calls=0, engine={"store": Full()})

    assert done.outcome == "failed"
    assert done.messages is messages
    assert "disk full" in done.reason


@pytest.mark.parametrize("judge", [ScriptedJudge({}, fails=True), ScriptedJudge({})], ids=["fails", "says nothing"])
def test_a_judge_that_does_not_answer_is_no_failure(judge: ScriptedJudge) -> None:
    """A28: the local judge decides, or nothing goes; the stats say who failed."""
    done = compress(talk(0.1), judge=judge, pin_newest_calls=0)
    kept = compress(talk(0.1), judge=judge, profile="reference", pin_newest_messages=0)

    assert done.outcome == "committed"
    assert kept.outcome == "nothing_to_prune"
    assert len(done.stats.failures) == 1


def test_a_second_pass_right_after_finds_nothing_to_do() -> None:
    """A28: no loop of passes over the same history."""
    store = MemoryStore()
    first = compress(talk(0.1), pin_newest_calls=0, engine={"store": store})
    second = compress(first.messages, NOTHING_MATTERS, pin_newest_calls=0, engine={"store": store})

    assert first.outcome == "committed"
    assert second.outcome == "nothing_to_prune"
    assert second.messages is first.messages
