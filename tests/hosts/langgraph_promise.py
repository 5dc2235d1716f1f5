"""The promise, over histories of any shape: nothing but old results changes, and everything comes back."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage, convert_to_messages
from langgraph.graph.message import add_messages
from langgraph_agents import CountingJudge, engine

from jev_engine import ContextEngine, EngineConfig
from jev_engine.store.memory import MemoryStore
from jev_engine_adapters.langgraph import adapter, compact_messages, compacted_view
from jev_engine_adapters.langgraph.messages import kind_of
from jev_engine_adapters.langgraph.persist import replacements
from jev_engine_adapters.langgraph.state import ThreadState
from jev_engine_adapters.openai import adapter as openai

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "trajectories.jsonl.gz"
FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name")

TEXTS = ["short", "a line of text\n" * 60, "{}" * 400, "你好" * 300, "half \ud83d sign " * 60, "[cleared]", ""]
IMAGE = {"type": "image", "base64": "aa"}


@st.composite
def results(draw, call_id, number):
    text = f"{number} {draw(st.sampled_from(TEXTS))}"
    content = draw(st.sampled_from([text, [{"type": "text", "text": text}, IMAGE], [text], [IMAGE], [{"type": "odd"}]]))
    return ToolMessage(
        content,
        tool_call_id=call_id,
        id=draw(st.sampled_from([f"m{number}", f"m{number}", None])),
        status=draw(st.sampled_from(["success", "error"])),
        artifact=draw(st.sampled_from([None, {"rows": [1]}, object()])),
    )


@st.composite
def histories(draw):
    """Turns with parallel calls, repeated ids, missing and doubled results, text between them, thinking."""
    messages = [draw(st.sampled_from([HumanMessage("Go.", id="h"), SystemMessage("Be kind.", id="s")]))]
    for turn in range(draw(st.integers(1, 8))):
        ids = draw(st.lists(st.sampled_from([f"c{turn}a", f"c{turn}b", "same", ""]), max_size=3))
        calls = [{"name": "read", "args": {"n": n, "turn": turn % 2}, "id": each} for n, each in enumerate(ids)]
        said = draw(
            st.sampled_from(["", "Reading.", [{"type": "thinking", "thinking": "hm", "signature": f"s{turn}"}]])
        )
        messages.append(AIMessage(said, tool_calls=calls, id=f"a{turn}"))
        messages += [draw(results(each, len(messages) + n)) for n, each in enumerate(draw(st.permutations(ids)))]
        if draw(st.booleans()):
            messages.append(HumanMessage(draw(st.sampled_from(["Go on.", "<system-reminder>x</system-reminder>"]))))
    return messages


def decides(call):
    return 0.9, 0.9 if len(call.arguments) % 3 == 0 else 0.05


@settings(max_examples=150, deadline=None)
@given(histories(), st.integers(0, 3))
def test_only_results_change_and_each_comes_back(messages, newest):
    """Texts, calls, ids and order stay; untouched messages are the same objects; originals are in the store."""
    store = MemoryStore()
    eng = engine(CountingJudge(decides), store=store, pin_newest_calls=newest, pin_short_chars=0, extra_pins=False)
    before = [adapter.dump(message) for message in messages]

    done = compact_messages(messages, engine=eng, always=True, bound_reasoning="keep")

    assert done.report is not None
    assert done.report.outcome != "failed", done.report.reason
    assert [adapter.dump(message) for message in messages] == before
    assert len(done.messages) == len(messages)
    for old, new in zip(messages, done.messages, strict=True):
        if new is old:
            continue
        assert kind_of(old) == "tool"
        assert (new.id, new.tool_call_id, new.status, new.artifact) == (
            old.id,
            old.tool_call_id,
            old.status,
            old.artifact,
        )
    for entry in ThreadState.from_json(done.ledger).ledger:
        original = anyio.run(store.read, entry.reference)
        assert any(original.text == unit.result for unit in adapter.read(messages).calls)


@settings(max_examples=100, deadline=None)
@given(histories(), st.integers(0, 3))
def test_views_are_idempotent_and_persisting_shows_the_same(messages, newest):
    """Applied twice, applied to a state that holds the edits, applied after another pass: one view."""
    eng = engine(CountingJudge(decides), pin_newest_calls=newest, pin_short_chars=0, extra_pins=False)
    done = compact_messages(messages, engine=eng, always=True)
    state = ThreadState.from_json(done.ledger)

    view = compacted_view(messages, done.ledger)
    written = anyio.run(replacements, messages, state.ledger, adapter, eng.store, "s")
    held = add_messages(list(messages), written) if all(message.id for message in messages) else messages
    again = compact_messages(messages, engine=eng, ledger=done.ledger, always=True)

    def contents(rows):
        return [message.content for message in rows]

    assert contents(view) == contents(done.messages)
    assert contents(compacted_view(view, done.ledger)) == contents(view)
    assert contents(compacted_view(held, done.ledger)) == contents(view)
    assert set(state.ledger) <= set(ThreadState.from_json(again.ledger).ledger)
    assert all(message.id for message in written)


@pytest.mark.parametrize("rows", [[], [HumanMessage("Hi.")], [AIMessage("", tool_calls=[])]])
def test_there_may_be_nothing_to_do(rows):
    """The same objects come back."""
    done = compact_messages(rows, engine=engine(), always=True)

    assert all(new is old for new, old in zip(done.messages, rows, strict=True))


@pytest.mark.skipif(not CORPUS.is_file(), reason="NOT CHECKED AGAINST REAL SESSIONS: no corpus beside the project")
def test_real_sessions_read_as_they_do_in_chat_completions_form():
    """The same units as the OpenAI adapter finds; shortened with the local judge, every original comes back."""
    with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:
        sessions = [json.loads(line)["messages"] for line in itertools.islice(lines, 20)]
    shortened = 0
    for session in sessions:
        rows = [{name: row[name] for name in FIELDS if row.get(name) is not None} for row in session]
        messages = convert_to_messages([{"content": "", **row} for row in rows])
        theirs, ours = openai.read(session).calls, adapter.read(messages).calls
        store = MemoryStore()
        engine = ContextEngine(config=EngineConfig(window_tokens=40_000), store=store)

        done = compact_messages(messages, engine=engine, always=True)

        assert [(unit.tool, unit.result) for unit in ours] == [(unit.tool, unit.result) for unit in theirs]
        assert done.report.outcome != "failed", done.report.reason
        for old, new in zip(messages, done.messages, strict=True):
            assert new is old or kind_of(old) == "tool"
            shortened += new is not old
        texts = {unit.result for unit in ours}
        for entry in ThreadState.from_json(done.ledger).ledger:
            assert anyio.run(store.read, entry.reference).text in texts

    assert shortened > 100
