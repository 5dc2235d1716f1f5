"""Originals: saved, asked for again, brought back."""

from __future__ import annotations

from typing import Literal

from jev_engine.events.event import Event

__all__ = ["Expanded", "OriginalsStored", "Refetched", "Restored"]


class OriginalsStored(Event):
    """Originals are safe; units whose original is not were kept."""

    kind: Literal["originals_stored"] = "originals_stored"
    saved: int
    not_saved: int


class Expanded(Event):
    """The agent read an original again, or a user did: a look-back. Of the agent's, each pass that sees it tells."""

    kind: Literal["expanded"] = "expanded"
    reference: str
    chars: int
    label: str | None = None
    """The call by which it was read, where it is known."""
    status: str = "page"


class Refetched(Event):
    """The same call was made again: a look-back. Heard of once per pass that sees it."""

    kind: Literal["refetched"] = "refetched"
    label: str
    tool: str
    reference: str | None = None
    """The original that is out; None for the control: the unit called again was still in the history."""
    chars: int


class Restored(Event):
    """A history was brought back."""

    kind: Literal["restored"] = "restored"
    messages: int
    passes: int
    left: int
    """Markers that stayed, because no record of their pass fits."""
