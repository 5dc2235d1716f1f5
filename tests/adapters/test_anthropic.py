"""Messages API messages: what is read, what an edit changes, and what it never touches."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from jev_engine import ContextEngine
from jev_engine.host import Adapter, RowChange
from jev_engine.ledger import Ledger, LedgerEntry, assign_keys
from jev_engine.plugins import Plugins
from jev_engine.rebuild import apply
from jev_engine.testing import ScriptedJudge, check_adapter
from jev_engine_adapters.anthropic import adapter

MARK = {"type": "ephemeral"}


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def use(call_id: str, name: str = "Read", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def outcome(call_id: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def thought(words: str = "Hm.") -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": "c2lnbmVk"}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": blocks[0] if len(blocks) == 1 and isinstance(blocks[0], str) else list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}


def sample() -> list[Any]:
    return [
        user("Fix the parser."),
        assistant(text("I look first."), use("c1", path="a.py"), use("c2", "Bash", command="ls")),
        user(
            outcome("c1", "text of a\n" * 50),
            outcome("c2", [text("first"), IMAGE, text("b")], is_error=False),
            text("<system-reminder>Be brief.</system-reminder>"),
        ),
        assistant(use("c3", "Test")),
        user(outcome("c3", "c" * 900, is_error=True, cache_control=MARK)),
        {"role": "system", "content": "Mode changed."},
        assistant(text("Done.")),
    ]


def applied(messages: list[Any], **texts: str) -> list[Any]:
    """The messages with these results shortened, by call id; an empty text removes the unit."""
    transcript = adapter.read(messages)
    assign_keys(transcript, Ledger())
    entries = [
        LedgerEntry(call.key, "truncate" if texts[call.call_id] else "remove", "jx-1", texts[call.call_id], 1)
        for call in transcript.calls
        if call.call_id in texts
    ]
    return apply(messages, Ledger.of(entries), adapter)  # type: ignore[no-any-return]


def test_the_adapter_keeps_the_contract():
    """All checks of the kit pass, removal included, because the client sends originals again each time."""
    report = check_adapter(lambda: adapter, sample)

    assert report.ok, report
    assert "0 skipped" in str(report)
    assert isinstance(adapter, Adapter)


def test_a_call_and_its_result_are_one_unit():
    """Arguments are compact JSON, results know their place behind their siblings."""
    first, second, third = adapter.read(sample()).calls

    assert (first.tool, first.arguments, first.place, first.result_place) == ("Read", '{"path":"a.py"}', 1, 0)
    assert (second.result, second.images, second.result_place) == ("first\nb", 1, 1)
    assert third.is_error


def test_two_results_of_one_message_are_edited_apart():
    """The other result, the reminder behind them and the order of blocks stay, as the same objects."""
    messages = sample()

    edited = applied(messages, c1="[out]")

    assert edited[2]["content"][0] == outcome("c1", "[out]")
    assert all(a is b for a, b in zip(edited[2]["content"][1:], messages[2]["content"][1:], strict=True))
    assert all(edited[row] is messages[row] for row in (0, 1, 3, 4, 5, 6))


def test_images_of_a_shortened_result_stay_in_their_order():
    """The first text part holds the marker, further text parts go."""
    edited = applied(sample(), c2="[out]")

    assert edited[2]["content"][1]["content"] == [text("[out]"), IMAGE]


def test_cache_marks_stay_where_they_are():
    """On the block of a shortened result, and on the part of a result that carries one."""
    messages = [
        user("Go."),
        assistant(use("c1"), use("c2")),
        user(outcome("c1", [text("a" * 900), text("b", cache_control=MARK)]), outcome("c2", "z", cache_control=MARK)),
    ]

    edited = applied(messages, c1="[1]", c2="[2]")

    assert edited[2]["content"][0]["content"] == [text("[1]", cache_control=MARK)]
    assert edited[2]["content"][1] == outcome("c2", "[2]", cache_control=MARK)


def test_a_removed_unit_leaves_no_empty_message():
    """Its two messages go; a sibling, a thought or a text beside it stays."""
    messages = sample()

    edited = applied(messages, c3="", c1="")

    assert [message["role"] for message in edited] == ["user", "assistant", "user", "system", "assistant"]
    assert edited[1]["content"] == [messages[1]["content"][0], messages[1]["content"][2]]
    assert edited[2]["content"] == messages[2]["content"][1:]


def test_thinking_binds_its_turn():
    """A turn with signed thinking may be shortened, never removed; the reasoning can be read."""
    transcript = adapter.read([user("Go."), assistant(thought("Look at a."), use("c1")), user(outcome("c1", "x"))])

    assert transcript.bound_turns() == {transcript.calls[0].turn}
    assert transcript.entries[1].reasoning == "Look at a."


def test_redacted_thinking_binds_too():
    """There is nothing to read in it, but it is signed as well."""
    sealed = {"type": "redacted_thinking", "data": "c2VhbGVk"}

    assert adapter.read([user("Go."), assistant(sealed, use("c1"))]).bound_turns() == {1}


def test_tools_of_the_provider_are_sealed():
    """Their calls and results are no units; they are counted."""
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "web_search_result"}]}

    transcript = adapter.read([user("Go."), assistant(search, found, text("Found it."))])

    assert not transcript.calls
    assert transcript.odd["server-side tool"] == 2


@pytest.mark.parametrize(
    ("content", "anomaly"),
    [
        ([{"type": "tool_reference", "tool_name": "x"}], "block of unknown type in the result"),
        ([text("a", cache_control=MARK), text("b", cache_control=MARK)], "several cache marks in the result"),
        ({"text": "a"}, "result of unknown shape"),
        ([None], "block of unknown type in the result"),
    ],
)
def test_results_of_odd_shape_are_never_judged(content, anomaly):
    """They stay as they are, with the reason."""
    [call] = adapter.read([user("Go."), assistant(use("c1")), user(outcome("c1", content))]).calls

    assert call.anomaly == anomaly


def test_a_person_is_told_from_the_host():
    """A row of results with a reminder, and a row that is all reminder, are not a person's words."""
    messages = [
        user(text("<system-reminder>Date.</system-reminder>"), text("Fix it.")),
        assistant(use("c1")),
        user(outcome("c1", "x"), text("go on")),
        user("<system-reminder>Again.</system-reminder>"),
    ]

    assert [entry.is_human for entry in adapter.read(messages).entries if entry.role == "user"] == [True, False, False]


def test_forms_are_told_apart():
    """Chat Completions and session files are other forms; texts alone are nobody's."""
    chat = [{"role": "assistant", "tool_calls": []}, {"role": "tool", "tool_call_id": "c", "content": "x"}]
    plugins = Plugins()

    assert plugins.sniff(sample()) is adapter
    assert plugins.sniff([user("Go."), *chat]).name == "openai"
    assert not adapter.sniff([user("Only text.")])
    assert plugins.sniff([{"type": "user", "message": user(outcome("c1", "x"))}]).name == "claude-code"


def test_a_foreign_change_is_seen():
    """The check knows an edit from anything more than it."""
    before = sample()[4]
    [*_, call] = adapter.read(sample()).calls
    change = RowChange(4, ((call, "[out]"),))
    edited = adapter.edit(before, change)
    moved = copy.deepcopy(edited)
    moved["content"][0]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}

    assert adapter.check(before, edited, change) is None
    assert adapter.check(before, moved, change) == "field 'cache_control' of a result changed"


@pytest.mark.anyio
async def test_the_engine_shortens_what_is_not_needed():
    """A whole pass over Messages API messages: stored, shortened, restored byte for byte."""
    messages = [
        user("Fix the parser."),
        *(
            row
            for n in range(6)
            for row in (assistant(thought(), use(f"c{n}", path=f"{n}.py")), user(outcome(f"c{n}", f"line {n}\n" * 300)))
        ),
    ]
    engine = ContextEngine(judge=ScriptedJudge(lambda _: (0.9, 0.001)))

    done = await engine.compress(messages)
    restored = await engine.restore(done.messages)

    assert done.outcome == "committed", done.reason
    assert {decision.action for decision in done.decisions} == {"truncate"}
    assert [m["content"][0] for m in done.messages[1::2]] == [m["content"][0] for m in messages[1::2]]
    assert restored.messages == messages
