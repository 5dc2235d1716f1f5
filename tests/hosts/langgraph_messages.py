"""LangChain messages in and out: pairing, all copies of a call, results of every shape, and what providers are sent."""

from __future__ import annotations

import json

import anyio
import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.graph.message import add_messages

from jev_engine.host import RowChange
from jev_engine.ledger import Ledger, LedgerEntry, assign_keys
from jev_engine.rebuild import apply
from jev_engine.store.memory import MemoryStore
from jev_engine.testing import check_adapter
from jev_engine_adapters.langgraph import adapter
from jev_engine_adapters.langgraph.deleting import adapter as deleting
from jev_engine_adapters.langgraph.messages import EDITED, kind_of
from jev_engine_adapters.langgraph.persist import replacements

LONG = "a line of a long result\n" * 200


def call(call_id, name="read", **args):
    return {"name": name, "args": args, "id": call_id}


def a_history():
    """Calls as each provider writes them, results as text, parts and images."""
    return [
        HumanMessage("Fix it.", id="h1"),
        AIMessage("Reading.", tool_calls=[call("c1", path="a.py")], id="a1"),
        ToolMessage(LONG, tool_call_id="c1", id="m1", artifact={"rows": [1, 2]}, status="error", name="read"),
        AIMessage(
            [{"type": "tool_use", "id": "c2", "name": "read", "input": {"p": 1}},
             {"type": "tool_use", "id": "c3", "name": "read", "input": {"p": 2}}],
            tool_calls=[call("c2", p=1), call("c3", p=2)], id="a2", additional_kwargs={"x": 1},
        ),
        ToolMessage([{"type": "text", "text": LONG}, {"type": "image", "base64": "aa"}, "more"], tool_call_id="c3",
                    id="m2"),
        ToolMessage(LONG, tool_call_id="c2", id="m3"),
        AIMessage("", additional_kwargs={"tool_calls": [
            {"id": "c4", "type": "function", "function": {"name": "list", "arguments": "{}"}}]}, id="a3"),
        ToolMessage(LONG, tool_call_id="c4", id="m4"),
        AIMessage("Done.", id="a4"),
        SystemMessage("Mind the tests.", id="s1"),
    ]  # fmt: skip


@pytest.mark.parametrize("each", [adapter, deleting], ids=lambda each: each.name)
def test_the_adapter_keeps_its_contract(each):
    """The public suite, for both names of the adapter."""
    report = check_adapter(lambda: each, a_history)

    assert report.ok, report


def shorten(messages, *numbers, text="[out]", by=adapter):
    """The history with units shortened, or removed where `text` is empty."""
    transcript = by.read(messages)
    assign_keys(transcript, Ledger())
    action = "truncate" if text else "remove"
    chosen = [unit for unit in transcript.calls if unit.number in numbers]
    entries = [LedgerEntry(unit.key, action, "jx-" + "0" * 16, text and f"{text} {unit.label}", 1) for unit in chosen]
    return apply(messages, Ledger.of(entries), by)


def test_ids_used_again_in_later_turns_are_paired_by_occurrence():
    """A07: one id in every turn, and shortening the second unit touches the second result only."""
    messages = [HumanMessage("Go.", id="h")]
    for turn in range(20):
        messages += [AIMessage("", tool_calls=[call("call_0", n=turn)], id=f"a{turn}"),
                     ToolMessage(f"{turn} {LONG}", tool_call_id="call_0", id=f"m{turn}")]  # fmt: skip

    after = shorten(messages, 2)

    changed = [row for row, (old, new) in enumerate(zip(messages, after, strict=True)) if old is not new]
    assert changed == [4]
    assert after[4].content == "[out] t2"


def test_a_shortened_result_keeps_its_status_and_says_that_it_is_out():
    """A11: id, status, name and artifact stay; the mark is the one LangChain's own middleware looks for."""
    messages = [
        HumanMessage("Go.", id="h"),
        AIMessage("", tool_calls=[call("c1")], id="a"),
        ToolMessage(LONG, tool_call_id="c1", id="m3", artifact=[[0] * 10] * 50, status="error", name="sql",
                    response_metadata={"took": 3}),
    ]  # fmt: skip

    new = shorten(messages, 1)[2]

    assert (new.id, new.status, new.name, new.artifact) == ("m3", "error", "sql", messages[2].artifact)
    assert new.response_metadata == {"took": 3, "context_editing": EDITED}
    assert "context_editing" not in messages[2].response_metadata


def test_arguments_stay_in_every_copy():
    """Only results change: rows of calls are the same objects."""
    messages = a_history()

    after = shorten(messages, 1, 2, 3, 4)

    for old, new in zip(messages, after, strict=True):
        assert kind_of(old) == "tool" or new is old


RESPONSES = AIMessage(
    [{"type": "text", "text": "Looking."},
     {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read", "arguments": '{"p": 1}'}],
    tool_calls=[call("c1", p=1)], id="a", additional_kwargs={"tool_calls": [{"id": "c1", "type": "function"}]},
)  # fmt: skip
V1 = AIMessage(
    [{"type": "tool_call", "id": "c1", "name": "read", "args": {"p": 1}}], tool_calls=[call("c1", p=1)], id="a"
)
CHUNK = AIMessageChunk("", tool_call_chunks=[{"name": "read", "args": '{"p": 1}', "id": "c1", "index": 0}], id="a")
INVALID = AIMessage("", invalid_tool_calls=[{"name": "read", "args": '{"p": ', "id": "c1", "error": "cut"}], id="a")


@pytest.mark.parametrize("made", [RESPONSES, V1, CHUNK, INVALID], ids=["responses", "v1", "chunk", "invalid"])
def test_a_removed_call_leaves_every_copy(made):
    """`tool_calls`, blocks, chunks and `additional_kwargs` together; what is left is text, or the message goes."""
    messages = [HumanMessage("Go.", id="h"), made, ToolMessage(LONG, tool_call_id="c1", id="m")]

    after = shorten(messages, 1, text="", by=deleting)

    assert "c1" not in json.dumps([adapter.dump(message) for message in after])
    assert [message.id for message in after] == (["h", "a"] if made is RESPONSES else ["h"])
    assert made.tool_calls or made.invalid_tool_calls


def test_of_a_parallel_batch_only_the_removed_call_goes():
    """A03: results came back in another order; the others keep their places and are the same objects."""
    messages = [
        HumanMessage("Go.", id="h"),
        AIMessage("", tool_calls=[call("c1"), call("c2"), call("c3")], id="a"),
        *[ToolMessage(f"{name} {LONG}", tool_call_id=name, id=f"m-{name}") for name in ("c2", "c3", "c1")],
    ]

    after = shorten(messages, 2, text="", by=deleting)

    assert [made["id"] for made in after[1].tool_calls] == ["c1", "c3"]
    assert after[2] is messages[3]
    assert after[3] is messages[4]


def test_bound_items_keep_their_calls():
    """Thinking, reasoning items and Gemini's signatures: such turns are shortened at most."""
    thinking = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "tool_use", "id": "c1", "input": {}}]
    signed = {"__gemini_function_call_thought_signatures__": {"c3": "sig"}}
    messages = [
        HumanMessage("Go.", id="h"),
        AIMessage(thinking, tool_calls=[call("c1")], id="a1"),
        ToolMessage(LONG, tool_call_id="c1", id="m1"),
        AIMessage([{"type": "reasoning", "id": "rs_1"}], tool_calls=[call("c2")], id="a2"),
        ToolMessage(LONG, tool_call_id="c2", id="m2"),
        AIMessage("", tool_calls=[call("c3")], id="a3", additional_kwargs=signed),
        ToolMessage(LONG, tool_call_id="c3", id="m3"),
    ]

    transcript = adapter.read(messages)

    assert transcript.bound_turns() == {1, 2, 3}
    assert transcript.entries[1].reasoning == "hm"


def test_what_a_provider_ran_itself_is_no_unit():
    """Server-side calls and their results stay in the message, untouched and counted."""
    blocks = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"text": LONG}]},
        {"type": "text", "text": "Found."},
    ]

    transcript = adapter.read([HumanMessage("Go."), AIMessage(blocks)])

    assert transcript.calls == []
    assert transcript.odd == {"server-side tool": 2}


def test_results_that_are_a_persons_or_another_tools_are_never_judged():
    """A decision of a person, a result that ContextEditing cleared, and blocks nobody knows: each with its reason."""
    cleared = {"context_editing": {"cleared": True, "strategy": "clear_tool_uses"}}
    messages = [
        HumanMessage("Go.", id="h"),
        AIMessage("", tool_calls=[call(f"c{n}") for n in range(4)], id="a"),
        ToolMessage(LONG, tool_call_id="c0", id="m0", additional_kwargs={"lc_source": "hitl_interrupt_decision"}),
        ToolMessage(LONG, tool_call_id="c1", id="m1", response_metadata=cleared),
        ToolMessage([{"type": "hologram"}, {"type": "text", "text": LONG}], tool_call_id="c2", id="m2"),
        ToolMessage(LONG, tool_call_id="c3", id="m3", response_metadata={"context_editing": EDITED}),
    ]

    assert [unit.anomaly for unit in adapter.read(messages).calls] == [
        "answer of a person", "cleared by another tool", "block of unknown type in the result", None,
    ]  # fmt: skip


def test_odd_rows_are_kept_and_counted():
    """Removals, legacy messages, dicts and rubbish in a list of messages."""
    messages = [HumanMessage("Go."), RemoveMessage(id="x"), FunctionMessage("r", name="f"), {"role": "user"}, None]

    transcript = adapter.read(messages)

    assert transcript.messages is messages
    assert transcript.odd == {"message of type remove": 1, "message of type function": 1, "not a message": 2}


def test_summaries_and_reminders_are_not_taken_for_a_person():
    """LangChain's summary is a HumanMessage; no goal is taken from it."""
    summary = HumanMessage("Here is a summary.", additional_kwargs={"lc_source": "summarization"})
    reminder = HumanMessage("<system-reminder>mind the date</system-reminder>")

    found = adapter.read([HumanMessage("Fix it."), summary, reminder]).entries

    assert [entry.is_human for entry in found] == [True, False, False]


@pytest.mark.parametrize("field", ["status", "artifact", "name", "id", "tool_call_id", "additional_kwargs"])
def test_the_check_sees_any_other_field(field):
    """An edit that touches one field more is refused."""
    messages = a_history()
    transcript = adapter.read(messages)
    change = RowChange(2, [(transcript.calls[0], "[out]")])
    good = adapter.edit(messages[2], change)

    bad = good.model_copy(update={field: {"other": 1} if field == "additional_kwargs" else "other"})

    assert adapter.check(messages[2], good, change) is None
    assert adapter.check(messages[2], bad, change) is not None


def test_the_check_of_removals_sees_what_stays():
    """A lost sibling, changed arguments, a copy that was left behind and changed text."""
    messages = a_history()
    unit = deleting.read(messages).calls[1]
    change = RowChange(3, (), [unit])
    good = deleting.edit(messages[3], change)
    sibling = good.tool_calls[0]
    bad = [
        {"tool_calls": []},
        {"tool_calls": [{**sibling, "args": {}}]},
        {"content": messages[3].content},
        {"content": []},
        {"additional_kwargs": {}},
        {"id": "other"},
    ]

    assert deleting.check(messages[3], good, change) is None
    for update in bad:
        assert deleting.check(messages[3], good.model_copy(update=update), change) is not None, update


def test_messages_come_back_from_json_as_they_were():
    """Chunks, usage, metadata and half characters; an artifact that is no JSON is named, not guessed."""
    whole = AIMessageChunk("half \ud83d sign", id="x", usage_metadata={"input_tokens": 1, "output_tokens": 2,
                           "total_tokens": 3}, response_metadata={"model_name": "m"})  # fmt: skip
    odd = ToolMessage("r", tool_call_id="c", id="m", artifact=object())

    assert adapter.load(json.loads(json.dumps(adapter.dump(whole)))) == whole
    assert adapter.dump(odd)["not_kept"] == ["artifact"]
    assert adapter.load(adapter.dump(odd)).content == "r"


def test_updates_by_id_replace_in_place_and_unknown_ids_are_never_written():
    """A36: a row without an id is left alone in persist mode, because it could only be appended."""
    messages = [
        HumanMessage("Go.", id="h"),
        AIMessage("", tool_calls=[call("c1"), call("c2")], id="a"),
        ToolMessage(f"1 {LONG}", tool_call_id="c1"),
        ToolMessage(f"2 {LONG}", tool_call_id="c2", id="m2"),
    ]
    transcript = adapter.read(messages)
    assign_keys(transcript, Ledger())
    ledger = Ledger.of([LedgerEntry(c.key, "truncate", f"jx-{c.label}", f"[{c.label}]", 1) for c in transcript.calls])

    written = anyio.run(replacements, messages, ledger, adapter, MemoryStore(), "s")
    merged = add_messages(messages, written)

    assert [message.id for message in written] == ["m2"]
    assert [message.content for message in merged[2:]] == [f"1 {LONG}", "[t2]"]
    with pytest.raises(ValueError, match="ID that doesn't exist"):
        add_messages(messages, [RemoveMessage(id="zz")])
