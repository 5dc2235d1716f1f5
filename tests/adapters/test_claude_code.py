"""Claude Code session files, row by row: units, text, people and the host, odd shapes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from claude_code_rows import Session, image, outcomes, text, texts, thinks, use

from jev_engine.host import Adapter
from jev_engine_adapters.claude_code import adapter
from jev_engine_adapters.claude_code.messages import CLEARED_NOTE


def test_the_adapter_keeps_the_protocol():
    """It can be handed to the engine like any other."""
    assert isinstance(adapter, Adapter)
    assert adapter.name == "claude-code"
    assert not adapter.can_delete


def test_rows_are_plain_json_already():
    """The store keeps them as they are."""
    row = {"type": "user"}

    assert adapter.dump(row) is row
    assert adapter.load(row) is row


def test_a_call_and_its_result_are_one_unit():
    """The unit knows its rows, its places, its arguments as compact JSON and the host's error flag."""
    session = Session()
    session.user("Mend the parser.")
    session.says("I will look.", use("c1", path="größe.py", lines=[1, 2]), response="r1")
    session.result("c1", "def parse", is_error=True)

    transcript = session.read()
    [call] = transcript.calls

    assert (call.tool, call.arguments, call.result) == ("Read", '{"path":"größe.py","lines":[1,2]}', "def parse")
    assert (call.row, call.place, call.result_row, call.result_place) == (1, 1, 2, 0)
    assert call.is_error
    assert transcript.messages is session.rows


def test_results_cleared_by_a_microcompaction_are_never_judged():
    """The file holds the full text, the model sees a note."""
    session = Session()
    session.user("Go.")
    session.unit("c1", "a long text")
    session.unit("c2", "another")
    session.row("system", subtype="microcompact_boundary", microcompactMetadata={"compactedToolIds": ["c1", ["odd"]]})
    session.unit("c3", CLEARED_NOTE)

    transcript = session.read()

    assert outcomes(transcript) == [
        ("c1", CLEARED_NOTE, "cleared by the host"),
        ("c2", "another", None),
        ("c3", CLEARED_NOTE, "cleared by the host"),
    ]


def test_the_launch_of_a_subagent_is_not_its_answer():
    """The answer comes later, as a notification row."""
    session = Session()
    session.user("Go.")
    session.says(use("c1", "Agent"), response="r1")
    session.result("c1", [text("Started.")], toolUseResult={"isAsync": True, "status": "async_launched"})
    session.unit("c2", "Async agent launched successfully.\nagentId: a2", tool="Task")
    session.user("<task-notification>\n<task-id>a1</task-id>\n</task-notification>")

    transcript = session.read()

    assert [call.anomaly for call in transcript.calls] == ["answer arrives later"] * 2
    assert [entry.is_human for entry in transcript.entries if entry.role == "user"] == [True, False]


def test_an_unanswered_call_is_open():
    """Nothing is made up for it."""
    session = Session()
    session.user("Go.")
    session.says(use("c1"), use("c2"), response="r1")
    session.result("c2", "two")

    transcript = session.read()

    assert [call.is_open for call in transcript.calls] == [True, False]


def test_blocks_streamed_twice_are_taken_once():
    """Rows of one response may repeat a block; another response may not be mistaken for a repetition."""
    session = Session()
    session.user("Go.")
    session.says(thinks("hm"), response="r1")
    session.says(thinks("hm"), "Reading.", response="r1")
    session.says("Reading.", use("c1"), response="r1")
    session.says(use("c1"), response="r1")
    session.result("c1", "one")
    session.says("Reading.", response="r2")

    transcript = session.read()

    assert outcomes(transcript) == [("c1", "one", None)]
    assert texts(transcript) == ["Go.", "Reading.", "Reading."]
    assert transcript.odd == {"doubled block": 3}


def test_one_id_with_two_inputs_is_in_doubt():
    """Such a unit stays as it is."""
    session = Session()
    session.user("Go.")
    session.says(use("c1", path="a"), response="r1")
    session.says(use("c1", path="b"), response="r1")
    session.result("c1", "one")

    transcript = session.read()

    assert {call.anomaly for call in transcript.calls} == {"id open twice"}


def test_thinking_is_kept_apart_from_text():
    """Reasoning is judged by nobody; a redacted block has nothing to read."""
    session = Session()
    session.user("Go.")
    session.says(thinks("the lexer?"), {"type": "redacted_thinking", "data": "x"}, "Looking.", response="r1")

    [_, entry] = session.read().entries

    assert (entry.reasoning, entry.text) == ("the lexer?", "Looking.")
    assert entry.is_bound


def test_results_may_be_lists_with_images():
    """Text blocks are joined by line breaks, images are counted."""
    session = Session()
    session.user([text("See this:"), image()])
    session.unit("c1", [text("one"), image(), text("two")])
    session.unit("c2", [image()])
    session.unit("c3", None)

    transcript = session.read()

    assert outcomes(transcript) == [("c1", "one\ntwo", None), ("c2", "", None), ("c3", "", None)]
    assert [call.images for call in transcript.calls] == [1, 1, 0]
    assert transcript.entries[0].images == 1
    assert transcript.entries[0].is_human


@pytest.mark.parametrize(
    ("content", "anomaly"),
    [
        ([text("found"), {"type": "tool_reference", "tool_name": "x"}], "tool definitions in the result"),
        ([{"type": "hologram"}], "block of unknown type in the result"),
        (["text"], "block of unknown type in the result"),
        ({"rows": 3}, "result of unknown shape"),
        (42, "result of unknown shape"),
    ],
)
def test_results_of_unknown_shape_are_never_judged(content, anomaly):
    """Their unit is closed, and in doubt."""
    session = Session()
    session.user("Go.")
    session.unit("c1", content)

    [call] = session.read().calls

    assert not call.is_open
    assert call.anomaly == anomaly


def test_server_side_tools_are_no_units():
    """They ran at the provider and stay one sealed piece."""
    session = Session()
    session.user("Go.")
    session.says(
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
        "Found it.",
        {"type": "hologram"},
        response="r1",
    )

    transcript = session.read()

    assert transcript.calls == []
    assert transcript.odd == {"server-side tool": 2, "block of unknown type": 1}


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        ("<command-name>/ide</command-name>", {}),
        ("<command-message>plan</command-message>\n<command-name>/plan</command-name>", {}),
        ("<local-command-stdout>Bye!</local-command-stdout>", {}),
        ("<bash-input>git status</bash-input>", {}),
        ("Caveat: The messages below were generated by the user while running local commands. DO NOT", {}),
        ("[Request interrupted by user for tool use]", {}),
        ("<system-reminder>mind the date</system-reminder>\n<system-reminder>x</system-reminder>", {}),
        ([text("<system-reminder>mind the date</system-reminder>"), text("<task-notification>x")], {}),
        ("Base directory for this skill: /s", {"isMeta": True}),
        ("The agent says hello.", {"origin": {"kind": "task-notification"}}),
        ("Stop here.", {"sourceToolAssistantUUID": "row-1"}),
        ([], {}),
    ],
)
def test_what_the_host_wrote_is_not_human(content, fields):
    """It is read as user text, and no goal is taken from it."""
    session = Session()
    session.user(content, **fields)

    [entry] = session.read().entries

    assert entry.role == "user"
    assert not entry.is_human


@pytest.mark.parametrize(
    "content",
    [
        "Mend the parser.",
        "<system-reminder>mind the date</system-reminder>\nMend the parser.",
        "Why does <command-name> show up?",
        [text("<system-reminder>mind the date</system-reminder>"), text("Mend the parser.")],
        [image()],
    ],
)
def test_what_a_person_typed_is_human(content):
    """A reminder beside it changes nothing."""
    session = Session()
    session.user(content)

    [entry] = session.read().entries

    assert entry.is_human


def test_side_rows_are_counted_and_leave_no_entry():
    """Progress, snapshots, queue rows and errors shown to the user are the host's own records."""
    session = Session()
    session.rows.append({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}})
    session.user("Go.")
    session.row("progress", data={"type": "hook_progress"})
    session.row("system", subtype="turn_duration")
    session.row("system", subtype="local_command", content="<command-name>/mcp</command-name>")
    session.row("attachment", rendered="The date is today.", renderedRole="system")
    session.says("API Error: 529", isApiErrorMessage=True)
    session.rows.append({"type": "a-type-of-tomorrow"})
    session.user("Again.")

    transcript = session.read()

    assert texts(transcript) == ["Go.", "<command-name>/mcp</command-name>", "The date is today.", "Again."]
    assert transcript.odd == {
        "side row": 1,
        "progress row": 1,
        "system row": 2,
        "attachment row": 1,
        "api error row": 1,
        "row of unknown type": 1,
    }


ODD_ROWS = [
    None,
    42,
    "text",
    [],
    [{"type": "user"}],
    {},
    {"type": None},
    {"type": ["user"]},
    {"type": "user"},
    {"type": "user", "message": "text"},
    {"type": "user", "message": {"content": {"type": "text"}}},
    {"type": "user", "message": {"content": [None, "text", {"type": ["text"]}, {"type": "text", "text": 3}]}},
    {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": ["c"], "content": "x"}]}},
    {"type": "user", "message": {"content": [{"type": "tool_result"}]}, "toolUseResult": {"status": ["x"]}},
    {"type": "user", "uuid": ["u"], "parentUuid": {"p": 1}, "message": {"content": "x"}, "origin": {"kind": [1]}},
    {"type": "assistant", "message": {"id": ["m"], "content": [use(None), use("c", None), use("d", ""), {}]}},
    {"type": "assistant", "uuid": "loop", "parentUuid": "loop", "message": {"content": [{"type": "tool_use"}]}},
    {"type": "system", "subtype": "compact_boundary", "compactMetadata": [1]},
    {"type": "system", "subtype": "compact_boundary", "compactMetadata": {"preservedMessages": {"uuids": [[1], 2]}}},
    {"type": "system", "subtype": "compact_boundary", "compactMetadata": {"preservedSegment": {"headUuid": [1]}}},
    {"type": "system", "subtype": "microcompact_boundary", "microcompactMetadata": {"compactedToolIds": 7}},
    {"type": "attachment", "rendered": {"x": 1}},
]


@pytest.mark.parametrize("at", [0, 2, 3])
@pytest.mark.parametrize("odd", ODD_ROWS, ids=range(len(ODD_ROWS)))
def test_odd_rows_stop_nothing(odd, at):
    """Whatever stands in a line, reading goes on and the rows stay as they are."""
    session = Session()
    session.user("Go.")
    session.unit("c1")
    session.rows.insert(at, odd)
    before = copy.deepcopy(session.rows)

    transcript = session.read()

    assert transcript.messages == before
    cuts = at == 2 and isinstance(odd, dict) and odd.get("subtype") == "compact_boundary"
    assert ("Go." in texts(transcript)) is not cuts


def test_arguments_nested_too_deep_are_in_doubt():
    """They cannot be written as text, so the unit is never judged."""
    deep: Any = []
    for _ in range(200_000):
        deep = [deep]
    session = Session()
    session.user("Go.")
    session.says({"type": "tool_use", "id": "c1", "name": "Write", "input": deep}, response="r1")
    session.result("c1", "done")

    [call] = session.read().calls
    session.rows.clear()
    while deep:  # freed step by step: the interpreter is not asked to do it in one go
        deep = deep.pop()

    assert (call.result, call.anomaly) == ("done", "arguments of unknown shape")


@pytest.mark.parametrize(
    ("rows", "is_session"),
    [
        ([{"type": "summary", "summary": "x"}, {"type": "user", "message": {"role": "user", "content": "Go."}}], True),
        ([["odd"], {"type": "progress", "uuid": "u", "parentUuid": None}], True),
        ([{"snapshot": {}}, {"type": "user", "message": {"role": "user", "content": "Go."}}], True),
        ([{"role": "user", "content": "Go."}], False),
        ([{"type": "message", "role": "user", "content": "Go."}], False),
        ([{"type": "user", "content": "Go."}], False),
        ([{"type": "summary", "summary": "x"}], False),
        ([1, None, "text"], False),
        ([], False),
    ],
)
def test_the_format_is_recognised_by_its_rows(rows, is_session):
    """The first row that tells decides."""
    assert adapter.sniff(rows) is is_session
