"""Who answers the two questions, and in what form.

`Judge` sees the transcript and answers by unit key.
`Asker` sees one state and a few questions: any transport, any model.
A unit without an answer is undecided; what becomes of it is decided in `decisions`, never here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jev_engine.answers import RawAnswer
from jev_engine.config import EngineConfig
from jev_engine.transcript import ToolCall, Transcript

__all__ = ["DEADLINE_SECONDS", "Asker", "Judge", "JudgeRequest", "RawAnswer", "Verdict"]

DEADLINE_SECONDS = 10.0
"""For all requests of a pass: a vendor's P95 is 0.4 s, and a cold request with 400 questions took 1.3 s."""


class JudgeRequest(NamedTuple):
    """What a judge is asked."""

    transcript: Transcript
    candidates: Sequence[ToolCall]
    goal: str | None
    """The goal as the user set it; None means: read it from what the user wrote."""
    focus: str | None
    """What a compaction was asked to keep in mind, if anything."""
    pinned_rows: frozenset[int]
    """Rows of the protected start and end, shown in full as long as possible."""
    config: EngineConfig

    def __repr__(self) -> str:
        return f"<JudgeRequest about {len(self.candidates)} of {len(self.transcript.calls)} calls>"


class Verdict:
    """The answers of one pass and what they cost."""

    __slots__ = (
        "answers",
        "failures",
        "hidden",
        "input_tokens",
        "model",
        "price",
        "privacy",
        "requests",
        "saved_price",
        "saved_tokens",
        "sent_bytes",
        "settled",
        "state_stage",
        "state_tokens",
        "warnings",
        "windows",
        "windows_of",
    )

    def __init__(self, answers: dict[str, RawAnswer] | None = None) -> None:
        self.answers = {} if answers is None else answers
        """By unit key."""
        self.requests = 0
        """Requests that were begun: failed ones and repeats too."""
        self.sent_bytes = 0
        """In their bodies; in their states alone, of an asker that does not count."""
        self.windows = 0
        """Parts the history was shown in; 0 where nothing was shown to anybody."""
        self.windows_of: dict[str, int] = {}
        """In which of them a unit was asked about, from 1, by unit key."""
        self.state_stage: str | None = None
        """How far the state was shrunk, see `state.STAGES`."""
        self.state_tokens = 0
        """Tokens of the largest state."""
        self.hidden = 0
        """Candidates that no state showed, and that were therefore not asked about."""
        self.failures: list[str] = []
        """What went wrong, in words; answers that arrived stay valid."""
        self.warnings: list[str] = []
        """What the user should know, without anything having failed."""
        self.input_tokens = 0
        """Of the answered requests, as the endpoint counts them, or as estimated where it does not say."""
        self.price: float | None = None
        """Dollars for them; None where no price is known."""
        self.model: str | None = None
        """The model that answered, where it says so."""
        self.privacy: str | None = None
        """The privacy mode, where something was shown to somebody."""
        self.settled = 0
        """Units a cheaper judge settled, so that they were not asked about."""
        self.saved_tokens = 0
        """Tokens of the questions that were saved by that."""
        self.saved_price: float | None = None


@runtime_checkable
class Judge(Protocol):
    """Anything that answers for units of a transcript.

    A judge may have a `version`, under which answers are kept, an `endpoint`, the address it sends to, of which the
    audit trail tells host and port, `applies_privacy`, true where it keeps to the privacy mode, and `deadline_seconds`,
    which it keeps by itself; any other one is left after 10 seconds.
    """

    name: str
    is_calibrated: bool
    """Its answers are probabilities as they stand; others are evidence on top of the local judge."""

    async def judge(self, request: JudgeRequest) -> Verdict:
        """Answer for the candidates; raises JudgeError where no answer could be had at all.

        What was sent all the same is on the error's `verdict`, where there is one.
        """
        ...


@runtime_checkable
class Asker(Protocol):
    """One transport to a model that answers yes/no questions with probabilities."""

    async def ask(self, state: str, questions: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        """Answer questions about a state.

        `state` is the JSON text of one object. `questions` are by id, each `{"type": "noul", "instructions": …,
        "criteria": {"true": …, "false": …}}`; ids are not shown to a model. Returns probabilities by question id,
        0 to 1, as numbers or as `{"type": "noul", "noul": number}`.
        """
        ...
