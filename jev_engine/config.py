"""Every setting of the engine, its default and its range.

A profile is one word that fills the settings nobody named:

>>> EngineConfig(profile="reference").head_chars, EngineConfig(profile="reference", head_chars=80).head_chars
(300, 80)
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from jev_engine.errors import ConfigError

__all__ = ["PROFILES", "EngineConfig", "fault_in", "make_config", "must_be"]

# Strict: a lax number takes `True` for 1.0 and "0.9" for 0.9.
Share = Annotated[float, Field(strict=True, ge=0.0, le=1.0, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=0)]
Amount = Annotated[float, Field(strict=True, ge=0.0, allow_inf_nan=False)]

# What each profile sets; everything else keeps the default of the field. `balanced` was chosen by replay
# (docs/evidence.md). Sources of the others: the option table of tamaratran/fast-jev-compaction for `reference`, the
# defaults of the published Hermes plugins for `hermes-classic`.
PROFILES: dict[str, dict[str, Any]] = {
    "balanced": {},
    "reference": {
        "policy": "threshold",
        "keep_result": 0.5,
        "keep_call": 0.5,
        "pin_newest_calls": 0,
        "pin_newest_messages": 6,
        "pin_newest_tokens": 1_000_000_000,
        "pin_short_chars": 0,
        "head_chars": 300,
        "outcome_chars": 0,
        "show_excerpts": False,
        "guards": False,
        "extra_pins": False,
        "min_freed_share": 0.0,
        "undecided": "keep",
    },
    "hermes-classic": {
        "policy": "threshold",
        "keep_result": 0.5,
        "keep_call": 0.5,
        "pin_newest_calls": 3,
        "pin_short_chars": 1_500,
        "head_chars": 300,
    },
}


class EngineConfig(BaseModel):
    """The settings of one engine. Frozen; unknown names and values out of range are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    profile: Literal["balanced", "reference", "hermes-classic"] = "balanced"
    """Fills the settings nobody named: `balanced`, `reference` or `hermes-classic`."""

    policy: Literal["worth", "threshold"] = "worth"
    """How answers become decisions: by a price (`worth`) or by two thresholds (`threshold`)."""

    miss_cost: Amount = 5.0
    """What a miss costs, in extra model calls. The knob of `worth`: higher keeps more."""

    keep_result: Share = 0.35
    """Policy `threshold`: a result stays whole from this probability on."""

    keep_call: Share = 0.15
    """Policy `threshold`: below it, and below `keep_result`, the whole call may go."""

    goal: str | None = None
    """What the session is about; without it the goal is read from what the user wrote."""

    protect_tools: tuple[str, ...] = ()
    """Tool name patterns that are never judged, such as `deploy_*` (shell wildcards, any case)."""

    protect_paths: tuple[str, ...] = ()
    """Path patterns: calls whose arguments name such a path are never judged, such as `docs/spec/*`."""

    protect_ids: tuple[str, ...] = ()
    """Call ids or labels (`t12`) that are never judged."""

    window_tokens: Annotated[int, Field(strict=True, ge=1_000)] = 200_000
    """Context window of the agent's model, in tokens."""

    trigger_share: Share = 0.50
    """`should_compress` says yes from this share of the window on; chosen by replay, see docs/evidence-long."""

    target_share: Share = 0.30
    """Share of the window that a forced pass tries to reach."""

    force_share: Share = 0.95
    """From this share on a pass is forced."""

    output_reserve_tokens: Count = 0
    """Tokens of the window the model needs for its answer."""

    min_freed_share: Share = 0.20
    """A pass that frees less of the history's tokens is not worth it, unless forced."""

    horizon_calls: Amount = 30.0
    """Model calls over which freed tokens pay off."""

    read_price: Amount = 0.10
    """Price of a cached input token, relative to a fresh one."""

    write_price: Amount = 1.25
    """Price of an input token written to the provider's cache, relative to a fresh one."""

    output_price: Amount = 5.0
    """Price of an output token, relative to a fresh input token."""

    pin_first_message: bool = True
    """The first message is never touched."""

    pin_newest_calls: Count = 3
    """So many newest calls are not judged."""

    pin_newest_messages: Count = 0
    """So many newest messages are not touched; the border moves to the start of a unit."""

    pin_newest_tokens: Count = 40_000
    """The protected end holds at most so many tokens; only the newest turn may exceed it."""

    pin_short_chars: Count = 500
    """Results of at most so many characters are not judged."""

    extra_pins: bool = True
    """Human answers, instruction files, receipts of side effects and refusals are not judged."""

    guards: bool = True
    """Limits on what one pass may remove, and on answers that carry no signal."""

    max_removed_share: Share = 0.70
    """Guard: no pass removes (with its call) more than this share of the judged units."""

    head_chars: Count = 0
    """Characters of a shortened result that stay at its start."""

    outcome_chars: Count = 200
    """Characters at most for the lines of a shortened result that state its outcome."""

    marker_saves_chars: Count = 120
    """A result is shortened only where that saves at least so many characters."""

    state_tokens: Annotated[int, Field(strict=True, ge=500)] = 25_000
    """Ceiling for the state shown to an asker, in tokens; unless set, an endpoint's own budget comes first."""

    request_tokens: Annotated[int, Field(strict=True, ge=1_000)] = 30_000
    """Ceiling for one request, state and questions, in tokens; unless set, an endpoint's own budget comes first."""

    concurrency: Annotated[int, Field(strict=True, ge=1, le=64)] = 4
    """Requests to an asker at once."""

    show_excerpts: bool = True
    """Show an asker the start and end of each result; the first thing to go when room is short."""

    privacy: Literal["excerpts", "sizes", "full"] = "excerpts"
    """What an asker is shown of results: start and end where there is room, their size only, or all of them."""

    undecided: Literal["local", "keep"] = "local"
    """Who decides a unit that got no answer: the local judge, or nobody (`keep`)."""

    handover: Literal["host", "never"] = "host"
    """When pruning cannot reach the target: let the host's own summariser work on the pruned history, or never."""

    required_sinks: tuple[str, ...] = ()
    """Names of event sinks without which nothing may leave: no audit, no deletion."""

    audit_content: bool = False
    """Events carry arguments, results and replacements of decided units; otherwise lengths and digests only."""

    expand_tool: str | None = None
    """Name of the tool by which the agent gets originals back; markers name it only where it is set."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_profile(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {**PROFILES.get(str(data.get("profile", "balanced")), {}), **data}
        return data

    @model_validator(mode="after")
    def _in_order(self) -> EngineConfig:
        if not self.target_share <= self.trigger_share <= self.force_share:
            message = (
                f"target_share ({self.target_share}) <= trigger_share ({self.trigger_share})"
                f" <= force_share ({self.force_share}) must hold"
            )
            raise ValueError(message)
        if self.state_tokens > self.request_tokens:
            message = f"state_tokens ({self.state_tokens}) must not exceed request_tokens ({self.request_tokens})"
            raise ValueError(message)
        return self


def make_config(**settings: Any) -> EngineConfig:
    """An `EngineConfig` from the settings that are not None.

    Raises ConfigError, which names the setting, its value and what is allowed.
    """
    try:
        return EngineConfig(**{name: value for name, value in settings.items() if value is not None})
    except ValidationError as error:
        name, fault = fault_in(error, EngineConfig.model_fields)
        raise ConfigError(fault, setting=name) from None


def fault_in(error: ValidationError, known: Iterable[str]) -> tuple[str | None, str]:
    """The setting that is at fault, None where several are, and what is wrong with it, for a person to read."""
    first = error.errors(include_url=False, include_context=False)[0]
    name = str(first["loc"][0]) if first["loc"] else None
    fault = str(first["msg"]).removeprefix("Value error, ")
    if name is None:
        return None, fault
    if first["type"] == "extra_forbidden":
        near = get_close_matches(name, list(known), 1)
        fault = "no setting goes by that name" + (f"; did you mean {near[0]}?" if near else "")
    return name, f"{name} = {first['input']!r}: {fault}"


def must_be(kind: type | tuple[type, ...], remedy: str, **given: Any) -> None:
    """Raises ConfigError for a keyword argument of another type; `remedy` says how to come by a right one."""
    for name, value in given.items():
        if not isinstance(value, kind):
            raise ConfigError(f"{name} is of type {type(value).__name__}: {remedy}", setting=name)
