"""Bound reasoning: a model that signs each thinking block with the history it was shown, and checks every request.

Built from Anthropic's documentation of preserved thinking: a block is valid only where everything before it is as it
was when it was written. No provider is asked.
"""

from __future__ import annotations

import hashlib
import itertools
import json

import pytest
from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware, SummarizationMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_agents import CountingJudge, PlannedModel, agent, ask, engine, pairs_are_whole, plain, steps, thread

from jev_engine.store.sqlite import SqliteStore
from jev_engine_adapters.langgraph import JevMiddleware, after_pruning
from jev_engine_adapters.langgraph.reasoning import bound_digests, strip

COUNT = 40


def signature(messages):
    return hashlib.sha256(json.dumps(plain(messages), sort_keys=True, default=str).encode()).hexdigest()


def invalid_blocks(messages):
    """Signatures that do not fit what stands before them in the request."""
    return [
        block["signature"]
        for row, message in enumerate(messages)
        if isinstance(message, AIMessage) and isinstance(message.content, list)
        for block in message.content
        if block.get("type") == "thinking" and block["signature"] != signature(messages[:row])
    ]


def signing(number, messages):
    """A turn of Claude: thinking, signed, and a call."""
    reply = steps(COUNT)(number, messages)
    thinking = {"type": "thinking", "thinking": f"thought {number}", "signature": signature(messages)}
    uses = [{"type": "tool_use", "id": c["id"], "name": c["name"], "input": c["args"]} for c in reply.tool_calls]
    text = [{"type": "text", "text": reply.content}] if reply.content else []
    return AIMessage(
        [thinking, *text, *uses], tool_calls=reply.tool_calls, response_metadata={"model_name": "claude-x"}
    )


def run(*middleware):
    model = PlannedModel(plan=signing)
    agent(model, *middleware, checkpointer=InMemorySaver()).invoke(ask(), thread())
    bad = sum(bool(invalid_blocks(messages)) for messages in model.seen)
    return model, bad


def test_no_pruning_has_no_invalid_request():
    """The simulation itself is sound."""
    model, bad = run()

    assert (len(model.seen), bad) == (41, 0)


def test_langchains_own_context_editing_makes_31_invalid_requests():
    """It shortens results under the signatures of all later turns: the comparison, kept so that it stays true."""
    clear = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=20_000, keep=3)])
    model, bad = run(clear)

    assert (len(model.seen), bad) == (41, 31)


@pytest.mark.parametrize("mode", ["view", "persist"])
def test_ours_makes_no_invalid_request(tmp_path, mode):
    """Each pass strips what it invalidates; what is thought later is bound to the shortened history and stays."""
    judge = CountingJudge()
    store = SqliteStore(tmp_path / "originals.db")
    model, bad = run(JevMiddleware(engine(judge, store=store), mode=mode))

    assert (len(model.seen), bad) == (41, 0)
    assert judge.requests > 1
    assert all(pairs_are_whole(messages) for messages in model.seen)
    left = sum("thought" in str(message.content) for message in model.seen[-1])
    assert 0 < left < COUNT


def test_a_summary_makes_no_invalid_request_either(tmp_path):
    """What a summariser leaves is bound to what it took: alone it fails, behind ours that reasoning goes too."""
    bad = {}
    for is_ours in (False, True):
        summarise = PlannedModel(plan=lambda *_: AIMessage("It went well."))
        theirs = SummarizationMiddleware(
            summarise, trigger=("tokens", 20_000), keep=("messages", 6), trim_tokens_to_summarize=None
        )
        jev = JevMiddleware(engine(store=SqliteStore(tmp_path / f"{is_ours}.db")), min_batch_tokens=4_000)
        model = PlannedModel(plan=signing_in_turn())
        given = [after_pruning(theirs, jev), jev] if is_ours else [theirs]
        agent(model, *given, checkpointer=InMemorySaver()).invoke(ask(), thread())
        assert summarise.seen
        bad[is_ours] = sum(bool(invalid_blocks(messages)) for messages in model.seen)

    assert bad[False] > 10
    assert bad[True] == 0


def signing_in_turn():
    """The same turns for a model whose earlier replies may be summarised."""
    numbers = itertools.count()
    return lambda _, messages: signing(next(numbers), messages)


def test_keeping_bound_reasoning_is_what_makes_requests_invalid():
    """The rule can be switched off, for models that do not check; then it is as bad as the rest."""
    _, bad = run(JevMiddleware(engine(), bound_reasoning="keep"))

    assert bad > 20


def test_the_state_keeps_what_the_view_leaves_out():
    """Every thinking block is still in the thread's messages."""
    model = PlannedModel(plan=signing)
    built = agent(model, JevMiddleware(engine()), checkpointer=InMemorySaver())
    built.invoke(ask(), thread())

    kept = built.get_state(thread()).values["messages"]

    assert sum("thought" in str(message.content) for message in kept) == COUNT + 1


CLAUDE = {"model_provider": "anthropic"}


@pytest.mark.parametrize(
    ("rule", "block", "metadata", "goes"),
    [
        ("auto", {"type": "thinking", "thinking": "x", "signature": "s"}, {}, True),
        ("auto", {"type": "redacted_thinking", "data": "x"}, {}, True),
        ("auto", {"type": "reasoning", "reasoning": "x"}, CLAUDE, True),
        ("auto", {"type": "reasoning", "id": "rs_1"}, {"model_provider": "openai"}, False),
        ("auto", {"type": "text", "text": "x"}, CLAUDE, False),
        ("auto", {"type": "thinking", "thinking": "x"}, {"model_name": "claude-sonnet-4-20250514"}, False),
        ("auto", {"type": "thinking", "thinking": "x"}, {"model_name": "claude-3-7-sonnet-20250219"}, False),
        ("auto", {"type": "thinking", "thinking": "x"}, {"model_id": "us.anthropic.claude-opus-4-5-v1:0"}, False),
        ("auto", {"type": "thinking", "thinking": "x"}, {"model_name": "claude-fable-5-1"}, True),
        ("auto", {"type": "thinking", "thinking": "x"}, {"model_name": "claude-opus-41-0"}, True),
        ("strip", {"type": "reasoning", "id": "rs_1"}, {"model_provider": "openai"}, True),
        ("keep", {"type": "thinking", "thinking": "x", "signature": "s"}, CLAUDE, False),
    ],
)
def test_which_reasoning_is_bound(rule, block, metadata, goes):
    """`auto` leaves OpenAI's alone, whose items belong to their calls, and models of Claude that do not check."""
    said = AIMessage([block, {"type": "text", "text": "Said."}], response_metadata=metadata, id="a")
    messages = [HumanMessage("Go.", id="h"), said]

    shown = strip(messages, bound_digests(messages, 0, rule))

    assert (shown[1] is said) is not goes
    assert shown[1].content[-1] == {"type": "text", "text": "Said."}
    assert shown[0] is messages[0]
    assert bound_digests(messages, 1, rule) == set()
