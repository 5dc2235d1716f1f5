"""The events of one pass on their way to the sinks. A sink that fails is logged and changes nothing."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from typing import Any

from jev_engine import events
from jev_engine.decisions import Decision
from jev_engine.judges import Verdict

__all__ = ["Trail"]

logger = logging.getLogger("jev_engine")


class Trail:
    """Where a pass tells what happens. Without sinks nothing is made."""

    __slots__ = ("_pass_id", "_sinks", "session")

    def __init__(self, sinks: Iterable[Any]) -> None:
        self._sinks = list(sinks)
        self._pass_id = uuid.uuid4().hex
        self.session = ""

    def emit(self, kind: type[events.Event], **facts: Any) -> None:
        """Make one event and hand it to every sink, in order."""
        if not self._sinks:
            return
        event = kind(session=self.session, pass_id=self._pass_id, **facts)
        for sink in self._sinks:
            try:
                sink.emit(event)
            except Exception:  # a sink is somebody else's: its fault is logged and changes nothing
                logger.exception("event sink %r failed", type(sink).__name__)

    def judged(self, name: str, verdict: Verdict) -> None:
        """What a judge answered, in numbers."""
        self.emit(
            events.Judged,
            judge=name,
            answers=len(verdict.answers),
            requests=verdict.requests,
            state_stage=verdict.state_stage,
            state_tokens=verdict.state_tokens,
            # The name of each error only: its words may quote what was sent or came back.
            failures=tuple([_kind_of(failure) for failure in verdict.failures]),
            input_tokens=verdict.input_tokens,
            price=verdict.price,
            model=verdict.model,
            privacy=verdict.privacy,
            settled=verdict.settled,
        )

    def decided(self, decisions: Iterable[Decision]) -> None:
        """Every decision, kept units too."""
        if not self._sinks:
            return
        for decision in decisions:
            p = decision.probability
            raw = p.raw if p is not None else None
            self.emit(
                events.Decided,
                reference=decision.call.reference,
                label=decision.label,
                action=decision.action,
                reason=decision.reason,
                p_call=p.p_call if p is not None else None,
                p_result=p.p_result if p is not None else None,
                raw_call=raw.p_call if raw is not None else None,
                raw_result=raw.p_result if raw is not None else None,
                chars=len(decision.call.result or ""),
                chars_after=decision.chars_after,
            )


def _kind_of(failure: str) -> str:
    name = failure.partition(":")[0]
    return name if name.isidentifier() and len(name) < 60 else "failure"
