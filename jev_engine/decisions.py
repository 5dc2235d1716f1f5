"""Answers become decisions: keep, truncate or remove, each with its reason.

The rule for missing answers, in one place: a unit nobody answered for is decided by the local judge where the
settings say so (`undecided="local"`), and kept otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from jev_engine.answers import Belief, Evidence, Probability, RawAnswer
from jev_engine.config import EngineConfig
from jev_engine.sizes import MARKER_TOKENS
from jev_engine.transcript import ToolCall

__all__ = ["Decision", "decide", "price_of", "stakes_of", "weigh"]

Action = Literal["keep", "truncate", "remove"]

# A fetched result stays in context; results beyond 3,000 tokens are fetched in part (docs/evidence-long.md: 12,000
# characters at 4 per token). An extra model call writes about 300 tokens.
REFETCH_TOKENS = 3_000
ANSWER_TOKENS = 300
# Answers that hardly differ over many units carry no signal.
NO_SIGNAL_SPREAD = 0.02
NO_SIGNAL_UNITS = 20


class Decision:
    """What happens to one unit in this pass."""

    __slots__ = ("action", "call", "chars_after", "freed_tokens", "price", "probability", "reason", "text")

    def __init__(self, call: ToolCall, action: Action, reason: str, probability: Probability | None = None) -> None:
        self.call = call
        self.action: Action = action
        self.reason = reason
        self.probability = probability
        self.price: float | None = None
        """Loss over gain under `worth`: units below the pass's limit go."""
        self.text = ""
        """What replaces the result, for truncated units."""
        self.chars_after = len(call.result or "")
        self.freed_tokens = 0

    @property
    def label(self) -> str:
        """The unit's short name."""
        return self.call.label

    def keep(self, reason: str) -> None:
        """Make it a kept unit, with this reason: nothing is replaced or freed."""
        self.action, self.reason, self.text = "keep", reason, ""
        self.chars_after = len(self.call.result or "")
        self.freed_tokens = 0

    def __repr__(self) -> str:
        return f"<Decision {self.label} {self.action}: {self.reason}>"


def weigh(
    candidates: Sequence[ToolCall],
    answers: Mapping[str, RawAnswer],
    local: Mapping[str, RawAnswer],
    *,
    is_calibrated: bool,
    evidence: Evidence | Belief,
    local_decides: bool,
    config: EngineConfig,
) -> tuple[dict[str, Probability], str | None]:
    """Probabilities by unit key, and a warning where the judge's answers carried no signal.

    A calibrated judge is taken at its word; any other moves the local judge's log-odds by a bounded step.
    The threshold profiles of others take raw answers as they are.
    """
    raw_taken = is_calibrated or config.policy == "threshold"
    warning = None
    if config.guards and not is_calibrated and _has_no_signal(answers):
        answers = {}
        warning = f"answers differ by less than {NO_SIGNAL_SPREAD}: no signal"
    of_result, of_call = (evidence.result, evidence.call) if isinstance(evidence, Belief) else (evidence, evidence)
    weighed: dict[str, Probability] = {}
    for call in candidates:
        key = call.key
        raw = answers.get(key)
        mine = local.get(key)
        # Also false for a NaN: compared with a threshold it would read as "drop".
        answered = raw is not None and raw.p_result is not None and 0.0 <= raw.p_result <= 1.0
        if raw is not None and raw.p_call is not None and not 0.0 <= raw.p_call <= 1.0:
            raw = raw._replace(p_call=None)
        if raw is not None and answered and (raw_taken or mine is None):
            p_call = raw.p_call if raw.p_call is not None else 1.0
            weighed[key] = Probability(p_call, raw.p_result or 0.0, "judge", raw)
        elif raw is not None and answered and mine is not None:
            p_call = of_call.step(mine.p_call, raw.p_call)
            weighed[key] = Probability(p_call, of_result.step(mine.p_result, raw.p_result), "judge+local", raw)
        elif mine is not None and local_decides:
            weighed[key] = Probability(_or_one(mine.p_call), _or_one(mine.p_result), "local", None)
    return weighed, warning


def _or_one(p: float | None) -> float:
    return 1.0 if p is None else p


def _has_no_signal(answers: Mapping[str, RawAnswer]) -> bool:
    values = [a.p_result for a in answers.values() if a.p_result is not None]
    return len(values) >= NO_SIGNAL_UNITS and max(values) - min(values) < NO_SIGNAL_SPREAD


def decide(
    candidates: Sequence[ToolCall],
    probabilities: Mapping[str, Probability],
    config: EngineConfig,
    *,
    shorten_only: frozenset[int] | set[int],
    target_free_tokens: int | None = None,
) -> list[Decision]:
    """One decision per candidate, in the order of the history.

    `shorten_only` are numbers of units that may not be removed. `target_free_tokens` raises the price of `worth`
    until so much is freed; None keeps to the price of the settings.
    """
    decisions: list[Decision] = []
    for call in candidates:
        probability = probabilities.get(call.key)
        if probability is None:
            decisions.append(Decision(call, "keep", "no answer"))
        elif config.policy == "threshold":
            decisions.append(_by_threshold(call, probability, config, may_remove=call.number not in shorten_only))
        else:
            decisions.append(Decision(call, "keep", "worth its tokens", probability))
    if config.policy == "worth":
        _by_worth(decisions, config, target_free_tokens)
    elif config.guards:
        _limit_removals(decisions, config)
    return decisions


def _by_threshold(call: ToolCall, probability: Probability, config: EngineConfig, *, may_remove: bool) -> Decision:
    if probability.p_result >= config.keep_result:
        return Decision(call, "keep", "result needed", probability)
    if probability.p_call >= config.keep_call:
        return Decision(call, "truncate", "result not needed", probability)
    if not may_remove:
        return Decision(call, "truncate", "call not needed, but may not go without trace", probability)
    return Decision(call, "remove", "call not needed", probability)


def stakes_of(p_result: float, tokens: int, freed_tokens: int, config: EngineConfig) -> tuple[float, float]:
    """Expected loss and gain of letting a result go, in prices of a fresh input token.

    Loss: p times (`miss_cost` extra calls, each reading a context at the trigger and writing an answer, plus fetching
    the result again). Gain: what the freed tokens would have cost to read over the calls still expected.
    """
    call_cost = config.read_price * config.trigger_share * config.window_tokens + config.output_price * ANSWER_TOKENS
    loss = p_result * (config.miss_cost * call_cost + config.write_price * min(tokens, REFETCH_TOKENS))
    return loss, config.read_price * freed_tokens * config.horizon_calls


def price_of(p_result: float, tokens: int, freed_tokens: int, config: EngineConfig) -> float:
    """Loss over gain of letting a result go: below 1 it is worth it."""
    loss, gain = stakes_of(p_result, tokens, freed_tokens, config)
    return loss / gain if gain > 0 else math.inf


def _by_worth(decisions: list[Decision], config: EngineConfig, target_free_tokens: int | None) -> None:
    judged = [d for d in decisions if d.probability is not None]
    for decision in judged:
        tokens = decision.call.tokens
        freed = max(0, tokens - MARKER_TOKENS)
        decision.price = price_of(decision.probability.p_result, tokens, freed, config)  # type: ignore[union-attr]
    freed_tokens = 0
    # Ties are broken by age, so that the order depends on nothing but input and answers.
    for decision in sorted(judged, key=lambda d: (d.price, d.call.number)):
        price = math.inf if decision.price is None else decision.price
        if price == math.inf or (price > 1.0 and freed_tokens >= (target_free_tokens or 0)):
            break
        decision.action = "truncate"
        decision.reason = "not worth its tokens" if price <= 1.0 else "taken to reach the target"
        freed_tokens += max(0, decision.call.tokens - MARKER_TOKENS)


def _limit_removals(decisions: list[Decision], config: EngineConfig) -> None:
    judged = [d for d in decisions if d.probability is not None]
    removed = [d for d in judged if d.action == "remove"]
    if judged and len(removed) > config.max_removed_share * len(judged):
        for decision in removed:
            decision.action = "truncate"
            decision.reason = f"call not needed, but more than {config.max_removed_share:.0%} would go"
