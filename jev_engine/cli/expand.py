"""`jev-engine expand`: one original back, by the id in its marker."""

from __future__ import annotations

import json
import sys

import click

from jev_engine.cli import options
from jev_engine.cli.audit_write import audited, named_trail
from jev_engine.cli.files import Places, Refused
from jev_engine.cli.show import plain

__all__ = ["expand"]


@click.command()
@click.argument("reference", metavar="ID")
@click.option("--session", help="Only as this session may see it; otherwise any session of the store.")
@click.option("--offset", type=click.IntRange(min=0), default=0, metavar="N", help="Character to begin at.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Characters to print.  [default: all]")
@options.store_option
@options.audit_option
@options.json_option
def expand(
    reference: str,
    session: str | None,
    offset: int,
    limit: int | None,
    store: str | None,
    audit: str | None,
    *,
    as_json: bool,
) -> None:
    """Print an original byte for byte.

    ID stands in the marker, such as jx-0123456789abcdef. On a terminal, control characters are shown as escapes.

    \b
    Examples:
      jev-engine expand jx-0123456789abcdef
      jev-engine expand jx-0123456789abcdef --offset 16000 --limit 16000 > page.txt
    """  # noqa: D301  # \b keeps click from wrapping the examples
    from jev_engine import events  # noqa: PLC0415  # the engine, only where something is done
    from jev_engine.audit.delivery import Delivery  # noqa: PLC0415
    from jev_engine.cli.opening import wait_for  # noqa: PLC0415
    from jev_engine.errors import OriginalExpired, OriginalNotFound  # noqa: PLC0415
    from jev_engine.store.sqlite import SqliteStore  # noqa: PLC0415
    from jev_engine.trail import Trail  # noqa: PLC0415

    originals = SqliteStore(store)
    places = Places(store=originals.path, trail=named_trail(audit))
    try:
        found = wait_for(originals.read(reference, session=session))
    except OriginalNotFound:
        raise Refused(
            f"no original goes by {reference!r} in the store {str(originals.path)!r}. Copy the id from its marker, and "
            "name the store that was used with --store."
        ) from None
    except OriginalExpired as error:
        raise Refused(f"{error}. Nothing can bring it back; call the tool again to have it anew.") from None
    end = len(found.text) if limit is None else min(len(found.text), offset + limit)
    page = found.text[offset:end]
    with audited(Delivery(), places, must=audit is not None) as sinks:
        trail = Trail(sinks, is_pass=False)
        trail.session = found.session
        trail.emit(events.Expanded, actor="user", reference=reference, chars=len(page))
    if as_json:
        place = {"offset": min(offset, end), "total_chars": len(found.text)}
        after = {"next_offset": end if end < len(found.text) else None}
        click.echo(
            json.dumps({"id": reference, "session": found.session, "tool": found.tool, **place, **after, "text": page})
        )
        return
    if sys.stdout.isatty():
        click.echo("\n".join(plain(line) for line in page.split("\n")))
    else:
        sys.stdout.buffer.write(page.encode("utf-8", "surrogatepass"))
        sys.stdout.buffer.flush()
    if end < len(found.text):
        click.echo(f"{end:,} of {len(found.text):,} characters; go on with --offset {end}", err=True)
