"""The control: how often calls are made again while their result is still there, of all calls where it was."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest
from audit_trails import KEY

from jev_engine import ContextEngine, make_config
from jev_engine.answers import Belief
from jev_engine.audit.jsonl import JsonlSink
from jev_engine.audit.outcomes import outcomes
from jev_engine.audit.records import TrailRead, read_trail
from jev_engine.audit.stats import regrets, stats_of
from jev_engine.judges.asked import AskedJudge
from jev_engine.testing import ScriptedAsker, call, history, result, user


def pair(tool: str, n: int, number: int, *, chars: int = 3_000) -> list[Any]:
    """One call with its result; `number` makes its id its own, tool and `n` its arguments."""
    made = call(tool, call_id=f"c{number}", path=f"{n}.py")
    return [made, result(f"{tool} {n} "[:12].ljust(chars, "x"), call_id=f"c{number}")]


def looked_at(path: Path, again: dict[str, int], *, third_pass: bool = False) -> tuple[TrailRead, Any]:
    """Twenty reads that go, twenty greps that are judged and stay, twenty short lists that nobody judges.

    Then of each tool so many calls are made again, and a second pass looks at them.
    """
    kinds = {"read": 3_000, "grep": 3_000, "list": 40}
    calls = [(tool, n) for n in range(20) for tool in kinds]
    more = [(tool, n) for tool in kinds for n in range(again.get(tool, 0))]
    rows = [row for at, (tool, n) in enumerate(calls) for row in pair(tool, n, at, chars=kinds[tool])]
    later = [row for at, (tool, n) in enumerate(more, 100) for row in pair(tool, n, at, chars=kinds[tool])]
    # Every third call is a read: one more than a multiple of three.
    asker = ScriptedAsker(lambda name, *_: 0.01 if int(name.rsplit("t", 1)[1]) % 3 == 1 else 0.99)
    sink = JsonlSink(path, key=KEY)
    config = make_config(
        policy="threshold", keep_result=0.5, keep_call=0.0, min_freed_share=0.0, pin_newest_calls=0,
        pin_first_message=False, pin_short_chars=500,
    )  # fmt: skip
    engine = ContextEngine(config=config, judge=AskedJudge(asker, name="asked"), sinks=[sink])
    messages = history(user("Fix it."), *rows, user("Go on."))
    first = anyio.run(lambda: engine.compress(messages, host="openai", force=True, session="s"))
    grown = [*first.messages, *later]
    done = anyio.run(lambda: engine.compress(grown, host="openai", force=True, session="s", ledger=first.ledger))
    if third_pass:
        anyio.run(lambda: engine.compress(done.messages, host="openai", force=True, session="s", ledger=done.ledger))
    sink.close()
    return read_trail(path), done


@pytest.mark.parametrize("third_pass", [False, True], ids=["two passes", "three passes"])
def test_every_call_still_there_counts_judged_or_not(tmp_path: Path, *, third_pass: bool) -> None:
    """Calls made again and calls that could have been are of the same kind, by tool, and each counts once."""
    trail, done = looked_at(tmp_path / "t.jsonl", {"read": 6, "grep": 5, "list": 10}, third_pass=third_pass)
    table = {regret.tool: regret for regret in regrets(trail)}
    there = Counter(each.tool for each in done.transcript.calls if each.marked is None)

    assert {tool: regret.control_calls for tool, regret in table.items()} == there
    assert there == {"read": 6, "grep": 25, "list": 30}
    assert {tool: regret.control_looked_back for tool, regret in table.items()} == {"read": 0, "grep": 5, "list": 10}
    assert table["read"].looked_back == 6
    stats = stats_of(trail)
    assert (stats["control_look_backs"], stats["control_calls"]) == (15, 61)


def test_calls_that_nobody_judges_do_not_make_misses_look_explained(tmp_path: Path) -> None:
    """Short results made again are many; so are the short results there are."""
    trail, _ = looked_at(tmp_path / "t.jsonl", {"read": 10, "list": 20})
    needed = sum(each.needed for each in outcomes(trail, Belief().result))

    # 20 of 20 + 40 + 10 calls still there were made again: of 20 that went, about 6 would have been in any case.
    assert needed == 10 - round(len(outcomes(trail, Belief().result)) * 20 / 70)


def test_a_pass_that_does_not_look_is_no_control(tmp_path: Path) -> None:
    """Where nothing was out when it began, nobody looked for calls that are made again."""
    trail, _ = looked_at(tmp_path / "t.jsonl", {})
    first, second = trail.passes.values()

    assert (first.started.already_out, second.started.already_out) == (0, 20)  # type: ignore[union-attr]
    only = TrailRead()
    only.passes[first.id] = first
    assert {regret.control_calls for regret in regrets(only)} == {0}
    assert stats_of(only)["control_look_backs"] == 0
