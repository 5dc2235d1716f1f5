"""From a pass to its sinks: in order, bounded in time and memory, and never in the way of a result.

Each sink has a lane: a queue and a thread of its own that ends when there is nothing to do. What a sink raises is
counted and named; a sink that hangs is waited for once, and then only its own events suffer.
"""

from __future__ import annotations

import atexit
import inspect
import logging
import os
import threading
import time
import weakref
from asyncio import Runner
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from anyio import to_thread

from jev_engine.errors import AuditError
from jev_engine.events.batch import Batch
from jev_engine.events.event import Event

__all__ = ["FLUSH_SECONDS", "MOST_WAITING", "REQUIRED_SECONDS", "Delivery", "Lane"]

logger = logging.getLogger("jev_engine")

FLUSH_SECONDS = 0.25
"""Longest a pass waits for its sinks, once: a pass with the local judge takes about as long on a long session."""
REQUIRED_SECONDS = 5.0
"""Longest it waits for a sink without which nothing may be deleted; a slow disk takes seconds."""
MOST_WAITING = 100_000
"""Events a lane holds at most, about 60 MB; newer ones are lost and counted."""
SHORT_SECONDS = 0.01
"""So long the event loop itself is held up; a pass computes for longer than that in one go."""
LINGER_SECONDS = 0.1
"""How long the thread of a lane waits for more before it ends."""
FLUSH = Batch("", [])
"""Stands in a queue where a sink is told that a pass is over."""


class Lane:
    """The way to one sink."""

    def __init__(self, sink: Any, *, most_waiting: int = MOST_WAITING) -> None:
        self.sink = sink
        self._most_waiting = most_waiting
        self.name = str(_attribute(sink, "name") or type(sink).__name__)
        self.key = _attribute(sink, "key")
        self._flush, self._emit_many = _attribute(sink, "flush"), _attribute(sink, "emit_many")
        self.faults = 0
        """Events, or batches of them, the sink raised on."""
        self.last_fault: str | None = None
        """The newest fault: what an AuditError says; of any other only its name, whose words may quote anything."""
        self.lost = 0
        """Events that found no room."""
        self.is_stalled = False
        """It was waited for in vain, and has not caught up since."""
        self._batches: deque[Batch] = deque()
        self._waiting = 0
        self._busy = False
        self._thread: threading.Thread | None = None
        self._process = 0
        self._condition = threading.Condition()
        self._runner: Runner | None = None

    @property
    def is_drained(self) -> bool:
        """The sink has taken everything, and was told so."""
        return not self._batches and not self._busy

    def put(self, batch: Batch) -> None:
        """Queue a batch; an empty one flushes the sink."""
        with self._condition:
            if self._process != os.getpid():
                # A fork takes the queue along, but no thread: what was queued is the parent's to deliver.
                self._process, self._thread, self._busy, self._waiting = os.getpid(), None, False, 0
                self._batches.clear()
            if self._waiting + len(batch) > self._most_waiting:
                self.lost += len(batch)
                return
            self._batches.append(batch)
            self._waiting += len(batch)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"jev-engine sink {self.name}", daemon=True)
                _alive.add(self)
                self._thread.start()
            else:
                self._condition.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until the sink has taken everything; False where it did not in that time."""
        with self._condition:
            done = self._condition.wait_for(lambda: self.is_drained, timeout=seconds)
            self.is_stalled = not done
        return done

    def _run(self) -> None:
        try:
            while (batch := self._next()) is not None:
                self._take(batch)
                with self._condition:
                    self._busy = False
                    self._waiting -= len(batch)
                    if self.is_drained:
                        self.is_stalled = False
                        self._condition.notify_all()
        finally:
            if self._runner is not None:
                self._runner.close()
                self._runner = None

    def _next(self) -> Batch | None:
        with self._condition:
            if not self._condition.wait_for(lambda: self._batches, timeout=LINGER_SECONDS):
                self._thread = None
                return None
            self._busy = True
            return self._batches.popleft()

    def _take(self, batch: Batch) -> None:
        if batch is FLUSH:
            if self._flush is not None:
                self._call(self._flush)
        elif self._emit_many is not None:
            self._call(partial(self._emit_many, batch))
        else:
            made: list[Event] = []
            self._call(lambda: made.extend(batch.events))
            for event in made:
                self._call(lambda event=event: self.sink.emit(event))

    def _call(self, work: Any) -> None:
        try:
            made = work()
            if inspect.isawaitable(made):
                self._runner = self._runner or Runner()
                self._runner.run(_awaited(made))
        except BaseException as error:  # a sink is somebody else's: its fault is counted and changes nothing
            self.faults += 1
            self.last_fault = str(error) if isinstance(error, AuditError) else type(error).__name__
            if self.faults == 1:
                logger.exception("event sink %r failed", self.name)


async def _awaited(made: Any) -> None:
    await made


def _attribute(sink: Any, name: str) -> Any:
    """What a sink has by that name, or None; one that raises when it is asked has none."""
    try:
        return getattr(sink, name, None)
    except Exception:
        logger.exception("event sink %s cannot be asked for %r", type(sink).__name__, name)
        return None


class Delivery:
    """All sinks of an engine. Iterates over them.

    `flush_seconds` and `required_seconds` are how long a pass waits at most: for all of them, and for those without
    which nothing may leave.
    """

    def __init__(
        self,
        sinks: Iterable[Any] = (),
        *,
        flush_seconds: float = FLUSH_SECONDS,
        required_seconds: float = REQUIRED_SECONDS,
    ) -> None:
        self.lanes = [Lane(sink) for sink in sinks]
        self._flush_seconds = flush_seconds
        self._required_seconds = required_seconds

    def __iter__(self) -> Iterator[Any]:
        return iter([lane.sink for lane in self.lanes])

    def __len__(self) -> int:
        return len(self.lanes)

    @property
    def key(self) -> bytes | None:
        """The key of the first sink that brings one."""
        return next((lane.key for lane in self.lanes if isinstance(lane.key, bytes)), None)

    def put(self, batch: Batch) -> None:
        """Queue events for every sink."""
        if batch:
            for lane in self.lanes:
                lane.put(batch)

    async def flush(self) -> None:
        """Wait until every sink has taken everything, within the limit; those that stalled before are left out."""
        waited = [lane for lane in self.lanes if not lane.is_stalled]
        for lane in waited:
            lane.put(FLUSH)
        await _drained(waited, self._flush_seconds)

    def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """The same for callers that are not async, such as a command about to end."""
        for lane in self.lanes:
            lane.put(FLUSH)
        _wait(self.lanes, seconds)

    def losses(self) -> list[int]:
        """For each sink, how many events it has not taken so far: because it raised, or was too slow."""
        return [lane.faults + lane.lost for lane in self.lanes]

    async def unfit(self, names: Iterable[str], before: Sequence[int]) -> str | None:
        """Why one of the sinks with these names cannot be relied on; None where all have taken everything.

        `before` are the losses when the pass began: what was lost earlier was another pass's.
        """
        wanted = set(names)
        chosen = [(lane, lost) for lane, lost in zip(self.lanes, before, strict=True) if lane.name in wanted]
        lanes = [lane for lane, _ in chosen]
        missing = wanted - {lane.name for lane in lanes}
        if missing:
            return f"required sink {min(missing)!r} is not there"
        for lane in lanes:
            lane.put(FLUSH)
        await _drained(lanes, self._required_seconds)
        for lane, lost in chosen:
            if not lane.is_drained:
                return f"required sink {lane.name!r} has not taken its events within {self._required_seconds:g} s"
            if lane.faults + lane.lost > lost:
                return f"required sink {lane.name!r} failed ({lane.last_fault or 'events lost'})"
        return None

    def troubles(self) -> list[str]:
        """What went wrong so far, a line a sink."""
        said = []
        for lane in self.lanes:
            if lane.faults:
                said.append(f"event sink {lane.name!r} failed {lane.faults:,} times ({lane.last_fault})")
            if lane.lost:
                said.append(f"event sink {lane.name!r} is too slow: {lane.lost:,} events were lost")
            if lane.is_stalled:
                said.append(f"event sink {lane.name!r} hangs; it is not waited for until it has caught up")
        return said


async def _drained(lanes: Sequence[Lane], seconds: float) -> None:
    # Most sinks are done by now or nearly so; a thread to wait in would cost more than the wait.
    _wait(lanes, SHORT_SECONDS)
    if any(not lane.is_drained for lane in lanes):
        await to_thread.run_sync(partial(_wait, lanes, seconds), abandon_on_cancel=True)


def _wait(lanes: Sequence[Lane], seconds: float) -> None:
    until = time.monotonic() + seconds
    for lane in lanes:
        lane.wait(max(0.0, until - time.monotonic()))


_alive: weakref.WeakSet[Lane] = weakref.WeakSet()


@atexit.register
def _last_words() -> None:
    """A process that ends gives its sinks a moment; a sink that hangs does not hold it up."""
    _wait([lane for lane in _alive if not lane.is_drained and not lane.is_stalled], FLUSH_SECONDS)
