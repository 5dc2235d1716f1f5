"""deepagents, and what the converters of three providers make of our messages. Newest versions only."""

from __future__ import annotations

import json

import anyio
import pytest
from deepagents import create_deep_agent
from deepagents.backends import StateBackend
from deepagents.middleware.summarization import create_summarization_middleware
from langchain_anthropic.chat_models import _format_messages
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_google_genai.chat_models import _parse_chat_history
from langchain_openai.chat_models.base import _construct_responses_api_input, _convert_message_to_dict
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_agents import (
    CountingJudge,
    PlannedModel,
    ask,
    engine,
    fetch,
    pairs_are_whole,
    prefix_breaks,
    steps,
    steps_in_turn,
    text_of_step,
    thread,
)

from jev_engine.ledger import Ledger, LedgerEntry, assign_keys
from jev_engine.rebuild import apply
from jev_engine.store.sqlite import SqliteStore
from jev_engine_adapters.langgraph import JevMiddleware, adapter, after_pruning
from jev_engine_adapters.langgraph.deleting import adapter as deleting
from jev_engine_adapters.langgraph.state import ThreadState

LONG = "a line of a long result\n" * 200
CALL = {"name": "read", "args": {"path": "a.py"}, "id": "c1"}
SHAPES = {
    "anthropic": AIMessage(
        [{"type": "text", "text": "Looking."},
         {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.py"}}],
        tool_calls=[CALL], id="a",
    ),
    "chat": AIMessage("Looking.", tool_calls=[CALL], id="a", additional_kwargs={"tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}]}),
    "responses": AIMessage(
        [{"type": "text", "text": "Looking."},
         {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read", "arguments": '{"path": "a.py"}'}],
        tool_calls=[CALL], id="a",
    ),
    "v1": AIMessage(
        [{"type": "text", "text": "Looking."},
         {"type": "tool_call", "id": "c1", "name": "read", "args": {"path": "a.py"}}],
        tool_calls=[CALL], id="a", response_metadata={"output_version": "v1"},
    ),
}  # fmt: skip
PROVIDERS = {
    "anthropic": lambda messages: _format_messages(messages, model="claude-opus-4-1")[1],
    "openai chat": lambda messages: [_convert_message_to_dict(message) for message in messages],
    "openai responses": _construct_responses_api_input,
    "gemini": lambda messages: [str(each) for each in _parse_chat_history(messages)[1]],
}
FITS = [("anthropic", "anthropic"), ("chat", "openai chat"), ("responses", "openai responses"), ("v1", "openai chat"),
        ("chat", "gemini"), ("v1", "gemini"), ("chat", "anthropic")]  # fmt: skip


def sent(shape, provider, edit):
    """What a provider would be sent, as text."""
    messages = [HumanMessage("Go.", id="h"), SHAPES[shape], ToolMessage(LONG, tool_call_id="c1", id="m", name="read")]
    by = deleting if edit == "removed" else adapter
    transcript = by.read(messages)
    assign_keys(transcript, Ledger())
    action, text = ("remove", "") if edit == "removed" else ("truncate", "[left out]")
    ledger = Ledger.of([LedgerEntry(transcript.calls[0].key, action, "jx-1", text, 1)])
    return json.dumps(PROVIDERS[provider](apply(messages, ledger, by) if edit else messages), default=str)


@pytest.mark.parametrize(("shape", "provider"), FITS)
def test_a_shortened_result_reaches_the_provider_with_its_call_as_it_was(shape, provider):
    """The marker is sent, the original is not, and call and arguments are."""
    text = sent(shape, provider, "shortened")

    assert "[left out]" in text
    assert "a line of a long result" not in text
    assert "a.py" in text
    assert "Looking." in text


@pytest.mark.parametrize(("shape", "provider"), FITS)
def test_a_removed_call_does_not_come_back_from_another_copy(shape, provider):
    """Converters read blocks, `tool_calls` and `additional_kwargs`: of a removed call none of them is left."""
    text = sent(shape, provider, "removed")

    assert "a.py" in sent(shape, provider, None)
    assert "a.py" not in text
    assert "c1" not in text
    assert "[left out]" not in text
    assert "Looking." in text


def deep_agent(model, jev):
    return create_deep_agent(model, tools=[fetch], middleware=[jev], checkpointer=InMemorySaver())


@pytest.mark.parametrize("mode", ["view", "persist"])
@pytest.mark.parametrize("is_async", [False, True])
def test_deep_agents_run_with_it(tmp_path, mode, is_async):
    """Inside their summariser: calls keep their pairs, and each question is asked once."""
    model, judge = PlannedModel(plan=steps(30), profile={"max_input_tokens": 200_000}), CountingJudge()
    built = deep_agent(model, JevMiddleware(engine(judge, store=SqliteStore(tmp_path / "o.db")), mode=mode))
    if is_async:
        anyio.run(built.ainvoke, ask(), thread())
    else:
        built.invoke(ask(), thread())
    results = [m.content for m in built.get_state(thread()).values["messages"] if isinstance(m, ToolMessage)]

    assert judge.requests >= 1
    assert prefix_breaks(model.seen) == judge.requests
    assert len(judge.questions) == len(set(judge.questions))
    assert all(pairs_are_whole(messages) for messages in model.seen)
    assert (results == [text_of_step(step) for step in range(30)]) is (mode == "view")


def test_stubs_keep_the_indexes_of_their_summariser_right(tmp_path):
    """Their summary event cuts by index: with stubs no view ever begins with a result without its call."""
    model = PlannedModel(plan=steps(40), profile={"max_input_tokens": 40_000})
    jev = JevMiddleware(engine(store=SqliteStore(tmp_path / "o.db")), mode="persist", min_batch_tokens=4_000)
    built = deep_agent(model, jev)

    built.invoke(ask(), thread(limit=400))

    assert all(pairs_are_whole(messages) for messages in model.seen)


@pytest.mark.parametrize("is_async", [False, True])
def test_their_summariser_counts_what_is_left_after_pruning(is_async):
    """Inside of theirs ours comes too late: they summarise what was never shown. Around it they do not have to."""
    asked = {}
    for is_around in (False, True):
        texts = []
        model = PlannedModel(plan=steps_in_turn(40), profile={"max_input_tokens": 60_000})

        def summarise(messages, texts=texts):
            texts.append(messages)
            return "Everything went well so far."

        backend = StateBackend()
        jev = JevMiddleware(engine(CountingJudge(lambda _: (0.9, 0.1)), trigger_share=0.3, target_share=0.1))
        theirs = create_summarization_middleware(model, backend, summarizer=summarise)
        both = after_pruning(theirs, jev)
        given = [both] if is_around else [theirs, jev]
        built = create_deep_agent(model, tools=[fetch], middleware=given, checkpointer=InMemorySaver(), backend=backend)
        if is_async:
            anyio.run(built.ainvoke, ask(), thread(limit=400))
        else:
            built.invoke(ask(), thread(limit=400))
        asked[is_around] = len(texts)

        assert all(pairs_are_whole(messages) for messages in model.seen)
        assert "intact as jx-" in str(model.seen[-1])

    assert asked == {False: asked[False], True: 0}
    assert asked[False] > 0


def test_around_their_summariser_both_write_what_they_decide(tmp_path):
    """Where pruning does not suffice they still summarise; ledger, event and messages are in the state."""
    model = PlannedModel(plan=steps_in_turn(40), profile={"max_input_tokens": 30_000})
    backend = StateBackend()
    jev = JevMiddleware(
        engine(store=SqliteStore(tmp_path / "o.db"), trigger_share=0.3, target_share=0.1), mode="persist"
    )
    theirs = create_summarization_middleware(model, backend, summarizer=lambda _: "Everything went well so far.")
    both = after_pruning(theirs, jev)
    built = create_deep_agent(model, tools=[fetch], middleware=[both], checkpointer=InMemorySaver(), backend=backend)

    built.invoke(ask(), thread(limit=400))
    values = built.get_state(thread()).values

    assert values["_summarization_event"]
    assert len(ThreadState.from_json(values["jev_ledger"]).ledger) > 3
    assert all(pairs_are_whole(messages) for messages in model.seen)
    assert "jev_expand" in [tool.name for tool in both.tools]


def test_it_can_take_the_place_of_their_summariser():
    """A middleware of that name replaces theirs: the channel of its event is gone."""
    named = deep_agent(PlannedModel(plan=steps(1)), JevMiddleware(engine(), name="SummarizationMiddleware"))
    plain = deep_agent(PlannedModel(plan=steps(1)), JevMiddleware(engine()))

    assert "_summarization_event" in plain.channels
    assert "_summarization_event" not in named.channels
