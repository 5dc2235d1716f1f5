"""Graphs of one's own, the Functional API, messages without any graph, and the older prebuilt agent."""

from __future__ import annotations

import operator
import warnings
from typing import Annotated, Any

import anyio
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.prebuilt.chat_agent_executor import AgentState as ReactState
from langgraph.types import Send
from langgraph_agents import (
    CountingJudge,
    PlannedModel,
    ask,
    engine,
    fetch,
    pairs_are_whole,
    plain,
    prefix_breaks,
    steps,
    text_of_step,
    thread,
)

from jev_engine.errors import ConfigError, TranscriptError
from jev_engine.store.sqlite import SqliteStore
from jev_engine_adapters.langgraph import (
    JevAgentState,
    JevMessagesState,
    acompact_messages,
    compact_messages,
    compacted_view,
    make_compaction_node,
    merge_states,
)
from jev_engine_adapters.langgraph.state import ThreadState

COUNT = 24


class MarkedState(JevAgentState):
    jev_ledger: Annotated[dict[str, Any], merge_states]


def a_graph(model, eng, output, state=JevMessagesState):
    """Compaction, model, tools, and round again."""
    graph = StateGraph(state)
    graph.add_node("compact", make_compaction_node(eng, output=output))
    graph.add_node("tools", ToolNode([fetch]))

    def call_model(state):
        return {"messages": [model.invoke(compacted_view(state["messages"], state.get("jev_ledger")))]}

    graph.add_node("model", call_model)
    graph.add_edge(START, "compact")
    graph.add_edge("compact", "model")
    graph.add_conditional_edges("model", lambda s: "tools" if s["messages"][-1].tool_calls else END, ["tools", END])
    graph.add_edge("tools", "compact")
    return graph.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("output", ["ledger", "replace", "marker"])
def test_a_node_before_the_model_compacts_a_graph_of_ones_own(tmp_path, output, is_async):
    """Sync and async, whichever way it writes: the model is shown the same bytes, and each question is asked once."""
    model, judge = PlannedModel(plan=steps(COUNT)), CountingJudge()
    eng = engine(judge, store=SqliteStore(tmp_path / "o.db"))
    built = a_graph(model, eng, output, MarkedState if output == "marker" else JevMessagesState)
    if is_async:
        anyio.run(built.ainvoke, ask(), thread())
    else:
        built.invoke(ask(), thread())
    values = built.get_state(thread()).values
    whole = [m.content for m in values["messages"] if isinstance(m, ToolMessage)]

    assert judge.requests == prefix_breaks(model.seen) > 1
    assert len(judge.questions) == len(set(judge.questions))
    assert all(pairs_are_whole(messages) for messages in model.seen)
    assert (whole == [text_of_step(step) for step in range(COUNT)]) is (output == "ledger")


def test_a_node_says_what_it_does_not_know():
    """Settings are named; what takes results out of the state needs a store that stays."""
    with pytest.raises(ConfigError, match="output = 'nonsense'"):
        make_compaction_node(engine(), output="nonsense")
    with pytest.raises(ConfigError, match=r"output='replace'.*memory only"):
        make_compaction_node(engine(), output="replace")


@pytest.mark.parametrize("output", ["ledger", "llm_input_messages"])
@pytest.mark.parametrize("state", [{"v": 99, "entries": "?"}, {"v": 1}, "no ledger"])
def test_a_state_the_node_cannot_read_stops_no_graph(output, state):
    """A later version wrote it, or something else did: the history stays as it came; who wants the error gets it."""
    messages = [HumanMessage("Go.", id="h")]
    node = make_compaction_node(engine(), output=output)

    update = node.invoke({"messages": messages, "jev_ledger": state}, thread())

    assert update.get("llm_input_messages", messages) == messages
    assert "messages" not in update
    strict = make_compaction_node(engine(), output=output, on_error="raise")
    with pytest.raises(TranscriptError):
        strict.invoke({"messages": messages, "jev_ledger": state}, thread())


class FanOut(JevMessagesState):
    order: Annotated[list[str], operator.add]


@pytest.mark.parametrize("output", ["ledger", "replace"])
@pytest.mark.parametrize("names", ["ab", "ba"])
def test_branches_that_compact_at_once_merge_to_one_view(tmp_path, names, output):
    """A30, Send fan-out: both judge one history in one superstep, their ledgers join, no new message is lost."""
    eng = engine(store=SqliteStore(tmp_path / "o.db"))
    node = make_compaction_node(eng, min_batch_tokens=0, output=output)
    graph = StateGraph(FanOut)

    def branch(name):
        def work(state):
            done = node.invoke(state, thread())
            said = AIMessage(f"From {name}.", id=name)
            return {**done, "messages": [*done.get("messages", []), said], "order": [name]}

        return work

    for name in names:
        graph.add_node(name, branch(name))
        graph.add_edge(name, END)
    graph.add_conditional_edges(START, lambda s: [Send(name, {**s, "messages": s["messages"][: 40 - 4 * number]})
                                                  for number, name in enumerate(names)], list(names))  # fmt: skip
    built = graph.compile(checkpointer=InMemorySaver())
    history = [HumanMessage("Go.", id="h")]
    for n in range(20):
        history += [AIMessage("", tool_calls=[{"name": "fetch", "args": {"step": n}, "id": f"c{n}"}], id=f"a{n}"),
                    ToolMessage(text_of_step(n), tool_call_id=f"c{n}", id=f"m{n}")]  # fmt: skip

    built.invoke({"messages": history, "order": []}, thread())
    values = [built.get_state(thread()).values for _ in range(6)]
    views = [plain(compacted_view(each["messages"], each["jev_ledger"])) for each in values]

    assert {m.id for m in values[0]["messages"][-2:]} == {"a", "b"}
    assert len(values[0]["messages"]) == len(history) + 2
    assert views == [views[0]] * 6
    assert sum("jev-engine" in str(row) for row in views[0]) > 5
    assert len(ThreadState.from_json(values[0]["jev_ledger"]).passes) == 2


def test_the_functional_api_keeps_the_ledger_as_a_task_result():
    """After a fault later in the entrypoint, resuming asks nobody again and shows the same bytes."""
    judge, model = CountingJudge(), PlannedModel(plan=steps(COUNT))
    eng, fails = engine(judge), {"left": 1}

    @task
    def compact(messages, ledger):
        done = compact_messages(messages, engine=eng, ledger=ledger, session="t1")
        return done.messages, done.ledger

    @task
    def reply(shown):
        return model.invoke(shown)

    @task
    def run(call):
        return ToolMessage(fetch.invoke(call["args"]), tool_call_id=call["id"], id=f"m{call['id']}")

    @entrypoint(checkpointer=InMemorySaver())
    def loop(given):
        messages, ledger = list(given), None
        while True:
            shown, ledger = compact(messages, ledger).result()
            said = reply(shown).result()
            messages.append(said)
            if not said.tool_calls:
                return {"messages": messages, "ledger": ledger}
            messages.extend(future.result() for future in [run(call) for call in said.tool_calls])
            if len(messages) > 40 and fails["left"]:
                fails["left"] = 0
                raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        loop.invoke([HumanMessage("Go.", id="h")], thread())
    asked = judge.requests
    done = loop.invoke(None, thread())

    assert asked > 0
    assert len(judge.questions) == len(set(judge.questions))
    assert len(done["messages"]) == 2 + 2 * COUNT
    assert prefix_breaks(model.seen) == judge.requests


def test_messages_are_compacted_without_any_graph():
    """Sync, async, within a running loop; originals untouched, the ledger plain, a second call the same objects."""
    messages = [HumanMessage("Go.")]
    for n in range(20):
        messages += [AIMessage("", tool_calls=[{"name": "fetch", "args": {"step": n}, "id": f"c{n}"}]),
                     ToolMessage(text_of_step(n), tool_call_id=f"c{n}")]  # fmt: skip
    eng = engine()

    async def within_a_loop():
        first = compact_messages(messages, engine=eng)
        return first, await acompact_messages(messages, engine=eng, ledger=first.ledger)

    first, second = anyio.run(within_a_loop)
    small = compact_messages(messages[:5], engine=eng)

    assert first.report is not None
    assert first.report.outcome == "committed"
    assert second.report is None
    assert plain(first.messages) == plain(second.messages) == plain(compacted_view(messages, first.ledger))
    assert plain(compacted_view(first.messages, first.ledger)) == plain(first.messages)
    assert all(new is old for new, old in zip(small.messages, messages[:5], strict=True))
    assert compact_messages(messages, engine=eng, always=True).report is not None
    with pytest.raises(TranscriptError, match="not a state"):
        compacted_view(messages, {"something": "else"})


def test_create_react_agent_takes_the_node_as_its_hook():
    """The older prebuilt agent: its own view channel, which is stored with every step."""

    class State(ReactState):
        jev_ledger: Annotated[dict[str, Any], merge_states]

    model, judge = PlannedModel(plan=steps(COUNT)), CountingJudge()
    hook = make_compaction_node(engine(judge), output="llm_input_messages")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LangGraph deprecates this agent
        built = create_react_agent(
            model, [fetch], pre_model_hook=hook, state_schema=State, checkpointer=InMemorySaver()
        )
        built.invoke(ask(), thread())

    assert judge.requests == prefix_breaks(model.seen) > 1
    assert len(judge.questions) == len(set(judge.questions))
    assert len(built.get_state(thread()).values["messages"]) == 2 + 2 * COUNT
