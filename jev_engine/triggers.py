"""When a pass is due: plain arithmetic on the window, its reserve and what is in it.

>>> usable_tokens(EngineConfig(window_tokens=100_000, output_reserve_tokens=20_000))
80000
>>> is_due(50_000, EngineConfig(window_tokens=100_000, output_reserve_tokens=20_000))
True
"""

from __future__ import annotations

from jev_engine.config import EngineConfig

__all__ = ["free_target", "is_due", "is_forced", "usable_tokens"]


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
