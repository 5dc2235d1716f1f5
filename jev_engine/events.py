"""What can happen in a pass, as frozen models, and the sink that hears of it.

Events carry lengths, counts and keyed references, never content.
"""

from __future__ import annotations

import time
import uuid
from typing import Annotated, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "Decided",
    "Event",
    "EventSink",
    "Judged",
    "OriginalsStored",
    "PassEnded",
    "PassStarted",
    "Pinned",
]


class Event(BaseModel):
    """What all events have."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    at: float = Field(default_factory=time.time)
    """Seconds since the epoch."""
    session: str
    pass_id: str


class PassStarted(Event):
    """A pass has begun."""

    kind: Literal["pass_started"] = "pass_started"
    host: str
    messages: int
    calls: int
    tokens: int


class Pinned(Event):
    """Units were set aside."""

    kind: Literal["pinned"] = "pinned"
    candidates: int
    reasons: dict[str, int]


class Judged(Event):
    """The judge answered, or did not."""

    kind: Literal["judged"] = "judged"
    judge: str
    answers: int
    requests: int
    state_stage: str | None
    state_tokens: int
    failures: tuple[str, ...] = ()
    input_tokens: int = 0
    price: float | None = None
    model: str | None = None
    privacy: str | None = None
    settled: int = 0


class Decided(Event):
    """One unit was decided; kept ones too."""

    kind: Literal["decided"] = "decided"
    reference: str
    """The keyed id of the original, for units that went out."""
    label: str
    action: Literal["keep", "truncate", "remove"]
    reason: str
    p_call: float | None
    p_result: float | None
    raw_call: float | None
    raw_result: float | None
    chars: int
    chars_after: int


class OriginalsStored(Event):
    """Originals are safe; units whose original is not were kept."""

    kind: Literal["originals_stored"] = "originals_stored"
    saved: int
    not_saved: int


class PassEnded(Event):
    """A pass has ended."""

    kind: Literal["pass_ended"] = "pass_ended"
    outcome: str
    reason: str
    freed_tokens: int
    expected_misses: float


AnyEvent = Annotated[PassStarted | Pinned | Judged | Decided | OriginalsStored | PassEnded, Field(discriminator="kind")]


@runtime_checkable
class EventSink(Protocol):
    """Hears of every event, in order. What it raises is logged and changes nothing."""

    def emit(self, event: Event) -> None:
        """Take in one event; must not block."""
        ...
