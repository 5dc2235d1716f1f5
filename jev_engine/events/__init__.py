"""What can happen, as frozen models, one file a family; and the sink that hears of it.

Events carry lengths, counts and keyed digests, never content, unless the user asked for content.

>>> read_event('{"kind": "nonsense"}')
Traceback (most recent call last):
    ...
ValueError: not an event of this version
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from jev_engine.events.answers import JudgeAnswered, JudgeAsked, JudgeFailed, StateFitted
from jev_engine.events.event import Event, EventSink, Origin
from jev_engine.events.handover import HandedOver
from jev_engine.events.host import (
    ModelCalled,
    SessionEnded,
    SessionRotated,
    SessionStarted,
    ToolCalled,
    ToolFinished,
)
from jev_engine.events.passes import (
    Abandoned,
    Committed,
    Content,
    Decided,
    Discarded,
    PassStarted,
    Pinned,
    Proposed,
    Rule,
    Unit,
)
from jev_engine.events.store import Expanded, OriginalsStored, Refetched, Restored

__all__ = [
    "KINDS", "Abandoned", "AnyEvent", "Committed", "Content", "Decided", "Discarded", "Event", "EventSink", "Expanded",
    "HandedOver", "JudgeAnswered", "JudgeAsked", "JudgeFailed", "ModelCalled", "Origin", "OriginalsStored",
    "PassStarted", "Pinned", "Proposed", "Refetched", "Restored", "Rule", "SessionEnded", "SessionRotated",
    "SessionStarted", "StateFitted", "ToolCalled", "ToolFinished", "Unit", "read_event",
]  # fmt: skip

AnyEvent = Annotated[
    PassStarted | Pinned | JudgeAsked | StateFitted | JudgeAnswered | JudgeFailed | Decided | Proposed
    | OriginalsStored | Committed | Discarded | Abandoned | HandedOver | Expanded | Refetched | Restored
    | ToolCalled | ToolFinished | ModelCalled | SessionStarted | SessionRotated | SessionEnded,
    Field(discriminator="kind"),
]  # fmt: skip

KINDS: tuple[type[Event], ...] = (
    PassStarted, Pinned, JudgeAsked, StateFitted, JudgeAnswered, JudgeFailed, Decided, Proposed, OriginalsStored,
    Committed, Discarded, Abandoned, HandedOver, Expanded, Refetched, Restored, ToolCalled, ToolFinished, ModelCalled,
    SessionStarted, SessionRotated, SessionEnded,
)  # fmt: skip
"""Every event there is, in the order of their families."""

_reader: TypeAdapter[Event] = TypeAdapter(AnyEvent, config=None)


def read_event(text: str | bytes) -> Event:
    """The event that JSON text stands for; raises ValueError for anything else."""
    try:
        return _reader.validate_json(text)
    except ValidationError:
        raise ValueError("not an event of this version") from None
