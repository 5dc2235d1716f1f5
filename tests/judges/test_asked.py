"""The asked judge: strict answers, salvage, and nothing asked about what nobody can see."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from passing import long_text

from jev_engine.config import make_config
from jev_engine.errors import BadAnswer, JudgeUnavailable
from jev_engine.judges import JudgeRequest, Verdict
from jev_engine.judges.asked import AskedJudge, read_answers, read_probability
from jev_engine.ledger import Ledger, assign_keys
from jev_engine.testing import ScriptedAsker, call, history, result, user
from jev_engine_adapters.openai import adapter

SMALL = {"state_tokens": 3_000, "request_tokens": 4_000}


def request(units: int = 3, **settings: Any) -> JudgeRequest:
    rows = [row for n in range(units) for row in (call("read", path=f"src/{n}.py"), result(long_text(str(n))))]
    transcript = adapter.read(history(user("Fix it."), *rows))
    assign_keys(transcript, Ledger())
    return JudgeRequest(transcript, transcript.calls, None, None, frozenset([0]), make_config(**settings))


@pytest.mark.parametrize("answer", [0, 1, 0.0, 1.0, 0.35, {"noul": 0.35}, {"type": "noul", "noul": 1, "more": "x"}])
def test_numbers_from_zero_to_one_are_answers(answer: Any) -> None:
    """Bare, or tagged with the right type."""
    found = read_probability(answer)

    assert type(found) is float


ODD = [
    True, False, "0.9", "yes", "", math.nan, math.inf, -math.inf, -1, 1.01, 1.3, -0.0001, [], [0.5], {}, b"1", 1j,
    {"noul": True}, {"noul": "0.9"}, {"noul": None}, {"noul": math.nan}, {"noul": [0.5]}, {"noul": {"noul": 0.5}},
    {"type": "text", "noul": 0.5}, {"type": None, "noul": 0.5}, {"type": "noul"}, {"type": "noul", "value": 0.5},
    {"type": ["noul"], "noul": 0.5}, {"type": "NOUL", "noul": 0.5},
]  # fmt: skip


@pytest.mark.parametrize("answer", ODD, ids=repr)
def test_anything_else_breaks_the_contract(answer: Any) -> None:
    """Bools, text, NaN, out of range, other and doubled types: never a number by accident."""
    with pytest.raises(BadAnswer):
        read_probability(answer)


@pytest.mark.parametrize("answers", [[], "x", None, 7, [("call_t1", 0.5)]], ids=repr)
def test_answers_have_to_be_a_mapping(answers: Any) -> None:
    """Whatever else a transport returns is void."""
    with pytest.raises(BadAnswer):
        read_answers(answers, request().candidates)


def test_a_missing_answer_stays_missing() -> None:
    """It is no zero: half an answer is kept, none is none, and answers nobody asked for are ignored."""
    calls = request().candidates
    found = read_answers({"call_t1": 0.2, "result_t1": None, "result_t3": 0.0, "call_t99": 0.1, "x": "rubbish"}, calls)

    assert found == {calls[0].key: (0.2, None), calls[2].key: (None, 0.0)}


class Spoils:
    """An asker that spoils one of its requests in a given way."""

    def __init__(self, which: int, how: Any) -> None:
        self.which = which
        self.how = how
        self.asked: list[list[str]] = []

    async def ask(self, state: str, questions: Mapping[str, Any]) -> Any:
        self.asked.append(list(questions))
        spoiled = len(self.asked) - 1 == self.which
        await anyio.lowlevel.checkpoint()
        if spoiled and isinstance(self.how, Exception):
            raise self.how
        answers: dict[str, Any] = dict.fromkeys(questions, 0.4)
        if spoiled:
            answers[list(questions)[-1]] = self.how
        return answers


@pytest.mark.parametrize(
    "how", [True, "0.9", math.nan, 1.3, {"noul": None}, OSError("reset"), ValueError("json")], ids=repr
)
@pytest.mark.parametrize("which", [0, 2])
async def test_one_bad_answer_voids_its_own_request_only(how: Any, which: int) -> None:
    """The answers of all other requests stay valid, the units of this one are undecided."""
    asked = request(120, **SMALL)
    asker = Spoils(which, how)
    verdict = await AskedJudge(asker).judge(asked)
    lost = {name.partition("_")[2] for name in asker.asked[which]}
    answered = {c.label for c in asked.candidates if c.key in verdict.answers}

    assert verdict.requests == len(asker.asked) > 3
    assert answered == {c.label for c in asked.candidates} - lost
    assert len(verdict.failures) == 1


async def test_no_answer_at_all_is_unavailable() -> None:
    """With the first reason."""
    with pytest.raises(JudgeUnavailable, match="no request was answered: BadAnswer"):
        await AskedJudge(ScriptedAsker(lambda *_: "rubbish")).judge(request())


async def test_silence_is_no_failure() -> None:
    """An asker that answers nothing leaves every unit undecided."""
    verdict = await AskedJudge(ScriptedAsker(lambda *_: None)).judge(request())

    assert verdict.answers == {}
    assert verdict.failures == []


async def test_hidden_units_are_not_asked_about_and_counted() -> None:
    """No question about a unit that its state does not show."""
    asked = request(400, profile="reference", state_tokens=1_500, request_tokens=4_000)
    asker = ScriptedAsker(lambda *_: 0.4)
    verdict = await AskedJudge(asker).judge(asked)
    names = {name for _, questions in asker.requests for name in questions}

    assert verdict.hidden == len(asked.candidates) - len(names) // 2
    for state, questions in asker.requests:
        shown = str(state["history"])
        assert all(
            f"t{name.partition('_t')[2]} " in shown or f"'{name.partition('_')[2]}'" in shown for name in questions
        )


class Counts:
    """An asker that notes how many requests are under way at once."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def ask(self, state: str, questions: Mapping[str, Any]) -> Any:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        self.now -= 1
        return dict.fromkeys(questions, 0.4)


@pytest.mark.parametrize("limit", [1, 2, 4])
async def test_requests_under_way_are_limited(limit: int) -> None:
    """`concurrency` of the settings."""
    asker = Counts()
    await AskedJudge(asker).judge(request(200, concurrency=limit, **SMALL))

    assert asker.most == limit


async def test_cancellation_passes_through_and_is_no_failed_request() -> None:
    """G16: at once."""

    class Hangs:
        async def ask(self, state: str, questions: Mapping[str, Any]) -> Any:
            await anyio.sleep_forever()

    verdict: Verdict | None = None
    with anyio.move_on_after(0.05) as scope:
        verdict = await AskedJudge(Hangs()).judge(request())

    assert scope.cancelled_caught
    assert verdict is None


async def test_the_verdict_says_what_was_shown() -> None:
    """Stage, tokens, windows and requests."""
    one = await AskedJudge(ScriptedAsker(lambda *_: 0.4)).judge(request())
    many = await AskedJudge(ScriptedAsker(lambda *_: 0.4)).judge(request(200, **SMALL))

    assert (one.state_stage, one.windows, one.requests) == ("excerpts", 1, 1)
    assert many.state_stage == "window"
    assert many.windows == many.requests > 1
    assert 0 < many.state_tokens <= 3_000
