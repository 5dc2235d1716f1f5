"""`jev-engine search`: find what is out of a session."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from jev_engine.cli import options
from jev_engine.cli.files import Refused
from jev_engine.cli.show import plain, warn

if TYPE_CHECKING:
    from jev_engine.recall.search import Found

__all__ = ["search"]


@click.command()
@click.argument("query")
@click.option("--session", help="Session to search.  [default: the one used last]")
@click.option("--hits", type=click.IntRange(1, 20), default=3, show_default=True, help="Most originals to show.")
@options.store_option
@options.json_option
def search(query: str, session: str | None, hits: int, store: str | None, *, as_json: bool) -> None:
    """Search the originals of a session; shows the best part of each.

    Names, paths and words find; more of them find better. Ends with 0 whether or not something fits.

    \b
    Examples:
      jev-engine search 'parse_row signature src/parser.py'
      jev-engine search 'connection refused' --session session-0123456789abcdef --hits 5
    """  # noqa: D301  # \b keeps click from wrapping the examples
    from jev_engine.cli.opening import wait_for  # noqa: PLC0415  # the engine, only where something is done
    from jev_engine.recall.search import search as find  # noqa: PLC0415
    from jev_engine.store.sqlite import SqliteStore  # noqa: PLC0415

    originals = SqliteStore(store)
    names = [each.name for each in wait_for(originals.stats()).sessions]
    if session is not None and session not in names:
        raise Refused(
            f"the store {str(originals.path)!r} has no session {session!r}. `jev-engine store stats` lists them."
        )
    chosen = session or (names[0] if names else "")
    found = wait_for(find(originals, chosen, query, limit=hits, expand_tool=None))
    if found.note:
        warn(found.note)
    if as_json:
        rows = [{**hit._asdict(), "id": hit.reference} for hit in found.hits]
        click.echo(json.dumps({"session": chosen, "hits": rows, "note": found.note}))
        return
    _show(found, chosen)


def _show(found: Found, session: str) -> None:
    if not found.hits:
        click.echo(f"Nothing that was left out of {plain(session) or 'any session'} fits.")
        return
    for hit in found.hits:
        end = hit.offset + len(hit.text)
        where = f"characters {hit.offset:,} to {end:,} of {hit.total_chars:,}"
        click.secho(f"{hit.reference}  {plain(hit.tool)}  {where}", bold=sys.stdout.isatty())
        click.echo("\n".join(f"  {plain(line)}" for line in hit.text.split("\n")))
        click.echo()
    click.echo("To read one whole: jev-engine expand ID", err=True)
