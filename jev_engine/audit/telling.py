"""What is told of names, reasons, settings and decisions: no secret, no control sign, nothing longer than a line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from jev_engine.audit.digests import Keyed
from jev_engine.config import EngineConfig
from jev_engine.decisions import Decision
from jev_engine.redact import redact

__all__ = ["columns_of", "content_of", "kind_of", "plain_name", "settings_of", "told_reason"]

# Of a name and of a reason so much is told; so much of either is cleaned first.
NAME_CHARS = 60
REASON_CHARS = 160
LONGEST_READ = 2_000
# Settings that hold the user's own words: their number or length is told, not they.
PRIVATE_SETTINGS = ("goal", "protect_tools", "protect_paths", "protect_ids")
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


def settings_of(config: EngineConfig) -> dict[str, Any]:
    """Settings that differ from the defaults; of the user's own words only how many."""
    told = config.model_dump(exclude_defaults=True, exclude={"required_sinks", "audit_content"})
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
