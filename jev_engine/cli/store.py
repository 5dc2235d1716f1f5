"""`jev-engine store`: what is kept, taking out what need not be, and a copy of it."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jev_engine.cli import options
from jev_engine.cli.files import Refused
from jev_engine.cli.show import console_for, emit, emit_facts, number, plain, several

if TYPE_CHECKING:
    from jev_engine.store.limits import Pruned
    from jev_engine.store.rows import Stats

__all__ = ["store"]

# Sessions listed at most, without --json.
SHOWN_SESSIONS = 20
session_option = click.option("--session", help="Only this session.")


@click.group()
def store() -> None:
    """Look after the file that keeps the originals.

    \b
    Examples:
      jev-engine store stats
      jev-engine store prune --dry-run
    """  # noqa: D301  # \b keeps click from wrapping the examples


@store.command()
@session_option
@options.store_option
@options.json_option
def stats(session: str | None, store: str | None, *, as_json: bool) -> None:
    """Show how much is kept, of which sessions.

    \b
    Examples:
      jev-engine store stats
      jev-engine store stats --session session-0123456789abcdef --json
    """  # noqa: D301
    found = _wait(lambda originals: originals.stats(session), store)
    if as_json:
        click.echo(json.dumps({**found._asdict(), "sessions": [each._asdict() for each in found.sessions]}))
    else:
        _show_stats(found)


@store.command()
@click.option("--dry-run", is_flag=True, help="Only tell what would go.")
@click.option("--max-age-days", type=options.Amount(min=0), metavar="DAYS",
              help="Sessions unused for longer go, kept ones too.  [default: 30, without kept ones]")  # fmt: skip
@options.store_option
@options.json_option
def prune(*, dry_run: bool, max_age_days: float | None, store: str | None, as_json: bool) -> None:
    """Take out what the limits no longer allow, and give the room back to the disk.

    Sessions unused for 30 days go, then the longest unused where the file has reached its size. Passes, restoring and
    expanding are uses. What `compress -o` wrote is kept: it goes by its age only if --max-age-days is given. This
    happens by itself too, at most once an hour. What sessions in use have left out of their history stays.

    \b
    Examples:
      jev-engine store prune --dry-run
      jev-engine store prune --max-age-days 7
    """  # noqa: D301
    from jev_engine.store.limits import Limits  # noqa: PLC0415  # the store, only where something is done

    limits = Limits() if max_age_days is None else Limits(max_age_days=max_age_days)
    how = {"is_dry_run": dry_run, "takes_kept": max_age_days is not None}
    found = _wait(lambda originals: originals.prune(**how), store, limits)
    _tell(found, "would go" if dry_run else "gone", as_json=as_json)


@store.command()
@click.option("--session", required=True, help="Session to forget.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.store_option
@options.json_option
def purge(session: str, *, yes: bool, store: str | None, as_json: bool) -> None:
    """Forget a session: its originals are out of the file, and its shortened history cannot be restored.

    Sessions that nobody named and that began with the same three messages share a name, and go together: the question
    says from when the originals are.

    \b
    Examples:
      jev-engine store purge --session session-0123456789abcdef
      jev-engine store purge --session session-0123456789abcdef --yes
    """  # noqa: D301
    held = _wait(lambda originals: originals.stats(session), store)
    if not yes:
        passes = several(held.passes, "pass", "passes")
        what = f"{several(held.originals, 'original')} and {passes} of {plain(session)!r}"
        since, until = (_day(time) for each in held.sessions for time in (each.since, each.used_at))
        when = f"from {since}" if since == until else f"from {since} to {until}"
        click.confirm(f"Forget {what}, {when}? Nothing brings them back.", abort=True, err=True)
    _tell(_wait(lambda originals: originals.purge(session), store), "gone", as_json=as_json)


@store.command()
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@session_option
@options.store_option
@options.json_option
def export(out: Path, session: str | None, store: str | None, *, as_json: bool) -> None:
    """Write every original to OUT, a new file for this user only, as JSON Lines.

    Each line has id, session, key, tool, saved_at and text. What cannot be read is left out, and counted.

    \b
    Examples:
      jev-engine store export originals.jsonl
      jev-engine store export one.jsonl --session session-0123456789abcdef
    """  # noqa: D301
    held = _wait(lambda originals: originals.stats(session), store)
    try:
        descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Refused(f"{out}: is there already. Name a new file.") from None
    except OSError as error:
        raise Refused(f"{out}: cannot be written: {error.strerror or error}. Name another file.") from None
    try:
        with os.fdopen(descriptor, "w", encoding="ascii", newline="\n") as stream:
            count = _wait(lambda originals: originals.export(lambda row: _write(stream, row), session), store)
    except BaseException:  # nothing half done stays behind, whatever happened
        with suppress(OSError):
            out.unlink()
        raise
    missing = held.originals - count
    if as_json:
        click.echo(json.dumps({"out": str(out), "originals": count, "unreadable": missing}))
    else:
        unread = f" {missing:,} cannot be read." if missing else ""
        click.echo(f"{several(count, 'original')} written to {plain(str(out))}.{unread}")


def _day(time: int) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d}"


def _write(stream: Any, row: dict[str, Any]) -> None:
    stream.write(json.dumps({"id": row.pop("reference"), **row}) + "\n")


def _wait(work: Any, path: str | None, limits: Any = None) -> Any:
    """Do something with the store; a session it does not have is bad usage."""
    from jev_engine.cli.opening import wait_for  # noqa: PLC0415  # the engine, only where something is done
    from jev_engine.errors import OriginalNotFound  # noqa: PLC0415
    from jev_engine.store.sqlite import SqliteStore  # noqa: PLC0415

    originals = SqliteStore(path, limits=limits)
    try:
        return wait_for(work(originals))
    except OriginalNotFound as error:
        raise Refused(f"{error}. `jev-engine store stats` lists what is there.") from None


def _tell(found: Pruned, what: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found._asdict()))
        return
    click.echo(
        f"{several(found.originals, 'original')}, {several(found.passes, 'pass', 'passes')},"
        f" {several(found.sessions, 'session')} {what}; "
        f"{found.freed_bytes / 1e6:,.1f} MB."
    )


def _show_stats(found: Stats) -> None:
    from rich import box  # noqa: PLC0415  # costs 60 ms
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = console_for(sys.stdout)
    emit_facts(console, [
        ("store", found.path),
        ("file", f"{found.file_bytes / 1e6:,.1f} MB, {found.used_bytes / 1e6:,.1f} MB in use"),
        ("originals", f"{found.originals:,} with {found.chars:,} characters"),
        ("passes", number(found.passes)),
        ("expired", number(found.expired)),
    ])  # fmt: skip
    if not found.sessions:
        return
    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    table.add_column("Session", overflow="fold")
    for name in ("Originals", "Characters", "Passes", "Last used"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found.sessions[:SHOWN_SESSIONS]:
        used = f"{datetime.fromtimestamp(each.used_at, UTC):%Y-%m-%d %H:%M} UTC{', kept' if each.is_kept else ''}"
        table.add_row(Text(plain(each.name)), number(each.originals), number(each.chars), number(each.passes), used)
    emit(console, table)
    if len(found.sessions) > SHOWN_SESSIONS:
        click.echo(f"  and {len(found.sessions) - SHOWN_SESSIONS:,} more; --json lists all")
