"""From a command that changes or reads something to the trail that is told of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jev_engine.cli.files import Places, Refused, named_file, taken
from jev_engine.cli.options import configured
from jev_engine.cli.show import warn

if TYPE_CHECKING:
    from jev_engine.audit.delivery import Delivery
    from jev_engine.audit.jsonl import JsonlSink

__all__ = ["audited", "named_trail"]

REMEDY = "Name another file (--audit, or `audit` in your settings)."


def named_trail(given: str | None, *, is_dry: bool = False) -> Path | None:
    """The trail to write: the one given, or that of the user's settings, which a dry run leaves alone.

    Raises Refused.
    """
    if given is not None:
        return named_file(given, "--audit")
    found = None if is_dry else configured("audit")()
    return None if found is None else Path(found)


@contextmanager
def audited(
    sinks: Delivery,
    places: Places,
    *,
    makes_store: bool = False,
    must: bool = True,
    said: Sequence[str] = (),
) -> Iterator[Delivery]:
    """These sinks, and one for the trail of `places`; at the end they have all that was told, and the anchor is kept.

    What is wrong with them by then is shown, unless it is in `said`. The anchor is kept beside the trail where there is
    no store and the command `makes_store` neither. Raises Refused where the trail cannot be written; without `must`,
    warns of that and goes on.
    """
    from jev_engine.audit.delivery import REQUIRED_SECONDS, Delivery  # noqa: PLC0415  # only where something is done
    from jev_engine.errors import AuditError  # noqa: PLC0415

    sink = None
    if places.trail is not None:
        try:
            _check(places.trail, places)
            sink = _sink(places.trail, places.store, makes_store=makes_store)
        except (Refused, AuditError) as error:
            if must:
                raise Refused(str(error)) from None
            warn(f"the audit trail does not hear of this: {error}")
    told = sinks if sink is None else Delivery([*sinks, sink])
    try:
        yield told
    finally:
        told.close(REQUIRED_SECONDS)
        troubles = told.troubles()
        for trouble in troubles:
            if trouble not in said:
                warn(trouble)
        if sink is not None and not troubles:
            sink.close()


def _sink(trail: Path, path: Path | None, *, makes_store: bool) -> JsonlSink:
    from jev_engine.audit.anchor import FileAnchor, StoreAnchor  # noqa: PLC0415
    from jev_engine.audit.jsonl import JsonlSink  # noqa: PLC0415
    from jev_engine.store.sqlite import SqliteStore  # noqa: PLC0415

    store = SqliteStore(path)
    is_in_store = makes_store or store.path.exists()
    return JsonlSink(trail, anchor=StoreAnchor(store, trail) if is_in_store else FileAnchor.beside(trail))


def _check(trail: Path, places: Places) -> None:
    """Whether a trail may be written there; raises Refused."""
    from jev_engine.audit.files import must_be_trail  # noqa: PLC0415
    from jev_engine.errors import AuditError  # noqa: PLC0415

    if str(trail) == "-":
        raise Refused(f"--audit -: a trail is appended to and read again, so it is a file. {REMEDY}")
    what = taken(trail, places._replace(trail=None))
    if what is not None:
        raise Refused(f"--audit {trail}: is {what}. {REMEDY}")
    try:
        must_be_trail(trail)
    except AuditError as error:
        raise Refused(f"--audit {trail}: {error}. {REMEDY}") from None
