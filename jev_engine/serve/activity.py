"""Whether anybody still needs the local process."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Activity"]


class Activity:
    """How long nobody has asked for anything."""

    def __init__(self) -> None:
        self.started = self._last = time.monotonic()
        self.in_flight = 0
        self.quit: Callable[[], None] = lambda: None
        """Ends the process; set by whoever runs it."""

    def begin(self) -> None:
        """A request begins."""
        self.in_flight += 1

    def end(self) -> None:
        """A request has ended, however."""
        self.in_flight -= 1
        self._last = time.monotonic()

    def idle_seconds(self) -> float:
        """Seconds since the last request; 0 while there is one."""
        return 0.0 if self.in_flight else time.monotonic() - self._last
