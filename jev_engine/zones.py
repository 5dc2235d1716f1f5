"""What a pass may touch: the frozen zone, the working zone, and whether thawing pays.

Everything up to the last edit in force is frozen: a provider has it in its cache as it stands. A pass takes units of
the frozen zone only when what that frees over the calls still expected is worth more than writing the cache anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jev_engine.config import EngineConfig
from jev_engine.decisions import Decision, stakes_of
from jev_engine.sizes import Sizes
from jev_engine.transcript import Transcript

__all__ = ["Ruler", "Zone", "choose_zone", "frozen_rows"]


class Ruler:
    """Tokens behind any row of a history."""

    __slots__ = ("_behind",)

    def __init__(self, transcript: Transcript, sizes: Sizes) -> None:
        rows = [0] * (len(transcript.messages) + 1)
        for entry in transcript.entries:
            rows[entry.row] += sizes.of_chars(len(entry.text))
        for call in transcript.calls:
            rows[call.row] += sizes.of_chars(len(call.arguments))
            if call.result is not None:
                rows[call.result_row] += call.tokens
        total = 0
        for row in range(len(rows) - 1, -1, -1):
            total += rows[row]
            rows[row] = total
        self._behind = rows

    def behind(self, row: int) -> int:
        """Tokens of the row and all after it."""
        return self._behind[row]


class Zone(NamedTuple):
    """The zone a pass works in, and why."""

    first_row: int
    """Units that lie before it stay."""
    is_thawed: bool
    reason: str


def frozen_rows(transcript: Transcript) -> int:
    """Number of rows that are frozen: up to and with the last one that a decision in force has changed."""
    return max((call.result_row + 1 for call in transcript.calls if call.marked is not None), default=0)


def choose_zone(
    proposed: Sequence[Decision],
    ruler: Ruler,
    config: EngineConfig,
    *,
    frozen: int,
    is_forced: bool,
    cache_is_cold: bool,
) -> Zone:
    """The zone whose edits are worth most, of the working zone alone and the whole history.

    `proposed` are the decisions that change something, whatever zone they lie in.
    """
    if not frozen:
        return Zone(0, is_thawed=False, reason="nothing is frozen yet")
    if is_forced:
        return Zone(0, is_thawed=True, reason="forced")
    if cache_is_cold:
        return Zone(0, is_thawed=True, reason="the cache is cold")
    working = [d for d in proposed if first_row_of(d) >= frozen]
    gain = worth_of(proposed, ruler, config) - worth_of(working, ruler, config)
    if len(working) < len(proposed) and gain > 0:
        return Zone(0, is_thawed=True, reason="pays off within the calls expected to follow")
    return Zone(frozen, is_thawed=False, reason="rewriting the cached part would cost more than it frees")


def first_row_of(decision: Decision) -> int:
    """The first row that a decision changes."""
    call = decision.call
    return min(call.row, call.result_row) if decision.action == "remove" else call.result_row


def worth_of(taken: Sequence[Decision], ruler: Ruler, config: EngineConfig, *, cache_is_cold: bool = False) -> float:
    """Gains less losses less the cache written anew, in prices of a fresh input token."""
    if not taken:
        return 0.0
    worth = 0.0
    freed = 0
    for decision in taken:
        freed += decision.freed_tokens
        p_result = decision.probability.p_result if decision.probability is not None else 0.0
        loss, gain = stakes_of(p_result, decision.call.tokens, decision.freed_tokens, config)
        # Threshold policies have decided without a price: for them only what is freed counts.
        worth += gain - loss if config.policy == "worth" else gain
    if cache_is_cold:
        return worth
    suffix = ruler.behind(min(first_row_of(d) for d in taken)) - freed
    return worth - (config.write_price - config.read_price) * max(0, suffix)
