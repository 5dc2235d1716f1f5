"""`jev-engine audit`: read a trail back. One file for each kind of question; this one lists, shows and explains."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jev_engine.cli import audit_check, audit_replay, audit_report
from jev_engine.cli.audit_open import Given, given_trail, open_trail, reading
from jev_engine.cli.files import Refused
from jev_engine.cli.options import configured, json_option
from jev_engine.cli.show import console_for, emit, emit_facts, number, plain, tally

if TYPE_CHECKING:
    from jev_engine.audit.records import PassTold

__all__ = ["audit"]

WORDS = {"keep": "kept", "truncate": "shortened", "remove": "removed"}
# Passes shown at most, the newest.
MOST_LISTED = 60


@click.group()
@click.option(
    "--file",
    type=click.Path(dir_okay=False),
    default=configured("audit"),
    help="The trail.  [default: that of your settings, or audit.jsonl in your data folder]",
)
@click.option(
    "--store",
    type=click.Path(dir_okay=False),
    default=configured("store"),
    help="The store of originals that was used, if not the one there.",
)
@click.option("--session", help="Only what this session left: its name, or its keyed digest as `list` shows it.")
@click.pass_context
def audit(ctx: click.Context, file: str | None, store: str | None, session: str | None) -> None:
    """Find out who removed what, on whose answer, and whether it was missed.

    A trail holds lengths and keyed digests, not content. `jev-engine compress … --audit FILE` writes one.

    \b
    Examples:
      jev-engine audit --file trail.jsonl list
      jev-engine audit --file trail.jsonl explain t12
      jev-engine audit --file trail.jsonl verify --anchor
    """  # noqa: D301  # \b keeps click from wrapping the examples
    from jev_engine.audit.keys import default_trail_path  # noqa: PLC0415

    ctx.obj = Given(Path(file) if file else default_trail_path(), session, store)


@audit.command("list")
@json_option
@click.pass_context
def list_passes(ctx: click.Context, *, as_json: bool) -> None:
    """Show every pass: when, what came of it, what it freed."""
    trail = reading(given_trail(ctx))
    rows = [_row(told) for told in trail.passes.values()]
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows[-MOST_LISTED:]:
        click.echo(
            f"{row['at']}  {row['pass'][:12]}  session {row['session'][:12]}  {plain(str(row['outcome'])):<24}"
            f"  {number(row['calls']):>6} calls  {tally(row['actions']) or 'nothing judged'}"
            f"  {number(row['freed_tokens'])} tokens freed"
        )
    if len(rows) > MOST_LISTED:
        click.echo(f"Shown: the newest {MOST_LISTED} of {len(rows):,} (--json gives all).")
    if not rows:
        click.echo("No pass in this trail.")
    if trail.unreadable:
        click.echo(
            f"{trail.unreadable:,} lines are no event of this version; `verify` says whether they were.", err=True
        )


def _row(told: PassTold) -> dict[str, Any]:
    import datetime as dt  # noqa: PLC0415

    at = dt.datetime.fromtimestamp(told.at, tz=dt.UTC).isoformat(timespec="seconds")
    actions = Counter([WORDS[unit.action] for unit in told.units.values()])
    return {
        "pass": told.id,
        "session": told.session,
        "at": at,
        "outcome": told.outcome,
        "calls": told.started.calls if told.started else 0,
        "pinned": len(told.pinned),
        "actions": dict(actions),
        "freed_tokens": getattr(told.end, "freed_tokens", 0),
        "expected_misses": getattr(told.end, "expected_misses", 0.0),
    }


@audit.command()
@click.argument("pass_id", metavar="[PASS]", default="last")
@json_option
@click.pass_context
def show(ctx: click.Context, pass_id: str, *, as_json: bool) -> None:
    """Show one pass with every decision. PASS is the start of its id; without it, the newest."""
    _, told = open_trail(given_trail(ctx), pass_id)
    if as_json:
        units = [unit._asdict() for unit in told.units.values()]
        pinned = {f"t{number_}": reason for number_, reason in told.pinned.items()}
        click.echo(json.dumps({**_row(told), "pinned": pinned, "units": units}))
        return
    console = console_for(sys.stdout)
    facts = [("pass", told.id), ("outcome", told.outcome)]
    if told.started:
        begun = told.started
        settings = ", ".join(f"{name}={value}" for name, value in begun.settings.items())
        facts.append(("input", f"{begun.messages:,} messages, {begun.calls:,} calls, {begun.tokens:,} tokens"))
        facts.append(("settings", settings or "defaults"))
        facts.append(("engine", f"{begun.origin.engine_version}, host {begun.origin.host}"))
    if told.asked:
        facts.append(("judge", f"{told.asked.judge}, asked about {told.asked.units:,}"))
    if told.fitted:
        facts.append(("state", f"stage {told.fitted.stage!r}, {told.fitted.windows} windows"))
    facts.append(("pinned", tally(dict(Counter(told.pinned.values()).most_common())) or "none"))
    emit_facts(console, facts)
    lines = [
        f"  {unit.label:>6}  {plain(unit.tool):<20} {WORDS[unit.action]:<10}"
        f" {'' if unit.p_result is None else f'{unit.p_result:.4f}':>7}  {plain(unit.reason)}"
        for unit in told.units.values()
    ]
    click.echo("\n".join(["", f"  {'call':>6}  {'tool':<20} {'':<10} P(needed)", *lines]))


@audit.command()
@click.argument("call")
@click.option(
    "--pass", "pass_id", default=None, metavar="PASS", help="In which pass.  [default: the newest that knows it]"
)
@json_option
@click.pass_context
def explain(ctx: click.Context, call: str, pass_id: str | None, *, as_json: bool) -> None:
    """Say why one call stayed or went. CALL is a label such as t12, or an id such as jx-0123456789abcdef."""
    from jev_engine.audit import explain as words  # noqa: PLC0415
    from jev_engine.errors import AuditError  # noqa: PLC0415

    trail = reading(given_trail(ctx))
    passes = [open_trail(given_trail(ctx), pass_id)[1]] if pass_id else list(trail.passes.values())[::-1]
    facts = None
    for told in passes:
        try:
            facts = words.explain(trail, told, call)
            break
        except AuditError as error:
            if pass_id:
                raise Refused(str(error)) from None
    if facts is None:
        raise Refused(f"no pass of this trail says anything about {call!r}: give a label such as t12, or an id jx-…")
    if as_json:
        click.echo(json.dumps(dict(facts)))
    else:
        emit_facts(console_for(sys.stdout), facts)
        emit(console_for(sys.stdout))


for command in (*audit_check.COMMANDS, audit_report.report, audit_replay.replay):
    audit.add_command(command)
