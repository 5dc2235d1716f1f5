"""From what stands on the command line to a trail, and from an engine to one that writes a trail."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from jev_engine.cli.files import Refused

if TYPE_CHECKING:
    from jev_engine.audit.anchor import Anchor
    from jev_engine.audit.records import PassTold, TrailRead
    from jev_engine.engine import ContextEngine
    from jev_engine.store.sqlite import SqliteStore

__all__ = ["Given", "anchor_of", "given_trail", "open_trail", "protect_missed", "reading", "wire"]


class Given(NamedTuple):
    """What stands after `audit` and before the question."""

    path: Path
    session: str | None = None
    store: str | None = None


def given_trail(ctx: click.Context) -> Given:
    """What was given to `audit`."""
    found = ctx.find_object(Given)
    if found is None:
        raise click.UsageError("call this as `jev-engine audit …`")
    return found


def reading(given: Given) -> TrailRead:
    """The trail, or one session of it; raises Refused, which says what to do."""
    from jev_engine.audit.digests import Keyed  # noqa: PLC0415
    from jev_engine.audit.keys import default_key_path, read_key  # noqa: PLC0415
    from jev_engine.audit.records import read_trail  # noqa: PLC0415
    from jev_engine.errors import AuditError  # noqa: PLC0415

    try:
        if given.session is None:
            return read_trail(given.path)
        found = read_trail(given.path, given.session)
        key = read_key(default_key_path(), make=False)
        if not found.passes and not found.between and key is not None:
            found = read_trail(given.path, Keyed(key).digest(given.session))
    except AuditError as error:
        raise Refused(str(error)) from None
    return found


def open_trail(given: Given, pass_id: str) -> tuple[TrailRead, PassTold]:
    """The trail and one pass of it; raises Refused."""
    from jev_engine.errors import AuditError  # noqa: PLC0415

    trail = reading(given)
    try:
        return trail, trail.find(pass_id)
    except AuditError as error:
        raise Refused(str(error)) from None


def wire(engine: ContextEngine, path: str, store: SqliteStore, *, is_dry: bool) -> None:
    """Let an engine write a trail, with its anchor in the store; raises AuditError where the key cannot be read."""
    from jev_engine.audit.anchor import FileAnchor, StoreAnchor  # noqa: PLC0415
    from jev_engine.audit.delivery import Delivery  # noqa: PLC0415
    from jev_engine.audit.jsonl import JsonlSink  # noqa: PLC0415

    # A dry run makes no store.
    is_beside = is_dry and not store.path.exists()
    anchor = FileAnchor.beside(Path(path)) if is_beside else StoreAnchor(store, path)
    engine.sinks = Delivery([*engine.sinks, JsonlSink(path, anchor=anchor)])


def anchor_of(given: Given) -> Anchor:
    """The anchor of a trail: in the store, or in a file beside it; raises Refused where there is none."""
    from jev_engine.audit.anchor import FileAnchor, StoreAnchor  # noqa: PLC0415
    from jev_engine.errors import JevEngineError  # noqa: PLC0415
    from jev_engine.store.sqlite import SqliteStore  # noqa: PLC0415

    originals = SqliteStore(given.store)
    kept, beside = StoreAnchor(originals, given.path), FileAnchor.beside(given.path)
    try:
        if kept.read():
            return kept
        if beside.read():
            return beside
    except JevEngineError as error:
        raise Refused(str(error)) from None
    raise Refused(
        f"no anchor of {str(given.path)!r} in the store {str(originals.path)!r} or beside it: name the store that was "
        "used (audit --store FILE), look at the trail in its old place if it was moved, or leave out --anchor"
    )


def protect_missed(engine: ContextEngine, path: str) -> None:
    """Let an engine leave alone what a trail says was often missed; raises Refused where there is no trail."""
    from jev_engine.audit.outcomes import RegretRule  # noqa: PLC0415
    from jev_engine.audit.stats import regrets  # noqa: PLC0415

    engine.plugins.pins.append(RegretRule(regrets(reading(Given(Path(path))))))
