"""The sessions a process serves: as many as fit, those not seen for longest forgotten first.

What is forgotten is counters and caches. Ledgers and originals are in the store, so a session that comes back goes on
where it was.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from jev_engine.sessions import Session

__all__ = ["MOST_SESSIONS", "SessionPool"]

MOST_SESSIONS = 64
"""A session's ledger and answers take about a megabyte at 5,000 calls."""


class SessionPool:
    """Sessions by name. Safe to use from several threads."""

    def __init__(self, most: int = MOST_SESSIONS) -> None:
        self._most = most
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, name: str, make: Callable[[], Session]) -> Session:
        """The session of that name, made where there is none."""
        with self._lock:
            session = self._sessions.get(name)
            if session is None:
                session = self._sessions[name] = make()
                while len(self._sessions) > self._most:
                    self._sessions.popitem(last=False)
            self._sessions.move_to_end(name)
            return session

    def known(self, name: str) -> Session | None:
        """The session of that name, if it is here."""
        with self._lock:
            return self._sessions.get(name)

    def __len__(self) -> int:
        return len(self._sessions)
