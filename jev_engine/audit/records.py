"""A trail read back: passes with everything that is known about them, and what happened between them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from jev_engine import events
from jev_engine.audit.files import read_lines, trail_files
from jev_engine.audit.upkeep import UPKEEP, Taken
from jev_engine.errors import AuditError

__all__ = ["LookBack", "PassTold", "PinnedUnit", "TrailRead", "gather", "read_events", "read_trail"]

End = events.Committed | events.Discarded | events.Abandoned


class PinnedUnit(NamedTuple):
    """A unit that was not judged."""

    number: int
    tool: str
    chars: int
    reason: str
    reference: str | None
    """The keyed id of its original, where it is out already."""

    @property
    def action(self) -> str:
        """Nobody decided about it."""
        return "pinned"

    @property
    def label(self) -> str:
        """The unit's short name."""
        return f"t{self.number}"


class PassTold:
    """One pass, as far as the trail tells."""

    def __init__(self, first: events.Event) -> None:
        self.id = first.pass_id
        self.session = first.session
        self.at = first.at
        """When it began, as far as the trail goes, in seconds since the epoch."""
        self.origin = first.origin
        self.started: events.PassStarted | None = None
        self.pinned: dict[int, PinnedUnit] = {}
        """Units that were not judged, by call number."""
        self.asked: events.JudgeAsked | None = None
        self.fitted: events.StateFitted | None = None
        self.answered: events.JudgeAnswered | None = None
        self.failures: list[str] = []
        self.proposed: events.Proposed | None = None
        self.stored: events.OriginalsStored | None = None
        self.units: dict[int, events.Unit] = {}
        self.rules: dict[int, events.Rule] = {}
        self.contents: dict[int, events.Content] = {}
        self.looked_back: list[events.Expanded | events.Refetched] = []
        self.handed_over: events.HandedOver | None = None
        self.end: End | None = None

    @property
    def iso(self) -> str:
        """When it began, for machines."""
        return dt.datetime.fromtimestamp(self.at, tz=dt.UTC).isoformat(timespec="seconds")

    @property
    def when(self) -> str:
        """When it began, for people."""
        return dt.datetime.fromtimestamp(self.at, tz=dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

    @property
    def outcome(self) -> str:
        """How it ended: `committed`, `discarded (…)`, `abandoned (…)`, or `no end`: its process saw none."""
        end = self.end
        if end is None:
            return "no end"
        if isinstance(end, events.Committed):
            return end.outcome
        if isinstance(end, events.Abandoned):
            return f"abandoned ({end.reason})"
        return f"dry run ({end.outcome})" if self.started and self.started.is_dry else f"discarded ({end.outcome})"

    @property
    def is_calibrated(self) -> bool:
        """Whether its expected misses come from calibrated probabilities."""
        return self.proposed is None or self.proposed.is_calibrated

    @property
    def rows(self) -> list[events.Unit | PinnedUnit]:
        """Every unit it says anything about, in the order of the history."""
        found: list[events.Unit | PinnedUnit] = [*self.units.values(), *self.pinned.values()]
        return sorted(found, key=lambda row: row.number)

    @property
    def out(self) -> list[events.Unit]:
        """Units that went out."""
        return [unit for unit in self.units.values() if unit.action != "keep"]

    def take(self, event: events.Event) -> None:
        """Take in one event of this pass."""
        if isinstance(event, events.Decided):
            for unit in event.units:
                self.units[unit.number] = unit
                self.rules[unit.number] = event.rule
            self.contents.update(event.contents or {})
        elif isinstance(event, events.Pinned):
            self._take_pins(event)
        elif isinstance(event, events.JudgeFailed):
            self.failures.extend(event.failures)
        elif isinstance(event, events.Expanded | events.Refetched):
            self.looked_back.append(event)
        elif isinstance(event, events.Committed | events.Discarded | events.Abandoned):
            self.end = event
        else:
            self._take_once(event)

    def _take_pins(self, event: events.Pinned) -> None:
        reasons = {number: reason for reason, numbers in event.reasons.items() for number in numbers}
        tools = {number: tool for tool, numbers in event.tools.items() for number in numbers}
        references = event.references or {}
        for number, chars in zip(sorted(reasons), event.chars, strict=True):
            self.pinned[number] = PinnedUnit(number, tools[number], chars, reasons[number], references.get(number))

    def _take_once(self, event: events.Event) -> None:
        if isinstance(event, events.PassStarted):
            self.started = event
        elif isinstance(event, events.JudgeAsked):
            self.asked = event
        elif isinstance(event, events.StateFitted):
            self.fitted = event
        elif isinstance(event, events.JudgeAnswered):
            self.answered = event
        elif isinstance(event, events.Proposed):
            self.proposed = event
        elif isinstance(event, events.OriginalsStored):
            self.stored = event
        elif isinstance(event, events.HandedOver):
            self.handed_over = event


class LookBack(NamedTuple):
    """Something was needed again."""

    kind: str
    """`expanded` or `refetched`."""
    at: float
    session: str
    label: str | None
    tool: str
    reference: str | None
    """The original that was out; None for the control, a call made again while its result was still there."""


class TrailRead:
    """A trail in memory."""

    def __init__(self) -> None:
        self.passes: dict[str, PassTold] = {}
        """In the order they began."""
        self.between: list[events.Event] = []
        """Events that belong to no pass."""
        self.unreadable = 0
        """Lines that are no event of this version."""
        self.newer: str | None = None
        """The version that wrote it, where that is a newer one: what only that one knows is left out."""
        self.doubt: str | None = None
        """Why it may not be what was written, where somebody looked."""
        self.purged: list[Taken] = []
        """What a person took out of it, where somebody looked."""

    def find(self, start: str) -> PassTold:
        """The pass whose id begins so, or `last`; raises AuditError for none or several."""
        found = [each for each in self.passes.values() if each.id.startswith(start)]
        if start == "last" and self.passes:
            return list(self.passes.values())[-1]
        if len(found) != 1:
            raise AuditError(f"{len(found) or 'no'} passes go by {start!r}; `list` shows their ids")
        return found[0]

    def look_backs(self) -> list[LookBack]:
        """Every look-back, once however many passes saw it."""
        tools = {u.reference: u.tool for each in self.passes.values() for u in each.units.values() if u.reference}
        found: dict[tuple[str, str, str | None, str | None], LookBack] = {}
        for event in [*[e for each in self.passes.values() for e in each.looked_back], *self.between]:
            if isinstance(event, events.Expanded | events.Refetched):
                tool = event.tool if isinstance(event, events.Refetched) else tools.get(event.reference, "")
                place = (event.kind, event.session, event.reference, event.label)
                back = LookBack(event.kind, event.at, event.session, event.label, tool, event.reference)
                found.setdefault(place, back)
        return list(found.values())


def read_events(path: Path, session: str | None = None) -> Iterable[events.Event | None]:
    """Every event of a trail in its order, None for a line that is none; `session` is a session's keyed digest.

    Raises AuditError where there is no trail.
    """
    files = trail_files(path)
    if not files:
        raise AuditError(f"no trail at {str(path)!r}: `jev-engine compress … --audit FILE` writes one")
    for file in files:
        for _, _, line in read_lines(file):
            if line is not None and (line.chain == UPKEEP or (session is not None and line.chain != session)):
                continue
            try:
                yield None if line is None else events.read_event(line.event)
            except ValueError:
                yield None


def gather(told: Iterable[events.Event | None]) -> TrailRead:
    """Passes and what is between them, from events in any number of sessions; an event heard twice counts once."""
    read = TrailRead()
    seen: set[str] = set()
    for event in told:
        if event is None:
            read.unreadable += 1
        elif event.id not in seen:
            seen.add(event.id)
            if events.is_newer(event.origin.engine_version):
                read.newer = event.origin.engine_version
            if event.pass_id:
                read.passes.setdefault(event.pass_id, PassTold(event)).take(event)
            else:
                read.between.append(event)
    return read


def read_trail(path: Path, session: str | None = None) -> TrailRead:
    """The whole trail, or what one session left in it; raises AuditError where there is none."""
    return gather(read_events(path, session))
