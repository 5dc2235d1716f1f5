"""Calls that are answered inside the gateway: the client sees one whole answer, the provider all it has said."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest
from hosts.messages_api import MessagesApi
from serve.chat_agent import ChatAgent
from serve.chat_api import ChatApi
from serve.gateway_lab import Agent, Running, both, breaks, engine_of, events_of, gateway_for, markers

from jev_engine.serve.gateway import Records
from jev_engine.store import Original
from jev_engine.store.memory import MemoryStore
from jev_engine.store.sqlite import SqliteStore

LONG = "SCRIPT: " + " ;; ".join([*(f"bash cat {n}" for n in range(13)), "text Done."])
EXPAND = 'tool jev_expand {"id": "$REFERENCE"}'
ALONE = f"SCRIPT: text Look. &&& {EXPAND} ;; text Read it."
MIXED = f"SCRIPT: text Look. &&& {EXPAND} &&& bash x ;; text Read it."
THRICE = f"SCRIPT: {EXPAND} ;; {EXPAND} &&& {EXPAND} ;; text Now. &&& bash x &&& {EXPAND} ;; text Read it."


def kinds(messages: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Role and blocks of each message."""
    return [
        (m["role"], ["text"] if isinstance(m["content"], str) else [b.get("name") or b["type"] for b in m["content"]])
        for m in messages
    ]


@pytest.fixture(params=[True, False], ids=["stream", "whole"])
def lab(request):
    """An agent that has a history with markers in it."""
    with both(MessagesApi()) as (running, api):
        agent = Agent(running.anthropic, stream=request.param, thinking={"type": "adaptive"})
        agent.say(LONG)
        agent.chars = 300
        yield agent, running, api


def test_an_answer_goes_on_behind_a_hidden_call(lab):
    """One message, its blocks numbered without a gap, and the call nowhere in it."""
    agent, running, api = lab
    said = agent.say(ALONE)

    assert kinds([said]) == [("assistant", ["thinking", "text", "thinking", "text"])]
    assert said["stop_reason"] == "end_turn"
    assert running.counts["calls answered here"] == 1
    # Output is summed; input is that of the last response, which is the size of the context.
    assert said["usage"]["output_tokens"] == 20
    assert said["usage"]["input_tokens"] == len(api.turns[-1].body) // 4
    assert "jev_expand" not in json.dumps(said)


def test_the_model_gets_the_original_byte_for_byte(lab):
    """As the result of its call, in the request that follows at once."""
    agent, _, api = lab
    agent.say(ALONE)

    *_, call, result = api.turns[-1].json()["messages"]
    assert kinds([call, result]) == [("assistant", ["thinking", "text", "jev_expand"]), ("user", ["tool_result"])]
    shown = result["content"][0]["content"]
    agent.chars = 6_000
    assert shown.startswith(agent.output("toolu_1x0x0"))
    assert "this is the whole original" in shown


def test_later_requests_hold_the_hidden_call_again(lab):
    """The provider sees what it said: the history only grows."""
    agent, running, api = lab
    before = breaks(api)
    agent.say(ALONE)
    agent.say("SCRIPT: bash y ;; text Fine.")

    assert breaks(api) == before
    assert running.counts["calls answered here"] == 1
    assert "jev_expand" in [name for _, names in kinds(api.turns[-1].json()["messages"]) for name in names]


def test_beside_calls_of_the_client_the_result_waits_for_its_next_request(lab):
    """The client does its own call; both results go to the provider together."""
    agent, _, api = lab
    before, asked = breaks(api), len(api.turns)
    agent.say(MIXED)

    assert len(api.turns) == asked + 2
    assert kinds(agent.messages[-3:-1]) == [("assistant", ["thinking", "text", "Bash"]), ("user", ["tool_result"])]
    *_, call, result = api.turns[-1].json()["messages"]
    assert kinds([call, result]) == [
        ("assistant", ["thinking", "text", "jev_expand", "Bash"]),
        ("user", ["tool_result", "tool_result"]),
    ]
    assert [b["tool_use_id"] for b in result["content"]] == [b["id"] for b in call["content"][2:]]
    assert breaks(api) == before


def test_several_rounds_are_one_answer(lab):
    """The model asks again and again, several at once, and at last for something of the client's."""
    agent, running, api = lab
    said = agent.say(THRICE)
    agent.say("SCRIPT: bash y ;; text Fine.")

    assert said["content"][-1]["text"] == "Read it."
    assert running.counts["calls answered here"] == 4
    assert breaks(api) == running.counts["passes committed"]
    sent = api.turns[-1].json()["messages"]
    ids = [b["id"] for m in sent for b in m["content"] if isinstance(b, dict) and b["type"] == "tool_use"]
    answered = [b["tool_use_id"] for m in sent for b in m["content"] if isinstance(b, dict) and "tool_use_id" in b]
    assert sorted(ids) == sorted(answered)


def test_a_strange_id_is_answered_in_plain_words(lab):
    """No original of another session, and no fault."""
    agent, _, api = lab
    agent.say('SCRIPT: tool jev_expand {"id": "jx-0123456789abcdef"} ;; text Hm.')

    assert "No original goes by this id" in api.turns[-1].json()["messages"][-1]["content"][0]["content"]


def test_a_client_that_lost_its_answer_gets_another(lab):
    """The same request once more, and another answer to it: the hidden call of the first is not put in."""
    agent, _, api = lab
    agent.say(ALONE)
    del agent.messages[-1]
    agent.messages.append({"role": "assistant", "content": [{"type": "text", "text": "Other words."}]})
    agent.say("SCRIPT: text Fine.")

    names = [name for _, names in kinds(api.turns[-1].json()["messages"]) for name in names]
    assert "jev_expand" not in names


def test_originals_under_the_hosts_own_name_can_be_asked_back():
    """Those of a plugin, or of a session that was rewritten offline; those of another session cannot."""
    store = MemoryStore()
    mine, foreign = (Original(store.reference(name, "k"), name, "k", "Read", f"of {name}") for name in ("abc", "other"))
    asyncio.run(store.save([mine, foreign]))
    with both(MessagesApi(), engine=engine_of(store=store)) as (running, api):
        agent = Agent(running.anthropic)
        agent.http.headers["x-claude-code-session-id"] = "abc"
        agent.say(LONG)
        answers = []
        for original in (mine, foreign):
            agent.say(f'SCRIPT: tool jev_expand {{"id": "{original.reference}"}} ;; text Hm.')
            answers.append(api.turns[-1].json()["messages"][-1]["content"][0]["content"])

    assert answers[0].startswith("of abc")
    assert "No original goes by this id" in answers[1]


def test_hidden_calls_outlive_the_process(tmp_path):
    """Their results are made again from the store."""
    store, records = tmp_path / "originals.sqlite3", tmp_path / "gateway.jsonl"

    def process(url):
        return Running(
            gateway_for(url, engine_of(store=SqliteStore(store), window_tokens=24_000), records=Records(records))
        )

    with MessagesApi() as api:
        with process(api.url) as running:
            agent = Agent(running.anthropic)
            agent.say(LONG)
            agent.chars = 300
            agent.say(ALONE)
            agent.say(MIXED)
            agent.messages.append({"role": "user", "content": "SCRIPT: text One."})
            agent.ask()
        with process(api.url) as running:
            agent.url = running.anthropic
            agent.ask()

    assert api.turns[-1].body == api.turns[-2].body


def test_a_provider_that_fails_in_between_ends_the_answer_with_an_error(lab):
    """As it would itself, so that the client asks again."""
    agent, running, api = lab
    asked = len(api.turns)
    api.status = lambda _: 529 if len(api.turns) > asked + 1 else 200
    agent.messages.append({"role": "user", "content": ALONE})
    answer = agent.ask()

    if agent.stream:
        last = list(events_of(answer.text))[-1]
        assert last["type"] == "error"
        assert running.counts["answers broken off"] == 1
    else:
        assert answer.status_code == 529


def test_without_a_tool_in_the_settings_nothing_is_offered():
    """Markers then name none either."""
    with both(MessagesApi(), engine=engine_of(expand_tool=None)) as (running, api):
        Agent(running.anthropic).say(LONG)

    assert markers(api.turns[-1].json()["messages"]) >= 4
    assert len(api.turns[-1].json()["tools"]) == 2


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("usage", [True, False])
def test_chat_completions_alike(stream, usage):
    """Passes, hidden calls alone and beside others, and a history that only grows in between."""
    fields = {"stream_options": {"include_usage": True}} if stream and usage else {}
    with ChatApi() as api, Running(gateway_for(api.url)) as running:
        agent = ChatAgent(running.openai, stream=stream, **fields)
        agent.say(LONG)
        agent.chars = 300
        alone = agent.say(ALONE)
        agent.say(MIXED)
        agent.say(THRICE)
        agent.say("SCRIPT: text Fine.")

    seen = [request["messages"] for request in api.requests]
    cuts = sum(later[: len(earlier)] != earlier for earlier, later in pairwise(seen))
    assert alone["role"] == "assistant"
    assert alone["content"].replace(" ", "") == "Look.Readit."
    assert markers(seen[-1]) >= 4
    assert running.counts["calls answered here"] == 6
    assert cuts == running.counts["passes committed"]
    assert "jev_expand" not in json.dumps([m.get("tool_calls") for m in agent.messages])
    assert api.requests[-1]["tools"][-1]["function"]["name"] == "jev_expand"
