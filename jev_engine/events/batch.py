"""Events on their way, as lines of JSON: what most sinks write anyway. Models are made when a sink wants them."""

from __future__ import annotations

from functools import cached_property

from jev_engine import events
from jev_engine.events.event import Event

__all__ = ["Batch"]


class Batch:
    """Events of one session, in order."""

    def __init__(self, session: str, lines: list[bytes]) -> None:
        self.session = session
        """The digest of the session's name."""
        self.lines = lines
        """Each event as JSON in one line, in UTF-8; what is None is left out."""

    def __len__(self) -> int:
        return len(self.lines)

    @cached_property
    def events(self) -> list[Event]:
        """The models, made once however many sinks want them."""
        return [events.read_event(line) for line in self.lines]
