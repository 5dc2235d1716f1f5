"""The host's own summariser takes over."""

from __future__ import annotations

from typing import Literal

from jev_engine.events.event import Event

__all__ = ["HandedOver"]


class HandedOver(Event):
    """The host's summariser worked on the pruned history; every message it replaced was stored first."""

    kind: Literal["handed_over"] = "handed_over"
    summariser: str
    messages: int
    """Messages it replaced."""
    stored: int
    tokens_before: int
    tokens_after: int | None = None
