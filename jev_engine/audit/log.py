"""Events as log records: one line each, at a level that says whether anybody should look."""

from __future__ import annotations

import logging

from jev_engine import events
from jev_engine.events.event import Event

__all__ = ["LogSink"]


class LogSink:
    """Writes to a logger: decisions at DEBUG, failures at WARNING, everything else at INFO.

    A record's `event` holds the model, for handlers that want more than the line.
    """

    name = "log"

    def __init__(self, logger: logging.Logger | str = "jev_engine.audit") -> None:
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger

    def emit(self, event: Event) -> None:
        """Log one event."""
        level = _level(event)
        if self._logger.isEnabledFor(level):
            skipped = {"id", "at", "origin", "columns"}
            facts = event.model_dump(exclude=skipped, exclude_none=True, exclude_defaults=False)
            kind = facts.pop("kind", type(event).__name__)
            words = " ".join([f"{name}={value!r}" for name, value in facts.items()])
            self._logger.log(level, "%s %s", kind, words, extra={"event": event})


def _level(event: Event) -> int:
    if isinstance(event, events.Decided | events.Pinned):
        return logging.DEBUG
    is_bad = isinstance(event, events.Abandoned | events.JudgeFailed)
    return logging.WARNING if is_bad else logging.INFO
