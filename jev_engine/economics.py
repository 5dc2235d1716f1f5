"""What a pass frees, what it costs, and whether it is worth it. Prices are relative to a fresh input token."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jev_engine.config import EngineConfig
from jev_engine.decisions import Decision
from jev_engine.result import CompressionStats, Outcome
from jev_engine.zones import Ruler, first_row_of

__all__ = ["count", "settle"]


def count(
    decisions: Sequence[Decision],
    ruler: Ruler,
    stats: CompressionStats,
    config: EngineConfig,
    *,
    cache_is_cold: bool = False,
) -> None:
    """Fill in what the decisions free, how many misses are to be expected, and when the pass has paid for itself.

    With a cold cache everything is written anew whatever the pass does, so it pays at once.
    """
    out = [d for d in decisions if d.action != "keep"]
    gone_chars = sum([len(d.call.result or "") - d.chars_after for d in out])
    gone_chars += sum([len(d.call.arguments) for d in out if d.action == "remove"])
    stats.freed_tokens = sum([d.freed_tokens for d in out])
    stats.expected_misses = sum([d.probability.p_result for d in out if d.probability is not None])
    stats.tokens_after = stats.tokens_before - stats.freed_tokens
    stats.chars_after = stats.chars_before - gone_chars
    stats.cache_suffix_tokens, stats.break_even_calls = 0, None
    if out:
        first = min([first_row_of(d) for d in out])
        stats.cache_suffix_tokens = max(0, ruler.behind(first) - stats.freed_tokens)
        saved = config.read_price * stats.freed_tokens
        rewritten = 0.0 if cache_is_cold else (config.write_price - config.read_price) * stats.cache_suffix_tokens
        stats.break_even_calls = rewritten / saved if saved > 0 else None


def settle(
    decisions: Sequence[Decision],
    stats: CompressionStats,
    config: EngineConfig,
    *,
    worth: float,
    is_forced: bool,
    target_free_tokens: int | None,
) -> tuple[Outcome, str]:
    """Outcome and reason of a pass; a pass that is not worth it keeps everything.

    `worth` is what the decisions gain less what they lose and write anew, see `zones.worth_of`.
    """
    share = stats.freed_tokens / max(1, stats.tokens_before)
    missing = (target_free_tokens or 0) - stats.freed_tokens
    if all(decision.action == "keep" for decision in decisions):
        if is_forced and missing > 0:
            stats.missing_tokens = missing
            return "over_capacity", f"nothing is left that may go, {missing:,} tokens above the target remain"
        best = f"; at most {stats.best_gain_tokens:,} tokens could go" if stats.best_gain_tokens else ""
        return "nothing_to_prune", f"nothing to take out{best}"
    if not is_forced and share < config.min_freed_share:
        return _take_back(decisions, f"frees {share:.0%} of the tokens, the bar is {config.min_freed_share:.0%} "
                          "(min_freed_share)")  # fmt: skip
    if not is_forced and config.policy == "worth" and worth <= 0:
        return _take_back(decisions, _too_dear(stats, config, worth))
    if missing > 0:
        stats.missing_tokens = missing
        return "over_capacity", f"everything that may go is out, {missing:,} tokens above the target remain"
    return "committed", f"{stats.freed_tokens:,} of {stats.tokens_before:,} tokens freed"


def _too_dear(stats: CompressionStats, config: EngineConfig, worth: float) -> str:
    """Why what a pass frees is not worth its price, with both counted in the calls it takes to earn it."""
    saved = config.read_price * stats.freed_tokens
    if saved <= 0:
        return "frees nothing that costs anything to be read again (read_price)"
    # Rounded up, so that it is seen to be too many.
    total = math.ceil(config.horizon_calls - worth / saved)
    cache = min(total, round(stats.break_even_calls or 0))
    return (
        f"it would pay off after {total:,} more calls, {cache:,} for the prompt cache that is written anew and"
        f" {total - cache:,} for {stats.expected_misses:.2f} expected misses (miss_cost); only"
        f" {config.horizon_calls:,.0f} are expected to follow (horizon_calls)"
    )


def _take_back(decisions: Sequence[Decision], reason: str) -> tuple[Outcome, str]:
    for decision in decisions:
        if decision.action != "keep":
            decision.keep(f"pass not worth it: {decision.reason}")
    return "not_worth_it", reason
