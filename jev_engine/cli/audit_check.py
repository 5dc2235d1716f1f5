"""`jev-engine audit stats | export | answers`: what a trail comes to, in numbers."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import click

from jev_engine.cli.audit_open import check_out, given_trail, reading
from jev_engine.cli.files import write_session
from jev_engine.cli.options import json_option
from jev_engine.cli.show import console_for, emit_facts, number, percent, plain, tally

__all__ = ["COMMANDS"]

# Tools shown at most, the most regretted.
MOST_TOOLS = 20


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
    median, again = found["ms_median"], found["control_look_backs"]
    times = "none ended" if median is None else f"{median:.0f} ms median, {found['ms_slowest']:.0f} ms slowest"
    facts = [
        ("passes", f"{found['passes']:,} in {found['sessions']:,} sessions: {tally(found['outcomes']) or 'none'}"),
        ("freed", f"{number(found['freed_tokens'])} tokens, {found['units_out']:,} units out"),
        ("misses", f"{_expected(found)}, {found['observed_misses']:,} seen so far"),
        ("look-backs", tally(found["look_backs"]) or "none"),
        ("control", f"{again:,} of {found['control_calls']:,} calls made again although their result was still there"),
        ("time of a pass", times),
        ("sent", _sent(found)),
        ("failures", tally(found["judge_failures"]) or "none"),
    ]  # fmt: skip
    for tool, regret in list(found["regret_by_tool"].items())[:MOST_TOOLS]:
        if regret["looked_back"]:
            share = percent(regret["rate"])
            facts.append(
                (f"regret {tool}", f"{regret['looked_back']:,} of {regret['out']:,}, {share} above the control")
            )
    emit_facts(console_for(sys.stdout), facts)


def _expected(found: dict[str, Any]) -> str:
    all_, unsure = found["expected_misses"], found["expected_misses_uncalibrated"]
    if found["is_calibrated"]:
        return f"{all_:.2f} expected"
    return f"{all_:.2f} expected" + (" (uncalibrated)" if unsure == all_ else f" ({unsure:.2f} of them uncalibrated)")


def _sent(found: dict[str, Any]) -> str:
    """What left the machine, where to, and what it cost."""
    unpriced, untold = found["judge_requests_without_price"], found["judge_passes_not_told"]
    more = f"; of {untold:,} more passes it is not known, they ended before the judge did" if untold else ""
    if not found["judge_requests"]:
        return "no requests" + more
    price = "price not known" if found["judge_price"] is None else f"{found['judge_price']:.4f} $"
    if unpriced and found["judge_price"] is not None:
        price += f" and {unpriced:,} requests at an unknown price"
    to = f" to {', '.join(map(plain, found['judge_endpoints']))}" if found["judge_endpoints"] else ""
    size = f"{found['judge_requests']:,} requests, {number(found['judge_sent_bytes'])} bytes"
    return f"{size}{to}; {number(found['judge_tokens'])} tokens answered, {price}{more}"


@click.command()
@click.option("--as", "form", type=click.Choice(["jsonl", "csv"]), default="jsonl", show_default=True)
@click.option("-o", "--out", default="-", metavar="OUT", help="Write them there.  [default: standard output]")
@click.pass_context
def export(ctx: click.Context, form: str, out: str) -> None:
    """Write every unit of every pass, one a line, for a spreadsheet or a script; pinned ones too."""
    from jev_engine.events import Unit  # noqa: PLC0415

    given = given_trail(ctx)
    check_out(out, given)
    trail = reading(given)
    names = ["session", "pass", "at", "outcome", *Unit._fields]
    rows = [
        [told.session, told.id, told.at, told.outcome, *[getattr(row, name, None) for name in Unit._fields]]
        for told in trail.passes.values()
        for row in told.rows
    ]
    file = io.StringIO()
    if form == "csv":
        writer = csv.writer(file)
        writer.writerow(names)
        # A cell that begins like a formula is none: spreadsheets run those.
        writer.writerows([[f"'{v}" if isinstance(v, str) and v[:1] in "=+-@" else v for v in row] for row in rows])
    else:
        file.writelines(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    write_session(file.getvalue().encode("utf-8", "backslashreplace"), out)


@click.command()
@click.option("-o", "--out", required=True, metavar="OUT", help="Write them there, JSON Lines; - for standard output.")
@click.option("--calibration", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="The maps in force when the answers were made, where they were not the shipped ones.")  # fmt: skip
@click.pass_context
def answers(ctx: click.Context, out: str, calibration: Path | None) -> None:
    """Write what judges answered about units that went out, and whether they were missed, for `calibrate`.

    Outcomes exist for what went out only. Calls that are made again although their result is still there are the
    control: their share is taken off.
    """
    from jev_engine.audit.outcomes import outcomes  # noqa: PLC0415
    from jev_engine.judges.belief import belief_for  # noqa: PLC0415

    given = given_trail(ctx)
    check_out(out, given)
    trail = reading(given)
    models = sorted({told.answered.model for told in trail.passes.values() if told.answered and told.answered.model})
    belief = belief_for("", models[0] if models else None, "", calibration)
    made = outcomes(trail, belief.result)
    write_session("".join([json.dumps(each._asdict()) + "\n" for each in made]).encode(), out)
    needed = sum([each.needed for each in made])
    click.echo(f"{len(made):,} answers, {needed:,} of them about results that were missed.", err=out == "-")


COMMANDS = (stats, export, answers)
