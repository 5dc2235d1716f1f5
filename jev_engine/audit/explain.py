"""Why one unit stayed or went, in words, from what the trail holds."""

from __future__ import annotations

import shlex
from typing import Any, Literal, NamedTuple

from jev_engine import events
from jev_engine.audit.records import PassTold, PinnedUnit, TrailRead
from jev_engine.errors import AuditError

__all__ = ["Fact", "Original", "Place", "explain", "explained", "find_unit", "numbers_of", "pass_facts", "pass_words"]

Fact = tuple[str, str]
"""A name, once in an explanation, and what is to be said under it."""

ACTIONS = {"keep": "kept", "truncate": "shortened", "remove": "removed with its call"}
# What a pass that changed nothing, or of which no end is known, had in mind.
UNDONE = {"keep": "kept", "truncate": "to be shortened", "remove": "to be removed with its call"}
SOURCES = {
    "judge": "the judge alone",
    "local": "the judge on this machine",
    "judge+local": "the judge on this machine, moved by the judge that was asked",
}
Original = Literal["intact", "expired", "missing", "damaged"]
ORIGINALS: dict[Original | None, str] = {
    "intact": "intact as {reference}: {command}",
    "expired": "no longer there: a limit of the store on age, number or size took {reference}",
    "missing": "NOT in the store as {reference}: name the store that was used with `audit --store FILE`",
    "damaged": "NOT readable as {reference}: the store is damaged, or is no store of originals",
    None: "saved as {reference}, and nobody looked whether it is still there: {command}",
}
NO_END = (
    "no end in this trail, so the history may be as it was: the pass is still at work, its process died, or nobody "
    "said what became of its result"
)
# Sessions and passes named in an error or under one fact.
MOST_NAMED = 8
# Of ids so many signs are shown; commands take the beginning of one.
SHOWN = 12
# What all events have: of no use twice.
SHARED = frozenset({"kind", "id", "at", "origin", "session", "pass_id", "sequence"})


class Place(NamedTuple):
    """Where a trail speaks of a unit."""

    told: PassTold
    """The pass that decided about it, or pinned it."""
    number: int
    later: tuple[PassTold, int] | None = None
    """The newest pass that found it out already, and its number there."""


def numbers_of(told: PassTold) -> list[int]:
    """Numbers of all units the pass says anything about."""
    return [row.number for row in told.rows]


def find_unit(trail: TrailRead, call: str, told: PassTold | None = None) -> Place:
    """The pass to explain a unit from; `call` is `t12`, `12`, or the id of an original, `told` the pass that is meant.

    Without `told` the newest pass that knows it, dry runs only where no other does; of a unit that had left before, the
    pass in which it left. Raises AuditError where nobody knows it, or where several sessions have a call of that label.
    """
    if told is not None:
        number = _number(told, call)
        if number is None:
            raise AuditError(f"pass {told.id[:SHOWN]} says nothing about {call!r}: {WHAT_TO_GIVE}")
        return Place(told, number)
    known = [Place(each, number) for each in trail.passes.values() if (number := _number(each, call)) is not None]
    if not known:
        raise AuditError(f"no pass of this trail says anything about {call!r}: {WHAT_TO_GIVE}")
    _one_session(known, call)
    known = [place for place in known if not _is_dry(place.told)] or known
    newest = known[-1]
    pinned, unit = newest.told.pinned.get(newest.number), newest.told.units.get(newest.number)
    is_in_vain = unit is not None and isinstance(newest.told.end, events.Discarded | events.Abandoned)
    reference = pinned.reference if pinned is not None else unit.reference if unit and is_in_vain else None
    left = None if reference is None else _left_in(trail, reference, before=newest.told)
    if left is None:
        return newest
    return left if pinned is None else left._replace(later=(newest.told, newest.number))


WHAT_TO_GIVE = "give a label such as t12, or an id jx-…"


def _number(told: PassTold, call: str) -> int | None:
    """The number of a unit in a pass; None where the pass says nothing about it."""
    for row in told.rows if call.startswith("jx-") else ():
        if row.reference == call:
            return row.number
    digits = call.removeprefix("t")
    number = int(digits) if digits.isdecimal() and len(digits) < 10 else 0
    return number if number in told.units or number in told.pinned else None


def _one_session(known: list[Place], call: str) -> None:
    newest = {place.told.session: place.told for place in known}
    if len(newest) > 1:
        some = list(newest.values())[: -MOST_NAMED - 1 : -1]
        named = "; ".join([f"{told.session[:SHOWN]} (newest pass {told.id[:SHOWN]}, {told.when})" for told in some])
        more = f", and {len(newest) - len(some)} more" if len(newest) > len(some) else ""
        raise AuditError(
            f"{len(newest)} sessions of this trail have a call {call!r}: {named}{more}. "
            "Name one with `audit --session SESSION explain …`, or a pass with --pass PASS"
        )


def _left_in(trail: TrailRead, reference: str, *, before: PassTold) -> Place | None:
    """The newest pass before that one which let the unit go, as far as the trail goes."""
    found = None
    for told in trail.passes.values():
        if told is before:
            break
        if not _is_dry(told) and isinstance(told.end, events.Committed | None):
            found = next((Place(told, unit.number) for unit in told.out if unit.reference == reference), found)
    return found


def _is_dry(told: PassTold) -> bool:
    return told.started is not None and told.started.is_dry


def explain(
    trail: TrailRead, place: Place, *, original: Original | None = None, store: str | None = None
) -> list[Fact]:
    """Everything about one unit in one pass.

    `original` is what became of the original, where somebody has looked into the store; `store` is the store to name
    where it is not the default one.
    """
    told, number = place.told, place.number
    row: events.Unit | PinnedUnit = told.units[number] if number in told.units else told.pinned[number]
    facts = [("call", f"{row.label} {row.tool}"), *pass_words(told)]
    if isinstance(row, PinnedUnit):
        return [*facts, *_pinned(trail, told, row)]
    is_done = isinstance(told.end, events.Committed)
    facts += [("what", f"{(ACTIONS if is_done else UNDONE)[row.action]}: {row.reason}")]
    facts += [("who decided", _who(told, row)), *_answers(told, row), ("measured by", _measure(told, row))]
    if row.guard:
        facts.append(("guard", row.guard))
    facts += [*_shown(told, row), *_size(row), *_original(told, row, original, store), *_end(told, row)]
    if place.later is not None:
        newest, label = place.later
        facts.append(("since then", f"pass {newest.id[:SHOWN]}, {newest.when}, found it out already, as t{label}"))
    if row.reference and is_done:
        facts.append(("looked back at", _later(trail, told, row.reference)))
    content = told.contents.get(number)
    if content is not None:
        words = (("arguments", content.arguments), ("result", content.result), ("replacement", content.text))
        facts += [(name, text or "(nothing)") for name, text in words]
    return facts


def pass_words(told: PassTold) -> list[Fact]:
    """Which pass it is, and what it aimed at."""
    begun = told.started
    facts = [
        ("session", told.session[:SHOWN]),
        ("pass", f"{told.id[:SHOWN]} {told.outcome}"),
        ("when", told.when),
        ("engine", f"{told.origin.engine_version}, host {told.origin.host or 'not known'}"),
    ]
    if begun is None:
        return facts
    size = f"{begun.tokens:,} tokens in a window of {begun.window_tokens:,}"
    if begun.is_forced:
        return [*facts, ("aim", f"forced: at least {begun.target_free_tokens or 0:,} tokens to free; {size}")]
    return [*facts, ("aim", f"not forced; {size}")]


def _pinned(trail: TrailRead, told: PassTold, pinned: PinnedUnit) -> list[Fact]:
    if pinned.reference is None:
        whose = "a setting of yours" if pinned.reason.startswith("protected ") else "a rule"
        return [
            ("what", "kept: it was not judged"),
            ("pinned", pinned.reason),
            ("who decided", f"{whose} that comes before any judge; nobody was asked about it"),
            ("size", f"{pinned.chars:,} characters, all of them kept"),
        ]
    left = _left_in(trail, pinned.reference, before=told)
    where = "in a pass that is not in this trail" if left is None else f"in pass {left.told.id[:SHOWN]}"
    return [
        ("what", "out since an earlier pass; this one left it so"),
        ("pinned", pinned.reason),
        ("size", f"{pinned.chars:,} characters were left in its place"),
        ("who decided", f"it left {where}" + (f", where it is t{left.number}" if left else "")),
        ("the original", f"saved as {pinned.reference}"),
    ]


def _who(told: PassTold, unit: events.Unit) -> str:
    if unit.by is None:
        return "nobody: no answer, and no answer keeps"
    rule = told.rules[unit.number]
    source = SOURCES.get(unit.by, unit.by)
    if "local" in unit.by and rule.local_version:
        memory = ", with what it learned about this project" if rule.uses_memory else ""
        mine = f"{SOURCES['local']} (weights {rule.local_version}{memory})"
        source = source.replace(SOURCES["local"], mine)
    if unit.by == "local":
        return source
    place = f" at {told.asked.endpoint}" if told.asked and told.asked.endpoint else ""
    judge = f": {rule.judge}{place}" if rule.judge else ""
    model = f", model {told.answered.model}" if told.answered and told.answered.model else ""
    return f"{source}{judge}{model}"


def _answers(told: PassTold, unit: events.Unit) -> list[Fact]:
    facts = []
    if unit.raw_call is not None or unit.raw_result is not None:
        facts.append(("raw answers", f"result needed {_p(unit.raw_result)}, call matters {_p(unit.raw_call)}"))
    if unit.p_result is None:
        return facts
    if told.is_calibrated or unit.by == "local":
        return [*facts, ("calibrated", f"result needed {_p(unit.p_result)}, call matters {_p(unit.p_call)}")]
    if unit.by == "judge":
        return [*facts, ("believed", "as said, uncalibrated")]
    return [*facts, ("believed", f"result needed {_p(unit.p_result)}, call matters {_p(unit.p_call)}, uncalibrated")]


def _p(value: float | None) -> str:
    return "not said" if value is None else f"{value:.4f}"


def _measure(told: PassTold, unit: events.Unit) -> str:
    rule, begun = told.rules[unit.number], told.started
    if rule.policy != "worth":
        limits = f"result stays from {_limit(rule.keep_result)} on, call from {_limit(rule.keep_call)} on"
        return f"policy {rule.policy}: {limits}"
    if unit.price is None:
        return "policy worth: it has no price, because nobody answered or nothing would be gained"
    limit = 1.0 if rule.price_limit is None else rule.price_limit
    words = f"policy worth: loss over gain {unit.price:.3f}"
    if unit.price <= limit:
        return f"{words}, up to the limit {limit:g}"
    if unit.action == "keep" or begun is None or not begun.is_forced:
        return f"{words}, above the limit {limit:g}"
    needed = f"{begun.target_free_tokens or 0:,} tokens had to be freed"
    return f"{words}, above the limit {limit:g}; in order of this number, because the pass was forced and {needed}"


def _limit(value: float | None) -> str:
    return "no limit" if value is None else f"{value:g}"


def _shown(told: PassTold, unit: events.Unit) -> list[Fact]:
    rule, asked = told.rules[unit.number], told.asked
    facts = []
    if unit.window is not None:
        of = f" of {told.fitted.windows}" if told.fitted else ""
        privacy = f", privacy mode {asked.privacy!r}" if asked and asked.privacy else ""
        facts.append(("shown in", f"window {unit.window}{of}, state at stage {rule.state_stage!r}{privacy}"))
    if rule.question_version and unit.by not in ("local", None):
        facts.append(("questions", rule.question_version))
    if told.failures:
        facts.append(("judge failed", ", ".join(told.failures)))
    return facts


def _size(unit: events.Unit) -> list[Fact]:
    if unit.action == "keep":
        return [("size", f"{unit.chars:,} characters, all of them kept")]
    facts = [("size", f"{unit.chars:,} characters, {unit.chars_after:,} after it; {unit.freed_tokens:,} tokens freed")]
    if unit.action == "remove":
        return facts
    return [*facts, ("left in its place", f"{unit.chars_after:,} characters, keyed digest {unit.text_digest}")]


def _original(told: PassTold, unit: events.Unit, original: Original | None, store: str | None) -> list[Fact]:
    if unit.action == "keep":
        return []
    if _is_dry(told):
        return [("the original", "in its place: a dry run stores nothing and changes nothing")]
    command = f"jev-engine expand {unit.reference}" + (f" --store {shlex.quote(store)}" if store else "")
    return [("the original", ORIGINALS[original].format(reference=unit.reference, command=command))]


def _end(told: PassTold, unit: events.Unit) -> list[Fact]:
    if isinstance(told.end, events.Abandoned):
        return [("in the end", f"the pass was abandoned ({told.end.reason}): the history is as it was")]
    if unit.action == "keep":
        return []
    if isinstance(told.end, events.Discarded):
        return [("in the end", f"nothing left the history: {told.end.reason}")]
    return [("in the end", NO_END)] if told.end is None else []


def _later(trail: TrailRead, told: PassTold, reference: str) -> str:
    backs = [back for back in trail.look_backs() if back.reference == reference and back.at >= told.at]
    if not backs:
        return "never, as far as this trail goes"
    return f"{len(backs)} times: " + ", ".join([f"{back.kind} by {back.label or 'a command'}" for back in backs])


def pass_facts(told: PassTold) -> dict[str, Any]:
    """What is known of a pass, as plain JSON values; None for what it did not get to, or the trail does not hold."""
    parts = {"judge": told.asked, "answered": told.answered, "state": told.fitted, "proposed": told.proposed}
    return {
        "pass": told.id,
        "session": told.session,
        "at": told.iso,
        "outcome": told.outcome,
        **told.origin.model_dump(),
        "started": _plain(told.started),
        **{name: _plain(event) for name, event in parts.items()},
        "failures": told.failures,
        "end": _plain(told.end),
    }


def _plain(event: events.Event | None) -> dict[str, Any] | None:
    return None if event is None else event.model_dump(mode="json", exclude=set(SHARED))


def explained(trail: TrailRead, place: Place, words: list[Fact], original: Original | None = None) -> dict[str, Any]:
    """The same as plain JSON values, with the words beside."""
    told, number = place.told, place.number
    unit, pinned = told.units.get(number), told.pinned.get(number)
    rule, content = told.rules.get(number), told.contents.get(number)
    reference = getattr(unit or pinned, "reference", None)
    backs = [back._asdict() for back in trail.look_backs() if reference is not None and back.reference == reference]
    return {
        "call": f"t{number}",
        **pass_facts(told),
        "unit": unit and unit._asdict(),
        "pinned": pinned and pinned._asdict(),
        "rule": rule and rule.model_dump(),
        "original": original,
        "look_backs": backs,
        "content": content and content.model_dump(),
        "doubt": trail.doubt,
        "words": dict(words),
    }
