"""The questions: positive wording, both criteria, and an honest price."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from strategies import arguments, texts, tools

from jev_engine.ledger import Ledger, assign_keys
from jev_engine.questions import WORDING, Wording, fixed_cost, pack, question_cost, questions_for
from jev_engine.testing import call, result, transcript_of
from jev_engine.tokens import cost
from jev_engine.transcript import ToolCall


def unit(tool: str = "read", arguments: str = '{"path": "a.py"}', chars: int = 900, number: int = 1) -> ToolCall:
    made = ToolCall(number, "c1", tool, arguments, 0, 0, 0)
    made.result = "x" * chars
    return made


def test_both_questions_state_something_and_say_what_true_and_false_mean() -> None:
    """Positive statements, criteria on both sides, no question marks, no clause about running a tool again."""
    asked = questions_for(unit(), WORDING)

    assert set(asked) == {"call_t1", "result_t1"}
    for question in asked.values():
        assert question["type"] == "noul"
        assert question["criteria"].keys() == {"true", "false"}
        assert all(question["criteria"].values())
        assert question["instructions"].endswith(".")
        words = " ".join([question["instructions"], *question["criteria"].values()]).lower()
        assert not {"not", "re-run", "rerun", "again?", "never", "n't"} & set(words.split())


def test_each_question_names_its_unit() -> None:
    """Ids are not shown to a model."""
    asked = questions_for(unit("grep", '{"q":"needle"}', 12_345), WORDING)

    assert all(
        "t1 (grep" in question["instructions"] and "needle" in question["instructions"] for question in asked.values()
    )
    assert "12,345 characters" in asked["result_t1"]["instructions"]


def test_words_of_a_session_are_no_template() -> None:
    """Braces in arguments are shown, not filled in."""
    asked = questions_for(unit(arguments="{label} {chars} {0.__class__}"), WORDING)

    assert "{label} {chars} {0.__class__}" in asked["call_t1"]["instructions"]


@given(tools, arguments, texts)
def test_a_price_is_never_below_the_rendered_questions(tool: str, written: str, more: str) -> None:
    """Compared with the JSON text that goes over the wire, signs as they are and escaped."""
    for made in (unit(tool, written), unit(tool * 30, more * 9, 10**7, 99_999)):
        asked = questions_for(made, WORDING)
        body = json.dumps(asked, ensure_ascii=False)[1:-1]

        assert question_cost(made, fixed_cost(WORDING)) >= cost(body)


@pytest.mark.parametrize(
    "written", ["\x00\x01" * 200, '"\\' * 300, "\n\t" * 300, "中" * 300, "\ud83d" * 200, "f0" * 400]
)
def test_a_price_holds_for_what_json_has_to_escape(written: str) -> None:
    """Control characters, quotes, backslashes, foreign signs, halves, dense runs."""
    made = unit(written, written)
    body = json.dumps(questions_for(made, WORDING), ensure_ascii=False)[1:-1]

    assert question_cost(made, fixed_cost(WORDING)) >= cost(body)


def test_other_wordings_are_swapped_in_whole() -> None:
    """Another language is another set with a version of its own."""
    german = Wording(
        "de-1",
        "Der Verlauf.",
        "Aufruf {label} zählt noch.",
        "Ja.",
        "Nein.",
        "{chars} Zeichen von {label}.",
        "Ja.",
        "Nein.",
    )
    asked = questions_for(unit(), german)

    assert asked["result_t1"]["instructions"] == "900 Zeichen von t1."
    assert german.version != WORDING.version


@pytest.mark.parametrize(
    ("costs", "room", "sizes"),
    [([1, 1, 1], 3, [3]), ([1, 1, 1], 2, [2, 1]), ([5, 1, 1], 2, [1, 2]), ([9, 9], 2, [1, 1]), ([], 2, [])],
)
def test_questions_are_packed_in_order_into_as_few_requests_as_fit(costs: Any, room: int, sizes: Any) -> None:
    """A unit beyond the room stands alone rather than being lost."""
    rows = [row for n in range(len(costs)) for row in (call("read", n=n), result("x"))]
    transcript = transcript_of(*rows)
    assign_keys(transcript, Ledger())
    packed = pack(transcript.calls, costs, room)

    assert [len(part) for part in packed] == sizes
    assert [c for part in packed for c in part] == transcript.calls
