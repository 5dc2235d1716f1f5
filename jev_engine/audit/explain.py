"""Why one unit stayed or went, in words, from what the trail holds."""

from __future__ import annotations

from jev_engine import events
from jev_engine.audit.records import PassTold, TrailRead
from jev_engine.errors import AuditError

__all__ = ["Fact", "explain", "numbers_of"]

Fact = tuple[str, str]
"""A name and what is to be said under it."""

ACTIONS = {"keep": "kept", "truncate": "shortened", "remove": "removed with its call"}
SOURCES = {
    "judge": "the judge alone",
    "local": "the judge on this machine",
    "judge+local": "the judge on this machine, moved by the judge that was asked",
}


def numbers_of(told: PassTold) -> list[int]:
    """Numbers of all units the pass says anything about."""
    return sorted({*told.units, *told.pinned})


def explain(trail: TrailRead, told: PassTold, call: str) -> list[Fact]:
    """Everything about one unit in one pass; `call` is `t12`, `12`, or the id of an original.

    Raises AuditError where the pass says nothing about it.
    """
    number = _number(told, call)
    unit = told.units.get(number)
    facts = [("call", f"t{number}" + (f" {unit.tool}" if unit else "")), ("pass", f"{told.id[:12]} {told.outcome}")]
    if unit is None:
        return [*facts, ("what", "kept: it was not judged"), ("pinned", told.pinned[number])]
    facts += [("what", f"{ACTIONS[unit.action]}: {unit.reason}"), ("who decided", _who(told, unit))]
    facts += _answers(unit)
    facts.append(("measured by", _measure(unit, told.rules[number])))
    if unit.guard:
        facts.append(("guard", unit.guard))
    facts += _shown(told, unit)
    facts += _result(unit, is_dry=told.started is not None and told.started.is_dry)
    if isinstance(told.end, events.Abandoned):
        facts.append(("in the end", f"the pass was abandoned ({told.end.reason}): the history is as it was"))
    elif isinstance(told.end, events.Discarded) and unit.action != "keep":
        facts.append(("in the end", f"nothing left the history: {told.end.reason}"))
    if unit.reference and isinstance(told.end, events.Committed):
        facts += _later(trail, told, unit.reference)
    content = told.contents.get(number)
    if content is not None:
        facts += [("arguments", content.arguments), ("result", content.result), ("left in its place", content.text)]
    return facts


def _number(told: PassTold, call: str) -> int:
    by_reference = {unit.reference: number for number, unit in told.units.items() if unit.reference}
    digits = call.removeprefix("t")
    number = by_reference.get(call, int(digits) if digits.isdecimal() and len(digits) < 10 else 0)
    if number not in told.units and number not in told.pinned:
        raise AuditError(f"pass {told.id[:12]} says nothing about {call!r}: give a label such as t12, or an id jx-…")
    return number


def _who(told: PassTold, unit: events.Unit) -> str:
    if unit.by is None:
        return "nobody: no answer, and no answer keeps"
    rule = told.rules[unit.number]
    judge = f" ({rule.judge})" if rule.judge and unit.by != "local" else ""
    model = f", model {told.answered.model}" if told.answered and told.answered.model and unit.by != "local" else ""
    return f"{SOURCES.get(unit.by, unit.by)}{judge}{model}"


def _answers(unit: events.Unit) -> list[Fact]:
    facts = []
    if unit.raw_call is not None or unit.raw_result is not None:
        facts.append(("raw answers", f"result needed {_p(unit.raw_result)}, call matters {_p(unit.raw_call)}"))
    if unit.p_result is not None:
        facts.append(("calibrated", f"result needed {_p(unit.p_result)}, call matters {_p(unit.p_call)}"))
    return facts


def _p(value: float | None) -> str:
    return "not said" if value is None else f"{value:.4f}"


def _measure(unit: events.Unit, rule: events.Rule) -> str:
    if rule.policy == "worth":
        if unit.price is None:
            return "policy worth: it has no price, because nobody answered or nothing would be gained"
        side = "up to" if unit.price <= (rule.price_limit or 1.0) else "above"
        return f"policy worth: loss over gain {unit.price:.3f}, {side} the limit {rule.price_limit:g}"
    return f"policy {rule.policy}: result stays from {rule.keep_result:g} on, call from {rule.keep_call:g} on"


def _shown(told: PassTold, unit: events.Unit) -> list[Fact]:
    rule = told.rules[unit.number]
    facts = []
    if unit.window is not None:
        of = f" of {told.fitted.windows}" if told.fitted else ""
        facts.append(("shown in", f"window {unit.window}{of}, state at stage {rule.state_stage!r}"))
    if rule.question_version and unit.by != "local":
        facts.append(("questions", rule.question_version))
    if told.failures:
        facts.append(("judge failed", ", ".join(told.failures)))
    return facts


def _result(unit: events.Unit, *, is_dry: bool) -> list[Fact]:
    if unit.action == "keep":
        return [("size", f"{unit.chars:,} characters, all of them kept")]
    facts = [("size", f"{unit.chars:,} characters became {unit.chars_after:,}; {unit.freed_tokens:,} tokens freed")]
    facts.append(("left in its place", f"{unit.chars_after:,} characters, keyed digest {unit.text_digest}"))
    if is_dry:
        return [*facts, ("the original", "in its place: a dry run stores nothing and changes nothing")]
    facts.append(("the original", f"intact as {unit.reference}: jev-engine expand {unit.reference}"))
    return facts


def _later(trail: TrailRead, told: PassTold, reference: str) -> list[Fact]:
    backs = [back for back in trail.look_backs() if back.reference == reference and back.at >= told.at]
    if not backs:
        return [("looked back at", "never, as far as this trail goes")]
    said = ", ".join(f"{back.kind} by {back.label or 'a command'}" for back in backs)
    return [("looked back at", f"{len(backs)} times: {said}")]
