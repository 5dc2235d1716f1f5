"""`jev-engine restore`: the whole session back, from a shortened one and the store."""

from __future__ import annotations

from typing import Any

import click

from jev_engine.cli import options
from jev_engine.cli.files import Refused, check_target, write_session
from jev_engine.cli.show import plain, progress, warn

__all__ = ["restore"]


@click.command()
@options.file_argument
@click.option("-o", "--out", metavar="OUT", default="-", help="Write the session there.  [default: standard output]")
@options.format_option
@options.store_option
def restore(file: str, out: str, host: str, store: str | None) -> None:
    """Put every original back into a shortened session.

    Undoes all passes the store has a record of. Messages that came later stay behind them.

    \b
    Examples:
      jev-engine restore shorter.json -o session.json
      jev-engine restore shorter.json > session.json
    """  # noqa: D301  # \b keeps click from wrapping the examples
    from jev_engine.cli import opening  # noqa: PLC0415  # the engine, only where something is done
    from jev_engine.markers import find_reference  # noqa: PLC0415

    opened = opening.open_session(file, host, None, store)
    path = opened.store.path
    if out != "-" and opened.adapter.is_read_only:
        raise Refused(f"-o {out}: {opening.READ_ONLY}")
    check_target(out, file, path)
    with progress("Restoring"):
        done = opening.wait_for(opened.engine.restore(opened.file.messages, host=opened.adapter.name))
        calls = opened.adapter.read(done.messages).calls
        left = sum(1 for call in calls if find_reference(call.result or "") is not None)
    if left and not done.passes:
        raise Refused(
            f"{opened.file.name}: {left} results are out, and the store {str(path)!r} has no record of this session. "
            "Name the store that was used with --store; nothing was written."
        )
    if left:
        warn(f"{left} markers are still in it: their originals are not in the store {str(path)!r}, or no longer fit")
    write_session(opened.file.dump(done.messages) if done.passes else opened.file.raw, out)
    click.echo(summary(done, out), err=True)


def summary(done: Any, out: str) -> str:
    """What was done, in a line."""
    where = "" if out == "-" else f" Written to {plain(out)}."
    if not done.passes:
        return f"Nothing to restore: the session holds no marker of ours.{where}"
    return f"{done.passes} pass{'es' if done.passes != 1 else ''} undone, {len(done.messages):,} messages.{where}"
