"""Jev in use: paid once, priced, behind clients of others, and from any loop, thread or process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from typing import Any

import pytest
from audit_trails import Hears
from judges.jev_wire import KEY, QUESTIONS, STATE, judge_of, session

from jev_engine import ContextEngine, bridge
from jev_engine.errors import BadAnswer
from jev_engine.judges.asked import AskedJudge
from jev_engine.judges.endpoints import PRESETS
from jev_engine.judges.jev import JevAsker
from jev_engine.sessions import Session
from jev_engine.testing import call, history, result, user
from jev_engine.testing.server import FaultServer, Reply, answer_half


async def test_answers_are_paid_for_once() -> None:
    messages = session()
    with FaultServer() as server:
        talk = Session(ContextEngine(judge=judge_of(server)), "s")
        first = await talk.compress(messages, force=True, dry_run=True)
        sent = len(server.requests)
        again = await talk.compress(messages, force=True, dry_run=True)
        other = await talk.compress(messages, force=True, dry_run=True, goal="Something else.")

    assert [d.probability for d in again.decisions] == [d.probability for d in first.decisions]
    assert again.stats.requests == 0
    assert other.stats.requests > 0
    assert len(server.requests) == sent + other.stats.requests


async def test_tokens_price_and_model_are_reported() -> None:
    with FaultServer() as server:
        asker = JevAsker(PRESETS["typesafe"]._replace(url=server.url), model="jev-1.14.0")
        asker.model = "jev-latest"
        done = await ContextEngine(judge=AskedJudge(asker)).compress(session(), force=True, dry_run=True)

    stats = done.stats.to_json()
    assert stats["judge_tokens"] > 1_000
    assert stats["judge_price"] == pytest.approx(stats["judge_tokens"] * 0.042e-6)
    assert stats["judge_model"] == "jev-latest"
    assert stats["privacy"] == "excerpts"


class OwnClient:
    """A client of somebody else: only `post`."""

    def __init__(self, status: int = 200, content: bytes = b"", history: tuple[Any, ...] = ()) -> None:
        self.status_code, self.content, self.history = status, content, history
        self.headers = {"content-type": "application/json"}
        self.sent: list[tuple[str, bytes, dict[str, str]]] = []

    async def post(self, url: str, *, content: bytes, headers: dict[str, str], **_options: Any) -> OwnClient:
        self.sent.append((url, content, headers))
        self.content = self.content or json.dumps(answer_half(json.loads(content))).encode()
        return self


async def test_an_injected_client_is_used_as_it_is() -> None:
    client = OwnClient()

    answers = await JevAsker("typesafe", client=client).ask(STATE, QUESTIONS)

    [(url, _, headers)] = client.sent
    assert url == PRESETS["typesafe"].url
    assert "Authorization" not in headers
    assert set(answers) == set(QUESTIONS)


@pytest.mark.parametrize("client", [OwnClient(history=("a redirect",)), OwnClient(content=b" " * 5_000_000)])
async def test_an_injected_client_is_held_to_the_same_rules(client: OwnClient) -> None:
    with pytest.raises(BadAnswer):
        await JevAsker("typesafe", client=client).ask(STATE, QUESTIONS)


async def test_an_asker_of_ten_lines_is_enough() -> None:
    class MyAsker:
        async def ask(self, state: str, questions: Any) -> dict[str, float]:
            return {name: 0.2 if name.startswith("result") else 0.4 for name in questions}

    done = await ContextEngine(judge=AskedJudge(MyAsker())).compress(session(10), force=True, dry_run=True)

    assert done.stats.judge_tokens > 0
    assert done.stats.judge_price is None


async def test_the_key_stands_in_no_failure_event_or_answer() -> None:
    hears = Hears()

    class Leaky:
        async def ask(self, state: str, questions: Any) -> Any:
            message = f"Illegal header value b'Bearer {KEY}abcdefgh'"
            raise RuntimeError(message)

    with FaultServer(lambda *_: Reply(401, body=f'{{"error":{{"code":"{KEY}"}}}}'.encode())) as server:
        for judge in (judge_of(server), AskedJudge(Leaky())):
            engine = ContextEngine(judge=judge, sinks=[hears])
            done = await engine.compress(session(10), force=True, dry_run=True)
            await engine.sinks.flush()
            assert done.stats.failures
            assert KEY not in f"{done} {done.decisions} {done.stats.to_json()}"

    assert hears.kinds().count("judge_failed") == 2
    assert KEY not in "".join(event.model_dump_json() for event in hears.events)


def test_repeated_event_loops_one_judge() -> None:
    with FaultServer() as server:
        engine = ContextEngine(judge=judge_of(server))
        outcomes = [
            asyncio.run(engine.compress(session(10 + n), force=True, dry_run=True)).stats.failures for n in range(3)
        ]

    assert outcomes == [[], [], []]


def test_inside_a_running_loop_through_the_bridge() -> None:
    with FaultServer() as server:
        engine = ContextEngine(judge=judge_of(server))

        async def host() -> Any:
            return bridge.run(engine.compress, session(10), force=True, dry_run=True)

        assert asyncio.run(host()).stats.failures == []


def test_from_eight_threads_at_once() -> None:
    with FaultServer() as server:
        engine = ContextEngine(judge=judge_of(server))
        failures: list[Any] = []

        def work(number: int) -> None:
            done = asyncio.run(engine.compress(session(10 + number), force=True, dry_run=True))
            failures.extend([*done.stats.failures, *(["failed"] if done.outcome == "failed" else [])])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)

    assert failures == []
    assert len(server.requests) == 8


async def test_half_characters_and_huge_lines_are_sent_as_json() -> None:
    messages = history(
        user("half \ud800"), *(row for n in range(6) for row in (call("read", path=f"\udfff{n}"), result("y" * 3_000)))
    )
    with FaultServer() as server:
        done = await ContextEngine(judge=judge_of(server)).compress(messages, force=True, dry_run=True)

    assert done.stats.failures == []
    assert server.requests[0].json()["state"]["goal"] == "half ?"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_no_warning_at_exit(backend: str) -> None:
    """A process that asked, was answered, met a hang and ends says nothing on standard error."""
    program = f"""
import anyio
from jev_engine.errors import JudgeUnavailable
from jev_engine.judges.jev import JevAsker
from jev_engine.testing.server import FaultServer, Reply

async def main():
    with FaultServer({{2: Reply(hang=True), 3: Reply(body=b" " * 5_000_000)}}) as server:
        await JevAsker(server.url).ask('{{}}', {{"a": {{}}}})
        for _ in range(2):
            try:
                await JevAsker(server.url, deadline_seconds=0.3).ask('{{}}', {{"a": {{}}}})
            except Exception as error:
                print(type(error).__name__)

anyio.run(main, backend={backend!r})
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], check=False, capture_output=True, text=True)

    assert done.stdout.split() == ["JudgeUnavailable", "BadAnswer"]
    assert done.stderr == ""
