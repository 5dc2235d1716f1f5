"""What one thread's state keeps: the ledger, which reasoning is out, and the passes made. Plain JSON, merged as a join.

The state is a function's argument like the messages are: `view(messages, state)` gives the same bytes on a replay, on a
fork and in another process, whatever a judge would say today.

>>> mark = PassMark(1, "committed", 900, 12.0, "m7")
>>> kept = ThreadState(passes=(mark,))
>>> ThreadState.from_json(kept.to_json()) == kept
True
>>> merge_states(kept.to_json(), None) == kept.to_json()
True
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from jev_engine.errors import TranscriptError
from jev_engine.ledger import Ledger
from jev_engine_adapters.langgraph.packing import pack, unpack

__all__ = ["LEDGER_KEY", "PassMark", "ThreadState", "merge_states"]

LEDGER_KEY = "jev_ledger"
"""The channel of a graph's state that holds it."""
STATE_VERSION = 1
MOST_PASSES = 8
"""Passes remembered: the trigger's back-off depends on the newest few (`triggers.MOST_DOUBLINGS` in a row)."""


class PassMark(NamedTuple):
    """One pass, as far as the next one has to know of it."""

    number: int
    outcome: str
    tokens_after: int
    at: float
    """Seconds since the epoch."""
    newest_reply: str
    """Id of the newest message of the model at that time: the usage it reports is of before the pass."""


class ThreadState(NamedTuple):
    """Everything that decides how a history is shown."""

    ledger: Ledger = Ledger()
    stripped: frozenset[str] = frozenset()
    """Digests of reasoning that is left out, see `reasoning.strip`."""
    passes: tuple[PassMark, ...] = ()
    """The newest, oldest first."""

    def merge(self, other: ThreadState) -> ThreadState:
        """The join of both: in any order, any number of times, the same."""
        passes = sorted({*self.passes, *other.passes})[-MOST_PASSES:]
        return ThreadState(self.ledger.merge(other.ledger), self.stripped | other.stripped, tuple(passes))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values.

        The content is packed: a checkpointer writes it with every step, and unpacked the markers' words would weigh
        about 8 times as much.
        """
        content = {
            "ledger": self.ledger,
            "stripped": sorted(self.stripped),
            "passes": [list(mark) for mark in self.passes],
        }
        return {"version": STATE_VERSION, "packed": pack(content)}

    @classmethod
    def from_json(cls, data: Any) -> ThreadState:
        """The state that `to_json` wrote, or an empty one for None and {}; raises TranscriptError for anything else."""
        if not data:
            return cls()
        try:
            if data["version"] != STATE_VERSION:
                raise TranscriptError(f"state version {data['version']!r} is not {STATE_VERSION}")
            content = unpack(data["packed"])
            passes = tuple([PassMark(*mark) for mark in content["passes"]])
            return cls(content["ledger"], frozenset(content["stripped"]), passes)
        except (IndexError, KeyError, TypeError, ValueError, zlib.error) as error:
            raise TranscriptError(f"not a state of jev-engine: {error}") from None


def merge_states(left: Any, right: Any) -> Any:
    """Reducer of the channel: the join of two states, as `ThreadState.to_json` gives them.

    What cannot be read (of a later version, or damaged) is not merged: the readable side stays.
    """
    if not left or not right or left == right:
        return left or right
    states: Iterable[ThreadState | None] = map(_readable, (left, right))
    old, new = states
    if old is None or new is None:
        return left if new is None else right
    return old.merge(new).to_json()


def _readable(data: Any) -> ThreadState | None:
    try:
        return ThreadState.from_json(data)
    except TranscriptError:
        return None
