"""`jev-engine restore`: the whole session back, from a shortened one and the store."""

from __future__ import annotations

from typing import Any

import click

from jev_engine.cli import options
from jev_engine.cli.audit_write import audited, named_trail
from jev_engine.cli.files import Places, Refused, check_target, write_session
from jev_engine.cli.show import plain, progress, several, warn

__all__ = ["restore"]


@click.command()
@options.file_argument
@click.option("-o", "--out", metavar="OUT", default="-", help="Write the session there.  [default: standard output]")
@options.format_option
@options.store_option
@options.audit_option
@click.option("--record", type=int, metavar="N", help="Which of several records that fit alike is this session's.")
def restore(file: str, out: str, host: str, store: str | None, audit: str | None, record: int | None) -> None:
    """Put every original back into a shortened session.

    Undoes all passes the store has a record of. Messages that came later stay behind them. Where a session was changed
    by hand since, so that no record fits, its markers lead back one by one.

    \b
    Examples:
      jev-engine restore shorter.json -o session.json
      jev-engine restore shorter.json > session.json
    """  # noqa: D301  # \b keeps click from wrapping the examples
    from jev_engine.cli import opening  # noqa: PLC0415  # the engine, only where something is done
    from jev_engine.errors import AmbiguousRecord  # noqa: PLC0415
    from jev_engine.store.restore import restore as undo  # noqa: PLC0415
    from jev_engine.trail import tell_restored  # noqa: PLC0415

    opened = opening.open_session(file, host, None, store)
    path = opened.store.path
    if out != "-" and opened.adapter.is_read_only:
        raise Refused(f"-o {out}: {opening.READ_ONLY}")
    places = Places(file, path, named_trail(audit))
    check_target(out, places)
    try:
        with progress("Restoring"):
            done = opening.wait_for(undo(opened.file.messages, opened.store, opened.adapter, chosen=record))
    except AmbiguousRecord as error:
        raise Refused(f"{opened.file.name}: {error}. Name one with --record; nothing was written.") from error
    if not (done.passes or done.by_marker):
        raise Refused(f"{opened.file.name}: {_why_nothing(done, opened, path)} Nothing was written.")
    for said in _shortfalls(done, path):
        warn(said)
    with audited(opened.engine.sinks, places, must=audit is not None) as sinks:
        write_session(opened.file.restored(done), out)
        tell_restored(sinks, done, opened.adapter)
    click.echo(summary(done, out), err=True)


def _why_nothing(done: Any, opened: Any, path: Any) -> str:
    """Why there is nothing to put back, as far as that can be known."""
    from jev_engine.markers import find_reference  # noqa: PLC0415

    calls = opened.adapter.read(done.messages).calls
    marked = sum(1 for call in calls if find_reference(call.result or "") is not None)
    expired = several(done.expired, "original has", "originals have")
    if done.expired:
        return (
            f"{expired} expired in the store {str(path)!r} (see `jev-engine store prune --help`) and cannot be brought"
            " back."
        )
    if done.near:
        return (
            f"the store {str(path)!r} has a record of {several(done.near, 'pass', 'passes')} over sessions that begin"
            " like this one, but none fits: it is not shortened, or was changed where a call had been removed."
        )
    if marked:
        return (
            f"{several(marked, 'result ends', 'results end')} with a marker, and the store {str(path)!r} has no"
            " original for it. Name the store that was used with --store. If they only quote markers, nothing has to be"
            " restored."
        )
    return (
        f"no marker is in it, and the store {str(path)!r} has no record of it. If it was shortened, name the store that"
        " was used with --store; else there is nothing to restore."
    )


def _shortfalls(done: Any, path: Any) -> list[str]:
    """What a person has to know about a session that is not back whole, or not by a record."""
    said = []
    if done.by_marker:
        said.append(
            f"{several(done.by_marker, 'result was', 'results were')} put back by marker, because the session was"
            " changed since: calls that had been removed whole, if any, are not back"
        )
    if done.expired:
        markers = several(done.expired, "marker is", "markers are")
        said.append(f"{markers} still in it, whose original has expired in the store {str(path)!r}")
    if others := len(done.left) - done.expired:
        markers = several(others, "marker is", "markers are")
        said.append(f"{markers} still in it, whose original in the store {str(path)!r} cannot be read")
    return said


def summary(done: Any, out: str) -> str:
    """What was done, in a line."""
    where = "" if out == "-" else f" Written to {plain(out)}."
    passes = f"{several(done.passes, 'pass', 'passes')} undone, " if done.passes else ""
    results = f"{several(done.by_marker, 'result')} put back, " if done.by_marker else ""
    return f"{passes}{results}{several(len(done.messages), 'message')}.{where}"
