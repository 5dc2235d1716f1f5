"""What a pass gives back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from jev_engine.decisions import Decision
from jev_engine.ledger import Ledger
from jev_engine.transcript import Transcript

__all__ = ["CompressionResult", "CompressionStats", "Fate", "Outcome"]

Outcome = Literal["committed", "nothing_to_prune", "not_worth_it", "over_capacity", "deferred", "failed"]


class CompressionStats:
    """Numbers of one pass. Tokens are estimates unless a counter was given."""

    __slots__ = (
        "best_gain_tokens",
        "break_even_calls",
        "cache_suffix_tokens",
        "calls",
        "chars_after",
        "chars_before",
        "expected_misses",
        "failures",
        "freed_tokens",
        "frozen_rows",
        "hidden",
        "is_calibrated",
        "is_thawed",
        "judge_model",
        "judge_price",
        "judge_tokens",
        "look_backs",
        "messages_after",
        "messages_before",
        "missing_tokens",
        "ms",
        "odd",
        "pinned",
        "privacy",
        "remembered",
        "requests",
        "saved_price",
        "saved_tokens",
        "settled",
        "state_stage",
        "state_tokens",
        "tokens_after",
        "tokens_before",
        "uses_memory",
        "warnings",
        "windows",
    )

    def __init__(self) -> None:
        self.messages_before = self.messages_after = 0
        self.chars_before = self.chars_after = 0
        """All text: messages, arguments and results, as the reference implementation counts."""
        self.tokens_before = self.tokens_after = 0
        self.calls = 0
        self.pinned: dict[str, int] = {}
        """Units not judged, by reason."""
        self.odd: dict[str, int] = {}
        """Rows and calls that were kept without being understood, by kind."""
        self.freed_tokens = 0
        self.missing_tokens = 0
        """Tokens above the target that remain although everything that may go is out."""
        self.best_gain_tokens = 0
        """What a pass could free if everything judgeable went."""
        self.expected_misses = 0.0
        """Sum of P(needed) over what went out."""
        self.is_calibrated = True
        """Whether that sum comes from calibrated probabilities."""
        self.break_even_calls: float | None = None
        """Model calls until the freed tokens have paid for the cache that is written anew."""
        self.cache_suffix_tokens = 0
        """Tokens behind the first edit, written to the provider's cache once more."""
        self.uses_memory = False
        """The local judge knew this project from earlier sessions, see `jev-engine learn`."""
        self.look_backs = 0
        """Results in the history that are originals the agent asked back."""
        self.frozen_rows = 0
        """Rows at the start that this pass left as they were, because a provider has them in its cache."""
        self.is_thawed = False
        """Rows frozen by an earlier pass were opened again."""
        self.remembered = 0
        """Units whose answer was paid for in an earlier pass."""
        self.requests = self.windows = self.state_tokens = self.hidden = 0
        self.state_stage: str | None = None
        self.judge_tokens = 0
        """Tokens sent to a judge outside."""
        self.judge_price: float | None = None
        """Dollars for them, where a price is known."""
        self.judge_model: str | None = None
        """The model that answered."""
        self.privacy: str | None = None
        """What it was shown of results; None where nothing was shown to anybody."""
        self.settled = self.saved_tokens = 0
        """Units settled without asking, and the tokens of their questions."""
        self.saved_price: float | None = None
        self.failures: list[str] = []
        self.warnings: list[str] = []
        self.ms = 0.0

    def to_json(self) -> dict[str, Any]:
        """All numbers as plain JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


class Fate(Protocol):
    """What a host can say about a result, once each; the audit trail hears of it."""

    def committed(self) -> None:
        """It was taken up: only for a pass that was asked to wait for that (`waits_for_host`)."""
        ...

    def discarded(self, reason: str) -> None:
        """It was not: only for a pass that was asked to wait for that."""
        ...

    def handed_over(
        self, summariser: str, *, messages: int, stored: int, tokens_before: int, tokens_after: int | None = None
    ) -> None:
        """The host's own summariser worked on it and replaced so many messages, of which so many were stored first."""
        ...


class CompressionResult(NamedTuple):
    """The outcome of one pass."""

    messages: Any
    """The shorter history, or the input object itself where nothing changed."""
    outcome: Outcome
    reason: str
    """Why, in words a person understands."""
    ledger: Ledger
    """The decisions in force after this pass."""
    decisions: list[Decision]
    """One for every candidate, kept ones too."""
    stats: CompressionStats
    index_map: Sequence[int | None]
    """For each input row its row in the output, None where it is gone."""
    session: str = ""
    pinned: Mapping[int, str] = {}
    """Why a unit was not judged, by call number."""
    transcript: Transcript = Transcript((), [], [], Counter())
    """The input as the engine read it, with every call; empty where it could not be read."""
    fate: Fate | None = None
    """Where the host says what became of this result, for the audit trail."""

    def __repr__(self) -> str:
        # Python itself makes one at the end of each `asyncio.run`: it must be short, and hold no word of a session.
        stats = self.stats
        rows = f"{stats.messages_before:,} messages, {stats.messages_after:,} after it"
        return f"<CompressionResult {self.outcome}: {rows}, {stats.freed_tokens:,} tokens freed>"

    def onto(self, messages: Sequence[Any]) -> CompressionResult:
        """This result for a history that has grown since: rows added meanwhile follow unchanged.

        Where the rows it was made from are no longer there, it is discarded: the given messages come back, with the
        reason.
        """
        given = self.transcript.messages
        made_from = self.stats.messages_before
        if messages is given and len(messages) == made_from:
            return self
        if len(messages) < made_from or any(
            new is not old and new != old for new, old in zip(messages, given[:made_from], strict=False)
        ):
            reason = "the history changed while the pass ran; its result was discarded"
            if self.fate is not None:
                self.fate.discarded(reason)
            return self._replace(
                messages=messages,
                outcome="failed",
                reason=reason,
                index_map=range(len(messages)),
            )
        if self.messages is given:
            return self._replace(messages=messages, index_map=range(len(messages)))
        added = list(messages[made_from:])
        grown = [*self.messages, *added]
        after = len(self.messages)
        return self._replace(messages=grown, index_map=[*self.index_map, *range(after, after + len(added))])

    @property
    def reduction_ratio(self) -> float:
        """Share of all text that went, 0 to 1."""
        before = self.stats.chars_before
        return (before - self.stats.chars_after) / before if before else 0.0

    @property
    def changed(self) -> bool:
        """Whether the messages differ from the input, or would without a dry run."""
        return self.messages is not self.transcript.messages or any(d.action != "keep" for d in self.decisions)
