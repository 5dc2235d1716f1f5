"""Clients that go, providers that stall and die, bodies that are none: nothing hangs, nothing is altered."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
import zlib
from pathlib import Path

import httpx
import pytest
from hosts.messages_api import MessagesApi
from loopback import until
from serve.gateway_lab import MODEL, Agent, Running, both, engine_of, gateway_for, markers
from serve.hostile_provider import EVENT, HostileProvider

from jev_engine import ContextEngine
from jev_engine.config import EngineConfig
from jev_engine.errors import StoreError
from jev_engine.serve.gateway.handler import MOST_HELD_BYTES
from jev_engine.store.memory import MemoryStore
from jev_engine.testing import ScriptedJudge

LONG = "SCRIPT: " + " ;; ".join([*(f"bash cat {n}" for n in range(13)), "text Done."])
PATH = "/v1/messages?fault="
EMPTY = {"model": MODEL, "messages": [], "stream": True}
DIRECT = httpx.Limits(max_connections=None)


def settled(running: Running, provider: HostileProvider | None = None) -> bool:
    """Once all streams have ended, on both sides; raises AssertionError where that takes long."""
    return until(lambda: running.gateway.health()["streams"] == 0 and (provider is None or provider.open <= 40))


def received(url):
    """What came of an answer before it broke off."""
    got = b""
    try:
        with httpx.stream("POST", url, json=EMPTY, timeout=10) as answer:
            for data in answer.iter_raw():
                got += data
    except httpx.RemoteProtocolError:
        return got
    raise AssertionError("the answer looks whole")


@pytest.mark.parametrize("fault", ["reset", "stall", "stall-midway", "reset-midway", "die-midway"])
def test_a_provider_that_fails_is_told_as_it_is(fault):
    """Before the answer begins as an error of the provider's own form, within it by breaking off."""
    with HostileProvider() as provider, Running(gateway_for(provider.url, stall_seconds=0.5)) as running:
        start = time.monotonic()
        if fault in ("reset", "stall"):
            answer = httpx.post(running.anthropic + PATH + fault, json=EMPTY, timeout=10)
            assert answer.status_code == {"reset": 502, "stall": 504}[fault]
            assert answer.json()["type"] == "error"
        else:
            got = received(running.anthropic + PATH + fault)
            # A reset takes with it what was on its way.
            assert (EVENT * 11).startswith(got) if fault == "reset-midway" else got == EVENT * 11
        assert time.monotonic() - start < 5
        assert settled(running)
    assert running.counts["upstream failures"] == 1


def test_a_provider_that_is_not_there_is_told():
    """Upon which clients ask again."""
    with Running(gateway_for("http://127.0.0.1:9")) as running:
        answer = httpx.post(f"{running.openai}/chat/completions", json={"model": "m", "messages": []})

    assert answer.status_code == 502
    assert answer.json()["error"]["type"] == "server_error"


def test_a_client_that_goes_away_ends_its_request_at_the_provider():
    """Before the answer begins, and within it."""
    with HostileProvider() as provider, Running(gateway_for(provider.url)) as running:
        for fault in ("stall", "stall-midway"):
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(running.anthropic + PATH + fault, json=EMPTY, timeout=0.3)
        assert settled(running)
        assert until(lambda: provider.open == 0, seconds=3)
    assert running.counts["clients gone"] == 2
    assert running.counts.get("faults", 0) == 0


@pytest.mark.parametrize(
    "body",
    [
     b"", b"{", b"[]", b"null", b'{"messages": 1}', b'{"messages": [1, null, "a", {}]}', b"\xff\xfe", b"[" * 100_000,
     b'{"messages": [{"role": "user", "content": "a"}], "messages": []}', b'{"messages": []} trailing',
     b'{"messages": [{"role": "user", "content": [{"type": "text", "text": "\\ud83d"}]}]}',
     b'{"a": NaN, "messages": []}',
     b'{"messages": [{"role": "user", "content": "a"} {"role": "user"}]}', b'{"messages": [' + b"[" * 5_000 + b"]}"],
)  # fmt: skip
def test_bodies_that_cannot_be_read_go_on_as_they_are(body):
    """For the provider to judge."""
    with HostileProvider() as provider, Running(gateway_for(provider.url)) as running:
        answer = httpx.post(running.anthropic + PATH + "refuse", content=body)

    assert answer.status_code == 400
    assert answer.content == b"{}"
    assert provider.digests == [zlib.crc32(body)]


def broken(**methods):
    """A store with some methods that fail."""
    return type("Broken", (MemoryStore,), methods)()


async def cannot(*_args, **_options):
    raise StoreError("the disk is full")


@pytest.mark.parametrize(
    "engine",
    [
        ContextEngine(config=EngineConfig(window_tokens=20_000), store=broken(save=cannot)),
        ContextEngine(config=EngineConfig(window_tokens=20_000), store=broken(load_ledger=cannot, save=cannot)),
        ContextEngine(
            config=EngineConfig(window_tokens=20_000, policy="threshold", undecided="keep"),
            judge=ScriptedJudge(lambda _: None, fails=True),
        ),
    ],
    ids=["no room for originals", "no store", "no judge"],
)
def test_where_nothing_can_be_decided_the_original_goes_on(engine):
    """Never worse than without it."""
    with both(MessagesApi(), engine=engine) as (running, api):
        agent = Agent(running.anthropic)
        agent.say(LONG)
        agent.ask()

    assert running.counts["passes"] >= 1
    assert api.turns[-1].body == agent.body()


def test_an_engine_that_breaks_between_two_requests_is_not_missed():
    """What goes on from there is what the client wrote, byte for byte."""
    with both(MessagesApi()) as (running, api):
        agent = Agent(running.anthropic)
        agent.say(LONG)
        edited = markers(api.turns[-1].json()["messages"])
        running.gateway.brain.engine.plugins = None
        running.gateway.brain.engine = None
        for each in running.gateway.brain.conversations._all:
            each.session.engine = None
        agent.say("SCRIPT: bash ls ;; text Fine.")
        agent.ask()

    assert edited >= 4
    assert running.counts["faults"] >= 3
    assert api.turns[-1].body == agent.body()


def test_a_pass_beyond_its_deadline_holds_nothing_up():
    """The request goes on as it came; what was decided late holds from a later request on."""

    class Slow(ScriptedJudge):
        async def judge(self, request):
            await asyncio.sleep(1.0)
            return await super().judge(request)

    engine = ContextEngine(config=EngineConfig(window_tokens=20_000), judge=Slow(lambda _: (0.9, 0.001)))
    with both(MessagesApi(), engine=engine, deadline_seconds=0.2) as (running, api):
        agent = Agent(running.anthropic)
        start = time.monotonic()
        agent.say(LONG)
        seconds = time.monotonic() - start
        until(lambda: agent.ask() and markers(api.turns[-1].json()["messages"]) >= 4)

    assert running.counts["passes beyond the deadline"] >= 1
    assert seconds < 10


def test_a_prompt_that_is_too_long_is_shortened_and_sent_again():
    """The client never sees the refusal."""

    def window(received):
        return 413 if len(received.body) > 60_000 else 200

    with both(MessagesApi(status=window), engine=engine_of(window_tokens=1_000_000)) as (running, api):
        agent = Agent(running.anthropic)
        agent.say(LONG)
        refused = [turn for turn in api.turns if len(turn.body) > 60_000]

    assert running.counts["overflows rescued"] == len(refused) >= 1
    assert markers(api.turns[-1].json()["messages"]) >= 4
    assert len(api.turns) == 14 + len(refused)


def test_a_prompt_that_cannot_be_shortened_is_refused_as_the_provider_does():
    """Nothing in it may go: the client gets the provider's own words."""
    with both(MessagesApi(status=lambda _: 413)) as (running, api):
        answer = httpx.post(f"{running.anthropic}/v1/messages", json={"messages": [{"role": "user", "content": "a"}]})

    assert answer.status_code == 413
    assert answer.json()["error"]["message"] == "scripted 413"
    assert len(api.turns) == 1


def test_bodies_beyond_the_limit_are_refused():
    """Announced or not."""
    with HostileProvider() as provider, Running(gateway_for(provider.url, most_body_bytes=1_000)) as running:
        announced = httpx.post(running.anthropic + PATH, content=b"x" * 2_000)

        def parts():
            for _ in range(20):
                yield b"x" * 100

        streamed = httpx.post(running.anthropic + PATH, content=parts())

    assert announced.status_code == streamed.status_code == 413
    assert provider.digests == []


@pytest.mark.slow
def test_a_client_that_does_not_go_on_holds_nothing():
    """It begins a body and stops, or asks and reads nothing of the answer: its place is free again."""
    with (
        HostileProvider(events=4_000, pad_bytes=20_000) as provider,
        Running(gateway_for(provider.url, stall_seconds=0.5, most_streams=1)) as running,
    ):
        host, port = running.root.removeprefix("http://").partition("/")[0].split(":")
        path = running.anthropic.partition(port)[2] + PATH
        with socket.create_connection((host, int(port)), timeout=5) as begun:
            begun.sendall(f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 100\r\n\r\n{{".encode())
            refused = begun.recv(1_000)
        with socket.create_connection((host, int(port)), timeout=5) as silent:
            silent.sendall(f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 2\r\n\r\n{{}}".encode())
            until(lambda: provider.asked)
            start = time.monotonic()
            assert settled(running)
            assert time.monotonic() - start > 0.4

    assert refused.startswith(b"HTTP/1.1 408")
    assert running.counts["clients gone"] == 1


def test_what_cannot_be_held_passes_through_unread():
    """Too much at once, of other requests: the body streams on, and what was held of it is let go."""

    def parts():
        for _ in range(2):
            yield b"x" * 100
            time.sleep(0.1)

    with HostileProvider() as provider, Running(gateway_for(provider.url)) as running:
        running.gateway.hold(MOST_HELD_BYTES - 50)
        for body in (b"x" * 200, parts()):
            answer = httpx.post(running.anthropic + PATH, content=body)
            assert answer.content == EVENT * 20
        assert settled(running)
        assert running.gateway._held_bytes == MOST_HELD_BYTES - 50

    assert provider.digests == [zlib.crc32(b"x" * 200)] * 2
    assert running.counts["passed through"] == 2


def test_more_requests_than_allowed_are_put_off():
    """With a hint when to come again; the others go on."""
    with (
        HostileProvider(pause_seconds=0.05) as provider,
        Running(gateway_for(provider.url, most_streams=1)) as running,
        httpx.stream("POST", running.anthropic + PATH, json=EMPTY) as first,
    ):
        second = httpx.post(running.anthropic + PATH, json=EMPTY)
        got = first.read()

    assert second.status_code == 503
    assert second.headers["retry-after"] == "1"
    assert got == EVENT * 20


def test_nothing_of_a_conversation_is_logged(caplog):
    """No text, no key, no token, in the worst case either."""
    caplog.set_level(logging.DEBUG, logger="jev_engine")
    with both(MessagesApi()) as (running, _):
        agent = Agent(running.anthropic, model="claude-fable-5-2", thinking={"type": "adaptive"})
        agent.say(LONG)
        running.gateway.brain.engine.plugins = None
        agent.messages.append({"role": "user", "content": "SECRET words"})
        agent.ask()

    logged = caplog.text
    assert "original goes on" in logged
    for secret in ("SECRET", "a line of what", "sk-test", "t0ken"):
        assert secret not in logged


@pytest.mark.slow
def test_fifty_streams_and_a_thousand_requests():
    """Every answer is whole or broken off as the provider broke it off; nothing hangs and nothing is left over."""
    faults = ["", "", "", "", "reset", "die-midway", "reset-midway", "broken", "gone", "bad"]

    async def one(client, root, number, outcomes):
        fault = faults[number % len(faults)]
        body = b"{" if fault == "bad" else json.dumps({**EMPTY, "messages": [{"role": "user", "content": "x" * 500}]})
        path = root + PATH + ("" if fault in ("gone", "bad") else fault)
        try:
            async with client.stream("POST", path, content=body) as answer:
                got = b""
                async for data in answer.aiter_raw():
                    got += data
                    if fault == "gone":
                        outcomes.append("gone")
                        return
                outcomes.append((fault, answer.status_code, got == EVENT * 20))
        except httpx.RemoteProtocolError:
            # A reset takes with it what was on its way.
            whole = (EVENT * 11).startswith(got) if fault == "reset-midway" else got == EVENT * 11
            outcomes.append((fault, "broken off", whole))

    async def all_of_them(root):
        outcomes = []
        async with httpx.AsyncClient(timeout=30, limits=DIRECT) as client:
            gate = asyncio.Semaphore(50)

            async def gated(number):
                async with gate:
                    await one(client, root, number, outcomes)

            await asyncio.gather(*(gated(number) for number in range(1_000)))
        return outcomes

    with HostileProvider() as provider, Running(gateway_for(provider.url)) as running:
        outcomes = asyncio.run(all_of_them(running.anthropic))
        assert settled(running)

    counted = {each: outcomes.count(each) for each in set(outcomes)}
    assert counted == {
        ("", 200, True): 400, ("bad", 200, True): 100, ("broken", 500, False): 100, ("reset", 502, False): 100,
        ("die-midway", "broken off", True): 100, ("reset-midway", "broken off", True): 100, "gone": 100,
    }  # fmt: skip
    assert running.counts.get("faults", 0) == 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="NOT CHECKED: memory is read from /proc")
def test_large_bodies_pass_through_and_leave_no_trace():
    """A hundred megabytes: larger than is read, so it streams; memory does not grow with it."""
    size = 100 * 1024 * 1024
    piece = os.urandom(1 << 20)

    def parts():
        for _ in range(size >> 20):
            yield piece

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    with HostileProvider() as provider, Running(gateway_for(provider.url)) as running:
        httpx.post(running.anthropic + PATH, content=b"x" * 1_000)
        before, highest = resident(), 0
        for _ in range(3):
            answer = httpx.post(
                running.anthropic + PATH, content=parts(), headers={"content-length": str(size)}, timeout=60
            )
            assert answer.content == EVENT * 20
            highest = max(highest, resident() - before)
        unannounced = httpx.post(running.anthropic + PATH, content=parts(), timeout=60)
        assert settled(running)

    assert unannounced.content == EVENT * 20
    assert len(set(provider.digests[1:])) == 1
    assert provider.bytes_received == 4 * size + 1_000
    assert highest < 30 * 1024 * 1024
