"""`jev-engine audit report`: the trail as a page to look at."""

from __future__ import annotations

import click

from jev_engine.cli.audit_open import check_out, given_trail, reading
from jev_engine.cli.files import write_session
from jev_engine.cli.show import plain

__all__ = ["report"]


@click.command()
@click.option("-o", "--out", required=True, metavar="OUT", help="Write the page there; - for standard output.")
@click.pass_context
def report(ctx: click.Context, out: str) -> None:
    """Write one HTML page: passes over time, decisions with filters, regrets.

    It works without a network and loads nothing; a strict content security policy stands in it.
    """
    from jev_engine.audit.report import page_of  # noqa: PLC0415

    given = given_trail(ctx)
    check_out(out, given)
    page = page_of(reading(given))
    write_session(page.encode(), out)
    if out != "-":
        click.echo(f"Written to {plain(out)}.")
