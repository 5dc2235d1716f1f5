"""Events: in order, without content, and harmless when a sink fails."""

from __future__ import annotations

import json
from typing import Any

import pytest
from audit_trails import Hears
from passing import compress, long_text

from jev_engine.events import Event
from jev_engine.judges.asked import AskedJudge
from jev_engine.testing import ScriptedAsker, call, history, result, user

CUT = {"pin_newest_calls": 0}


def session(units: int = 3, chars: int = 9_000) -> list[Any]:
    rows = [row for n in range(units) for row in (call("read", path=f"{n}.py"), result(long_text(str(n), chars)))]
    return history(user("Fix it."), *rows, user("Go on."))


class Raises:
    def emit(self, event: Event) -> None:
        raise RuntimeError("sink down")


def test_a_sink_that_raises_changes_nothing() -> None:
    """The other sink hears everything, and the result is the same."""
    hears = Hears()
    plain = compress(session(), lambda _: (1.0, 0.0), **CUT)
    done = compress(session(), lambda _: (1.0, 0.0), engine={"sinks": [Raises(), hears]}, **CUT)

    assert done.messages == plain.messages
    assert [type(event).__name__ for event in hears.events] == [
        "PassStarted", "Pinned", "JudgeAsked", "JudgeAnswered", "Proposed", "OriginalsStored",
        "Decided", "Committed",
    ]  # fmt: skip
    assert len({event.pass_id for event in hears.events}) == 1
    assert len({event.id for event in hears.events}) == len(hears.events)


CANARY = "CANARY-7431"


def quote_everything(_name: str, _question: Any, state: Any) -> Any:
    return json.dumps(state)


@pytest.mark.parametrize("answer", [lambda *_: 0.0, quote_everything], ids=["answers", "quotes"])
def test_events_carry_no_content(answer: Any) -> None:
    """Lengths, counts and keys; also where an asker's error quotes what it was sent."""
    hears = Hears()

    class Quotes:
        async def ask(self, state: str, questions: Any) -> Any:
            raise ValueError(f"{CANARY} {state}")

    messages = history(
        user(f"{CANARY} goal"), call("read", text=f"{CANARY} said", path=CANARY), result(long_text(CANARY)),
        user("Go on."),
    )  # fmt: skip
    for asker in (ScriptedAsker(answer), Quotes()):
        compress(messages, judge=AskedJudge(asker), engine={"sinks": [hears]}, **CUT)

    assert len(hears.events) > 8
    assert CANARY not in "".join(event.model_dump_json() for event in hears.events)
