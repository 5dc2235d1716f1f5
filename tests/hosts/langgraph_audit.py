"""What the audit trail hears of an agent: its model, its tools and every pass, and never a word of content."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from langgraph_agents import PlannedModel, agent, ask, engine, fetch, steps, thread

from jev_engine import events
from jev_engine.audit.jsonl import JsonlSink
from jev_engine.audit.records import read_events
from jev_engine_adapters.langgraph import JevMiddleware, audit_callbacks

CANARY = "CANARY-7431"


@tool
def fails(word: str) -> str:
    """Fail."""
    raise RuntimeError(f"no {word}")


def run(tmp_path, *, is_async=False, plan=None, **options):
    sink = JsonlSink(tmp_path / "t.jsonl", key=b"k" * 32)
    eng = engine(sinks=[sink], **options)
    model = PlannedModel(plan=plan or steps(20))
    built = agent(model, JevMiddleware(eng), checkpointer=InMemorySaver(), tools=[fetch, fails])
    if is_async:
        anyio.run(built.ainvoke, ask(CANARY), thread())
    else:
        built.invoke(ask(CANARY), thread())
    eng.sinks.close(10)
    return sink, [event for event in read_events(sink.path) if event is not None]


@pytest.mark.parametrize("is_async", [False, True])
def test_model_calls_tool_calls_and_passes_are_in_the_trail(tmp_path, is_async):
    """Two events for every call of the model and of a tool; passes as always; one session throughout."""
    sink, found = run(tmp_path, is_async=is_async)
    kinds = Counter(event.kind for event in found)
    tools = [event for event in found if isinstance(event, events.ToolFinished)]

    assert kinds["model_called"] == 2 * 21
    assert kinds["tool_called"] == kinds["tool_finished"] == 20
    assert kinds["pass_started"] == kinds["committed"] >= 1
    assert {event.result_chars for event in tools} == {8_000}
    assert all(event.ms is not None and not event.is_error for event in tools)
    assert len({event.session for event in found}) == 1
    assert {event.origin.host for event in found} == {"langgraph"}
    assert CANARY not in sink.path.read_text()
    assert '"t1"' not in sink.path.read_text()


def test_a_tool_that_fails_is_told_as_failed(tmp_path):
    """And its exception goes on as it did before."""
    call = {"name": "fails", "args": {"word": CANARY}, "id": "c"}

    with pytest.raises(RuntimeError, match=CANARY):
        run(tmp_path, plan=lambda *_: AIMessage("", tool_calls=[call]))
    path = tmp_path / "t.jsonl"
    anyio.run(anyio.sleep, 0.5)
    found = [event for event in read_events(path) if isinstance(event, events.ToolFinished)]

    assert [event.is_error for event in found] == [True]
    assert CANARY not in path.read_text()


def test_an_interrupt_is_no_end_of_a_call(tmp_path):
    """The tool asks a person: its call begins twice and ends once."""

    @tool
    def confirm(word: str) -> str:
        """Ask a person."""
        return str(interrupt(word))

    sink = JsonlSink(tmp_path / "t.jsonl", key=b"k" * 32)
    eng = engine(sinks=[sink])
    call = {"name": "confirm", "args": {"word": CANARY}, "id": "c"}
    model = PlannedModel(plan=lambda number, _: AIMessage("Well.") if number else AIMessage("", tool_calls=[call]))
    built = agent(model, JevMiddleware(eng), checkpointer=InMemorySaver(), tools=[confirm])

    built.invoke(ask(), thread())
    done = built.invoke(Command(resume="yes"), thread())
    eng.sinks.close(10)
    kinds = Counter(event.kind for event in read_events(sink.path) if event is not None)

    assert done["messages"][-2].content == "yes"
    assert (kinds["tool_called"], kinds["tool_finished"]) == (2, 1)


def test_without_an_audit_trail_tools_are_not_wrapped():
    """An agent's tool node is then the one it had before."""
    plain, telling = JevMiddleware(engine()), JevMiddleware(engine(sinks=[JsonlSink]))

    assert type(plain).wrap_tool_call is AgentMiddleware.wrap_tool_call
    assert type(telling).wrap_tool_call is not AgentMiddleware.wrap_tool_call
    assert plain.name == telling.name == "JevMiddleware"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_graph_of_ones_own_tells_the_same_by_callbacks(tmp_path, is_async):
    """Runs, calls of the model and of tools, with sizes and without content."""
    sink = JsonlSink(tmp_path / "t.jsonl", key=b"k" * 32)
    eng = engine(sinks=[sink])
    built = agent(PlannedModel(plan=steps(3)), checkpointer=InMemorySaver(), tools=[fetch, fails])
    config = {**thread(), "callbacks": [audit_callbacks(eng)]}
    if is_async:
        anyio.run(built.ainvoke, ask(CANARY), config)
    else:
        built.invoke(ask(CANARY), config)
    call = {"name": "fails", "args": {"word": CANARY}, "id": "c"}
    broken = agent(PlannedModel(plan=lambda *_: AIMessage("", tool_calls=[call])), tools=[fails])
    with pytest.raises(RuntimeError):
        broken.invoke(ask(CANARY), config)
    eng.sinks.close(10)
    found = [event for event in read_events(sink.path) if event is not None]
    kinds = Counter(event.kind for event in found)
    sizes = [event.result_chars for event in found if isinstance(event, events.ToolFinished) and not event.is_error]

    assert (kinds["session_started"], kinds["session_ended"]) == (2, 2)
    assert (kinds["model_called"], kinds["tool_called"], kinds["tool_finished"]) == (2 * 5, 4, 4)
    assert sizes == [8_000] * 3
    assert CANARY not in sink.path.read_text()


def test_a_sink_that_raises_changes_nothing():
    """Side channels cannot hurt."""

    class Broken:
        name = "broken"

        def emit(self, event):
            raise OSError("no space")

    model = PlannedModel(plan=steps(20))
    built = agent(model, JevMiddleware(engine(sinks=[Broken()])), checkpointer=InMemorySaver())

    assert built.invoke(ask(), thread())["messages"][-1].content == "All done."
