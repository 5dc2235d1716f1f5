"""Answers that were paid for: asked once under one goal, and what counts as another answer."""

from __future__ import annotations

import asyncio

from jev_engine.answers import RawAnswer
from jev_engine.config import make_config
from jev_engine.engine import ContextEngine
from jev_engine.judges.asked import AskedJudge
from jev_engine.judges.paid import DEAD_BAND, PaidAnswers
from jev_engine.questions import WORDING
from jev_engine.sessions import Session
from jev_engine.testing import ScriptedAsker, ScriptedJudge, call, history, result, user
from jev_engine.testing.transcripts import Message

TEXT = "def step(row): return row\n" * 60
WINDOW = 60_000


def unit(number: int) -> list[Message]:
    return [
        call("read", call_id=f"c{number}", path=f"src/{number}.py"),
        result(f"{number}\n{TEXT}", call_id=f"c{number}"),
    ]


def answer(name: str, _question: object, _state: object) -> float:
    """Calls matter; every third result is needed."""
    kind, _, number = name.partition("_t")
    return 0.9 if kind == "call" or int(number) % 3 == 0 else 0.02


def session_with(asker: ScriptedAsker, **settings: object) -> Session:
    engine = ContextEngine(judge=AskedJudge(asker), config=make_config(window_tokens=WINDOW, **settings))
    return Session(engine, "ours")


def thirty_units() -> tuple[ScriptedAsker, Session, list[Message]]:
    """A session whose asker needs everything, and a history for it."""
    asker = ScriptedAsker(lambda *_: 0.9)
    messages = history(user("Port the importer."), *[row for number in range(30) for row in unit(number)])
    return asker, session_with(asker), messages


def asked_results(asker: ScriptedAsker, since: int = 0) -> int:
    return sum(name.startswith("result_") for _, questions in asker.requests[since:] for name in questions)


def test_a_thousand_calls_and_ten_passes_ask_about_each_unit_once():
    """Questions stay within a tenth above the units that were ever candidates."""
    asker = ScriptedAsker(answer)
    session = session_with(asker, min_freed_share=0.0)
    messages: list[Message] = [user("Port the importer.")]
    candidates: set[str] = set()
    changed = 0
    for _ in range(10):
        made = (len(messages) - 1) // 2
        for number in range(made, made + 100):
            messages += unit(number)
        done = asyncio.run(session.compress(messages, force=True))
        candidates.update(decision.call.key for decision in done.decisions)
        changed += done.messages is not messages
        messages = list(done.messages)

    assert changed == 10
    assert len(candidates) > 900
    assert asked_results(asker) <= 1.1 * len(candidates)


def test_what_was_answered_is_not_asked_again_under_the_same_goal():
    """A second pass over the same history asks nothing and says how many answers it remembered."""
    asker, session, messages = thirty_units()
    first = asyncio.run(session.compress(messages))
    asked = len(asker.requests)
    second = asyncio.run(session.compress(messages))

    assert asked > 0
    assert len(asker.requests) == asked
    assert second.stats.remembered == len(first.decisions)


def test_another_goal_asks_again():
    """What matters depends on what the session is about."""
    asker, session, messages = thirty_units()
    asyncio.run(session.compress(messages))
    asked = len(asker.requests)
    asyncio.run(session.compress(messages, goal="Write the manual."))

    assert asked_results(asker, asked) == asked_results(asker) - asked_results(asker, asked) > 0


def test_another_wording_or_model_asks_again():
    """Answers are kept under the version of the judge."""
    asker, session, messages = thirty_units()
    asyncio.run(session.compress(messages))
    asked = len(asker.requests)
    session.engine.judge = AskedJudge(asker, wording=WORDING._replace(version="of tomorrow"))
    asyncio.run(session.compress(messages))

    assert len(asker.requests) > asked


def test_answers_of_a_calibrated_judge_are_never_kept():
    """They cost nothing and change with age."""
    judge = ScriptedJudge(lambda _: (0.9, 0.9), is_calibrated=True)
    session = Session(ContextEngine(judge=judge, config=make_config(window_tokens=WINDOW)), "ours")
    messages = history(user("Port the importer."), *[row for number in range(30) for row in unit(number)])
    asyncio.run(session.compress(messages))
    asyncio.run(session.compress(messages))

    assert judge.asked[0] == judge.asked[1]


def test_an_answer_within_the_scatter_is_the_earlier_one():
    """A borderline unit does not flip because a model was asked twice."""
    paid = PaidAnswers()
    paid.add("v1", "goal", {"k": RawAnswer(0.5, 0.30)})
    paid.add("v1", "other", {"k": RawAnswer(0.5 + DEAD_BAND, 0.30 - DEAD_BAND)})

    assert paid.get("v1", "other", "k") == RawAnswer(0.5, 0.30)


def test_an_answer_beyond_the_scatter_is_a_new_one():
    """It then stands for the next comparison too."""
    paid = PaidAnswers()
    paid.add("v1", "goal", {"k": RawAnswer(0.5, 0.30)})
    paid.add("v1", "other", {"k": RawAnswer(0.5, 0.34)})
    paid.add("v1", "third", {"k": RawAnswer(0.5, 0.36)})

    assert paid.get("v1", "other", "k") == RawAnswer(0.5, 0.34)
    assert paid.get("v1", "third", "k") == RawAnswer(0.5, 0.34)


def test_an_answer_that_is_missing_is_asked_for_again():
    """None is no answer, and no scatter of one."""
    paid = PaidAnswers()
    paid.add("v1", "goal", {"k": RawAnswer(0.5, None)})
    paid.add("v1", "other", {"k": RawAnswer(0.5, 0.4)})

    assert paid.get("v1", "other", "k") == RawAnswer(0.5, 0.4)
