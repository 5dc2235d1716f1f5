"""The gateway before a Messages API: what is sent on, when it is edited, and that it then stays so."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from hosts.messages_api import MessagesApi
from serve.gateway_lab import MODEL, TOKEN, Agent, Running, both, breaks, engine_of, gateway_for, markers

from jev_engine.audit.delivery import Delivery
from jev_engine.errors import ConfigError
from jev_engine.serve.gateway import Gateway, Records
from jev_engine.store.memory import MemoryStore
from jev_engine.store.sqlite import SqliteStore

LONG = "SCRIPT: " + " ;; ".join([*(f"bash cat {n}" for n in range(13)), "text Done."])
SHORT = "SCRIPT: bash ls ;; text Done."


def sent(api):
    """The messages of every request for an answer."""
    return [turn.json()["messages"] for turn in api.turns]


def test_what_is_not_edited_goes_on_as_it_came():
    """Every byte of the body, odd blanks and numbers included, and the query."""
    body = (
        b'{"max_tokens": 1e2, "messages" :[ {"role":"user","content":"SCRIPT: text \\u00e4 \xc3\xa4"} ],"model":"m"}\n'
    )
    with both(MessagesApi()) as (running, api):
        answer = httpx.post(f"{running.anthropic}/v1/messages?beta=true", content=body)

    assert answer.status_code == 200
    assert api.turns[0].body == body
    assert api.turns[0].path == "/v1/messages?beta=true"


def test_headers_go_on_and_hop_by_hop_ones_do_not():
    """Keys, versions and beta flags are the provider's business."""
    kept = {"x-api-key": "sk-1", "anthropic-version": "2023-06-01", "anthropic-beta": "a-1,b-2", "x-own": "kept"}
    hops = {"connection": "keep-alive, x-hop", "x-hop": "gone", "te": "trailers"}
    with both(MessagesApi()) as (running, api):
        answer = httpx.post(
            f"{running.anthropic}/v1/messages", json={"messages": [], "model": MODEL}, headers={**kept, **hops}
        )

    got = api.turns[0].headers
    assert {name: got.get(name) for name in kept} == kept
    assert not {"x-hop", "te"} & got.keys()
    assert got["host"] == api.url.removeprefix("http://")
    assert answer.headers["request-id"] == "req_000001"


def test_a_stream_is_the_very_bytes_of_a_direct_one():
    """Before and after the first edit alike; only where a call is answered here something differs."""
    agents = []
    with MessagesApi() as plain, both(MessagesApi()) as (running, api):
        for url in (plain.url, running.anthropic):
            agent = Agent(url, thinking={"type": "adaptive"})
            agent.messages = [{"role": "user", "content": LONG}]
            agents.append([agent.ask().content])
            for _ in range(13):
                agent.step()
            agents[-1].append(agent.ask().content)
        direct, through = agents

    assert markers(sent(api)[-1]) >= 4
    assert direct[0] == through[0]
    # The last one says how large the prompt was, which is less.
    assert len(direct[1].split(b"\n\n")) == len(through[1].split(b"\n\n"))
    assert direct[1].split(b"\n\n")[1:-3] == through[1].split(b"\n\n")[1:-3]


def test_a_pass_is_made_when_the_window_fills_and_its_edits_stay():
    """The same bytes for the same request, and for what it begins with ever after."""
    with both(MessagesApi()) as (running, api):
        agent = Agent(running.anthropic)
        agent.say(LONG)
        agent.ask()
        agent.ask()

    assert markers(sent(api)[0]) == 0
    assert markers(sent(api)[-1]) >= 4
    assert api.turns[-1].body == api.turns[-2].body
    assert breaks(api) == running.counts["passes committed"]
    assert len(api.turns[-1].body) < 0.6 * len(agent.body())


@pytest.mark.slow
def test_over_forty_turns_the_prefix_breaks_at_passes_only():
    """A person who asks forty times; cache marks move with the end of the history, as Claude Code moves them."""

    class Marking(Agent):
        def body(self):
            marked = json.loads(json.dumps(self.messages))
            last = marked[-1]
            if isinstance(last["content"], str):
                last["content"] = [{"type": "text", "text": last["content"]}]
            last["content"][-1]["cache_control"] = {"type": "ephemeral"}
            kept, self.messages = self.messages, marked
            try:
                return super().body()
            finally:
                self.messages = kept

    with both(MessagesApi()) as (running, api):
        agent = Marking(running.anthropic)
        for _ in range(40):
            agent.say(SHORT)

    marks = [turn.body.count(b"cache_control") for turn in api.turns]
    assert len(api.turns) == 80
    assert marks == [1] * 80
    assert all(b"cache_control" in json.dumps(messages[-1]).encode() for messages in sent(api))
    assert running.counts["passes committed"] >= 3
    assert breaks(api) == running.counts["passes committed"]


def test_only_results_change():
    """Texts, calls and everything else of an edited request is what the client wrote."""
    with both(MessagesApi()) as (running, api):
        agent = Agent(running.anthropic, system="Be brief.", metadata={"user_id": "u"}, temperature=1.0)
        agent.say(LONG)
        agent.ask()

    given, got = json.loads(agent.body()), api.turns[-1].json()
    assert {f: got[f] for f in given if f not in ("messages", "tools")} == {
        f: given[f] for f in given if f not in ("messages", "tools")
    }
    assert list(got) == list(given)
    assert got["tools"][:-1] == given["tools"]
    assert got["tools"][-1]["name"] == "jev_expand"
    for old, new in zip(given["messages"], got["messages"], strict=True):
        if old != new:
            [before], [after] = old["content"], new["content"]
            assert {**before, "content": after["content"]} == after
            assert after["content"].startswith("[jev-engine: result of Bash")


def test_tokens_are_counted_of_what_would_be_sent():
    """A count before the first edit goes on as it is; one behind it is pruned alike."""
    with both(MessagesApi()) as (running, api):
        agent = Agent(running.anthropic)
        agent.say(LONG)
        agent.messages.pop()
        agent.ask()
        count = {"model": MODEL, "messages": agent.messages, "tools": json.loads(agent.body())["tools"]}
        httpx.post(f"{running.anthropic}/v1/messages/count_tokens", json=count)
        other = httpx.post(f"{running.anthropic}/v1/messages/count_tokens", json={"messages": agent.messages[:1]})

    counted = api.requests[-2].json()
    assert counted["messages"] == sent(api)[-1]
    assert counted["tools"] == api.turns[-1].json()["tools"]
    assert api.requests[-1].json() == {"messages": agent.messages[:1]}
    assert other.json().keys() == {"input_tokens"}


def test_a_third_role_stands_among_the_messages():
    """Hosts put system messages there; they go on as they are."""
    note = {"role": "system", "content": "The mode has changed."}
    with both(MessagesApi()) as (running, api):
        agent = Agent(running.anthropic)
        agent.messages = [{"role": "user", "content": LONG}, note]
        for _ in range(13):
            agent.step()
        agent.ask()

    assert markers(sent(api)[-1]) >= 4
    assert sent(api)[-1][1] == note


def test_a_fork_keeps_what_was_decided_and_goes_its_own_way():
    """Two branches of one history: what they share is sent alike, and a pass of one changes nothing for the other."""
    with both(MessagesApi()) as (running, api):
        one = Agent(running.anthropic)
        one.say(LONG)
        other = Agent(running.anthropic, chars=300)
        other.messages = [*one.messages, {"role": "user", "content": SHORT}]
        other.step()
        forked = sent(api)[-1]
        passes = running.counts["passes"]
        one.say(LONG)
        assert running.counts["passes"] > passes
        other.step()
        again = sent(api)[-1]
        one.ask()

    shared = len(one.messages) - 27
    assert markers(forked) >= 4
    assert again[: len(forked)] == forked
    assert markers(sent(api)[-1][:shared]) > markers(forked[:shared])


def test_a_rewind_keeps_what_was_decided():
    """The last prompt is taken back and another one asked: what stays is sent as it was."""
    with both(MessagesApi()) as (running, api):
        agent = Agent(running.anthropic)
        agent.say(LONG)
        agent.chars = 300
        agent.say(SHORT)
        before = sent(api)[-1]
        agent.messages = [*agent.messages[:-4], {"role": "user", "content": "SCRIPT: text Otherwise."}]
        agent.step()
        after = sent(api)[-1]

    assert markers(before) >= 4
    assert after[:-1] == before[: len(after) - 1]


def test_two_sessions_that_begin_alike_are_two():
    """The name a client gives its session counts; without one, where their histories part."""
    with both(MessagesApi()) as (running, api):
        agents = [Agent(running.anthropic) for _ in range(2)]
        for agent, name in zip(agents, ("aaaa", "bbbb"), strict=True):
            agent.http.headers["x-claude-code-session-id"] = name
            agent.say(LONG)

    names = {each.session.name.partition("-")[0] for each in running.gateway.brain.conversations._all}
    assert names == {"aaaa", "bbbb"}
    assert len(api.turns) == 28


def test_a_restart_goes_on_with_the_same_bytes(tmp_path):
    """Another process, with the store and the records of the one before it."""
    store, records = tmp_path / "originals.sqlite3", tmp_path / "gateway.jsonl"

    def process(url):
        return gateway_for(url, engine_of(store=SqliteStore(store)), records=Records(records))

    with MessagesApi() as api:
        with Running(process(api.url)) as running:
            agent = Agent(running.anthropic, model="claude-fable-5-2", thinking={"type": "adaptive"})
            agent.say(LONG)
            agent.ask()
        with Running(process(api.url)) as running:
            agent.url, agent.chars = running.anthropic, 300
            agent.ask()
            agent.messages.append({"role": "user", "content": SHORT})
            agent.step()

    assert markers(sent(api)[-2]) >= 4
    assert api.turns[-2].body == api.turns[-3].body
    assert sent(api)[-1][: len(sent(api)[-2])] == sent(api)[-2]
    assert records.stat().st_mode & 0o077 == 0
    assert b"a line of what" not in records.read_bytes()


def test_other_paths_pass_through():
    """Lists of models and probes are none of our business."""
    with both(MessagesApi()) as (running, api):
        httpx.head(f"{running.anthropic}/api/hello")
        answer = httpx.get(f"{running.anthropic}/v1/models?limit=2")

    assert [(each.method, each.path) for each in api.requests] == [
        ("HEAD", "/api/hello"),
        ("GET", "/v1/models?limit=2"),
    ]
    assert answer.status_code == 404


def test_without_the_token_nothing_is_served():
    """It is part of the address, so that every agent can bring it."""
    with both(MessagesApi()) as (running, api):
        wrong = running.anthropic.replace(TOKEN, "guess")
        answer = httpx.post(f"{wrong}/v1/messages", json={"messages": []})
        unknown = httpx.post(running.anthropic.replace("/anthropic", "/evil") + "/v1/messages", json={})

    assert answer.status_code == 401
    assert unknown.status_code == 404
    assert api.requests == []


@pytest.mark.parametrize(
    "url", ["http://api.example.com", "ftp://127.0.0.1", "https://", "https://u:p@example.com", "file:///etc/passwd"]
)
def test_upstreams_are_https_or_this_machine(url):
    """A key never goes over an open line."""
    with pytest.raises(ConfigError, match="no https address"):
        Gateway(engine_of(), {"x": url}, token=TOKEN)


def test_health_tells_counts_and_nothing_else():
    """Behind the token too."""
    with both(MessagesApi()) as (running, _):
        Agent(running.anthropic).say(SHORT)
        answer = httpx.get(f"{running.root}/health").json()

    assert answer["status"] == "ok"
    assert answer["counts"] == {"requests": 2}
    assert answer["conversations"] == 1


def test_originals_can_be_had_back_by_the_session():
    """What left a request is in the store, byte for byte."""
    store = MemoryStore()
    with both(MessagesApi(), engine=engine_of(store=store)) as (running, _):
        agent = Agent(running.anthropic)
        agent.say(LONG)
        ledger = next(iter(running.gateway.brain.conversations._all)).session.ledger

    texts = {agent.output(f"toolu_{n}x{n - 1}x0") for n in range(1, 14)}
    assert len(ledger) >= 4
    assert {store._originals[entry.reference].text for entry in ledger} <= texts


def test_the_users_trail_hears_of_every_call_of_the_model():
    """Numbers and the model's name; and of passes, as everywhere."""
    heard = []
    sink = type("Sink", (), {"name": "list", "emit": lambda _, event: heard.append(event)})()
    engine = engine_of()
    engine.sinks = Delivery([sink])
    with both(MessagesApi(), engine=engine) as (running, api):
        Agent(running.anthropic).say(LONG)
        asyncio.run(engine.sinks.flush())

    calls = [event for event in heard if event.kind == "model_called"]
    assert [event.input_tokens for event in calls] == [len(turn.body) // 4 for turn in api.turns]
    assert {event.model for event in calls} == {MODEL}
    assert "committed" in {event.kind for event in heard}


def test_headers_of_the_provider_come_back_once():
    """Its date and name are not ours, and not doubled."""
    with both(MessagesApi()) as (running, _):
        answer = httpx.post(f"{running.anthropic}/v1/messages", json={"messages": [], "model": MODEL})

    assert len(answer.headers.get_list("date")) == 1
    assert answer.headers["server"].startswith("BaseHTTP")
