"""What left the machine stands in the trail: every request, also those that failed, where to, and in which mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from audit_trails import KEY, messages_of

from jev_engine import ContextEngine, make_config
from jev_engine.audit.explain import explain, find_unit
from jev_engine.audit.jsonl import JsonlSink
from jev_engine.audit.records import PassTold, read_trail
from jev_engine.audit.stats import stats_of
from jev_engine.judges import Verdict
from jev_engine.judges.asked import AskedJudge
from jev_engine.judges.cascade import CascadeJudge
from jev_engine.judges.jev import JevAsker
from jev_engine.judges.local import LocalJudge
from jev_engine.judges.replay import RecordingAsker, ReplayAsker
from jev_engine.memory import Memories, Remembered
from jev_engine.testing import ScriptedAsker
from jev_engine.testing.server import FaultServer, Reply

KEY_FOR_JEV = "k-0123456789abcdef"
SOON = {"retry-after-ms": "1"}
# Requests so small that a pass takes several.
SMALL = {"state_tokens": 700, "request_tokens": 1_100}


def told_by(path: Path, judge: Any, **settings: Any) -> PassTold:
    """One pass, asked of that judge, as the trail tells it."""
    sink = JsonlSink(path, key=KEY)
    config = make_config(**{"min_freed_share": 0.0, "pin_newest_calls": 1, **settings})
    engine = ContextEngine(config=config, judge=judge, sinks=[sink])
    anyio.run(lambda: engine.compress(messages_of(), host="openai", force=True))
    sink.close()
    return read_trail(path).find("last")


def jev(server: FaultServer, tail: str = "") -> JevAsker:
    return JevAsker(server.url + tail, key=KEY_FOR_JEV)


FAULTS = {
    "none": {},
    "all fail, and are repeated": {n: Reply(503, headers=SOON) for n in range(1, 50)},
    "all but the first fail": {n: Reply(500, headers=SOON) for n in range(2, 50)},
    "the key is refused": {n: Reply(401) for n in range(1, 50)},
    "one is refused for its size": {1: Reply(413)},
    "no answer is JSON": {n: Reply(body=b"<html>") for n in range(1, 50)},
}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_the_trail_counts_what_the_server_got(tmp_path: Path, faults: dict[int, Reply]) -> None:
    """Requests and bytes, whatever became of them."""
    path = tmp_path / "trail.jsonl"
    with FaultServer(faults) as server:
        told = told_by(path, AskedJudge(jev(server), name="jev"), privacy="sizes", **SMALL)
    got = server.requests
    assert len(got) > 1
    stats = stats_of(read_trail(path))

    assert told.answered is not None
    assert told.asked is not None
    assert (told.answered.requests, told.answered.sent_bytes) == (len(got), sum(len(each.body) for each in got))
    assert (stats["judge_requests"], stats["judge_sent_bytes"]) == (told.answered.requests, told.answered.sent_bytes)
    assert (told.asked.endpoint, told.asked.privacy) == (server.url.split("/")[2], "sizes")
    assert told.answered.ms is not None


def test_of_an_address_only_host_and_port_are_told(tmp_path: Path) -> None:
    """A path or a query may hold a secret."""
    path = tmp_path / "trail.jsonl"
    with FaultServer() as server:
        told_by(path, AskedJudge(jev(server, "/hunter2?token=hunter3"), name="jev"))

    assert "127.0.0.1" in path.read_text()
    assert not [word for word in ("hunter2", "hunter3", KEY_FOR_JEV) if word in path.read_text()]


class Careless:
    """A judge of somebody else's that names an address with everything in it."""

    name, version, is_calibrated = "careless", "1", False
    endpoint = "https://me:hunter2@example.test:8443/v1/hunter3?key=hunter4#hunter5"

    async def judge(self, request: Any) -> Verdict:
        return Verdict()


def test_a_judge_that_names_its_password_does_not_spread_it(tmp_path: Path) -> None:
    """And privacy is told of judges that keep to it only."""
    told = told_by(tmp_path / "trail.jsonl", Careless())

    assert told.asked is not None
    assert (told.asked.endpoint, told.asked.privacy) == ("example.test:8443", None)
    assert "hunter" not in (tmp_path / "trail.jsonl").read_text()


def test_an_asker_behind_a_cascade_or_a_recorder_is_counted_too(tmp_path: Path) -> None:
    """And a replayed cassette sends nothing."""
    with FaultServer() as server:
        recorder = RecordingAsker(jev(server), tmp_path / "cassette")
        recorded = told_by(tmp_path / "a.jsonl", AskedJudge(recorder, name="jev"))
        first = len(server.requests)
        asks_all = CascadeJudge(AskedJudge(jev(server), name="jev"), settled=0.0)
        cascade = told_by(tmp_path / "b.jsonl", asks_all, policy="threshold")
        second = len(server.requests) - first
    names = {"endpoint": recorder.endpoint, "model": recorder.model}
    replay = ReplayAsker(tmp_path / "cassette", budget=recorder.budget, **names)
    replayed = told_by(tmp_path / "c.jsonl", AskedJudge(replay, name="jev"))

    told = [each.answered.requests for each in (recorded, cascade, replayed) if each.answered]
    assert told == [first, second, 0]
    assert first > 0 < second
    assert [each.asked.endpoint for each in (recorded, cascade, replayed) if each.asked] == [
        *[server.url.split("/")[2]] * 2,
        None,
    ]


def test_an_unknown_price_is_not_nothing(tmp_path: Path) -> None:
    """Of a server without a price list nobody knows what it costs."""
    with FaultServer() as server:
        told_by(tmp_path / "unknown.jsonl", AskedJudge(jev(server), name="jev"))
        known = JevAsker(jev(server).endpoint._replace(price=1.0), key=KEY_FOR_JEV)
        told_by(tmp_path / "known.jsonl", AskedJudge(known, name="jev"))
    unknown, known_stats = (stats_of(read_trail(tmp_path / f"{name}.jsonl")) for name in ("unknown", "known"))

    assert (unknown["judge_price"], unknown["judge_requests_without_price"]) == (None, 1)
    assert known_stats["judge_price"] == known_stats["judge_tokens"] / 1e6 > 0


def cancelled(path: Path, judge: Any, backend: str) -> None:
    """A pass that its host gave up while the judge was asked."""
    sink = JsonlSink(path, key=KEY)
    engine = ContextEngine(config=make_config(**SMALL), judge=judge, sinks=[sink])

    async def given_up() -> None:
        with anyio.move_on_after(0.5):
            await engine.compress(messages_of(), host="openai", force=True)

    anyio.run(given_up, backend=backend)
    engine.sinks.close(10)
    sink.close()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_a_pass_had_sent_before_it_was_cancelled_is_told(tmp_path: Path, backend: str) -> None:
    """Requests that nobody waited for any more went out all the same."""
    path = tmp_path / "trail.jsonl"
    with FaultServer({n: Reply(hang=True) for n in range(2, 50)}) as server:
        cancelled(path, AskedJudge(jev(server), name="jev"), backend)
    told = read_trail(path).find("last")

    assert told.outcome.startswith("abandoned")
    assert told.answered is not None
    assert told.answered.requests == len(server.requests) > 1
    assert told.answered.sent_bytes == sum(len(each.body) for each in server.requests)
    assert told.answered.answers > 0


class Waits:
    """A judge of somebody else's that says nothing of what it sends."""

    name, version, is_calibrated = "waits", "1", False

    async def judge(self, request: Any) -> Verdict:
        await anyio.sleep_forever()
        raise AssertionError


def test_a_cancelled_judge_that_does_not_say_what_it_sent_is_counted_as_such(tmp_path: Path) -> None:
    """Nothing known is not nothing sent."""
    cancelled(tmp_path / "trail.jsonl", Waits(), "asyncio")
    told = read_trail(tmp_path / "trail.jsonl")

    assert told.find("last").answered is None
    assert stats_of(told)["judge_passes_not_told"] == 1


def test_the_judge_on_this_machine_is_named_by_its_weights_and_its_memory(tmp_path: Path) -> None:
    """Also where another one was asked besides."""
    path = tmp_path / "trail.jsonl"
    told = told_by(path, AskedJudge(ScriptedAsker(lambda name, *_: 0.1 + len(name) / 100), name="asked"))
    trail = read_trail(path)
    facts = dict(explain(trail, find_unit(trail, "t4")))

    assert {(rule.local_version, rule.uses_memory) for rule in told.rules.values()} == {(LocalJudge.version, False)}
    assert f"weights {LocalJudge.version})" in facts["who decided"]
    assert "asked" in facts["who decided"]

    memories = Memories()
    memories.put("/work/project", Remembered(1.0, -1.0, 9, {}, []))
    sink = JsonlSink(path, key=KEY)
    messages = messages_of()
    messages[0]["cwd"] = "/work/project"
    anyio.run(lambda: ContextEngine(memories=memories, sinks=[sink]).compress(messages, host="openai", force=True))
    sink.close()
    trail = read_trail(path)
    learned = explain(trail, find_unit(trail, "t4", trail.find("last")))
    assert "learned about this project" in dict(learned)["who decided"]
