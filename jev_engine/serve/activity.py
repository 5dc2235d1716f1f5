"""Whether anybody still needs the local process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

__all__ = ["Activity"]


class Activity:
    """How long nobody has asked for anything."""

    def __init__(self, patience_seconds: float = math.inf) -> None:
        self.patience_seconds = patience_seconds or math.inf
        """So long without a request, and nobody needs it any more."""
        self.started = self._last = time.monotonic()
        self.in_flight = 0
        self.quit: Callable[[], None] = lambda: None
        """Ends the process; set by whoever runs it."""

    def keep(self, seconds: float) -> None:
        """Somebody wants it to stay so long at least; 0 for ever."""
        self.patience_seconds = max(self.patience_seconds, seconds or math.inf)

    @property
    def told_patience(self) -> float:
        """The patience as a number that JSON has: 0 for ever."""
        return 0.0 if math.isinf(self.patience_seconds) else self.patience_seconds

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
