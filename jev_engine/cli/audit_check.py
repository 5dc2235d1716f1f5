"""`jev-engine audit verify | stats | tail | export | purge`."""

from __future__ import annotations

import csv
import json
import sys
from collections import deque
from pathlib import Path

import click

from jev_engine.cli.audit_open import anchor_of, given_trail, reading
from jev_engine.cli.files import Refused
from jev_engine.cli.options import json_option
from jev_engine.cli.show import console_for, emit_facts, number, percent, plain, tally

__all__ = ["COMMANDS"]

# Rows shown at most; and the exit code where a trail is not what was written.
MOST_FAULTS = 20
FOUND = 1


@click.command()
@click.option("--anchor", "use_anchor", is_flag=True, help="Also compare with the anchor: only it shows a cut-off end.")
@json_option
@click.pass_context
def verify(ctx: click.Context, *, use_anchor: bool, as_json: bool) -> None:
    """Find out whether a trail is what was written. Exit code 1 where it is not.

    Finds a changed byte, and lines that were removed, added or reordered; with --anchor also a file that was cut off.
    The anchor, which is count and head of every chain, lies in the store of originals.
    """
    from jev_engine.audit.verify import verify as look  # noqa: PLC0415
    from jev_engine.errors import AuditError  # noqa: PLC0415

    given = given_trail(ctx)
    anchor = anchor_of(given) if use_anchor else None
    try:
        found = look(given.path, anchor.read() if anchor is not None else None)
    except AuditError as error:
        raise Refused(str(error)) from None
    if as_json:
        facts = {"lines": found.lines, "sessions": len(found.heads), "torn": found.torn, "is_whole": found.is_whole}
        click.echo(json.dumps({**facts, "faults": [fault._asdict() for fault in found.faults]}))
    else:
        for fault in found.faults[:MOST_FAULTS]:
            click.echo(f"{plain(fault.file)}{f':{fault.line}' if fault.line else ''}: {fault.what}")
        if len(found.faults) > MOST_FAULTS:
            click.echo(f"… and {len(found.faults) - MOST_FAULTS:,} more (--json gives all)")
        torn = f", {found.torn} cut off by a writer that died" if found.torn else ""
        later = f", {found.begun_later} sessions begin later, as the upkeep lines say" if found.begun_later else ""
        verdict = "whole" if found.is_whole else "NOT what was written"
        click.echo(f"{verdict}: {found.lines:,} lines in {len(found.heads):,} chains{torn}{later}")
        if anchor is None:
            click.echo("A file that was cut off at its end looks whole without --anchor.")
    if not found.is_whole:
        ctx.exit(FOUND)


@click.command()
@json_option
@click.pass_context
def stats(ctx: click.Context, *, as_json: bool) -> None:
    """Say what the trail comes to: freed, looked back at, predicted against observed, cost, time, failures."""
    from jev_engine.audit.stats import stats_of  # noqa: PLC0415

    found = stats_of(reading(given_trail(ctx)))
    if as_json:
        click.echo(json.dumps(found))
        return
    median = found["ms_median"]
    times = "none ended" if median is None else f"{median:.0f} ms median, {found['ms_slowest']:.0f} ms slowest"
    judged = (
        f"{found['judge_requests']:,} requests, {number(found['judge_tokens'])} tokens, {found['judge_price']:.4f} $"
    )
    facts = [
        ("passes", f"{found['passes']:,} in {found['sessions']:,} sessions: {tally(found['outcomes']) or 'none'}"),
        ("freed", f"{number(found['freed_tokens'])} tokens, {found['units_out']:,} units out"),
        ("misses", f"{found['expected_misses']:.2f} expected, {found['observed_misses']:,} seen so far"),
        ("look-backs", tally(found["look_backs"]) or "none"),
        ("control", f"{found['control_look_backs']:,} calls made again although their result was still there"),
        ("time of a pass", times),
        ("judge", judged),
        ("failures", tally(found["judge_failures"]) or "none"),
    ]  # fmt: skip
    for tool, regret in list(found["regret_by_tool"].items())[:MOST_FAULTS]:
        if regret["looked_back"]:
            share = percent(regret["rate"])
            facts.append(
                (f"regret {tool}", f"{regret['looked_back']:,} of {regret['out']:,}, {share} above the control")
            )
    emit_facts(console_for(sys.stdout), facts)


@click.command()
@click.option("-n", "lines", type=click.IntRange(min=0), default=20, show_default=True, help="How many events.")
@click.option("-f", "--follow", is_flag=True, help="Go on with events as they are written, until Ctrl-C.")
@click.pass_context
def tail(ctx: click.Context, lines: int, *, follow: bool) -> None:
    """Print the newest events, one JSON object a line."""
    from jev_engine.audit.follow import follow as from_now_on  # noqa: PLC0415
    from jev_engine.audit.records import read_events  # noqa: PLC0415
    from jev_engine.errors import AuditError  # noqa: PLC0415

    given = given_trail(ctx)
    try:
        # Followed from before it is read: nothing that is written meanwhile is missed.
        later = from_now_on(given.path, given.session) if follow else iter(())
        newest = deque((e for e in read_events(given.path, given.session) if e is not None), maxlen=lines)
        seen = {event.id for event in newest}
        for event in newest:
            click.echo(plain(event.model_dump_json(exclude_none=True)))
        for event in later:
            if event.id not in seen:
                click.echo(plain(event.model_dump_json(exclude_none=True)))
    except AuditError as error:
        raise Refused(str(error)) from None


@click.command()
@click.option("--as", "form", type=click.Choice(["jsonl", "csv"]), default="jsonl", show_default=True)
@click.option("-o", "--out", type=click.Path(dir_okay=False, writable=True), help="File.  [default: standard output]")
@click.pass_context
def export(ctx: click.Context, form: str, out: str | None) -> None:
    """Write every decision, one a line, for a spreadsheet or a script."""
    from jev_engine.events import Unit  # noqa: PLC0415

    trail = reading(given_trail(ctx))
    names = ["session", "pass", "at", "outcome", *Unit._fields]
    rows = [
        [told.session, told.id, told.at, told.outcome, *unit]
        for told in trail.passes.values()
        for unit in told.units.values()
    ]
    with click.open_file(out or "-", "w", encoding="utf-8") as file:
        if form == "csv":
            writer = csv.writer(file)
            writer.writerow(names)
            # A cell that begins like a formula is none: spreadsheets run those.
            writer.writerows([[f"'{v}" if isinstance(v, str) and v[:1] in "=+-@" else v for v in row] for row in rows])
        else:
            file.writelines(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)


@click.command()
@click.argument("session")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def purge(ctx: click.Context, session: str, *, yes: bool) -> None:
    """Take every line of one session out of the trail. SESSION is its name, or its keyed digest.

    What stays can still be verified: the trail keeps the number and hash of the last line that went.
    """
    from jev_engine.audit.anchor import StoreAnchor  # noqa: PLC0415
    from jev_engine.audit.jsonl import JsonlSink, purge_session  # noqa: PLC0415
    from jev_engine.audit.verify import verify as look  # noqa: PLC0415
    from jev_engine.errors import AuditError  # noqa: PLC0415
    from jev_engine.store.sqlite import SqliteStore  # noqa: PLC0415

    given = given_trail(ctx)
    path = given.path
    try:
        chains = look(path).heads
        sink = JsonlSink(path, anchor=StoreAnchor(SqliteStore(given.store), path))
        from jev_engine.audit.digests import Keyed  # noqa: PLC0415

        chain = session if session in chains else Keyed(sink.key or b"").digest(session)
        if not yes:
            click.confirm(f"Take every line of session {plain(session)!r} out of {plain(str(path))}?", abort=True)
        taken = purge_session(sink, chain)
    except AuditError as error:
        raise Refused(str(error)) from None
    click.echo(f"{taken:,} lines taken out.")


@click.command()
@click.option("-o", "--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="JSON Lines.")
@click.option("--calibration", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="The maps in force when the answers were made, where they were not the shipped ones.")  # fmt: skip
@click.pass_context
def answers(ctx: click.Context, out: Path, calibration: Path | None) -> None:
    """Write what judges answered about units that went out, and whether they were missed, for `calibrate`.

    Outcomes exist for what went out only. Calls that are made again although their result is still there are the
    control: their share is taken off.
    """
    from jev_engine.audit.outcomes import outcomes  # noqa: PLC0415
    from jev_engine.cli.files import write_session  # noqa: PLC0415
    from jev_engine.judges.belief import belief_for  # noqa: PLC0415

    trail = reading(given_trail(ctx))
    models = sorted({told.answered.model for told in trail.passes.values() if told.answered and told.answered.model})
    belief = belief_for("", models[0] if models else None, "", calibration)
    made = outcomes(trail, belief.result)
    write_session("".join([json.dumps(each._asdict()) + "\n" for each in made]).encode(), str(out))
    needed = sum([each.needed for each in made])
    click.echo(f"{len(made):,} answers, {needed:,} of them about results that were missed.")


COMMANDS = (verify, stats, tail, export, answers, purge)
