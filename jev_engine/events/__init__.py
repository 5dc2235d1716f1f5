"""What can happen, as frozen models, one file a family; and the sink that hears of it.

Events carry lengths, counts and keyed digests, never content, unless the user asked for content.

>>> read_event('{"kind": "nonsense"}')
Traceback (most recent call last):
    ...
ValueError: not an event of this version
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from jev_engine import __version__
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
    "SessionStarted", "StateFitted", "ToolCalled", "ToolFinished", "Unit", "is_newer", "read_event",
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
    """The event that JSON text stands for; raises ValueError for anything else.

    Of an event that a newer version wrote, what only that version knows is left out.
    """
    try:
        return _reader.validate_json(text)
    except ValidationError as error:
        unknown = [fault["loc"][1:] for fault in error.errors() if fault["type"] == "extra_forbidden"]
    try:
        told = json.loads(text)
        if is_newer(told["origin"]["engine_version"]):
            return _reader.validate_python(_without(told, unknown))
    except (ValueError, LookupError, TypeError, AttributeError):
        pass
    raise ValueError("not an event of this version")


def is_newer(version: str) -> bool:
    """Whether a version of this package is a later one than this."""
    return version != __version__ and _numbers(version) > _numbers(__version__)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]{1,9}", version)][:3]


def _without(told: Any, unknown: Sequence[tuple[int | str, ...]]) -> Any:
    """An event without some of its fields, and without columns nobody knows here."""
    for *way, name in unknown:
        at = told
        for step in way:
            at = at[step]
        del at[name]
    if "columns" in told:
        told["columns"] = {name: column for name, column in told["columns"].items() if name in Unit._fields}
    return told
