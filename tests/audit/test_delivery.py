"""Sinks that raise, hang, flood or are missing change no result, and are named. No audit, no deletion."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from audit_trails import Hears, messages_of

from jev_engine import ContextEngine, make_config
from jev_engine.audit.delivery import FLUSH_SECONDS, Delivery, Lane
from jev_engine.events import Committed, Decided, Event, Origin, SessionEnded
from jev_engine.events.batch import Batch
from jev_engine.testing import ScriptedJudge


class HearsAsync(Hears):
    async def emit(self, event: Event) -> None:  # type: ignore[override]
        await anyio.lowlevel.checkpoint()
        self.events.append(event)


class Raises:
    name = "raises"

    def emit(self, event: Event) -> None:
        raise RuntimeError(f"down: {event!r}")


class Hangs:
    """Until the test lets it go."""

    name = "hangs"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.heard = 0

    def emit(self, event: Event) -> None:
        self.gate.wait(30)
        self.heard += 1


class Floods(Hears):
    """Asks for a pass of its own for each event it hears of: its engine has no sinks."""

    name = "floods"

    def emit(self, event: Event) -> None:
        super().emit(event)
        if len(self.events) < 20:
            anyio.run(lambda: engine_of([]).compress(messages_of(), host="openai", force=True))


def engine_of(sinks: list[Any], **settings: Any) -> ContextEngine:
    judge = ScriptedJudge(lambda call: (0.9, (call.number % 7) / 10))
    config = make_config(**{"min_freed_share": 0.0, "pin_newest_calls": 1, **settings})
    return ContextEngine(config=config, judge=judge, sinks=sinks)


def hanging() -> Batch:
    """One good event, at which a sink can hang."""
    origin = Origin(actor="host", host="", engine_version="0")
    event = SessionEnded(id="0", at=1.0, origin=origin, session="5e55", pass_id="", sequence=1)
    return Batch("5e55", [event.model_dump_json(exclude_none=True).encode()])


def run(sinks: list[Any], **settings: Any) -> Any:
    return anyio.run(lambda: engine_of(sinks, **settings).compress(messages_of(), host="openai", force=True))


@pytest.mark.parametrize("sink", [Raises, Floods, HearsAsync])
def test_no_sink_changes_a_result(sink: Any) -> None:
    """The same bytes as without it, and a good sink beside it hears everything."""
    hears = Hears()
    done = run([sink(), hears])

    assert done.messages == run([]).messages
    assert isinstance(hears.events[-1], Committed)


def test_a_sink_that_hangs_is_waited_for_once_and_named() -> None:
    """The first pass waits its limit, the second does not; what it missed it hears when it is back, in order."""
    hangs, hears = Hangs(), Hears()
    engine = engine_of([hangs, hears])

    async def twice() -> list[Any]:
        passes = []
        for _ in range(2):
            start = time.monotonic()
            done = await engine.compress(messages_of(), host="openai", force=True)
            passes.append((done, time.monotonic() - start))
        return passes

    (first, waited), (second, _) = anyio.run(twice)
    assert first.messages == second.messages == run([]).messages
    assert waited >= FLUSH_SECONDS
    assert any("'hangs' hangs" in warning for warning in second.stats.warnings)
    assert len([event for event in hears.events if isinstance(event, Committed)]) == 2
    hangs.gate.set()
    engine.sinks.close(30)
    assert hangs.heard == len(hears.events)
    assert engine.sinks.troubles() == []


def test_a_fault_is_counted_named_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """In a warning by the name of the error, whose words may quote anything; in the log with its traceback, once."""
    with caplog.at_level(logging.ERROR, "jev_engine"):
        done = run([Raises()])

    assert [w for w in done.stats.warnings if "'raises' failed" in w and "RuntimeError" in w and "down" not in w]
    assert len(caplog.records) == 1


def test_what_finds_no_room_is_counted_and_memory_stays_bounded() -> None:
    """A flood of events at a sink that takes none."""
    hangs = Hangs()
    lane = Lane(hangs, most_waiting=100)
    lane.put(hanging())
    for _ in range(50):
        lane.put(Batch("5e55", [b"no event at all"] * 10))
    assert lane.lost >= 390  # at most ten were taken before the lane was full
    hangs.gate.set()

    assert lane.wait(30)
    assert lane.faults  # and what is no event does not end the thread


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_order_is_kept_for_every_kind_of_sink(backend: str) -> None:
    """Sequence numbers rise without a gap, whatever loop the pass runs on."""
    for sink in (Hears(), HearsAsync()):
        engine = engine_of([sink])
        done = anyio.run(lambda e=engine: e.compress(messages_of(), host="openai", force=True), backend=backend)
        assert done.changed
        engine.sinks.close(10)
        assert [event.sequence for event in sink.events] == list(range(1, len(sink.events) + 1))


def test_lanes_leave_no_thread_behind() -> None:
    """A thread ends when there is nothing to do."""
    hears = Hears()
    hears.name = "leaves no thread"  # the threads of other tests linger for a moment
    lane = Lane(hears)
    lane.put(Batch("5e55", []))
    assert lane.wait(10)
    for thread in threading.enumerate():
        if "leaves no thread" in thread.name:
            thread.join(10)

    assert not [thread for thread in threading.enumerate() if "leaves no thread" in thread.name]


@pytest.mark.parametrize("sinks", [[], [Raises()]], ids=["missing", "raises"])
def test_without_a_required_sink_nothing_leaves(sinks: list[Any]) -> None:
    """The pass fails, says which, and gives the input back."""
    messages = messages_of()
    engine = engine_of(sinks, required_sinks=("raises",))
    done = anyio.run(lambda: engine.compress(messages, host="openai", force=True))

    assert done.outcome == "failed"
    assert done.messages is messages
    assert "AuditError" in done.reason
    assert "'raises'" in done.reason


def test_a_required_sink_that_hangs_stops_the_pass() -> None:
    """Within its limit."""
    hangs = Hangs()
    engine = engine_of([], required_sinks=("hangs",))
    engine.sinks = Delivery([hangs], required_seconds=0.05)
    done = anyio.run(lambda: engine.compress(messages_of(), host="openai", force=True))
    hangs.gate.set()

    assert done.outcome == "failed"
    assert "has not taken its events within 0.05 s" in done.reason


def test_a_required_sink_may_recover() -> None:
    """It fails one pass, and not those after it."""

    class Once(Hears):
        name = "once"
        is_down = True

        def emit(self, event: Event) -> None:
            if self.is_down:
                raise RuntimeError("down")
            super().emit(event)

    sink = Once()
    engine = engine_of([sink], required_sinks=("once",))

    async def twice() -> tuple[str, str]:
        first = await engine.compress(messages_of(), host="openai", force=True)
        sink.is_down = False
        second = await engine.compress(messages_of(), host="openai", force=True)
        return first.outcome, second.outcome

    first, second = anyio.run(twice)
    assert first == "failed"
    assert second == "committed"


def test_a_required_sink_has_every_decision_before_anything_leaves() -> None:
    """And a dry run needs none."""
    hears = Hears()
    done = run([hears], required_sinks=("hears",))

    assert done.changed
    assert any(isinstance(event, Decided) for event in hears.events)
    dry = engine_of([], required_sinks=("hears",))
    assert (
        anyio.run(lambda: dry.compress(messages_of(), host="openai", force=True, dry_run=True)).outcome == "committed"
    )


def test_a_cancelled_pass_is_told_as_abandoned() -> None:
    """Nobody has to guess from a start without an end."""
    hears = Hears()

    class Waits:
        name, is_calibrated = "waits", True

        async def judge(self, request: Any) -> Any:
            await anyio.sleep(30)

    engine = ContextEngine(judge=Waits(), sinks=[hears])

    async def cancelled() -> None:
        with anyio.move_on_after(0.05):
            await engine.compress(messages_of(), host="openai", force=True)

    anyio.run(cancelled)
    engine.sinks.close(10)
    assert [event.kind for event in hears.events][-1] == "abandoned"  # type: ignore[attr-defined]
