"""When a pass is due: plain arithmetic on the window, its reserve, and what is known to be in it.

`is_due` and its kin know numbers only. A `Trigger` knows one session: real usage beats estimates, a pass is not
repeated before the context has grown, and what did not help is tried less and less often, but never given up.

>>> trigger = Trigger(EngineConfig(window_tokens=100_000))
>>> trigger.report(49_000); trigger.due().is_due
False
>>> trigger.report(51_000); trigger.due().reason
'51,000 of 100,000 tokens are in use, a pass is due from 50,000'
>>> trigger.ended("committed", tokens_after=40_000)
>>> trigger.due(estimated_tokens=90_000).reason
'a pass has just been made and the host has not reported usage since'
"""

from __future__ import annotations

import math
from typing import NamedTuple

from jev_engine.config import EngineConfig

__all__ = ["Due", "Trigger", "free_target", "is_due", "is_forced", "usable_tokens"]

# After a pass the context grows by a tenth of the window before the next one. Each pass in a row
# that freed nothing, and each that came soon after the one before, doubles that, up to four tenths.
GROWTH_SHARE = 0.10
MOST_DOUBLINGS = 2
# Passes that follow each other within this time are frequent (108 good passes in two hours tripped no breaker of a
# host that counted failures only).
FREQUENT_SECONDS = 300.0
# A window that is too full is tried again only after it has grown by this share: otherwise nothing has changed.
FORCED_GROWTH_SHARE = 0.01


def usable_tokens(config: EngineConfig) -> int:
    """The window less what the model needs for its answer."""
    return max(1, config.window_tokens - config.output_reserve_tokens)


def is_due(prompt_tokens: int, config: EngineConfig) -> bool:
    """Whether a prompt of so many tokens calls for a pass."""
    return prompt_tokens >= config.trigger_share * usable_tokens(config)


def is_forced(prompt_tokens: int, config: EngineConfig) -> bool:
    """Whether the window is so full that a pass must free room whatever it costs."""
    return prompt_tokens >= config.force_share * usable_tokens(config)


def free_target(prompt_tokens: int, config: EngineConfig) -> int:
    """Tokens to free so that the prompt falls to the target share."""
    return max(0, round(prompt_tokens - config.target_share * usable_tokens(config)))


class Due(NamedTuple):
    """Whether a pass is due, and why or why not."""

    is_due: bool
    is_forced: bool
    reason: str

    def __bool__(self) -> bool:
        return self.is_due


class Trigger:
    """The trigger of one session. Times are seconds of any clock that does not run backwards."""

    __slots__ = (
        "_awaits_usage",
        "_doublings",
        "_floor_tokens",
        "_has_overflowed",
        "_last_pass_at",
        "config",
        "usage_tokens",
    )

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.usage_tokens: int | None = None
        """What the host last reported, None while nothing is known."""
        self._awaits_usage = False
        self._floor_tokens: int | None = None
        self._doublings = 0
        self._last_pass_at = -math.inf
        self._has_overflowed = False

    def report(self, prompt_tokens: int) -> None:
        """The host says how many tokens the last request had; anything but a positive number says nothing."""
        if prompt_tokens > 0:
            self.usage_tokens = prompt_tokens
            self._awaits_usage = False

    def report_nothing(self) -> None:
        """The host has called its model and does not say how many tokens that took: estimates count from now on."""
        self.usage_tokens = None
        self._awaits_usage = False

    def overflow(self) -> None:
        """The provider refused the request as too long: the next pass is forced."""
        self._has_overflowed = True

    def switch_model(self, window_tokens: int, output_reserve_tokens: int | None = None) -> None:
        """Another model, another window: counts at once, and what was learned about growth is forgotten."""
        changed = {"window_tokens": max(1_000, window_tokens)}
        if output_reserve_tokens is not None:
            changed["output_reserve_tokens"] = output_reserve_tokens
        self.config = self.config.model_copy(update=changed)
        self._floor_tokens = None
        self._doublings = 0

    def due(self, estimated_tokens: int | None = None, *, grown_tokens: int = 0) -> Due:
        """Whether a pass is due now. The estimate counts only where the host has never reported usage.

        `grown_tokens` is what has come into the context since the report, as estimated.
        """
        if self._has_overflowed:
            return Due(is_due=True, is_forced=True, reason="the provider refused the prompt as too long")
        if self._awaits_usage:
            return _not("a pass has just been made and the host has not reported usage since")
        tokens = self.usage_tokens + grown_tokens if self.usage_tokens is not None else estimated_tokens
        if tokens is None:
            return _not("nothing is known about the size of the context")
        usable = usable_tokens(self.config)
        floor = self._floor_tokens
        if is_forced(tokens, self.config):
            if floor is not None and tokens < floor + FORCED_GROWTH_SHARE * usable:
                return _not("the window is too full, but nothing has changed since the last pass")
            return Due(is_due=True, is_forced=True, reason=f"{tokens:,} of {usable:,} tokens are in use")
        if not is_due(tokens, self.config):
            return _not(f"{tokens:,} of {usable:,} tokens are in use")
        growth = GROWTH_SHARE * 2**self._doublings * usable
        if floor is not None and tokens < floor + growth:
            return _not(f"the next pass waits until {floor + round(growth):,} tokens are in use")
        due_from = round(self.config.trigger_share * usable)
        reason = f"{tokens:,} of {usable:,} tokens are in use, a pass is due from {due_from:,}"
        return Due(is_due=True, is_forced=False, reason=reason)

    def ended(self, outcome: str, *, tokens_after: int, now: float = 0.0) -> None:
        """A pass has ended with so many tokens in the context, as estimated."""
        has_changed = outcome in ("committed", "over_capacity")
        is_frequent = now - self._last_pass_at < FREQUENT_SECONDS
        if has_changed and not is_frequent:
            self._doublings = 0
        else:
            self._doublings = min(MOST_DOUBLINGS, self._doublings + 1)
        self._floor_tokens = tokens_after
        self._last_pass_at = now
        self._has_overflowed = False
        # What the host reported described the history before the pass.
        self._awaits_usage = has_changed


def _not(reason: str) -> Due:
    return Due(is_due=False, is_forced=False, reason=reason)
