"""Faults that compaction for LangChain had in the field, each by its kind, on the real libraries.

A11 (status and artifact), A03 (one of a parallel batch), A07 (ids used again) and A36 (updates by id) are in
`langgraph_messages.py` and `langgraph_originals.py`, A12 and A13 (bound reasoning) in `langgraph_reasoning.py`.
"""

from __future__ import annotations

import asyncio

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph_agents import (
    CountingJudge,
    PlannedModel,
    agent,
    ask,
    engine,
    pairs_are_whole,
    plain,
    prefix_breaks,
    steps,
    text_of_step,
    thread,
)

from jev_engine.store.sqlite import SqliteStore
from jev_engine_adapters.langgraph import (
    JevMessagesState,
    JevMiddleware,
    compact_messages,
    compacted_view,
    make_compaction_node,
)


def everything_goes(**changes):
    """An engine whose judge keeps no result."""
    return engine(CountingJudge(lambda _: (0.9, 0.0)), **changes)


@pytest.mark.parametrize("kept", range(1, 9))
def test_the_line_of_what_is_kept_never_falls_within_a_pair(kept):
    """A01 (langchain#33245, deepagents#270): wherever the protected end begins, no result stands without its call."""
    messages = [
        SystemMessage("Be kind."),
        HumanMessage("Go."),
        AIMessage(
            "", tool_calls=[{"name": "fetch", "args": {}, "id": "c1"}, {"name": "fetch", "args": {}, "id": "c2"}]
        ),
        ToolMessage(text_of_step(1), tool_call_id="c1"),
        ToolMessage(text_of_step(2), tool_call_id="c2"),
        HumanMessage("And now?"),
        AIMessage("Wait."),
        HumanMessage("Well?"),
    ]

    eng = everything_goes(pin_newest_messages=kept, pin_newest_calls=0)
    done = compact_messages(messages, engine=eng, always=True)

    assert len(done.messages) == len(messages)
    assert pairs_are_whole(done.messages)
    assert all(new is old for new, old in zip(done.messages[-kept:], messages[-kept:], strict=True))


def test_a_view_does_not_change_at_every_turn():
    """langchain#37815: what is out stays out in the same words, so requests go on from where they were."""
    model = PlannedModel(plan=steps(50))

    agent(model, JevMiddleware(engine()), checkpointer=InMemorySaver()).invoke(ask(), thread())

    unchanged = 50 - prefix_breaks(model.seen)
    assert unchanged >= 45


def test_system_prompt_and_tools_count():
    """langchain#34664: a request is as large as all that is in it."""
    breaks = {}
    for name, prompt in (("short", "Be brief."), ("long", "Mind this rule. " * 20_000)):
        model = PlannedModel(plan=steps(12))
        jev = JevMiddleware(everything_goes(trigger_share=0.25), min_batch_tokens=0)
        agent(model, jev, system_prompt=prompt).invoke(ask())
        breaks[name] = prefix_breaks([[*messages[1:]] for messages in model.seen])

    assert breaks["short"] == 0
    assert breaks["long"] >= 1


def test_a_report_from_before_a_pass_starts_no_second_one():
    """A27: usage 150,000 reported, a pass, no report since: the old number is not believed again."""

    def plan(number, messages):
        said = steps(20)(number, messages)
        if "intact as jx-" in str(messages):
            return said
        used = {"input_tokens": 150_000, "output_tokens": 1, "total_tokens": 150_001}
        return said.model_copy(update={"usage_metadata": used}) if number == 8 else said

    judge = CountingJudge(lambda _: (0.9, 0.0))
    model = PlannedModel(plan=plan)
    jev = JevMiddleware(engine(judge, trigger_share=0.5), min_batch_tokens=0)

    agent(model, jev, checkpointer=InMemorySaver()).invoke(ask(), thread())

    assert judge.requests == prefix_breaks(model.seen) == 1


def test_a_report_is_not_believed_twice_where_no_reply_came_between():
    """A27: the model failed after the pass, so the newest reply still reports the size of before."""
    messages = [HumanMessage("Go.")]
    for number in range(40):
        call = {"name": "fetch", "args": {"n": number}, "id": f"c{number}"}
        messages += [AIMessage("", tool_calls=[call], id=f"a{number}"),
                     ToolMessage(text_of_step(number), tool_call_id=f"c{number}", id=f"m{number}")]  # fmt: skip
    usage = {"input_tokens": 150_000, "output_tokens": 1, "total_tokens": 150_001}
    messages[-2] = messages[-2].model_copy(update={"usage_metadata": usage})
    eng = engine(trigger_share=0.3)

    first = compact_messages(messages, engine=eng, min_batch_tokens=0)
    again = compact_messages(messages, engine=eng, min_batch_tokens=0, ledger=first.ledger)

    assert first.report is not None
    assert first.report.stats.freed_tokens > 45_000
    assert again.report is None


class SlowJudge(CountingJudge):
    """Takes its time."""

    async def judge(self, request):
        await asyncio.sleep(0.3)
        return await super().judge(request)


@pytest.mark.parametrize("output", ["ledger", "replace"])
@pytest.mark.parametrize(("compacts", "listens"), [("a", "b"), ("b", "a")])
def test_rows_added_while_a_pass_runs_are_not_lost(tmp_path, compacts, listens, output):
    """A30: a user speaks up in the same step, in either order of names; only what was decided is written, by id."""
    messages = [HumanMessage("Go.", id="h")]
    for number in range(14):
        call = {"name": "fetch", "args": {"n": number}, "id": f"c{number}"}
        result = ToolMessage(text_of_step(number), tool_call_id=f"c{number}", id=f"m{number}")
        messages += [AIMessage("", tool_calls=[call], id=f"a{number}"), result]
    eng = engine(SlowJudge(lambda _: (0.9, 0.0)), store=SqliteStore(tmp_path / "o.db"))
    graph = StateGraph(JevMessagesState)
    graph.add_node(compacts, make_compaction_node(eng, output=output))
    graph.add_node(listens, lambda _: {"messages": [HumanMessage("Wait, one more thing.", id="late")]})
    for name in (compacts, listens):
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    built = graph.compile(checkpointer=InMemorySaver())

    built.invoke({"messages": messages}, thread())
    values = built.get_state(thread()).values
    shown = compacted_view(values["messages"], values["jev_ledger"])

    assert [m.id for m in values["messages"]] == [*[m.id for m in messages], "late"]
    assert shown[-1].content == "Wait, one more thing."
    assert sum("intact as jx-" in str(m.content) for m in shown) > 5


@pytest.mark.parametrize("tool", ["ask_user", "task", "send_mail"])
def test_what_cannot_be_fetched_again_is_never_judged(tool):
    """A17: answers of people, reports of helper agents, receipts of side effects, by the names hosts give them."""
    messages = [HumanMessage("Go.")]
    for number in range(12):
        call = {"name": tool, "args": {"n": number}, "id": f"c{number}"}
        messages += [AIMessage("", tool_calls=[call]), ToolMessage(text_of_step(number), tool_call_id=f"c{number}")]

    done = compact_messages(messages, engine=everything_goes(), always=True)

    assert plain(done.messages) == plain(messages)


def test_open_calls_stay_and_stop_nothing():
    """A04 (langgraph-swarm-py#94): a call without its result is left alone, and the rest is judged."""
    messages = [HumanMessage("Go.")]
    for number in range(12):
        call = {"name": "fetch", "args": {"n": number}, "id": f"c{number}"}
        messages.append(AIMessage("", tool_calls=[call]))
        if number != 4:
            messages.append(ToolMessage(text_of_step(number), tool_call_id=f"c{number}"))

    done = compact_messages(messages, engine=everything_goes(), always=True)
    shortened = [new.tool_call_id for new, old in zip(done.messages, messages, strict=True) if new is not old]

    assert shortened == [f"c{number}" for number in range(9) if number != 4]


def test_images_survive():
    """deepagents#2873: text goes, the image beside it stays."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages = [
        HumanMessage("Go."),
        AIMessage("", tool_calls=[{"name": "shot", "args": {}, "id": "c1"}]),
        ToolMessage([{"type": "text", "text": text_of_step(1)}, image], tool_call_id="c1"),
    ]

    eng = everything_goes(pin_newest_calls=0)
    done = compact_messages(messages, engine=eng, always=True)

    assert done.messages[2] is not messages[2]
    assert done.messages[2].content[1] is messages[2].content[1]
