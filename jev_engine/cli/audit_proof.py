"""`jev-engine audit verify | anchor | purge | tail`: whether a trail can be believed, and its lines as they are."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jev_engine.audit.upkeep import PURGED, UPKEEP
from jev_engine.cli.audit_open import Given, anchor_of, check_out, given_trail, key_of, session_in, session_of
from jev_engine.cli.files import Refused, write_session
from jev_engine.cli.options import json_option
from jev_engine.cli.show import plain

if TYPE_CHECKING:
    from jev_engine.audit.chain import Line
    from jev_engine.audit.upkeep import Taken
    from jev_engine.audit.verify import Verified

__all__ = ["COMMANDS", "purged_facts", "purges_of"]

# Rows shown at most; signs of a session's digest, as `list` shows it; the exit code where not all of a trail is proven.
MOST_FAULTS = 20
SIGNS = 12
FOUND = 1


@click.command()
@click.option("--anchor", "use_anchor", is_flag=True, help="Also compare with the anchor: only it shows a cut-off end.")
@click.option(
    "--anchor-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Compare with an anchor that `audit anchor` wrote.",
)  # fmt: skip
@json_option
@click.pass_context
def verify(ctx: click.Context, *, use_anchor: bool, anchor_file: Path | None, as_json: bool) -> None:
    """Find out whether a trail is what was written. Exit code 1 where it is not, or not all of it is proven.

    Finds a changed byte, and lines that were removed, added or reordered; with the trail's key also what somebody made
    up and gave the right hashes; with --anchor also a file that was cut off at its end, or is another one.

    The anchor, which is count and head of every chain, lies in the store of originals. The key lies in your data
    folder; audit --key FILE names another.
    """
    from jev_engine.audit.anchor import FileAnchor  # noqa: PLC0415
    from jev_engine.audit.verify import verify as look  # noqa: PLC0415
    from jev_engine.errors import JevEngineError  # noqa: PLC0415

    given = given_trail(ctx)
    if use_anchor and anchor_file is not None:
        raise click.UsageError("--anchor and --anchor-file both name an anchor: leave one of them out.")
    session = session_of(given)
    anchor = FileAnchor(anchor_file) if anchor_file else anchor_of(given) if use_anchor else None
    try:
        found = look(given.path, None if anchor is None else anchor.read(), key_of(given), session)
    except JevEngineError as error:
        raise Refused(str(error)) from None
    if as_json:
        click.echo(json.dumps(_facts(found)))
    else:
        for line in (*_faults(found), _verdict(found), *_reasons(found), *_taken(found)):
            click.echo(line)
    if not found.is_whole:
        ctx.exit(FOUND)


def _word(found: Verified) -> str:
    return "NOT what was written" if found.faults else "NOT proven" if found.unproven else "whole"


def _verdict(found: Verified) -> str:
    torn = f", {found.torn:,} cut off as by a writer that died" if found.torn else ""
    later = f", {_count(found.begun_later, 'gap')} the upkeep lines account for" if found.begun_later else ""
    return f"{_word(found)}: {_count(found.lines, 'line')} in {_count(len(found.heads), 'chain')}{torn}{later}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _faults(found: Verified) -> list[str]:
    rows = [
        f"{plain(fault.file)}{f':{fault.line}' if fault.line else ''}: {fault.what}"
        for fault in found.faults[:MOST_FAULTS]
    ]
    more = len(found.faults) - MOST_FAULTS
    return [*rows, f"… and {more:,} more (--json gives all)"] if more > 0 else rows


def _reasons(found: Verified) -> list[str]:
    """What vouches for the lines, and what does not."""
    if found.sealed is None:
        rows = ["Without the key, whoever can write the file can have made up any line (audit --key FILE names it)."]
    elif found.sealed:
        rows = [f"{_count(found.sealed, 'line')} with the seal of the key."]
    else:
        rows = ["No line carries the seal of the key here: it is not this trail's (audit --key FILE names another)."]
    if found.later is None:
        rows.append("A file that was cut off at its end looks whole without --anchor.")
    elif found.later:
        later = f"{_count(sum(found.later.values()), 'line')} in {_count(len(found.later), 'chain')}"
        vouched = "" if found.faults else ": the key vouches for them" if found.sealed else ": nothing vouches for them"
        rows.append(f"{later} later than the anchor knows{vouched}.")
    return rows


def _taken(found: Verified) -> list[str]:
    """What the writer itself took out."""
    rows = purges_of(found.taken)
    limit = [note for note in found.taken if note.reason != PURGED]
    if limit:
        rows.append(f"Taken out by the size limit: {_count(len(limit), 'file')}, the last {_when(limit[-1].at)}.")
    rows += [
        f"Session {chain[:SIGNS]} was purged, and lines of it are here: the purge was broken off, or somebody put them"
        " back. Purge it again."
        for chain in found.unfinished
    ]
    return rows


def purges_of(notes: list[Taken]) -> list[str]:
    """What a person took out of a trail, a sentence each."""
    return [
        f"Purged {_when(note.at)}: {'lines' if note.lines is None else _count(note.lines, 'line')} of session"
        f" {', '.join([chain[:SIGNS] for chain in note.until])}."
        for note in notes
        if note.reason == PURGED
    ]


def purged_facts(notes: list[Taken]) -> list[dict[str, Any]]:
    """The same for a script."""
    purged = [note for note in notes if note.reason == PURGED]
    return [{"at": note.at, "sessions": list(note.until), "lines": note.lines} for note in purged]


def _when(at: float) -> str:
    try:
        return dt.datetime.fromtimestamp(at, tz=dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return "at no time that can be"


def _facts(found: Verified) -> dict[str, Any]:

    return {
        "verdict": _word(found),
        "is_whole": found.is_whole,
        "lines": found.lines,
        "sessions": len(found.heads.keys() - {UPKEEP}),
        "torn": found.torn,
        "sealed": found.sealed,
        "later_than_anchor": found.later,
        "unproven": found.unproven,
        "purged": purged_facts(found.taken),
        "purges_unfinished": found.unfinished,
        "faults": [fault._asdict() for fault in found.faults],
    }


@click.command()
@click.option("-o", "--out", required=True, metavar="OUT", help="Write it there; - for standard output.")
@click.pass_context
def anchor(ctx: click.Context, out: str) -> None:
    """Write the anchor of a trail to a file, to be kept where nobody who can write the trail can write.

    With that file, `verify --anchor-file` proves the trail up to now, in any place and without the key: a copy of both
    can be handed over.
    """
    from jev_engine.audit.anchor import written  # noqa: PLC0415

    given = given_trail(ctx)
    check_out(out, given)
    heads = anchor_of(given).read()
    write_session(written(heads), out)
    lines = sum([head.lines for head in heads.values()])
    click.echo(f"The ends of {len(heads):,} chains, {lines:,} lines.", err=out == "-")


@click.command()
@click.argument("session")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def purge(ctx: click.Context, session: str, *, yes: bool) -> None:
    """Take every line of one session out of the trail. SESSION is its name, its file, or its keyed digest.

    What stays can still be verified: the trail keeps the number and hash of the last line that went.
    """
    from jev_engine.audit.anchor import StoreAnchor  # noqa: PLC0415
    from jev_engine.audit.jsonl import JsonlSink, purge_session  # noqa: PLC0415
    from jev_engine.errors import JevEngineError  # noqa: PLC0415
    from jev_engine.store.sqlite import SqliteStore  # noqa: PLC0415

    given = given_trail(ctx)
    path = given.path
    chain = session_in(given, session)
    if not yes:
        click.confirm(f"Take every line of session {plain(chain)} out of {plain(str(path))}?", abort=True)
    try:
        taken = purge_session(
            JsonlSink(path, key=key_of(given), anchor=StoreAnchor(SqliteStore(given.store), path)), chain
        )
    except JevEngineError as error:
        raise Refused(str(error)) from None
    click.echo(f"{taken:,} lines taken out.")


@click.command()
@click.option("-n", "lines", type=click.IntRange(min=0), default=20, show_default=True, help="How many events.")
@click.option("-f", "--follow", is_flag=True, help="Go on with events as they are written, until Ctrl-C.")
@click.pass_context
def tail(ctx: click.Context, lines: int, *, follow: bool) -> None:
    """Print the newest events, one JSON object a line; what was purged or went with the size limit is one of them."""
    from jev_engine.audit.files import trail_files  # noqa: PLC0415
    from jev_engine.audit.follow import follow as from_now_on  # noqa: PLC0415
    from jev_engine.audit.follow import newest  # noqa: PLC0415
    from jev_engine.errors import AuditError  # noqa: PLC0415

    given = given_trail(ctx)
    try:
        session = _followed(given) if follow else session_of(given)
        # Followed from before it is read: nothing that is written meanwhile is missed.
        later = from_now_on(given.path, session) if follow else iter(())
        if not follow and not trail_files(given.path):
            raise Refused(f"no trail at {str(given.path)!r}; -f waits for one")
        shown = newest(given.path, lines, session)
        for line in shown:
            _print(line)
        for line in later:
            if line not in shown:
                _print(line)
    except AuditError as error:
        raise Refused(str(error)) from None
    except KeyboardInterrupt:
        return  # the way to end it


def _followed(given: Given) -> str | None:
    """A session that may not be there yet: then by its name."""
    from jev_engine.audit.digests import Keyed  # noqa: PLC0415

    try:
        return session_of(given)
    except Refused:
        key = key_of(given)
        if key is None or given.session is None:
            raise
        return Keyed(key).digest(given.session)


def _print(line: Line) -> None:
    from jev_engine.events import read_event  # noqa: PLC0415

    if line.chain != UPKEEP:
        try:
            read_event(line.event)
        except ValueError:
            return  # `verify` names it
    click.echo(plain(line.event.decode()))


COMMANDS = (verify, anchor, purge, tail)
