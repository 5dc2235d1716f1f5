"""What is shown of an object in a log, a debugger or a traceback holds no word of the session, however it is shown."""

from __future__ import annotations

from typing import Any

import pytest
from passing import long_text

from jev_engine import ContextEngine
from jev_engine.answers import RawAnswer
from jev_engine.judges import JudgeRequest, Verdict
from jev_engine.sessions import Session
from jev_engine.store.expand import expand
from jev_engine.store.memory import MemoryStore
from jev_engine.store.restore import anchor_of
from jev_engine.testing import call, history, result, user

pytestmark = pytest.mark.anyio

WORD = "CANARY-7431"
LONGEST = 200


class Listening:
    """Lets everything go, and keeps what it was given."""

    name, is_calibrated = "listening", True

    def __init__(self) -> None:
        self.heard: list[Any] = []

    async def judge(self, request: JudgeRequest) -> Verdict:
        verdict = Verdict({call.key: RawAnswer(0.01, 0.01) for call in request.candidates})
        self.heard += [request, request.transcript, verdict]
        return verdict


@pytest.fixture
async def shown() -> list[Any]:
    """Everything a pass hands to a host, a judge or a plugin."""
    reads = [row for n in range(40) for row in (call("read", path=f"{WORD}-{n}"), result(long_text(f"{WORD} {n}")))]
    judge = Listening()
    engine = ContextEngine(judge=judge, store=MemoryStore())
    session = Session(engine, "a", host="openai")
    messages = history(user(f"{WORD} please"), *reads)
    done = await session.compress(messages, force=True)
    assert done.outcome == "committed"
    inside = [done, done.ledger, done.stats, done.fate, *done.decisions, done.transcript]
    inside += [*done.transcript.entries, *done.transcript.calls, *done.ledger]
    store = engine.store
    heads = await store.find_passes(anchor_of(done.messages, engine.find_adapter(messages, "openai")))
    reference = next(iter(done.ledger)).reference
    stored = [await store.load_pass(heads[0].number), await store.read(reference)]
    stored += [await expand(store, "a", reference), await engine.restore(done.messages)]
    assert WORD in stored[1].text
    return [*inside, *stored, *judge.heard, session, session.trigger, engine, store, await engine.inspect(messages)]


async def test_no_repr_holds_a_word_of_the_session(shown: list[Any]) -> None:
    assert [type(each).__name__ for each in shown if WORD in f"{each!r}{each!s}"] == []


async def test_every_repr_is_a_line(shown: list[Any]) -> None:
    long = [repr(each) for each in shown if len(repr(each)) > LONGEST or "\n" in repr(each)]

    assert long == []
