"""Graphs of one's own, the Functional API, older agents and other middleware beside ours."""

from __future__ import annotations

import json
import operator
import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import anyio
import pytest
from langchain.agents.middleware import (
    AgentMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    SummarizationMiddleware,
)
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.prebuilt.chat_agent_executor import AgentState as ReactState
from langgraph.types import Send
from langgraph_agents import (
    CountingJudge,
    PlannedModel,
    agent,
    ask,
    config,
    engine,
    fetch,
    pairs_are_whole,
    plain,
    prefix_breaks,
    steps,
    text_of_step,
    thread,
)

from jev_engine import ContextEngine
from jev_engine.errors import ConfigError, StoreError, TranscriptError
from jev_engine.store.sqlite import SqliteStore
from jev_engine.testing import ScriptedJudge
from jev_engine_adapters.langgraph import (
    JevAgentState,
    JevMessagesState,
    JevMiddleware,
    acompact_messages,
    after_pruning,
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


def test_a_prompt_the_provider_refuses_is_shortened_once_and_sent_again():
    """Overflow: one forced pass whatever the trigger says; where nothing can be freed the provider's error stands."""

    def plan(number, messages):
        if sum(len(str(m.content)) for m in messages) > 100_000:
            raise ContextOverflowError("prompt is too long")
        return steps(20)(number, messages)

    model = PlannedModel(plan=plan)
    jev = JevMiddleware(engine(CountingJudge(lambda _: (0.9, 0.1)), trigger_share=0.9, target_share=0.1))
    done = agent(model, jev, checkpointer=InMemorySaver()).invoke(ask(), thread())
    stuck = PlannedModel(plan=lambda *_: (_ for _ in ()).throw(ContextOverflowError("prompt is too long")))

    assert done["messages"][-1].content == "All done."
    with pytest.raises(ContextOverflowError):
        agent(stuck, JevMiddleware(engine())).invoke(ask("Too long. " * 50_000))
    assert len(stuck.seen) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"trigger": ("messages", 9)}, "trigger = \\('messages', 9\\): say"),
        ({"trigger": 0.5}, "trigger = 0.5 is no pair"),
        ({"trigger": ("tokens", 10**9)}, "outside of the window of 200,000 tokens"),
        ({"keep": ("turns", 3)}, "keep = \\('turns', 3\\): say"),
        ({"mode": "other"}, "mode = 'other' is none of view, persist, marker"),
        ({"on_drop": "other"}, "on_drop = 'other'"),
        ({"bound_reasoning": "other"}, "bound_reasoning = 'other'"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, says):
    """With what to say instead."""
    with pytest.raises(ConfigError, match=says):
        JevMiddleware(engine(), **arguments)


def test_arguments_fill_the_engines_own_settings_and_no_more():
    """The given engine stays as it is; what nobody named stays as the engine has it."""
    given = ContextEngine()
    jev = JevMiddleware(
        given, trigger=("fraction", 0.6), keep=("messages", 8), exclude_tools=["ask_*"], expand_tool=False
    )
    made = jev.engine.config

    assert (made.trigger_share, made.pin_newest_messages, made.protect_tools) == (0.6, 8, ("ask_*",))
    assert (made.policy, made.miss_cost, made.target_share) == ("worth", 5.0, 0.30)
    assert given.config == ContextEngine().config
    assert JevMiddleware(given, trigger=("tokens", 40_000)).engine.config.trigger_share == 0.2
    assert JevMiddleware(given, expand_tool=False).engine is given


def test_the_window_of_the_model_counts():
    """A profile names it; a window the user set stays."""
    small = {"max_input_tokens": 40_000}
    for given, expected in ((engine(trigger_share=0.5), 1), (engine(trigger_share=0.5, window_tokens=400_000), 0)):
        model = PlannedModel(plan=steps(12), profile=small)
        agent(model, JevMiddleware(given, min_batch_tokens=0), checkpointer=InMemorySaver()).invoke(ask(), thread())
        assert (prefix_breaks(model.seen) >= 1) is bool(expected)


def test_reported_usage_beats_estimates():
    """A model that reports 200 times the tokens is believed, and a report from before a pass is not used after it."""

    def plan(number, messages):
        said = steps(12)(number, messages)
        tokens = sum(len(str(m.content)) for m in messages) // 4
        used = {"input_tokens": tokens * 20, "output_tokens": 1, "total_tokens": tokens * 20 + 1}
        return said.model_copy(update={"usage_metadata": used})

    model, judge = PlannedModel(plan=plan), CountingJudge(lambda _: (0.9, 0.1))
    agent(model, JevMiddleware(engine(judge, trigger_share=0.5), min_batch_tokens=0)).invoke(ask())

    assert judge.requests >= 1


def test_a_counter_of_ones_own_counts_the_view():
    """It is given what the model would be shown, system prompt included; one that raises changes nothing."""
    counted = []

    def count(messages):
        counted.append(messages)
        return 3_000 * len(messages)

    model = PlannedModel(plan=steps(12))
    jev = JevMiddleware(engine(), token_counter=count, min_batch_tokens=0)
    agent(model, jev, system_prompt="Be brief.").invoke(ask())

    assert prefix_breaks(model.seen) >= 1
    assert all(isinstance(messages[0], SystemMessage) for messages in counted)
    assert "intact as jx-" in str(counted[-1])

    def fails(_):
        raise ZeroDivisionError

    quiet = PlannedModel(plan=steps(12))
    agent(quiet, JevMiddleware(engine(), token_counter=fails)).invoke(ask())
    assert prefix_breaks(quiet.seen) == 0
    with pytest.raises(ZeroDivisionError):
        agent(PlannedModel(plan=steps(12)), JevMiddleware(engine(), token_counter=fails, on_error="raise")).invoke(
            ask()
        )


async def _within_a_loop(call):
    return call()


def test_a_sync_agent_runs_within_a_running_loop():
    """As in a notebook, or a web handler that is async but calls `invoke`."""
    model = PlannedModel(plan=steps(20))
    built = agent(model, JevMiddleware(engine()), checkpointer=InMemorySaver())

    done = anyio.run(_within_a_loop, lambda: built.invoke(ask(), thread()))

    assert done["messages"][-1].content == "All done."
    assert prefix_breaks(model.seen) >= 1


def test_many_threads_at_once_keep_apart():
    """One middleware, twenty conversations in as many threads: each decides for itself, with one answer."""
    judge = CountingJudge()
    model = PlannedModel(plan=steps(16))
    built = agent(model, JevMiddleware(engine(judge)), checkpointer=InMemorySaver())

    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(lambda n: built.invoke(ask(), thread(f"t{n}")), range(20)))
    views = [
        json.dumps(plain(compacted_view(values["messages"], values["jev_ledger"])))
        for values in (built.get_state(thread(f"t{n}")).values for n in range(20))
    ]
    references = {view: set(re.findall("jx-[0-9a-f]{16}", view)) for view in views}

    assert len(views) == len(set(views)) == 20
    assert len({len(found) for found in references.values()}) == 1
    assert len(set.union(*references.values())) == sum(len(found) for found in references.values())


def test_removing_calls_is_possible_where_it_is_asked_for(tmp_path):
    """Threshold profile and `on_drop="delete"`: calls and results go together, in the state too."""
    judge = CountingJudge(lambda _: (0.0, 0.0))
    eng = ContextEngine(config=config(keep_call=0.5, guards=False), judge=judge, store=SqliteStore(tmp_path / "o.db"))
    model = PlannedModel(plan=lambda _, messages: steps(20)(next(numbers), messages))
    numbers = iter(range(100))
    built = agent(model, JevMiddleware(eng, mode="persist", on_drop="delete"), checkpointer=InMemorySaver())

    built.invoke(ask(), thread())
    messages = built.get_state(thread()).values["messages"]

    assert len(messages) < 42
    assert all(pairs_are_whole(shown) for shown in [*model.seen, messages])
    assert messages[0].content == "Do the steps."


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


def test_a_judge_that_fails_changes_nothing_but_a_warning():
    """Units are then decided by the local judge or kept; the run goes on."""
    model = PlannedModel(plan=steps(20))
    eng = engine(ScriptedJudge({}, fails=True), undecided="keep")

    done = agent(model, JevMiddleware(eng), checkpointer=InMemorySaver()).invoke(ask(), thread())

    assert done["messages"][-1].content == "All done."
    assert prefix_breaks(model.seen) == 0
