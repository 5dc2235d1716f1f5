"""Reducers and the channel for decisions: pure, a join, and safe for checkpoints."""

from __future__ import annotations

import copy
import json
import operator
import random
import sqlite3
from contextlib import closing
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send
from langgraph_agents import HAS_DELTA, text_of_step, thread
from typing_extensions import TypedDict

import jev_engine_adapters.langgraph as ours
from jev_engine.ledger import Ledger, LedgerEntry
from jev_engine_adapters.langgraph import (
    ReducerPolicy,
    compact_marker,
    jev_messages,
    jev_messages_delta,
    jev_reducer,
    merge_states,
)
from jev_engine_adapters.langgraph.messages import shortened
from jev_engine_adapters.langgraph.state import MOST_PASSES, PassMark, ThreadState


def a_history(units=6):
    messages = [HumanMessage("Go.", id="h")]
    for n in range(units):
        call = {"name": "fetch", "args": {"n": n}, "id": f"c{n}"}
        result = ToolMessage(text_of_step(n, 900), tool_call_id=f"c{n}", id=f"m{n}", artifact={"n": n})
        messages += [AIMessage("", tool_calls=[call], id=f"a{n}"), result]
    return messages


def marker(messages, *numbers, text="[out]"):
    """The marker that shortens units of a history."""
    after = [
        shortened(message, f"{text} {message.id}") if message.id in {f"m{n}" for n in numbers} else message
        for message in messages
    ]
    found = compact_marker(messages, after)
    assert found is not None
    return found


def contents(messages):
    return [(message.id, message.content) for message in messages]


def test_a_marker_shortens_what_it_names_and_nothing_else():
    """Untouched messages are the same objects; the input list is not changed."""
    messages = a_history()
    before = list(messages)

    after = jev_messages(messages, [marker(messages, 1, 3)])

    assert messages == before
    assert [m.id for m, old in zip(after, messages, strict=True) if m is not old] == ["m1", "m3"]
    assert [m.content for m in after if m.id in ("m1", "m3")] == ["[out] m1", "[out] m3"]


def test_without_a_marker_it_is_add_messages():
    """Appending, replacing by id, removing: the same lists."""
    messages = a_history()
    writes: list[Any] = [
        HumanMessage("More.", id="h2"),
        [("user", "As a pair.")],
        [ToolMessage("again", tool_call_id="c1", id="m1")],
        [RemoveMessage(id="a0"), RemoveMessage(id="m0")],
    ]

    for write in writes:
        mine, theirs = jev_messages(messages, write), add_messages(messages, write)
        assert [(m.type, m.content) for m in mine] == [(m.type, m.content) for m in theirs]
    with pytest.raises(ValueError, match="ID that doesn't exist"):
        jev_messages(messages, [RemoveMessage(id="zz")])


def test_markers_are_refused_loudly_by_plain_add_messages():
    """Whoever writes one without our state class hears of it at once."""
    messages = a_history()

    with pytest.raises(ValueError, match="__jev_compact__"):
        add_messages(messages, [marker(messages, 1)])


def test_a_marker_is_ignored_where_its_result_is_another_one_by_now():
    """Unknown ids, other texts and later versions change nothing."""
    messages = a_history()
    other = add_messages(messages, [ToolMessage("new text " * 200, tool_call_id="c1", id="m1")])
    later = marker(messages, 1)
    later.additional_kwargs["jev"]["version"] = 99

    assert contents(jev_messages(other, [marker(messages, 1)])) == contents(other)
    assert contents(jev_messages(messages[:3], [marker(messages, 4)])) == contents(messages[:3])
    assert contents(jev_messages(messages, [later])) == contents(messages)


@settings(max_examples=200)
@given(st.randoms(use_true_random=False))
def test_markers_of_parallel_branches_are_a_join(rng: random.Random):
    """In any order, any number of times, beside any new messages: one result."""
    messages = a_history()
    marks = [
        marker(messages, *rng.sample(range(6), rng.randint(1, 4)), text=rng.choice(["[out]", "[left out]", "[o]"]))
        for _ in range(rng.randint(1, 4))
    ]
    first = list(messages)
    for mark in marks:
        first = jev_messages(first, [mark])
    second = list(messages)
    for mark in rng.sample(marks + marks, 2 * len(marks)):
        second = jev_messages(second, [mark])

    assert contents(first) == contents(second)
    assert contents(jev_messages(first, marks)) == contents(first)


@settings(max_examples=200)
@given(st.randoms(use_true_random=False))
def test_the_delta_reducer_does_not_depend_on_batches(rng: random.Random):
    """`f(f(s, xs), ys) == f(s, xs + ys)`, with markers, replacements and removals of known and unknown ids."""
    messages = a_history()
    pool = [
        messages,
        [marker(messages, 0, 2)],
        [marker(messages, 2, 5, text="[o]")],
        [RemoveMessage(id="m1")],
        [RemoveMessage(id="zz")],
        [ToolMessage("again " * 90, tool_call_id="c3", id="m3")],
        HumanMessage("More.", id="h2"),
        [marker(messages, 3)],
        [RemoveMessage(id="__remove_all__"), HumanMessage("Anew.", id="h3")],
        ["twice the same words, without an id", "twice the same words, without an id"],
    ]
    writes = [messages, *rng.choices(pool, k=rng.randint(0, 6))]
    cut = rng.randint(0, len(writes))

    whole = jev_messages_delta([], writes)
    parts = jev_messages_delta(jev_messages_delta([], writes[:cut]), writes[cut:])

    assert contents(whole) == contents(parts)


def test_a_marker_survives_strict_checkpoints_and_http():
    """Strict msgpack gives it back whole; as a plain object, as a server gets it, it works too."""
    messages = a_history()
    made = marker(messages, 1, 3)
    serde = JsonPlusSerializer(allowed_msgpack_modules=None)

    back = serde.loads_typed(serde.dumps_typed(made))
    plain = {"type": "remove", "role": "remove", "content": "", "id": made.id,
             "additional_kwargs": json.loads(json.dumps(made.additional_kwargs))}  # fmt: skip

    assert back == made
    assert contents(jev_messages(messages, [plain])) == contents(jev_messages(messages, [made]))
    assert contents(jev_messages_delta(messages, [[plain]])) == contents(jev_messages(messages, [made]))


def test_artifacts_go_only_where_they_are_stored_and_the_policy_says_so():
    """Without a reference in the marker nothing of an artifact goes."""
    messages = a_history()
    edited = {"cleared": True, "strategy": "jev", "artifact": "jx-1"}
    after = [m if m.id != "m1" else shortened(m, "[out]").model_copy(update={"artifact": None,
             "response_metadata": {"context_editing": edited}}) for m in messages]  # fmt: skip
    stored = compact_marker(messages, after)

    assert jev_messages(messages, [stored])[4].artifact is None
    assert jev_reducer(ReducerPolicy(clear_artifacts=False))(messages, [stored])[4].artifact == {"n": 1}
    assert jev_messages(messages, [marker(messages, 1)])[4].artifact == {"n": 1}


def test_the_delta_state_is_refused_where_delta_channels_are_unsound():
    """With an older LangGraph the class says which one it needs."""
    if HAS_DELTA:
        assert "messages" in ours.JevDeltaAgentState.__annotations__
    else:
        with pytest.raises(ImportError, match=r"JevDeltaAgentState needs LangGraph 1\.2\.15"):
            ours.JevDeltaAgentState  # noqa: B018


def test_the_same_policy_is_the_same_function():
    """LangGraph compares channels by their reducers."""
    assert jev_reducer() is jev_reducer()
    assert jev_reducer() is jev_messages
    assert jev_reducer(delta=True) is jev_messages_delta
    assert jev_reducer(ReducerPolicy(clear_artifacts=False)) is jev_reducer(ReducerPolicy(clear_artifacts=False))


class PlainState(TypedDict):
    messages: Annotated[list[AnyMessage], jev_messages]
    order: Annotated[list[str], operator.add]


class DeltaState(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(jev_messages_delta, snapshot_frequency=5)]
    order: Annotated[list[str], operator.add]


@pytest.mark.parametrize("state", [PlainState, *([DeltaState] if HAS_DELTA else [])])
@pytest.mark.parametrize("names", ["ab", "ba"])
@pytest.mark.parametrize("saver", ["memory", "sqlite"])
def test_branches_that_write_at_once_lose_nothing(state, names, saver):
    """A fan-out: two branches emit markers for the same result, a third a new message; in both orders of names."""
    messages = a_history()
    first, second = names

    def mark(_):
        return {"messages": [marker(messages, 1, 2)], "order": [first]}

    def say(_):
        return {"messages": [marker(messages, 2, 3), AIMessage("New.", id="new")], "order": [second]}

    graph = StateGraph(state)
    graph.add_node(first, mark)
    graph.add_node(second, say)
    graph.add_conditional_edges(START, lambda _: [Send(first, {}), Send(second, {}), Send(first, {})])
    graph.add_edge([first, second], END)
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        built = graph.compile(checkpointer=InMemorySaver() if saver == "memory" else SqliteSaver(connection))
        built.invoke({"messages": messages, "order": []}, thread())
        read = [built.get_state(thread()).values["messages"] for _ in range(6)]

    assert len({json.dumps(contents(values)) for values in read}) == 1
    assert [m.content for m in read[0] if m.id in ("m1", "m2", "m3")] == ["[out] m1", "[out] m2", "[out] m3"]
    assert read[0][-1].content == "New."
    assert len(read[0]) == len(messages) + 1


marks = st.builds(
    PassMark, st.integers(1, 20), st.sampled_from(["committed", "not_worth_it"]), st.integers(0, 9), st.just(1.0),
    st.sampled_from(["", "r1", "r2"]),
)  # fmt: skip
entries = st.builds(
    LedgerEntry, st.sampled_from("abcdef"), st.sampled_from(["truncate", "remove"]), st.sampled_from(["jx-1", "jx-2"]),
    st.sampled_from(["[out]", "[left out]", "half \ud83d"]), st.integers(1, 3),
)  # fmt: skip
states = st.builds(
    lambda ledger, stripped, passes: ThreadState(Ledger.of(ledger), frozenset(stripped)).merge(
        ThreadState(passes=tuple(passes))
    ),
    st.lists(entries, max_size=5),
    st.lists(st.sampled_from("xyz")),
    st.lists(marks, max_size=12),
)


@settings(max_examples=150)
@given(states, states, states)
def test_the_state_of_a_thread_merges_as_a_join(a: ThreadState, b: ThreadState, c: ThreadState):
    """Commutative, associative, idempotent; through JSON as well."""
    assert a.merge(b) == b.merge(a)
    assert a.merge(b).merge(c) == a.merge(b.merge(c))
    assert a.merge(b).merge(a) == a.merge(b)
    assert len(a.merge(b).passes) <= MOST_PASSES
    assert ThreadState.from_json(json.loads(json.dumps(a.to_json()))) == a
    assert merge_states(a.to_json(), b.to_json()) == merge_states(b.to_json(), a.to_json())


def test_a_state_that_cannot_be_read_never_takes_the_place_of_one_that_can():
    """Damaged, of a later version, or cut off: the readable side stays."""
    good = ThreadState(passes=(PassMark(1, "committed", 5, 1.0, ""),)).to_json()
    for bad in ({"version": 99}, {"version": 1, "packed": "?"}, {**good, "packed": good["packed"][:-8]}, {"x": 1}):
        assert merge_states(good, copy.deepcopy(bad)) == good
        assert merge_states(bad, good) == good
    assert merge_states(None, good) == merge_states({}, good) == merge_states(good, None) == good
