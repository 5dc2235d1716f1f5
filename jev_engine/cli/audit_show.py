"""`jev-engine audit list | show | explain`: what passes did, and why."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from jev_engine.cli.audit_open import given_trail, open_trail, reading
from jev_engine.cli.audit_proof import purged_facts, purges_of
from jev_engine.cli.files import Refused
from jev_engine.cli.options import json_option
from jev_engine.cli.show import console_for, emit, emit_facts, number, plain, tally

if TYPE_CHECKING:
    from jev_engine.audit.explain import Original
    from jev_engine.audit.records import PassTold

__all__ = ["COMMANDS"]

WORDS = {"keep": "kept", "truncate": "shortened", "remove": "removed", "pinned": "pinned"}
# Passes shown at most, the newest.
MOST_LISTED = 60


@click.command("list")
@json_option
@click.pass_context
def list_passes(ctx: click.Context, *, as_json: bool) -> None:
    """Show every pass: when, what came of it, what it freed."""
    trail = reading(given_trail(ctx))
    passes = list(trail.passes.values())
    if as_json:
        rows = [_row(told) for told in passes]
        facts = {"unreadable_lines": trail.unreadable, "newer_version": trail.newer, "doubt": trail.doubt}
        click.echo(json.dumps({"passes": rows, **facts, "purged": purged_facts(trail.purged)}))
        return
    for told in passes[-MOST_LISTED:]:
        row = _row(told)
        click.echo(
            f"{told.when}  {told.id[:12]}  session {told.session[:12]}  {plain(told.outcome):<24}"
            f"  {number(row['calls']):>6} calls  {tally(row['actions']) or 'nothing judged'}"
            f"  {number(row['freed_tokens'])} tokens freed"
        )
    if len(passes) > MOST_LISTED:
        click.echo(f"Shown: the newest {MOST_LISTED} of {len(passes):,} (--json gives all).")
    if not passes:
        click.echo("No pass in this trail.")
    for said in purges_of(trail.purged):
        click.echo(said)


def _row(told: PassTold) -> dict[str, Any]:
    actions = Counter([WORDS[unit.action] for unit in told.units.values()])
    return {
        "pass": told.id,
        "session": told.session,
        "at": told.iso,
        "outcome": told.outcome,
        "calls": told.started.calls if told.started else 0,
        "pinned": len(told.pinned),
        "actions": dict(actions),
        "freed_tokens": getattr(told.end, "freed_tokens", 0),
        "expected_misses": getattr(told.end, "expected_misses", 0.0),
        "is_calibrated": told.is_calibrated,
    }


@click.command()
@click.argument("pass_id", metavar="[PASS]", default="last")
@json_option
@click.pass_context
def show(ctx: click.Context, pass_id: str, *, as_json: bool) -> None:
    """Show one pass with every decision. PASS is the start of its id; without it, the newest."""
    from jev_engine.audit.explain import pass_facts, pass_words  # noqa: PLC0415

    trail, told = open_trail(given_trail(ctx), pass_id)
    if as_json:
        units = [unit._asdict() for unit in told.units.values()]
        pinned = [each._asdict() for each in told.pinned.values()]
        click.echo(
            json.dumps({**_row(told), **pass_facts(told), "doubt": trail.doubt, "pinned": pinned, "units": units})
        )
        return
    said = [*pass_words(told), *_input(told), *_judging(told)]
    said.append(("pinned", tally(dict(Counter([p.reason for p in told.pinned.values()]).most_common())) or "none"))
    if told.proposed:
        told_misses = getattr(told.end, "expected_misses", told.proposed.expected_misses)
        said.append(("misses", f"{told_misses:.2f} expected" + ("" if told.is_calibrated else " (uncalibrated)")))
    emit_facts(console_for(sys.stdout), said)
    lines = [
        f"  {row.label:>6}  {plain(row.tool):<20} {WORDS[row.action]:<10}"
        f" {'' if (p := getattr(row, 'p_result', None)) is None else f'{p:.4f}':>7}  {plain(row.reason)}"
        for row in told.rows
    ]
    click.echo("\n".join(["", f"  {'call':>6}  {'tool':<20} {'':<10} P(needed)", *lines]))


def _input(told: PassTold) -> list[tuple[str, str]]:
    begun = told.started
    if begun is None:
        return [("input", "not known: the start of this pass is no longer in the trail")]
    settings = ", ".join([f"{name}={value}" for name, value in begun.settings.items()])
    size = f"{begun.messages:,} messages, {begun.calls:,} calls, {begun.tokens:,} tokens"
    return [("input", size), ("settings", settings or "defaults")]


def _judging(told: PassTold) -> list[tuple[str, str]]:
    """Who was asked, where, what left the machine, and what came back."""
    if told.asked is None:
        return [("judge", "the one on this machine; nothing was sent")] if told.units else []
    asked, answered = told.asked, told.answered
    at = f" at {asked.endpoint}" if asked.endpoint else ""
    paid = f", {asked.remembered:,} more answered before" if asked.remembered else ""
    facts = [("judge", f"{asked.judge}{at}, asked about {asked.units:,}{paid}")]
    if asked.privacy:
        facts.append(("privacy", asked.privacy))
    if answered is None:
        facts.append(("sent", "not known: the pass ended before the judge did"))
    else:
        model = f", model {answered.model}" if answered.model else ""
        facts.append(("sent", f"{answered.requests:,} requests, {answered.sent_bytes:,} bytes"))
        facts.append(("answered", f"{answered.answers:,}{model}, {_price(answered.price)}"))
    if told.failures:
        facts.append(("failures", tally(dict(Counter(told.failures)))))
    if told.fitted:
        facts.append(("state", f"stage {told.fitted.stage!r}, {told.fitted.windows} windows"))
    return facts


def _price(price: float | None) -> str:
    return "price not known" if price is None else f"{price:.4f} $"


@click.command()
@click.argument("call")
@click.option(
    "--pass", "pass_id", default=None, metavar="PASS", help="In which pass.  [default: where it left, or the newest]"
)
@json_option
@click.pass_context
def explain(ctx: click.Context, call: str, pass_id: str | None, *, as_json: bool) -> None:
    """Say why one call stayed or went. CALL is a label such as t12, or an id such as jx-0123456789abcdef."""
    from jev_engine.audit import explain as words  # noqa: PLC0415
    from jev_engine.errors import AuditError  # noqa: PLC0415

    given = given_trail(ctx)
    trail = reading(given)
    try:
        place = words.find_unit(trail, call, trail.find(pass_id) if pass_id else None)
    except AuditError as error:
        raise Refused(str(error)) from None
    unit = place.told.units.get(place.number)
    found = _original(given.store, unit.reference) if unit is not None and unit.reference else None
    facts = words.explain(trail, place, original=found, store=given.store)
    if as_json:
        click.echo(json.dumps(words.explained(trail, place, facts, found)))
    else:
        emit_facts(console_for(sys.stdout), facts)
        emit(console_for(sys.stdout))


def _original(store: str | None, reference: str) -> Original:
    """What became of an original; makes no store where there is none, and is no use of what is there."""
    from jev_engine.cli.opening import wait_for  # noqa: PLC0415  # the engine, only where something is done
    from jev_engine.errors import OriginalExpired, OriginalNotFound, StoreError  # noqa: PLC0415
    from jev_engine.store.sqlite import SqliteStore  # noqa: PLC0415

    try:
        # A use is noted by the clock, and lets a session live longer: one that stands still notes none.
        wait_for(SqliteStore(store, clock=lambda: 0.0).read(reference))
    except OriginalNotFound:
        return "missing"
    except OriginalExpired:
        return "expired"
    except StoreError:
        return "damaged"
    return "intact"


COMMANDS = (list_passes, show, explain)
