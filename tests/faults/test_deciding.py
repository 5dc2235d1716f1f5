"""Faults of deciding seen in the field (A14 to A18 of the fault study)."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from passing import NOTHING_MATTERS, compress, long_text

from jev_engine import make_config
from jev_engine.judges.asked import AskedJudge
from jev_engine.state import goal_of
from jev_engine.store.memory import MemoryStore
from jev_engine.testing import ScriptedAsker, call, history, result, user
from jev_engine_adapters.openai import adapter


@pytest.mark.parametrize("said", ["Opened the ticket.", "…"])
def test_a_call_is_never_removed_from_under_its_narration(said: str) -> None:
    """A14: with text in the turn the call stays with a short honest result; a silent turn may go."""
    told, silent = call("lookup", text=said, title="Bug"), call("lookup")
    messages = history(user("Open it."), told, result(long_text("a")), user("Go on."), silent, result(long_text("b")))
    done = compress(messages, profile="hermes-classic", pin_newest_calls=0, max_removed_share=1.0)

    assert [d.action for d in done.decisions] == ["truncate", "remove"]
    assert done.messages[1] is told
    assert done.messages[2]["content"].endswith(
        f"[jev-engine: 2,700 more characters out, intact as {done.decisions[0].call.reference}]"
    )


def test_no_pass_removes_most_of_what_it_judged() -> None:
    """G11: beyond the set share calls are not removed in that pass, and the reason says so."""
    rows = [row for n in range(10) for row in (call("lookup", n=n), result(long_text(str(n))))]
    done = compress(history(user("Go."), *rows), profile="hermes-classic", pin_newest_calls=0)

    assert {d.action for d in done.decisions} == {"truncate"}
    assert all("70%" in d.reason for d in done.decisions)


@pytest.mark.parametrize("p_call", [0.49, 0.50, 0.52])
@pytest.mark.parametrize("p_result", [0.22, 0.30, 0.34])
def test_scatter_around_one_half_changes_nothing_at_default_thresholds(p_call: float, p_result: float) -> None:
    """A15: calls and results have thresholds of their own, and real answers of both lie well to one side."""
    messages = history(user("Go."), call("lookup"), result(long_text("a")), user("Go on."))
    done = compress(messages, lambda _: (p_call, p_result), policy="threshold", pin_newest_calls=0)

    assert [d.action for d in done.decisions] == ["truncate"]


def test_what_is_out_stays_out_when_the_answers_flip() -> None:
    """A15: a decision in force is not asked about again."""
    store = MemoryStore()
    messages = history(user("Go."), call("lookup"), result(long_text("a")), user("Go on."))
    first = compress(messages, lambda _: (0.52, 0.22), policy="threshold", pin_newest_calls=0, engine={"store": store})
    second = compress(
        first.messages, lambda _: (0.49, 0.9), policy="threshold", pin_newest_calls=0, engine={"store": store}
    )

    assert second.messages is first.messages
    assert second.stats.pinned == {"already out": 1}


def test_an_uncalibrated_judge_alone_does_not_throw_everything_out() -> None:
    """A15: answers near 0.15 are typical and say nothing; a threshold of one half would drop them all."""
    rows = [row for n in range(40) for row in (call("lookup", n=n), result(long_text(str(n), 900)))]
    messages = history(user("Go."), *rows)
    typical = compress(messages, judge=AskedJudge(ScriptedAsker(lambda name, *_: 0.10 + 0.1 * (hash(name) % 7) / 7)))
    nothing = compress(messages, judge=None, engine={}, script={})

    assert any(d.action == "keep" for d in typical.decisions)
    assert len(nothing.decisions) == len(typical.decisions)


def test_the_judge_sees_what_a_result_begins_and_ends_with_while_there_is_room() -> None:
    """A16: head and tail of each result and the row that names it again; the original stays within reach."""
    named = f"server started\n{long_text('log', 4_000)}\nlistening on port 7431"
    asker = ScriptedAsker(lambda *_: 0.01)
    store = MemoryStore()
    messages = history(
        user("Start it."), call("start"), result(named), call("noise"), result(long_text("noise", 4_000)),
        user("Which process holds port 7431?"),
    )  # fmt: skip
    done = compress(messages, judge=AskedJudge(asker), engine={"store": store}, pin_newest_calls=0, force_share=0.6,
                    trigger_share=0.5, window_tokens=2_000)  # fmt: skip
    shown = json.dumps(asker.requests[0][0])

    assert shown.count("port 7431") == 3  # goal, last row, and the tail of the result
    assert "server started" in shown
    out = [d for d in done.decisions if d.action == "truncate"]
    assert {anyio.run(store.read, d.call.reference).text for d in out} == {d.call.result for d in out}


PROTECTED = {
    "ask_user": ("human answer", {}),
    "AskUserQuestion": ("human answer", {}),
    "task": ("helper report", {}),
    "delegate_task": ("helper report", {}),
    "mcp__mail__send_mail": ("receipt", {}),
    "send_mail": ("receipt", {}),
    "createTicket": ("receipt", {}),
    "ToolSearch": ("definition", {}),
    "read": ("instructions", {"path": "repo/AGENTS.md"}),
    "Read": ("instructions", {"file_path": "/x/.claude/skills/a/SKILL.md"}),
}


@pytest.mark.parametrize(("tool", "expected"), PROTECTED.items(), ids=PROTECTED)
@pytest.mark.parametrize("profile", ["balanced", "hermes-classic"])
def test_what_cannot_be_had_again_is_not_judged(tool: str, expected: Any, profile: str) -> None:
    """A17: answers of people, helper reports, instruction files and receipts stay whole, each with its reason."""
    reason, arguments = expected
    messages = history(user("Go."), call(tool, **arguments), result(long_text("a", 5_000)), call("x"), result("y"))
    done = compress(messages, profile=profile, pin_newest_calls=0)

    assert done.messages is messages
    assert done.stats.pinned[reason] == 1


def test_a_refusal_stays() -> None:
    """G10: what the user forbade is not forgotten; the status comes from the host's flag."""
    said = "The user denied this call. " + long_text("a")
    messages = history(
        user("Go."), call("x"), result(said, is_error=True), call("x"), result(said), call("y"), result("")
    )
    done = compress(messages, pin_newest_calls=0)

    assert done.stats.pinned["refusal"] == 1
    assert [d.call.label for d in done.decisions] == ["t2"]


REMINDER = "<system-reminder>Keep your todo list up to date.</system-reminder>"


def test_the_goal_comes_from_what_people_wrote() -> None:
    """A18: host-written rows are not the task, wherever they stand; the first and the latest wishes are."""
    messages = history(
        user("Migrate the billing tables."),
        call("read"),
        result("x"),
        user(REMINDER),
        {"role": "user", "content": "Caveat: generated.", "isMeta": True},
        user("<command-name>compact</command-name>"),
    )

    assert goal_of(adapter.read(messages), None, None) == "Migrate the billing tables."


def test_the_goal_is_the_first_and_the_three_latest_wishes_in_short() -> None:
    """A18: five hundred characters each."""
    messages = history(*(user(f"wish {n} " + "x" * 900) for n in range(6)))
    lines = goal_of(adapter.read(messages), None, None).split("\n")

    assert [line[:6] for line in lines] == ["wish 0", "wish 3", "wish 4", "wish 5"]
    assert {len(line) for line in lines} == {500}


def test_an_explicit_goal_wins_and_a_focus_comes_on_top() -> None:
    """A18: what the user typed reaches the judge."""
    asker = ScriptedAsker(lambda *_: 0.5)
    messages = history(user("Something else."), call("read"), result(long_text("a")), user(REMINDER))
    compress(
        messages,
        judge=AskedJudge(asker),
        pin_newest_calls=0,
        options={"goal": "Ship it.", "focus_topic": "keep the schema"},
    )

    assert asker.requests[0][0]["goal"] == "Focus: keep the schema\nShip it."


def test_a_goal_in_the_settings_is_used_too() -> None:
    """A18: `goal` of the config."""
    asker = ScriptedAsker(lambda *_: 0.5)
    messages = history(user("Something else."), call("read"), result(long_text("a")))
    compress(messages, judge=AskedJudge(asker), pin_newest_calls=0, goal="Ship it.")

    assert asker.requests[0][0]["goal"] == "Ship it."
    assert make_config(goal="x").goal == "x"
    assert NOTHING_MATTERS
