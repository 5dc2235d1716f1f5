"""What is told of names, reasons, settings and decisions: no secret, no control sign, nothing longer than a line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from jev_engine.audit.digests import Keyed
from jev_engine.config import EngineConfig, make_config
from jev_engine.decisions import Decision
from jev_engine.redact import redact
from jev_engine.transcript import ToolCall

__all__ = ["columns_of", "content_of", "kind_of", "pins_of", "place_of", "plain_name", "settings_of", "told_reason"]

# Of a name and of a reason so much is told; so much of either is cleaned first.
NAME_CHARS = 60
REASON_CHARS = 160
LONGEST_READ = 2_000
# Settings that hold the user's own words: their number or length is told, not they.
PRIVATE_SETTINGS = ("goal", "protect_tools", "protect_paths", "protect_ids")
# Settings that say how a trail is written, not what a pass does.
UNTOLD = {"required_sinks", "audit_content"}
# How the reason of a decision begins, and the guard it stands for.
GUARDS = (
    ("no answer", "no answer"),
    ("frozen", "frozen"),
    ("too short to shorten", "saves too little"),
    ("original could not be saved", "store first"),
    ("pass not worth it", "pass not worth it"),
    ("pass failed", "pass failed"),
    ("call not needed, but more than", "removal limit"),
    ("call not needed, but may not", "no trace"),
)


# Stand for the answers of a unit nobody answered for, in the order of `Probability` and `RawAnswer`.
_UNKNOWN = (None, None, None, None)
_UNSAID = (None, None)


def columns_of(decisions: Sequence[Decision], windows: Mapping[str, int], keyed: Keyed) -> dict[str, Sequence[Any]]:
    """The columns of `Decided`; those in which nothing is known are left out."""
    calls = [decision.call for decision in decisions]
    tools = {tool: plain_name(tool) for tool in {call.tool for call in calls}}
    whys = {reason: _why(reason) for reason in {decision.reason for decision in decisions}}
    reasons, guards = zip(*[whys[decision.reason] for decision in decisions], strict=True)
    p_calls, p_results, sources, raws = zip(*[decision.probability or _UNKNOWN for decision in decisions], strict=True)
    raw_calls, raw_results = zip(*[raw or _UNSAID for raw in raws], strict=True)
    actions = [decision.action for decision in decisions]
    columns: dict[str, Sequence[Any]] = {
        "number": [call.number for call in calls],
        "tool": [tools[call.tool] for call in calls],
        "action": actions,
        "reason": reasons,
        "guard": guards,
        "by": sources,
        "p_call": p_calls,
        "p_result": p_results,
        "raw_call": raw_calls,
        "raw_result": raw_results,
        # JSON has no infinity; what can free nothing has no price.
        "price": [None if decision.price == math.inf else decision.price for decision in decisions],
        "chars": [len(call.result or "") for call in calls],
        "chars_after": [decision.chars_after for decision in decisions],
        "freed_tokens": [decision.freed_tokens for decision in decisions],
        "window": [windows.get(call.key) for call in calls] if windows else (),
        "reference": [
            None if action == "keep" else call.reference for call, action in zip(calls, actions, strict=True)
        ],
        "text_digest": keyed.digests([None if decision.action == "keep" else decision.text for decision in decisions]),
    }
    # Most columns are known from the first unit on, and comparing a number with None costs more than that look.
    return {
        name: column
        for name, column in columns.items()
        if column and (column[0] is not None or column.count(None) < len(column))
    }


def pins_of(numbers: Sequence[int], reasons: Mapping[int, str], calls: Sequence[ToolCall]) -> dict[str, Any]:
    """What `Pinned` says of these calls: numbers by reason and by tool, lengths, and what is out already."""
    by_reason: dict[str, list[int]] = {}
    by_tool: dict[str, list[int]] = {}
    references: dict[int, str] = {}
    for number in numbers:
        call = calls[number - 1]
        by_reason.setdefault(told_reason(reasons[number]), []).append(number)
        by_tool.setdefault(plain_name(call.tool), []).append(number)
        if call.marked is not None:
            references[number] = call.reference
    chars = [len(calls[number - 1].result or "") for number in numbers]
    return {"reasons": by_reason, "tools": by_tool, "chars": chars, "references": references or None}


def origin_of(url: str) -> str:
    """Host and port of an address, without scheme, path, query and credentials.

    >>> origin_of("https://me:secret@example.test:8443/v1/systemone?key=secret")
    'example.test:8443'
    """
    rest = url.partition("://")[2] or url
    for sign in "/?#\\":
        rest = rest.partition(sign)[0]
    return rest.rpartition("@")[2]


def place_of(judge: Any) -> str | None:
    """Host and port a judge sends to, as it says itself."""
    place = getattr(judge, "endpoint", None)
    return plain_name(origin_of(place)) if isinstance(place, str) and place else None


@lru_cache
def _filled_by(profile: str) -> dict[str, Any]:
    """Every setting of a profile nobody has changed, as far as it is told."""
    return make_config(profile=profile).model_dump(exclude=UNTOLD)


def settings_of(config: EngineConfig) -> dict[str, Any]:
    """The profile and what differs from it; of the user's own words only how many."""
    usual = _filled_by(config.profile)
    told: dict[str, Any] = {"profile": config.profile} if config.profile != "balanced" else {}
    told.update({name: value for name in usual if (value := getattr(config, name)) != usual[name]})
    for name in PRIVATE_SETTINGS:
        if name in told:
            told[name] = len(told[name])
    return told


def kind_of(failure: str) -> str:
    """The name an error's words begin with."""
    name = failure.partition(":")[0]
    return name if name.isidentifier() and len(name) < NAME_CHARS else "failure"


@lru_cache(maxsize=4_096)
def plain_name(name: str) -> str:
    """A name from a session without anything but a name: no secret, no control sign, no more than a line of it."""
    # Cleaned before it is cut: half a secret looks like none.
    return redact("".join([sign if sign.isprintable() else "_" for sign in name[:LONGEST_READ]]))[:NAME_CHARS]


@lru_cache(maxsize=4_096)
def told_reason(reason: str) -> str:
    """A reason as the user or a plugin may have worded it, without secrets."""
    return redact("".join([sign if sign.isprintable() else " " for sign in reason[:LONGEST_READ]]))[:REASON_CHARS]


@lru_cache(maxsize=4_096)
def _why(reason: str) -> tuple[str, str | None]:
    """The reason as it is told, and the guard it stands for."""
    return told_reason(reason), next((guard for start, guard in GUARDS if reason.startswith(start)), None)


def content_of(decision: Decision) -> dict[str, str]:
    """The words of one unit, for users who asked for them."""
    call = decision.call
    given = (call.arguments, call.result or "", decision.text)
    return dict(zip(("arguments", "result", "text"), [_whole(text) for text in given], strict=True))


def _whole(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
