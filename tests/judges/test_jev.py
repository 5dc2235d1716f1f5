"""Jev over the wire: strict answers, few retries, one deadline, and nothing lost to one fault (A23 to A26)."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import anyio
import pytest
from judges.jev_wire import KEY, QUESTIONS, STATE, judge_of, session

from jev_engine import ContextEngine
from jev_engine.errors import BadAnswer, JudgeUnavailable, RequestTooLarge
from jev_engine.judges.endpoints import PRESETS
from jev_engine.judges.jev import JevAsker
from jev_engine.testing.server import FaultServer, Received, Reply, answer_half


async def ask(server: FaultServer, **options: Any) -> Any:
    return await JevAsker(server.url, key=KEY, **options).ask(STATE, QUESTIONS)


async def test_one_request_in_the_form_of_system_one() -> None:
    with FaultServer() as server:
        answers = await ask(server)

    [received] = server.requests
    assert received.json() == {"model": "jev-1.13.0", "state": json.loads(STATE), "questions": QUESTIONS}
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert set(answers) == set(QUESTIONS)
    assert answers.model == "jev-1.13.0"
    assert answers.input_tokens > 0


async def test_the_form_of_openai_decisions() -> None:
    def answer(request: Any) -> Any:
        first, second = request["questions"]
        assert first["type"] == "predicate"
        return {
            "answers": [
                {"type": "predicate", "name": first["name"], "probability": 0.25},
                {"type": "refusal", "name": second["name"]},
            ]
        }

    with FaultServer(answer=answer) as server:
        preset = PRESETS["openai-decisions"]._replace(url=server.url)
        answers = await JevAsker(preset, key=KEY).ask(STATE, QUESTIONS)

    assert dict(answers) == {"call_t1": 0.25}
    assert isinstance(server.requests[0].json()["input"], str)


def body(**answers: Any) -> bytes:
    return json.dumps({"answers": answers}).encode()


BROKEN = {
    "not JSON": b"<html>",
    "truncated": b'{"answers": {"call_t1": {"noul"',
    "a list": b"[]",
    "no answers": b"{}",
    "answers as a list": b'{"answers": []}',
    "a doubled answer": b'{"answers": {"call_t1": {"noul": 0.1}, "call_t1": {"noul": 0.9}}}',
    "a doubled number": b'{"answers": {"call_t1": {"noul": 0.1, "noul": 0.9}}}',
    "NaN": b'{"answers": {"call_t1": {"noul": NaN}}}',
    "infinity": b'{"answers": {"call_t1": {"noul": -Infinity}}}',
    "deep nesting": b'{"answers":' + b"[" * 100_000,
    "invalid UTF-8": b'{"answers": {"\xff": 1}}',
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
async def test_a_broken_response_is_a_bad_answer_and_not_asked_again(content: bytes) -> None:
    with FaultServer(lambda *_: Reply(body=content)) as server:
        with pytest.raises(BadAnswer):
            await ask(server)

        assert len(server.requests) == 1


WRONG = {
    "below 0": {"type": "noul", "noul": -0.01},
    "above 1": {"type": "noul", "noul": 1.01},
    "1e999": json.loads("1e999"),
    "a huge integer": 10**400,
    "a bool": {"type": "noul", "noul": True},
    "a bare bool": True,
    "a text": {"type": "noul", "noul": "0.9"},
    "null": {"type": "noul", "noul": None},
    "a list": [0.5],
    "another type": {"type": "score", "noul": 0.5},
    "a type of null": {"type": None, "noul": 0.5},
    "no number": {"type": "noul"},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_a_wrong_answer_voids_its_request_and_no_other(wrong: Any) -> None:
    def script(number: int, received: Received) -> Reply | None:
        if number != 1:
            return None
        answers = dict(answer_half(received.json())["answers"])
        answers[next(iter(answers))] = wrong
        return Reply(body=json.dumps({"answers": answers}).replace("Infinity", "1e999").encode())

    with FaultServer(script) as server:
        done = await ContextEngine(judge=judge_of(server)).compress(session(120), force=True, dry_run=True)

    answered = sum(d.probability.source != "local" for d in done.decisions)
    assert done.outcome == "committed"
    assert len(done.stats.failures) == 1
    assert "BadAnswer" in done.stats.failures[0]
    assert len(done.decisions) > answered > 0


async def test_missing_answers_are_undecided_and_extra_ones_ignored() -> None:
    def answer(request: Any) -> Any:
        answers = {name: a for name, a in answer_half(request)["answers"].items() if not name.endswith("_t2")}
        return {"answers": {**answers, "call_t999": {"noul": "rubbish"}}}

    with FaultServer(answer=answer) as server:
        done = await ContextEngine(judge=judge_of(server)).compress(session(), force=True, dry_run=True)

    sources = {d.label: d.probability.source for d in done.decisions}
    assert sources.pop("t2") == "local"
    assert set(sources.values()) == {"judge+local"}


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 422])
async def test_what_will_not_heal_is_not_asked_again(status: int) -> None:
    with FaultServer(
        lambda *_: Reply(status, body=b'{"error":{"code":"no_luck","message":"%s"}}' % KEY.encode())
    ) as server:
        with pytest.raises(JudgeUnavailable, match=rf"{status}.*no_luck") as caught:
            await ask(server)

        assert len(server.requests) == 1
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "fault",
    [
        Reply(408),
        Reply(429, headers={"Retry-After": "0"}),
        Reply(500),
        Reply(503),
        Reply(529),
        Reply(reset=True),
        Reply(cut_bytes=9),
    ],
    ids=["408", "429", "500", "503", "529", "reset", "cut off"],
)
async def test_what_may_pass_is_asked_again(fault: Reply) -> None:
    with FaultServer({1: fault}) as server:
        answers = await ask(server)

        assert len(answers) == 2
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    "headers",
    [{"Retry-After": "3600"}, {"retry-after-ms": "3600000"}, {"Retry-After": "Fri, 31 Dec 2100 23:59:59 GMT"}],
)
async def test_a_wait_beyond_the_deadline_is_not_waited(headers: dict[str, str]) -> None:
    with FaultServer(lambda *_: Reply(429, headers=headers)) as server:
        with anyio.fail_after(5), pytest.raises(JudgeUnavailable, match="429"):
            await ask(server)

        assert len(server.requests) == 1


async def test_a_redirect_is_not_followed() -> None:
    with FaultServer() as other, FaultServer(lambda *_: Reply(307, headers={"Location": other.url})) as server:
        with pytest.raises(JudgeUnavailable, match="redirect"):
            await ask(server)

        assert other.requests == []


@pytest.mark.parametrize("kind", ["text/html", "text/plain; charset=utf-8", ""])
async def test_another_content_type_is_a_bad_answer(kind: str) -> None:
    with (
        FaultServer(lambda *_: Reply(headers={"Content-Type": kind})) as server,
        pytest.raises(BadAnswer, match="not JSON"),
    ):
        await ask(server)


async def test_a_response_without_end_is_cut_off() -> None:
    with FaultServer(lambda *_: Reply(body=b" " * 5_000_000)) as server, pytest.raises(BadAnswer, match="larger than"):
        await ask(server)


async def test_a_packed_response_is_refused_before_it_is_unpacked() -> None:
    with (
        FaultServer(lambda *_: Reply(headers={"Content-Encoding": "gzip"})) as server,
        pytest.raises(BadAnswer, match="packed"),
    ):
        await ask(server)


TOO_LARGE = {
    "413": Reply(413),
    "max_tokens_exceeded": Reply(400, body=b'{"detail":{"error_type":"max_tokens_exceeded","message":""}}'),
    "context_length_exceeded": Reply(400, body=b'{"error":{"code":"context_length_exceeded","message":"x"}}'),
}


@pytest.mark.parametrize("refusal", TOO_LARGE.values(), ids=TOO_LARGE)
async def test_a_request_that_is_too_large_is_asked_in_halves(refusal: Reply) -> None:
    def script(_number: int, received: Received) -> Reply | None:
        return refusal if len(received.body) > 40_000 else None

    with FaultServer(script) as server:
        with pytest.raises(RequestTooLarge):
            await JevAsker(server.url).ask(STATE, {f"call_t{n}": {"instructions": "x" * 100} for n in range(500)})
        done = await ContextEngine(judge=judge_of(server)).compress(session(150), force=True, dry_run=True)

    assert done.stats.failures == []
    assert {d.probability.source for d in done.decisions} == {"judge+local"}


async def test_a_server_that_refuses_every_size_is_given_up_soon() -> None:
    with FaultServer(lambda *_: TOO_LARGE["413"]) as server:
        done = await ContextEngine(judge=judge_of(server)).compress(session(150), force=True, dry_run=True)

    assert len(server.requests) <= 6 * 4
    assert "RequestTooLarge" in done.stats.failures[0]
    assert {d.probability.source for d in done.decisions} == {"local"}


@pytest.mark.parametrize(
    "fault", [Reply(hang=True), Reply(drip_seconds=0.05), Reply(delay_seconds=30)], ids=["hang", "drip", "slow"]
)
async def test_the_deadline_holds_and_what_arrived_stays(fault: Reply) -> None:
    with FaultServer({2: fault}) as server:
        engine = ContextEngine(judge=judge_of(server, deadline_seconds=0.6))
        started = time.monotonic()
        done = await engine.compress(session(150), force=True, dry_run=True)
        took = time.monotonic() - started

    answered = sum(d.probability.source == "judge+local" for d in done.decisions)
    assert took < 3
    assert "Deadline: 1 requests" in done.stats.failures[0]
    assert len(done.decisions) > answered > 0


async def test_cancelling_passes_at_once_and_leaves_nothing_locked() -> None:
    with FaultServer({1: Reply(hang=True)}) as server:
        judge = judge_of(server)
        with anyio.move_on_after(0.3) as scope:
            await ContextEngine(judge=judge).compress(session(10), force=True, dry_run=True)
        done = await ContextEngine(judge=judge).compress(session(10), force=True, dry_run=True)

    assert scope.cancelled_caught
    assert done.stats.failures == []
    assert done.stats.requests == 1


async def test_an_outage_is_remembered_and_success_ends_it() -> None:
    now = [1_000.0]
    down = [True]
    with FaultServer(lambda *_: Reply(401) if down[0] else None) as server:
        asker = JevAsker(server.url, key=KEY, clock=lambda: now[0])
        waits = []
        for _ in range(4):
            with pytest.raises(JudgeUnavailable, match="401"):
                await asker.ask(STATE, QUESTIONS)
            with pytest.raises(JudgeUnavailable, match="asked again in") as caught:
                await asker.ask(STATE, QUESTIONS)
            waits.append(int(str(caught.value).split(" in ")[1].split()[0]))
            now[0] += waits[-1] + 1
        sent = len(server.requests)
        down[0] = False
        await asker.ask(STATE, QUESTIONS)
        await asker.ask(STATE, QUESTIONS)

    assert waits == [5, 10, 20, 40]
    assert sent == 4


async def test_one_failing_request_of_a_pass_starts_no_cool_down() -> None:
    with FaultServer({2: Reply(401)}) as server:
        judge = judge_of(server)
        first = await ContextEngine(judge=judge).compress(session(150), force=True, dry_run=True)
        await ContextEngine(judge=judge).compress(session(150), force=True, dry_run=True)

    assert len(first.stats.failures) == 1
    assert len(server.requests) == 2 * first.stats.requests


async def test_a_pass_stops_asking_a_server_that_only_fails() -> None:
    with FaultServer(lambda *_: Reply(401)) as server:
        done = await ContextEngine(judge=judge_of(server)).compress(session(900), force=True, dry_run=True)

    assert 4 <= len(server.requests) <= 8
    assert {d.probability.source for d in done.decisions} == {"local"}


async def test_at_most_so_many_requests_at_once() -> None:
    open_now, most = [0], [0]
    lock = threading.Lock()

    def answer(request: Any) -> Any:
        with lock:
            open_now[0] += 1
            most[0] = max(most[0], open_now[0])
        time.sleep(0.01)
        with lock:
            open_now[0] -= 1
        return answer_half(request)

    with FaultServer(answer=answer) as server:
        done = await ContextEngine(judge=judge_of(server)).compress(session(900), force=True, dry_run=True)

    assert done.stats.requests > 8
    assert most[0] <= 4
