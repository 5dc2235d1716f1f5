"""What a judge was shown, asked, and said."""

from __future__ import annotations

from typing import Literal

from jev_engine.events.event import Event

__all__ = ["JudgeAnswered", "JudgeAsked", "JudgeFailed", "StateFitted"]


class JudgeAsked(Event):
    """A judge is about to be asked."""

    kind: Literal["judge_asked"] = "judge_asked"
    judge: str
    units: int
    remembered: int
    """Units whose answer an earlier pass paid for."""
    question_version: str | None = None
    endpoint: str | None = None
    """Host and port that requests go to; None for a judge that sends nothing, or does not say where to."""
    privacy: str | None = None
    """What may be shown of results; None for a judge that shows nothing to anybody."""


class StateFitted(Event):
    """What an asker was shown."""

    kind: Literal["state_fitted"] = "state_fitted"
    stage: str
    tokens: int
    """Of the largest state."""
    windows: int
    hidden: int
    """Units no state showed, which were therefore not asked about."""


class JudgeAnswered(Event):
    """The judge answered, for all units or some."""

    kind: Literal["judge_answered"] = "judge_answered"
    judge: str
    answers: int
    """Units it answered for in this pass; those an earlier pass paid for are in `JudgeAsked.remembered`."""
    requests: int
    """Requests that were begun: failed ones and repeats too."""
    sent_bytes: int = 0
    """In their bodies, answered or not."""
    input_tokens: int = 0
    """Of the answered ones, as the endpoint counts them, or as estimated."""
    price: float | None = None
    """Dollars for them; None where no price is known."""
    model: str | None = None
    settled: int = 0
    ms: float | None = None


class JudgeFailed(Event):
    """A judge or some of its requests failed."""

    kind: Literal["judge_failed"] = "judge_failed"
    judge: str
    failures: tuple[str, ...]
    """Names of errors; their words may quote what was sent."""
