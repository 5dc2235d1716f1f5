"""A39: a history is rewritten at a trigger, in one go, and not turn by turn."""

from __future__ import annotations

import asyncio
from typing import Any

from jev_engine import ContextEngine, make_config
from jev_engine.sessions import Session
from jev_engine.testing import ScriptedJudge, call, result, user

LARGE = "def step(row): return row\n" * 300


def turn(number: int) -> list[Any]:
    """One call and its result."""
    name = f"call_{number}"
    return [call("read", call_id=name, path=f"src/{number}.py"), result(f"# {number}\n{LARGE}", call_id=name)]


def session() -> Session:
    judge = ScriptedJudge(lambda _call: (0.9, 0.001))
    return Session(ContextEngine(judge=judge, config=make_config(window_tokens=100_000)), "one")


def test_thirty_turns_below_the_trigger_change_no_object() -> None:
    """At 60 to 79 percent of the trigger no pass is due, so no row is ever another one."""
    one = session()
    messages: list[Any] = [user("Fix the importer.")]
    for number in range(30):
        before = list(messages)
        messages += turn(number)
        one.trigger.report(30_000 + number * 300)
        if one.should_compress():
            messages = asyncio.run(one.compress(messages)).messages

        assert all(now is then for now, then in zip(messages, before, strict=False))
    assert one.last is None


def test_a_growing_session_breaks_its_prefix_once_per_pass_and_seldom() -> None:
    """Sixty turns: the prefix a provider has in its cache changes only where a pass was committed."""
    one = session()
    messages: list[Any] = [user("Fix the importer.")]
    breaks = passes = 0
    for number in range(60):
        messages += turn(number)
        sent = list(messages)
        one.trigger.report(20_000 + sum(len(str(m.get("content"))) for m in messages) // 4)
        if one.should_compress():
            done = asyncio.run(one.compress(messages))
            messages = done.messages
            passes += done.outcome == "committed"
        breaks += any(now is not then for now, then in zip(messages, sent, strict=False))

    assert breaks == passes
    assert 1 <= passes <= 6
