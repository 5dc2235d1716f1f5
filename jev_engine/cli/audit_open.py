"""From what stands on the command line to a trail, and from an engine to one that writes a trail."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click

from jev_engine.cli.files import Places, Refused, check_target, named_file
from jev_engine.cli.show import warn

if TYPE_CHECKING:
    from jev_engine.audit.anchor import Anchor
    from jev_engine.audit.records import PassTold, TrailRead
    from jev_engine.audit.verify import Verified
    from jev_engine.engine import ContextEngine

__all__ = [
    "Given",
    "anchor_of",
    "check_out",
    "given_trail",
    "key_of",
    "open_trail",
    "protect_missed",
    "reading",
    "session_in",
    "session_of",
]


class Given(NamedTuple):
    """What stands after `audit` and before the question."""

    path: Path
    session: str | None = None
    store: str | None = None
    key: str | None = None


def given_trail(ctx: click.Context) -> Given:
    """What was given to `audit`."""
    found = ctx.find_object(Given)
    if found is None:
        raise click.UsageError("call this as `jev-engine audit …`")
    return found


def key_of(given: Given) -> bytes | None:
    """The key of the trail's digests: the one named, or that of this machine, None where it has none; or Refused."""
    from jev_engine.audit.keys import default_key_path, read_key  # noqa: PLC0415
    from jev_engine.errors import AuditError  # noqa: PLC0415

    try:
        return read_key(Path(given.key) if given.key else default_key_path(), make=False)
    except AuditError as error:
        raise Refused(str(error)) from None


def session_in(given: Given, name: str) -> str:
    """The keyed digest of a session of the trail, by its name, its digest, the beginning of that, or its file.

    Raises Refused where it is none of them, with what there is.
    """
    from jev_engine.audit.sessions import find_session  # noqa: PLC0415
    from jev_engine.errors import AuditError  # noqa: PLC0415

    key = key_of(given)
    try:
        return find_session(given.path, name, key)
    except AuditError as error:
        for each in _names_in(name, given.store):
            with suppress(AuditError):
                return find_session(given.path, each, key)
        raise Refused(str(error)) from None


def session_of(given: Given) -> str | None:
    """The keyed digest of the session that was asked about; None for all; or Refused."""
    return None if given.session is None else session_in(given, given.session)


def _names_in(name: str, store: str | None) -> list[str]:
    """What passes over a session may have called it, where a file of it is named, or its id at a host with files."""
    from jev_engine.cli.opening import open_session  # noqa: PLC0415
    from jev_engine.recognition import session_of as name_of  # noqa: PLC0415
    from jev_engine.settings import user_plugins  # noqa: PLC0415

    try:
        file = Path(name) if name and Path(name).is_file() else None
        plugins = user_plugins()
        for adapter in map(plugins.adapter, () if file else plugins.adapter_names()):
            file = file or getattr(adapter, "session_file", lambda _: None)(name)
        if file is None:
            return []
        opened = open_session(str(file), "auto", None, store)
    except (OSError, Refused):  # a name that is too long for a file; a file that is no session
        return []
    return [name_of(opened.adapter.read(opened.file.messages)), file.stem]


def reading(given: Given) -> TrailRead:
    """The trail, or one session of it, with a warning where it cannot be trusted; raises Refused."""
    from jev_engine.audit.files import is_trail  # noqa: PLC0415
    from jev_engine.audit.records import read_trail  # noqa: PLC0415
    from jev_engine.audit.upkeep import PURGED  # noqa: PLC0415
    from jev_engine.errors import AuditError  # noqa: PLC0415

    looked = _looked_at(given)  # before the trail is read: a host may write meanwhile
    try:
        session = session_of(given)
        found = read_trail(given.path, session)
        has_events = found.passes or found.between or not found.unreadable
        if not (has_events or is_trail(given.path)):
            _refuse(given.path)
    except AuditError as error:
        raise Refused(str(error)) from None
    if looked is not None:
        found.doubt = _doubt(looked)
        found.purged = [n for n in looked.taken if n.reason == PURGED and (session is None or session in n.until)]
    for trouble in _troubles(found):
        warn(trouble)
    return found


def _looked_at(given: Given) -> Verified | None:
    from jev_engine.audit.verify import verify  # noqa: PLC0415
    from jev_engine.errors import AuditError, JevEngineError  # noqa: PLC0415

    heads = None
    with suppress(JevEngineError):  # a store that cannot be read: `verify --anchor` says so
        if (anchor := _find_anchor(given)) is not None:
            heads = anchor.read()
    try:
        key = key_of(given)
    except Refused as error:
        warn(f"{error}; without it, nothing says who wrote this trail")
        key = None
    try:
        return verify(given.path, heads, key)
    except AuditError:
        return None  # there is none, which reading it says


def _doubt(looked: Verified) -> str | None:
    """Why a trail may not be what was written, in a sentence; None where nothing speaks against it."""
    if looked.faults:
        return "this trail is not what was written; `jev-engine audit verify --anchor` says where"
    if looked.sealed == 0 and looked.lines:
        return "no line of this trail carries the seal of the key here: who wrote it is not proven (audit --key FILE)"
    return None


def _troubles(found: TrailRead) -> list[str]:
    """What a reader has to know of a trail, a sentence each."""
    from jev_engine import __version__  # noqa: PLC0415

    told = [] if found.doubt is None else [found.doubt]
    if found.newer is not None:
        told.append(
            f"written by version {found.newer}, this is {__version__}: what only that version knows is left out"
        )
    if found.unreadable:
        told.append(f"{found.unreadable:,} lines are no event of this version and are left out")
    return told


def _refuse(path: Path) -> NoReturn:
    raise Refused(f"{str(path)!r} is no trail: `jev-engine compress … --audit FILE` writes one")


def open_trail(given: Given, pass_id: str) -> tuple[TrailRead, PassTold]:
    """The trail and one pass of it; raises Refused."""
    from jev_engine.errors import AuditError  # noqa: PLC0415

    trail = reading(given)
    try:
        return trail, trail.find(pass_id)
    except AuditError as error:
        raise Refused(str(error)) from None


def anchor_of(given: Given) -> Anchor:
    """The anchor of a trail: in the store, or in a file beside it; raises Refused where there is none."""
    from jev_engine.errors import JevEngineError  # noqa: PLC0415
    from jev_engine.store.sqlite import SqliteStore  # noqa: PLC0415

    try:
        found = _find_anchor(given)
    except JevEngineError as error:
        raise Refused(str(error)) from None
    if found is not None:
        return found
    raise Refused(
        f"no anchor of {str(given.path)!r} in the store {str(SqliteStore(given.store).path)!r} or beside it: name the "
        "store that was used (audit --store FILE), or where the trail was moved or copied, the anchor that `audit "
        "anchor` wrote in its old place (verify --anchor-file FILE)"
    )


def _find_anchor(given: Given) -> Anchor | None:
    from jev_engine.audit.anchor import FileAnchor, StoreAnchor  # noqa: PLC0415
    from jev_engine.store.sqlite import SqliteStore  # noqa: PLC0415

    places = (StoreAnchor(SqliteStore(given.store), given.path), FileAnchor.beside(given.path))
    return next((each for each in places if each.read()), None)


def check_out(out: str | None, given: Given) -> None:
    """Whether an answer about a trail may be written to that file; raises Refused."""
    from jev_engine.store.sqlite import SqliteStore  # noqa: PLC0415

    if out is not None:
        key = None if given.key is None else Path(given.key)
        check_target(out, Places(store=SqliteStore(given.store).path, trail=given.path, key=key))


def protect_missed(engine: ContextEngine, path: str) -> None:
    """Let an engine leave alone what a trail says was often missed; raises Refused where there is no trail."""
    from jev_engine.audit.outcomes import RegretRule  # noqa: PLC0415
    from jev_engine.audit.stats import regrets  # noqa: PLC0415

    engine.plugins.pins.append(RegretRule(regrets(reading(Given(named_file(path, "--regrets"))))))
