"""Hooks of hosts, heard for the audit trail: taken in at once, told in a thread of their own, and never in the way."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from jev_engine.errors import JevEngineError
from jev_engine.serve.desk import Desk
from jev_engine.trail import Trail

__all__ = ["HookDesk", "tell"]

logger = logging.getLogger("jev_engine")

MOST_WAITING = 10_000
"""Hooks that wait to be told; beyond that they are dropped and counted."""
MOST_WAITING_BYTES = 64 * 1024 * 1024
"""As they came, all together. The largest body over HTTP is as long, so that one that comes alone is always taken."""
HOST = "claude-code-plugin"
CLOSE_SECONDS = 5.0
"""So long the end of the process waits for hooks that are not told yet."""


class HookDesk:
    """Takes payloads of hooks. One thread tells them, in the order they came."""

    def __init__(self, desk: Desk, work: Callable[[Desk, Mapping[str, Any]], None] | None = None) -> None:
        self._desk = desk
        self._work = work or tell
        self._queue: queue.Queue[tuple[Mapping[str, Any], int]] = queue.Queue(MOST_WAITING)
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._has_thread = False
        self.dropped = 0

    def take(self, payload: Mapping[str, Any], size_bytes: int = 0) -> None:
        """Note one payload, so large as it came; never waits, never raises."""
        with self._lock:
            if self._queue.full() or self._waiting_bytes + size_bytes > MOST_WAITING_BYTES:
                self.dropped += 1
                return
            self._queue.put_nowait((payload, size_bytes))  # under the lock: it has not filled up meanwhile
            self._waiting_bytes += size_bytes
            if not self._has_thread:
                threading.Thread(target=self._run, name="jev-engine hooks", daemon=True).start()
                self._has_thread = True

    def wait(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Until everything taken so far is told, and no longer; whether it is."""
        ends = time.monotonic() + seconds
        while self._queue.unfinished_tasks and time.monotonic() < ends:
            time.sleep(0.01)
        return not self._queue.unfinished_tasks

    def _run(self) -> None:
        while True:
            payload, size_bytes = self._queue.get()
            try:
                self._work(self._desk, payload)
            except Exception:
                logger.exception("a hook could not be told")
            finally:
                with self._lock:
                    self._waiting_bytes -= size_bytes
                self._queue.task_done()


def tell(desk: Desk, payload: Mapping[str, Any]) -> None:
    """One payload to the trail, and to the pass it says something about."""
    try:
        engine = desk.engine_of({})
        host = engine.plugins.adapter(HOST)
    except JevEngineError as error:
        logger.warning("hooks cannot be told: %s", error)
        return
    name = payload.get("hook_event_name")
    session = payload.get("session_id")
    is_confirmed = name == "PostCompact" or (name == "SessionStart" and payload.get("source") == "compact")
    if isinstance(session, str) and (is_confirmed or name == "PreCompact"):
        # Where a plugin has answered, `PreCompact` is not fired: the built-in compaction begins all the same.
        reason = None if is_confirmed else "the host compacted by itself"
        desk.applied({"session_id": session, "agent_id": payload.get("agent_id"), "reason": reason})
    told = getattr(host, "told", lambda _: None)(payload)
    if told is not None and engine.sinks:
        trail = Trail(engine.sinks, host=host.name, is_pass=False)
        trail.tell(told)
