"""States and windows: what an asker is shown, at any length."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jev_engine.config import EngineConfig, make_config
from jev_engine.judges import JudgeRequest
from jev_engine.judges.asked import PlannedRequest, plan_requests
from jev_engine.ledger import Ledger, LedgerEntry, assign_keys
from jev_engine.state import flat_input, goal_of, note
from jev_engine.testing import assistant, call, calls, history, result, transcript_of, user
from jev_engine.tokens import estimate_tokens, whole
from jev_engine.transcript import ToolCall, Transcript
from jev_engine_adapters.openai import adapter

PROSE = "A few words about what was found and what comes next. "


def session(units: int, *, said: str | None = None, body: str = "line of text\n" * 60) -> list[Any]:
    """A history of so many calls, with talk in between and one call still open."""
    rows: list[Any] = [user("Fix the parser in src/parser.py.")]
    for n in range(units):
        rows += [call("read", text=said, path=f"src/module_{n}.py"), result(body)]
        if n % 10 == 9:
            rows += [assistant(PROSE * 8 + f"module_{n - 5}.py is fine."), user(f"Go on with part {n}.")]
    return history(*rows, call("deploy", target="stage-7"))


def plan(
    messages: list[Any], config: EngineConfig | None = None, **request: Any
) -> tuple[Transcript, Any, list[PlannedRequest]]:
    transcript = adapter.read(messages)
    assign_keys(transcript, Ledger())
    candidates: list[ToolCall] = [c for c in transcript.calls if not c.is_open]
    asked = JudgeRequest(
        transcript, candidates, request.get("goal"), request.get("focus"), frozenset([0]), config or EngineConfig()
    )
    return transcript, candidates, plan_requests(asked)


def labels_in(state: dict[str, Any]) -> list[str]:
    """Labels of the calls that a state shows, as objects or as lines."""
    made = [c for row in state["history"] for c in row.get("tool_calls", ())]
    return [c["id"] if isinstance(c, dict) else c.partition(" ")[0] for c in made]


@pytest.mark.parametrize("units", [10, 100, 300, 1_000, 3_000])
@pytest.mark.parametrize("budgets", [(25_000, 30_000), (5_000, 9_000)], ids=["default", "small"])
def test_every_candidate_is_asked_about_once_and_only_where_it_is_shown(units: int, budgets: tuple[int, int]) -> None:
    """At any length, with state and request within their budgets by our own honest count of the body."""
    config = make_config(state_tokens=budgets[0], request_tokens=budgets[1])
    _, candidates, requests = plan(session(units), config)
    asked = [c.label for request in requests for c in request.calls]

    assert sorted(asked) == sorted(c.label for c in candidates)
    for request in requests:
        state = json.loads(request.state.text)
        assert {c.label for c in request.calls} <= set(labels_in(state))
        assert estimate_tokens(request.state.text) <= budgets[0]
        assert whole(request.cost) <= budgets[1]
        assert state["goal"]


@pytest.mark.parametrize("said", ["中文" * 3_000, "word " * 4_000, "x" * 200_000, "\ud83d half", "deadbeef01" * 900])
def test_windows_hold_their_budget_whatever_is_said_in_between(said: str) -> None:
    """Long, dense, foreign and broken texts."""
    config = make_config(state_tokens=6_000, request_tokens=9_000)
    _, candidates, requests = plan(session(120, said=said), config)

    assert sum(len(request.calls) for request in requests) == len(candidates)
    assert max(estimate_tokens(request.state.text) for request in requests) <= 6_000


def test_a_row_with_very_many_calls_is_shown_in_several_pieces() -> None:
    """A batch of 900 calls does not fit one state."""
    batch = calls(
        *(("read", {"path": f"src/module_{n}.py"}) for n in range(900)), call_ids=[f"c{n}" for n in range(900)]
    )
    answers = [result("x" * 900, call_id=f"c{n}") for n in range(900)]
    _, candidates, requests = plan(
        [user("Go."), batch, *answers], make_config(state_tokens=4_000, request_tokens=8_000)
    )

    assert sum(len(request.calls) for request in requests) == len(candidates)
    assert max(estimate_tokens(request.state.text) for request in requests) <= 4_000


def test_every_window_shows_the_goal_and_the_newest_rows() -> None:
    """The open call at the end is known to every window."""
    _, _, requests = plan(session(1_000))

    assert len(requests) > 1
    assert all("deploy" in request.state.text and "pending" in request.state.text for request in requests)
    assert {request.state.stage for request in requests} == {"window"}


def test_a_window_shows_later_rows_that_mention_its_files() -> None:
    """A file named again hundreds of rows later."""
    messages = session(600)
    messages[-40:-40] = [assistant("Look at module_3.py once more.")]
    _, _, requests = plan(messages, make_config(state_tokens=6_000, request_tokens=9_000))
    first = next(request for request in requests if "t4" in {c.label for c in request.calls})

    assert "module_3.py once more" in first.state.text
    assert not any("module_3.py once more" in request.state.text for request in requests[2:-3])


def test_excerpts_are_the_first_thing_to_go() -> None:
    """With room they are shown; with less the inputs stay whole and the excerpts are gone."""
    messages = session(60, body="line of text\n" * 200)
    _, _, roomy = plan(messages, make_config(state_tokens=60_000, request_tokens=90_000))
    _, _, narrow = plan(messages, make_config(state_tokens=10_000, request_tokens=90_000))
    _, _, without = plan(messages, make_config(state_tokens=60_000, request_tokens=90_000, show_excerpts=False))

    assert roomy[0].state.stage == "excerpts"
    assert narrow[0].state.stage == "full"
    assert without[0].state.stage == "full"
    assert '"excerpt"' in roomy[0].state.text
    assert '"excerpt"' not in narrow[0].state.text


def test_the_reference_profile_shows_no_excerpts() -> None:
    """They are ours."""
    _, _, requests = plan(session(5), make_config(profile="reference"))

    assert requests[0].state.stage == "full"
    assert '"excerpt"' not in requests[0].state.text


def test_a_state_never_holds_the_middle_of_a_result() -> None:
    """Heads and tails only, in every window."""
    body = "head\n" * 100 + "SECRET-MIDDLE" + "tail\n" * 100
    for budgets in ((25_000, 30_000), (3_000, 5_000)):
        _, _, requests = plan(session(100, body=body), make_config(state_tokens=budgets[0], request_tokens=budgets[1]))

        assert requests
        assert not any("SECRET-MIDDLE" in request.state.text for request in requests)


def test_no_candidates_no_requests() -> None:
    """Nothing is sent for nothing."""
    _, _, requests = plan([user("Hi.")])

    assert requests == []


def test_what_is_out_already_is_shown_with_its_original_size() -> None:
    """Not with the size of its marker."""
    transcript = transcript_of(user("x"), call("read"), result("[marker]"))
    assign_keys(transcript, Ledger.of([LedgerEntry("k", "truncate", "jx-1", "[marker]", 9_000)]))

    assert note(transcript.calls[0]) == "taken out earlier, 9000 chars"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ('{"path":"a.py","limit":5}', 'path=a.py limit={"limit":5}'),
        ('{"text":"two\\n\\nlines"}', "text=two lines"),
        ("not   json", "not json"),
        ("[1, 2]", "[1, 2]"),
        ("", ""),
    ],
)
def test_a_call_as_a_line_names_its_arguments(arguments: str, line: str) -> None:
    """As the reference writes them: JSON around anything that is no text."""
    assert flat_input(arguments) == line


def test_a_goal_is_never_longer_than_its_parts_allow() -> None:
    """However long goal and focus are."""
    transcript = transcript_of(user("w" * 9_000))

    assert len(goal_of(transcript, "g" * 9_000, "f" * 9_000)) <= 2_000 + 500 + len("Focus: \n")
    assert len(goal_of(transcript, None, None)) == 500
