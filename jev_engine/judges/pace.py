"""How fast an endpoint may be asked, and how long it is left alone after failures. Shared by threads; never waits."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

__all__ = ["CoolDown", "Pace"]

FIRST_SECONDS, LONGEST_SECONDS = 5.0, 600.0
"""A cool-down starts with half a deadline and doubles up to ten minutes."""
BURST_SECONDS = 1.0
"""A rate limit counts over about a second: so much may go at once."""


class Pace:
    """A limit on tokens per second."""

    def __init__(self, tokens_per_second: int | None, clock: Callable[[], float]) -> None:
        self._rate = tokens_per_second
        self._clock = clock
        self._due = float("-inf")
        self._lock = Lock()

    def reserve(self, tokens: int) -> float:
        """Claim room for so many tokens; returns after how many seconds they may be sent."""
        if self._rate is None:
            return 0.0
        with self._lock:
            now = self._clock()
            due = max(self._due, now)
            self._due = due + tokens / self._rate
            return max(0.0, due - now - BURST_SECONDS)


class CoolDown:
    """Grows with every pass that failed, and ends with the first that did not."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until = float("-inf")
        self._failures = 0
        self._lock = Lock()

    def remaining(self) -> float:
        """Seconds until the endpoint may be asked again."""
        return max(0.0, self._until - self._clock())

    def grow(self, asked_for: float | None = None) -> None:
        """Note a failed pass; `asked_for` are the seconds the server wants to be left alone."""
        with self._lock:
            wait = FIRST_SECONDS * 2 ** min(self._failures, 10)
            self._failures += 1
            self._until = self._clock() + min(LONGEST_SECONDS, max(wait, asked_for or 0.0))

    def clear(self) -> None:
        """Note a pass that was answered."""
        with self._lock:
            self._failures, self._until = 0, float("-inf")
