"""What all events have, and who hears of them."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Event", "EventSink", "Origin"]

# The end of the year 9999, up to which a time has a date.
LATEST = 253_402_300_799.0


class Origin(BaseModel):
    """Who speaks, and in which version: replaying needs the same one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    actor: str
    """`engine`, `host`, `agent` or `user`."""
    host: str
    """The adapter's name; empty where it is not known yet."""
    engine_version: str
    host_version: str | None = None


class Event(BaseModel):
    """What all events have. Lengths, counts and keyed digests; no content, unless the user asked for content."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    """A UUID, in hex. The same event heard twice has the same one."""
    at: Annotated[float, Field(ge=0, le=LATEST)]
    """Seconds since the epoch."""
    origin: Origin
    session: str
    """A keyed digest of the session's name."""
    pass_id: str
    """The pass it belongs to; empty for what happens between passes."""
    sequence: int
    """Position within the pass, from 1; a gap means that events were lost on their way."""


@runtime_checkable
class EventSink(Protocol):
    """Hears of every event, in order, in a thread of its own. What it raises is counted and changes no result.

    A sink may have a `name` (for `required_sinks`), a `key` for digests, `flush()`, called at the end of each pass,
    and `emit_many(batch)`, which then is called instead of `emit`.
    """

    def emit(self, event: Event) -> Awaitable[None] | None:
        """Take in one event; `async def` is fine too."""
        ...
