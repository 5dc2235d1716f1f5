"""A judge of somebody else's: how long it is waited for, and what is taken of its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from trio.testing import MockClock

from jev_engine import CompressionResult, ContextEngine
from jev_engine.answers import RawAnswer
from jev_engine.judges import DEADLINE_SECONDS, JudgeRequest, Verdict
from jev_engine.judges.asked import AskedJudge
from jev_engine.judges.cascade import CascadeJudge
from jev_engine.testing import ScriptedAsker, call, history, result, user

READS = [row for n in range(8) for row in (call("read", path=f"{n}.py"), result(f"line {n}\n" * 900))]
MESSAGES = history(user("Fix it."), *READS, user("Go on."))


class Custom:
    """A judge made of a function of the request."""

    name = "custom"
    is_calibrated = True

    def __init__(self, judge: Callable[[JudgeRequest], Any]) -> None:
        self.answer = judge

    async def judge(self, request: JudgeRequest) -> Verdict:
        said = self.answer(request)
        return (await said) if hasattr(said, "__await__") else said  # type: ignore[no-any-return]


def a_pass(judge: Callable[[JudgeRequest], Any] | Any) -> CompressionResult:
    made = judge if hasattr(judge, "judge") else Custom(judge)
    return anyio.run(lambda: ContextEngine(judge=made).compress(MESSAGES, force=True))


def answers(request: JudgeRequest, *first: Any) -> Verdict:
    """Everything may go, but for the first units, about which this is said."""
    said = {unit.key: RawAnswer(0.9, 0.001) for unit in request.candidates}
    said.update(zip(said, first, strict=False))
    return Verdict(said)


@pytest.mark.parametrize("own", [None, 30.0])
def test_a_judge_that_hangs_is_left_and_the_local_judge_decides(own: float | None) -> None:
    """After the deadline it keeps by itself, or the one every judge has; on a clock that jumps there."""
    judge = Custom(lambda _: anyio.sleep_forever())
    if own is not None:
        judge.deadline_seconds = own  # type: ignore[attr-defined]  # a judge may have one

    async def one() -> tuple[CompressionResult, float]:
        began = anyio.current_time()
        return await ContextEngine(judge=judge).compress(MESSAGES, force=True), anyio.current_time() - began

    done, seconds = anyio.run(one, backend="trio", backend_options={"clock": MockClock(autojump_threshold=0)})

    assert (own or DEADLINE_SECONDS) <= seconds <= (own or DEADLINE_SECONDS) + 5.1
    assert "JudgeUnavailable: judge 'custom' did not answer within" in done.stats.failures[0]
    assert {d.probability.source for d in done.decisions if d.probability} == {"local"}


def test_what_a_judge_had_sent_by_its_deadline_is_counted() -> None:
    """Nobody answered; it was paid for all the same."""
    sent = Verdict()
    sent.requests, sent.sent_bytes = 3, 900

    async def judge(_: JudgeRequest) -> Verdict:
        try:
            return await anyio.sleep_forever()  # type: ignore[func-returns-value]
        except BaseException as error:
            error.verdict = sent  # type: ignore[attr-defined]
            raise

    clock = {"clock": MockClock(autojump_threshold=0)}
    done = anyio.run(
        lambda: ContextEngine(judge=Custom(judge)).compress(MESSAGES), backend="trio", backend_options=clock
    )

    assert done.stats.requests == 3


def test_a_cascade_is_given_the_time_of_the_judge_it_asks() -> None:
    asked = AskedJudge(ScriptedAsker(lambda *_: 0.1), deadline_seconds=77.0)

    assert CascadeJudge(asked).deadline_seconds == 77.0


@pytest.mark.parametrize(
    "odd",
    [
        0.1,
        "0.1",
        (0.1,),
        (0.1, "0.2"),
        (0.1, True),
        (None, float("nan")),
        {"p_result": 0.1},
        (0.1, 0.2, 0.3),
        (0, -0.1),
    ],
    ids=repr,
)
def test_one_answer_that_is_none_costs_its_own_unit_only(odd: Any) -> None:
    done = a_pass(lambda request: answers(request, odd))

    assert done.outcome == "committed"
    assert len(done.stats.failures) == 1
    assert done.stats.failures[0].startswith("BadAnswer: not usable: 1 of 5; ")
    assert [d.probability.source for d in done.decisions if d.probability] == ["local", *["judge"] * 4]


@pytest.mark.parametrize("form", [(0.9, 0.001), [0.9, 0.001], (1, 0), RawAnswer(None, 0.001), (5.0, 0.001)], ids=repr)
def test_what_can_be_read_as_an_answer_is_one(form: Any) -> None:
    """A tuple does as well; a half about the call that is none is left out."""
    done = a_pass(lambda request: answers(request, form))

    assert done.stats.failures == []
    assert {d.probability.source for d in done.decisions if d.probability} == {"judge"}


@pytest.mark.parametrize(
    "verdict",
    [None, {}, Verdict(answers=[]), RawAnswer(0.1, 0.1)],  # type: ignore[arg-type]  # the fault
    ids=["None", "a dict", "answers in a list", "one answer"],
)
def test_what_is_no_verdict_leaves_the_pass_to_the_local_judge(verdict: Any) -> None:
    done = a_pass(lambda _: verdict)

    assert {d.probability.source for d in done.decisions if d.probability} == {"local"}
    assert "BadAnswer: a judge returns a Verdict" in done.stats.failures[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [("failures", None), ("warnings", 5), ("requests", "1"), ("price", "1"), ("model", 5), ("windows_of", None)],
)
def test_a_number_beside_the_answers_that_is_none_costs_no_answer(name: str, value: Any) -> None:
    def judge(request: JudgeRequest) -> Verdict:
        said = answers(request)
        setattr(said, name, value)
        return said

    done = a_pass(judge)

    assert done.outcome == "committed"
    assert done.stats.failures == [f"BadAnswer: {name} of the verdict is of another type"]
    assert {d.probability.source for d in done.decisions if d.probability} == {"judge"}


@pytest.mark.parametrize(
    "judge",
    [
        lambda _: Verdict(),
        lambda request: Verdict(dict.fromkeys([unit.key for unit in request.candidates], RawAnswer(None, None))),
        lambda request: Verdict(dict.fromkeys([unit.key for unit in request.candidates])),
        lambda _: Verdict({"nobody asked": RawAnswer(0.1, 0.1)}),
        AskedJudge(ScriptedAsker(lambda *_: None)),
    ],
    ids=["empty", "null halves", "null", "unknown ids", "asker"],
)
def test_a_judge_that_answers_nothing_usable_is_reported(judge: Any) -> None:
    done = a_pass(judge)

    assert done.stats.failures == ["BadAnswer: not one usable answer; asked about: 5"]


def test_what_a_cascade_settles_by_itself_is_no_missing_answer() -> None:
    """It was never asked about."""
    asked = AskedJudge(ScriptedAsker(lambda *_: None))
    judge = CascadeJudge(asked, local=lambda _, calls: {unit.key: RawAnswer(0.5, 0.0) for unit in calls})
    done = a_pass(judge)

    assert (done.stats.settled, done.stats.failures) == (5, [])


def test_a_verdict_that_is_given_again_is_as_it_was() -> None:
    """It is the judge's own: what a pass cannot use is not taken out of it, nor added to it."""
    kept: list[Verdict] = []

    def judge(request: JudgeRequest) -> Verdict:
        kept.append(kept[0] if kept else answers(request, "odd"))
        kept[0].answers["a unit of another session"] = RawAnswer(0.1, 0.1)
        return kept[0]

    first, second = a_pass(judge), a_pass(judge)

    assert first.stats.failures == second.stats.failures
    assert (len(kept[0].answers), kept[0].failures) == (6, [])
