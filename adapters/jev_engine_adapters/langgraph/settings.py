"""Arguments in LangChain's words, as settings of the engine: they fill those and do no more."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from jev_engine.config import EngineConfig, make_config
from jev_engine.engine import ContextEngine
from jev_engine.errors import ConfigError
from jev_engine.triggers import usable_tokens

__all__ = ["Amount", "with_settings"]

Amount = tuple[str, float]
"""`("fraction", 0.6)`, `("tokens", 50_000)`, `("messages", 6)` or `("calls", 3)`."""


def with_settings(
    engine: ContextEngine,
    *,
    trigger: Amount | None = None,
    keep: Amount | None = None,
    exclude_tools: Iterable[str] = (),
    expand_tool: str | None = None,
) -> ContextEngine:
    """The same engine with these settings; the given one is not changed. Raises ConfigError, naming the argument."""
    config = engine.config
    changes: dict[str, Any] = {}
    if trigger is not None:
        changes.update(_trigger(trigger, config))
    if keep is not None:
        changes.update(_keep(keep))
    excluded = tuple(exclude_tools)
    if excluded:
        changes["protect_tools"] = (*config.protect_tools, *excluded)
    if expand_tool is not None:
        changes["expand_tool"] = expand_tool
    if not changes:
        return engine
    given = {name: getattr(config, name) for name in config.model_fields_set}
    derived = copy.copy(engine)
    derived.config = make_config(**{**given, **changes})
    return derived


def _trigger(trigger: Amount, config: EngineConfig) -> dict[str, Any]:
    kind, amount = _pair("trigger", trigger)
    if kind == "fraction":
        share = float(amount)
    elif kind == "tokens":
        share = amount / usable_tokens(config)
    else:
        raise ConfigError(f"trigger = {trigger!r}: say ('fraction', 0.6) or ('tokens', 50_000)", setting="trigger")
    if not 0 < share <= 1:
        raise ConfigError(
            f"trigger = {trigger!r} lies outside of the window of {usable_tokens(config):,} tokens "
            "(ContextEngine(config=EngineConfig(window_tokens=…)))",
            setting="trigger",
        )
    changes: dict[str, Any] = {"trigger_share": share}
    if config.target_share > share:
        changes["target_share"] = share
    if config.force_share < share:
        changes["force_share"] = share
    if kind == "tokens":
        # A number of tokens is a share of one window: another model's must not move it.
        changes["window_tokens"] = config.window_tokens
    return changes


def _keep(keep: Amount) -> dict[str, Any]:
    kind, amount = _pair("keep", keep)
    fields = {"messages": "pin_newest_messages", "tokens": "pin_newest_tokens", "calls": "pin_newest_calls"}
    if kind not in fields:
        raise ConfigError(f"keep = {keep!r}: say ('messages', 6), ('calls', 3) or ('tokens', 20_000)", setting="keep")
    return {fields[kind]: int(amount)}


def _pair(name: str, value: Any) -> Amount:
    if (
        isinstance(value, tuple | list)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], int | float)
        and not isinstance(value[1], bool)
    ):
        return value[0], value[1]
    raise ConfigError(f"{name} = {value!r} is no pair such as ('tokens', 50_000)", setting=name)
