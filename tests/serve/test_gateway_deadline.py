"""A store that does not answer: no request waits longer than its deadline, whatever it needs the store for."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import contextmanager

import pytest
from hosts.messages_api import MessagesApi
from serve.chat_agent import ChatAgent
from serve.chat_api import ChatApi
from serve.gateway_lab import Agent, both, engine_of, markers

from jev_engine.store.memory import MemoryStore
from jev_engine.store.sqlite import SqliteStore

LONG = "SCRIPT: " + " ;; ".join([*(f"bash cat {n}" for n in range(13)), "text Done."])
NINE = "SCRIPT: " + " ;; ".join([*(f"bash cat {n}" for n in range(9)), "text Done."])
DEADLINE_SECONDS = 0.5
SESSION = "4f1c7e7e-0000-4000-8000-000000000001"


class Named(Agent):
    """A client that names its session as Claude Code does, and notes how long its slowest request took."""

    session = SESSION
    slowest = 0.0

    def ask(self):
        """One request."""
        headers = {"content-type": "application/json", "x-claude-code-session-id": self.session}
        start = time.monotonic()
        answer = self.http.post(f"{self.url}/v1/messages", content=self.body(), headers=headers)
        self.slowest = max(self.slowest, time.monotonic() - start)
        return answer


class Nameless(Named):
    """One that names none."""

    session = ""


@contextmanager
def locked(path):
    """Another program is writing, and goes on and on."""
    database = sqlite3.connect(path)
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        database.rollback()
        database.close()


@pytest.fixture
def store(tmp_path):
    """A store on disk, in use."""
    made = SqliteStore(tmp_path / "originals.sqlite3")
    asyncio.run(made.save_ledger("other", {"version": 1, "entries": []}))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("client", [Named, Nameless])
def test_a_first_pass_waits_no_longer_than_the_deadline(store, tmp_path, client):
    """Link and pass together; what goes on is what the client wrote."""
    with both(MessagesApi(), engine=engine_of(store=store), deadline_seconds=DEADLINE_SECONDS) as (running, api):
        agent = client(running.anthropic)
        agent.say("SCRIPT: bash a ;; text Fine.")
        with locked(tmp_path / "originals.sqlite3"):
            agent.say(NINE)
            sent = agent.body()
            agent.ask()

    assert agent.slowest < DEADLINE_SECONDS + 1
    assert api.turns[-1].body == sent
    assert running.counts["passes beyond the deadline"] >= 1
    assert running.counts.get("passes committed", 0) == 0


@pytest.mark.slow
@pytest.mark.parametrize("client", [Named, Nameless])
def test_a_fork_waits_no_longer_either(store, tmp_path, client):
    """It begins with the decisions of its parent, for which the store has to note where its originals are."""
    with both(MessagesApi(), engine=engine_of(store=store), deadline_seconds=DEADLINE_SECONDS) as (running, api):
        agent = client(running.anthropic)
        agent.say(LONG)
        early = list(agent.messages)
        agent.say(LONG)
        fork = client(running.anthropic)
        fork.messages = [*early, {"role": "user", "content": "SCRIPT: text Aside."}]
        with locked(tmp_path / "originals.sqlite3"):
            answers = [fork.ask(), agent.ask()]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert max(agent.slowest, fork.slowest) < DEADLINE_SECONDS + 1
    assert api.turns[-2].body == fork.body()
    assert markers(api.turns[-1].json()["messages"]) >= 4


@pytest.mark.slow
def test_once_the_store_answers_passes_come_about(store, tmp_path):
    """Nothing is left in the way."""
    with both(MessagesApi(), engine=engine_of(store=store), deadline_seconds=DEADLINE_SECONDS) as (running, api):
        agent = Named(running.anthropic)
        with locked(tmp_path / "originals.sqlite3"):
            agent.say(NINE)
        time.sleep(1.0)
        running.gateway.brain.deadline_seconds = 10.0
        agent.say(NINE)

    assert markers(api.turns[-1].json()["messages"]) >= 4
    assert running.counts.get("faults", 0) == 0


class Noting(MemoryStore):
    """A store that remembers which sessions were linked."""

    def __init__(self):
        super().__init__()
        self.links = []

    async def link_session(self, new, old):
        self.links.append((new, old))
        await super().link_session(new, old)


def test_a_session_of_claude_code_is_linked_once():
    """Over several passes; under its own name."""
    store = Noting()
    with both(MessagesApi(), engine=engine_of(store=store)) as (running, _):
        agent = Named(running.anthropic)
        for _ in range(3):
            agent.say(LONG)

    assert running.counts["passes committed"] >= 2
    assert [old for _, old in store.links] == [SESSION]


@pytest.mark.parametrize(
    ("fields", "headers"),
    [({"prompt_cache_key": SESSION}, {}), ({}, {"x-session-id": SESSION}), ({"prompt_cache_key": "app"}, {})],
)
def test_other_names_open_no_other_session(fields, headers):
    """A key for a provider's cache is no session of ours, whatever it is called: nothing of that session is read."""
    store = Noting()
    [original] = asyncio.run(store.save_messages(SESSION, ["the secret of another session"]))
    with both(ChatApi(), engine=engine_of(store=store)) as (running, api):
        agent = ChatAgent(running.openai, stream=False, **fields)
        agent.http.headers.update(headers)
        agent.say(LONG)
        agent.say(f'SCRIPT: text Look. &&& tool jev_expand {{"id": "{original}"}} ;; text Fine.')

    assert running.counts["passes committed"] >= 1
    assert running.counts["calls answered here"] == 1
    assert all(old not in (SESSION, "app") for _, old in store.links)
    assert "the secret of another session" not in api.bodies[-1].decode()
