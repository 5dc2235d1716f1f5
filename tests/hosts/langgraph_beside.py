"""Other middleware beside ours: context editing, summarisers and the hand-over to them."""

from __future__ import annotations

import json

import anyio
import pytest
from langchain.agents.middleware import (
    AgentMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    SummarizationMiddleware,
)
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_agents import (
    CountingJudge,
    PlannedModel,
    agent,
    ask,
    engine,
    pairs_are_whole,
    prefix_breaks,
    steps,
    text_of_step,
    thread,
)

from jev_engine.errors import ConfigError, StoreError
from jev_engine.recognition import session_of
from jev_engine.store.sqlite import SqliteStore
from jev_engine_adapters.langgraph import (
    JevMiddleware,
    adapter,
    after_pruning,
    compact_messages,
    compacted_view,
)


def test_a_summariser_is_not_put_behind_one_that_removes_calls(tmp_path):
    """It writes messages back into the state as they were: calls would come back without their results."""
    eng = engine(store=SqliteStore(tmp_path / "o.db"), profile="hermes-classic")
    jev = JevMiddleware(eng, on_drop="delete")

    with pytest.raises(ConfigError, match="on_drop='stub'"):
        after_pruning(summariser(3_000), jev)


@pytest.mark.parametrize("is_outside", [True, False])
def test_context_editing_leaves_our_markers_alone(is_outside):
    """Beside LangChain's own middleware: what we took out keeps its reference; neither undoes the other."""
    clear = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=30_000, keep=3)])
    ours = JevMiddleware(engine())
    model = PlannedModel(plan=steps(40))
    built = agent(model, *((clear, ours) if is_outside else (ours, clear)), checkpointer=InMemorySaver())

    built.invoke(ask(), thread())
    shown = compacted_view(built.get_state(thread()).values["messages"], built.get_state(thread()).values["jev_ledger"])
    markers = {m.tool_call_id: m.content for m in shown if "intact as jx-" in str(m.content)}

    assert all(pairs_are_whole(messages) for messages in model.seen)
    if not is_outside:
        last = {m.tool_call_id: m.content for m in model.seen[-1] if isinstance(m, ToolMessage)}
        assert markers.items() <= last.items()
    assert "[cleared]" in str(model.seen[-1])


def summariser(trigger=30_000):
    """LangChain's, with a model that counts how often it was asked."""

    def summarise(*_):
        theirs.asked += 1
        return AIMessage("Here is what happened so far: everything went well.")

    model = PlannedModel(plan=summarise)
    theirs = SummarizationMiddleware(
        model, trigger=("tokens", trigger), keep=("messages", 6), trim_tokens_to_summarize=None
    )
    theirs.asked = 0
    return theirs


@pytest.mark.parametrize("is_async", [False, True])
def test_a_summariser_without_a_thread_and_with_an_odd_ledger_still_works(tmp_path, is_async):
    """The session is named by how the history began; a ledger of a later version is left alone."""
    store = SqliteStore(tmp_path / "o.db")
    jev = JevMiddleware(engine(store=store))
    wrapped = after_pruning(summariser(3_000), jev)
    messages = [HumanMessage("Go.", id="h"), *[HumanMessage(f"remark {n} " * 200, id=f"h{n}") for n in range(12)]]
    state = {"messages": messages, "jev_ledger": {"version": 99}}

    update = anyio.run(wrapped.abefore_model, state, None) if is_async else wrapped.before_model(state, None)
    transcript = adapter.read(messages)
    found = anyio.run(store.rank, session_of(transcript), "remark", 50)

    assert update is not None
    assert len(update["messages"]) == 2 + 6
    assert len(found.matches) == 6  # the seventh that went says "Go."


@pytest.mark.parametrize("is_async", [False, True])
def test_a_summariser_works_on_the_pruned_history_and_what_it_replaces_is_stored(tmp_path, is_async):
    """Hand-over: it counts what the model would be shown, so it fires less often; every message it takes is kept."""
    counts = {}
    for is_ours in (False, True):
        store = SqliteStore(tmp_path / f"{is_ours}.db")
        judge = CountingJudge(lambda _: (0.9, 0.1))
        small = {"window_tokens": 50_000, "trigger_share": 0.3}
        jev = JevMiddleware(engine(judge, store=store, **small), min_batch_tokens=4_000)
        theirs = summariser()
        model = PlannedModel(plan=long_talk(60))
        built = agent(model, after_pruning(theirs, jev) if is_ours else theirs, jev, checkpointer=InMemorySaver())
        if is_async:
            anyio.run(built.ainvoke, ask(), thread())
        else:
            built.invoke(ask(), thread())
        values = built.get_state(thread()).values
        counts[is_ours] = theirs.asked
        assert all(pairs_are_whole(messages) for messages in model.seen)

    stored = anyio.run(store.rank, "t1", "telling remark number", 50)
    texts = [anyio.run(store.read, match.reference).text for match in stored.matches if match.tool == "message"]

    assert 0 < counts[True] < counts[False]
    assert sum("remark number" in text for text in texts) > 3
    assert any("Here is a summary" in str(m.content) for m in values["messages"])


def long_talk(count):
    """A talkative agent: text that pruning may not touch grows until only a summary helps."""
    replies = iter(range(1, count + 1))

    def reply(_, messages):
        number = next(replies)
        if number == count:
            return AIMessage("All done.")
        said = steps(count)(number, messages)
        return said.model_copy(update={"content": f"A telling remark number {number}. " * 200})

    return reply


def test_handover_never_means_never(tmp_path):
    """The setting holds whatever the summariser thinks."""
    eng = engine(handover="never", store=SqliteStore(tmp_path / "o.db"))
    jev, theirs = JevMiddleware(eng), summariser(trigger=1_000)
    model = PlannedModel(plan=steps(10))

    agent(model, after_pruning(theirs, jev), jev, checkpointer=InMemorySaver()).invoke(ask(), thread())

    assert theirs.asked == 0


def test_nothing_is_summarised_while_the_store_fails(tmp_path):
    """Store first: without it the messages stay."""

    async def fails(*_):
        raise StoreError("disk full")

    store = SqliteStore(tmp_path / "o.db")
    store.save_messages = fails
    jev = JevMiddleware(engine(store=store))
    built = agent(
        PlannedModel(plan=steps(20)), after_pruning(summariser(5_000), jev), jev, checkpointer=InMemorySaver()
    )

    built.invoke(ask(), thread())

    assert len(built.get_state(thread()).values["messages"]) == 42


def test_other_middleware_sees_and_changes_what_it_did_before():
    """A system prompt, streaming and another wrap_model_call around ours stay as they are."""

    class Outer(AgentMiddleware):
        def wrap_model_call(self, request, handler):
            return handler(request.override(system_message=SystemMessage("Be brief.")))

    model = PlannedModel(plan=steps(20))
    built = agent(model, Outer(), JevMiddleware(engine()), checkpointer=InMemorySaver(), system_prompt="Be long.")
    parts = list(built.stream(ask(), thread(), stream_mode=["custom", "updates"]))
    told = [part["jev_engine"] for kind, part in parts if kind == "custom"]

    assert {str(messages[0].content) for messages in model.seen} == {"Be brief."}
    assert [each["outcome"] for each in told] == ["committed"] * prefix_breaks([m[1:] for m in model.seen])
    assert all(each["freed_tokens"] > 0 for each in told)


def test_after_a_summary_passes_are_due_as_at_the_start():
    """What a pass could not shorten is no floor any more once a summariser has taken those messages."""
    judge = CountingJudge(lambda call: (0.9, 0.9 if json.loads(call.arguments)["step"] < 20 else 0.1))
    eng = engine(judge, window_tokens=60_000, trigger_share=0.4)
    history = [HumanMessage("Go.", id="h")]
    for n in range(40):
        call = {"name": "fetch", "args": {"step": n}, "id": f"c{n}"}
        result = ToolMessage(text_of_step(n), tool_call_id=f"c{n}", id=f"m{n}")
        history += [AIMessage("", tool_calls=[call], id=f"a{n}"), result]
    summary = HumanMessage("Here is a summary.", id="summary")

    first = compact_messages(history[:41], engine=eng, session="s")
    same = compact_messages([summary, *history[25:41], *history[41:55]], engine=eng, session="s", ledger=first.ledger)
    other = compact_messages([summary, *history[51:]], engine=eng, session="s", ledger=first.ledger)

    assert first.report is not None
    assert first.report.outcome != "committed"
    assert same.report is None
    assert "waits until" in same.reason
    assert other.report is not None
    assert other.report.outcome == "committed"
