"""Where a host goes on with a session from its file: a new file beside the old one, under an id of its own."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jev_engine.cli.files import Refused
from jev_engine.cli.show import several, warn
from jev_engine.errors import StoreError, UnknownAdapter
from jev_engine.host import RowChange
from jev_engine.rebuild import Rebuilt
from jev_engine.settings import user_plugins
from jev_engine.store.restore import record_pass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jev_engine.cli.opening import Opened
    from jev_engine.result import CompressionResult

__all__ = ["Target", "choose_target", "keep_spelling", "latest_file", "rewritten", "target_of"]

SUFFIX = ".jsonl"


class Target(NamedTuple):
    """Where the new session goes."""

    path: str
    session: str
    is_named: bool
    """The user named the file: it is written whatever comes of the pass."""


def latest_file(host: str) -> str:
    """The session that was used last in this folder; raises Refused."""
    name = "claude-code" if host == "auto" else host
    try:
        adapter = user_plugins().adapter(name)
    except UnknownAdapter as error:
        raise Refused(str(error)) from None
    find = getattr(adapter, "latest_session", None)
    if find is None:
        raise Refused(f"--latest: {name} keeps no sessions in files. Name the file.")
    found = find(Path.cwd())
    if found is None:
        raise Refused(f"--latest: no session of {name} was used in {Path.cwd()}. Name the file.")
    return str(found)


def target_of(adapter: Any, source: str, out: str | None, *, beside: bool) -> Target | None:
    """As `choose_target`, for a host that goes on from files; raises Refused for another where that is asked for."""
    if hasattr(adapter, "new_session"):
        return choose_target(source, out, beside=beside)
    if beside:
        raise Refused(f"--new-session: {adapter.name} sessions are not resumed from files. Name OUT with -o.")
    return None


def choose_target(source: str, out: str | None, *, beside: bool) -> Target | None:
    """File and id of the new session: OUT, or a new name in the folder OUT, or beside the old file; None for neither.

    A host finds a session by the name of its file, so an id that OUT names is taken.
    """
    if beside:
        if out is not None or source == "-":
            raise Refused("--new-session writes beside FILE: leave out -o, and name a file.")
        out = str(Path(source).absolute().parent)
    if out is None:
        return None
    session = str(uuid.uuid4())
    if out != "-" and Path(out).is_dir():
        return Target(str(Path(out) / f"{session}{SUFFIX}"), session, is_named=False)
    try:
        return Target(out, str(uuid.UUID(Path(out).stem)), is_named=True)
    except ValueError:
        return Target(out, session, is_named=True)


def rewritten(opened: Opened, result: CompressionResult, session: str) -> Any:
    """What the host resumes from, with a record in the store by which the old session can be had back from it.

    Raises Refused.
    """
    made = opened.adapter.new_session(opened.file.messages, result.messages, session)  # type: ignore[attr-defined]
    if made.thinking_removed:
        warn(
            f"{several(made.thinking_removed, 'row is without its', 'rows are without their')} thinking, behind the"
            " first edit: the model that answered last takes it with an unchanged history only"
        )
    written = opened.file.unlike_restored(made.rows, made.index_map)
    _save(opened, session, Rebuilt(made.rows, {}, made.index_map), written)
    try:
        asyncio.run(opened.store.link_session(session, result.session))
    except StoreError as error:
        raise Refused(f"the old session could not be recorded, so nothing was written: {error}") from None
    return made


def keep_spelling(opened: Opened, result: CompressionResult) -> None:
    """Record how the file wrote what leaves it, where that cannot be told from the shorter one; raises Refused."""
    written = opened.file.unlike_restored(result.messages, result.index_map)
    if written:
        _save(opened, result.session, Rebuilt(result.messages, {}, result.index_map), written)


def _save(opened: Opened, session: str, made: Rebuilt, written: Sequence[tuple[int, str, str]]) -> None:
    rows = opened.file.messages
    made.changes = {
        row: RowChange(row)
        for row, target in enumerate(made.index_map)
        if target is None or made.messages[target] is not rows[row]
    }
    record = record_pass(session, rows, made, opened.adapter)._replace(written=written)
    try:
        asyncio.run(opened.store.save_pass(record))
    except StoreError as error:
        raise Refused(f"the old session could not be recorded, so nothing was written: {error}") from None
