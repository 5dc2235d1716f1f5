"""Calls that were answered here and that the client never saw, and how they come back into what the provider is sent.

The client holds the answer as one message without them. The provider has to see what it said itself, or the model
would read its own words without the text they are about, and signed reasoning behind them would not be valid.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Hidden", "Round"]


class Round(NamedTuple):
    """One response of the provider with hidden calls in it."""

    end: int
    """How much of the client's message lies before the end of this response; the form says in what."""
    calls: list[tuple[int, dict[str, Any]]]
    """The hidden calls, each with how much of the client's message lies before it."""
    results: list[dict[str, Any]]
    """Their results, in the form of the provider; empty where a later process has to make them again."""
    closes: bool
    """All its calls were hidden: it was answered at once, and the message goes on in the next response."""
    said: dict[str, Any] | None = None
    """The response as the provider got it back at once; None where a later process knows only what the client has."""


class Hidden(NamedTuple):
    """What is hidden in one message of the client."""

    seen: str
    """Digest of the message as the client got it: another answer to the same request hides nothing."""
    rounds: list[Round]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, without results: they are in the store."""
        return {"seen": self.seen, "rounds": [[r.end, [list(call) for call in r.calls], r.closes] for r in self.rounds]}

    @classmethod
    def from_json(cls, data: Any) -> Hidden:
        """What `to_json` wrote; raises KeyError, TypeError or ValueError for anything else."""
        rounds = [Round(int(end), [(int(at), dict(c)) for at, c in calls], [], bool(closes))
                  for end, calls, closes in data["rounds"]]  # fmt: skip
        return cls(str(data["seen"]), rounds)
