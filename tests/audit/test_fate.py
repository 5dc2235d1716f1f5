"""What becomes of a result in its host: taken up, discarded, or handed over to the host's own summariser."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from audit_trails import Hears, messages_of

from jev_engine import ContextEngine, events, make_config
from jev_engine.testing import ScriptedJudge


@pytest.fixture
def hears() -> Hears:
    return Hears()


def one_pass(hears: Hears, messages: list[Any], **options: Any) -> Any:
    config = make_config(min_freed_share=0.0, pin_newest_calls=1)
    engine = ContextEngine(config=config, judge=ScriptedJudge(lambda _: (0.9, 0.001)), sinks=[hears])
    done = anyio.run(lambda: engine.compress(messages, host="openai", force=True, **options))
    assert done.outcome == "committed"
    return done, engine


def settle(engine: Any) -> None:
    anyio.run(engine.sinks.flush)


def test_without_a_word_of_the_host_a_pass_is_committed_at_once(hears: Hears) -> None:
    done, engine = one_pass(hears, messages_of())
    done.fate.committed()
    done.fate.discarded("too late")
    settle(engine)

    assert hears.kinds().count("committed") == 1
    assert "discarded" not in hears.kinds()


def test_a_pass_that_waits_for_its_host_is_committed_when_the_host_says_so(hears: Hears) -> None:
    done, engine = one_pass(hears, messages_of(), waits_for_host=True)
    assert "committed" not in hears.kinds()

    done.fate.committed()
    done.fate.committed()
    settle(engine)

    assert hears.kinds()[-1] == "committed"
    assert hears.kinds().count("committed") == 1


def test_a_result_the_host_throws_away_is_told_as_discarded(hears: Hears) -> None:
    done, engine = one_pass(hears, messages_of(), waits_for_host=True)
    done.fate.discarded("the host ran out of patience")
    settle(engine)

    (told,) = [event for event in hears.events if isinstance(event, events.Discarded)]
    assert told.reason == "the host ran out of patience"
    assert told.freed_tokens == done.stats.freed_tokens


def test_a_result_made_from_another_history_is_told_as_discarded(hears: Hears) -> None:
    messages = messages_of()
    done, engine = one_pass(hears, messages, waits_for_host=True)
    assert done.onto(messages[1:]).outcome == "failed"
    settle(engine)

    assert hears.kinds()[-1] == "discarded"


def test_a_hand_over_belongs_to_its_pass(hears: Hears) -> None:
    done, engine = one_pass(hears, messages_of())
    done.fate.handed_over("ContextCompressor", messages=9, stored=9, tokens_before=5_000, tokens_after=900)
    settle(engine)

    told = hears.events[-1]
    assert isinstance(told, events.HandedOver)
    assert told.pass_id == hears.events[0].pass_id
    assert (told.messages, told.stored, told.tokens_after) == (9, 9, 900)
