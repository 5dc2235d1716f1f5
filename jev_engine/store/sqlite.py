"""Originals in one SQLite file, for this user only: they survive the process.

Texts are stored once by content, compressed. The file is created before the first write and not sooner, with mode
0600 in a folder of mode 0700. What is reported as saved is on the disk: neither kill -9 nor a power cut takes it back.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from anyio import to_thread

from jev_engine.errors import OriginalNotFound, StoreError
from jev_engine.store import Original, PassHead, PassRecord, Ranking, anchors, keyed_reference, rows
from jev_engine.store.database import BUSY_SECONDS, Database, Held, default_path
from jev_engine.store.index import line_of, take_in
from jev_engine.store.limits import DAY, Limits, Pruned, is_due, keep, prune, purge, room_for
from jev_engine.store.rows import Kept, Stats

__all__ = ["Limits", "SqliteStore", "default_path"]

T = TypeVar("T")
R = TypeVar("R", Original, PassRecord)

INDEX_CHUNK = 100
"""Texts that are taken in for the search at a time; others can write in between."""


class SqliteStore:
    """Originals in one file. Safe to share between threads and processes; every call has its own connection.

    `limits` say how much is kept and how long, `clock` tells the time in seconds since 1970, `busy_seconds` how long to
    wait for another process. Every member that works on the file raises StoreError where that fails.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self.path = Path(path) if path is not None else default_path()
        self.limits = Limits() if limits is None else limits
        self._clock = clock
        self._database = Database(self.path, busy_seconds, self.limits.max_total_bytes)
        self._held = Held(self._database)
        self._in_passing = Database(self.path, 0, self.limits.max_total_bytes)
        self._secret: bytes | None = None
        self.index_later = False
        """Save without taking texts in for the search, and leave that to `finish_index` or to the next search."""

    @property
    def reference_waits(self) -> bool:
        """Whether `reference` has to look at the file, so that it should be asked in a thread."""
        return self._secret is None

    def reference(self, session: str, key: str) -> str:
        """The reference of a unit; creates the file, because its secret lives there."""
        if self._secret is None:
            self._secret = self._database.run(rows.read_secret, write=True)
        return keyed_reference(self._secret, session, key)

    async def save(self, originals: Sequence[Original]) -> set[str]:
        """Save originals in one transaction; returns the references that are safe now.

        A text above `Limits.max_text_bytes` is left out; StoreError where all are, or where there is no room.
        """
        return await to_thread.run_sync(self._save, originals)

    def _save(self, originals: Sequence[Original]) -> set[str]:
        # Compressed and taken apart before the file is locked: others wait for the writing only.
        made = [rows.prepare(original, self.limits, index_later=self.index_later) for original in originals]
        kept = [each for each in made if each is not None]
        if originals and not kept:
            raise StoreError(
                f"store {str(self.path)!r}: all {len(originals)} originals are larger than max_text_bytes"
                f" ({self.limits.max_text_bytes:,}); raise it (SqliteStore(limits=Limits(max_text_bytes=…)))"
            )
        if kept:
            self._write(lambda db: self._save_kept(db, kept))
        return {each.original.reference for each in kept}

    def _save_kept(self, db: sqlite3.Connection, kept: Sequence[Kept]) -> None:
        now, limits = self._clock(), self.limits
        size = sum(each.size for each in kept)
        if is_due(db, now) or not room_for(db, limits, len(kept), size):
            # In use from now on: making room takes nothing from the sessions that are being saved.
            rows.use_sessions(db, dict.fromkeys(each.original.session for each in kept), now)
            prune(db, limits, now, count=len(kept), size=size)
            if not room_for(db, limits, len(kept), size):
                raise StoreError(
                    f"store {str(self.path)!r} is full of originals in use (max_originals {limits.max_originals:,},"
                    f" max_total_bytes {limits.max_total_bytes:,}): raise the limit, or purge sessions with"
                    " `jev-engine store purge`"
                )
        rows.insert(db, kept, now)

    async def save_messages(self, session: str, messages: Sequence[Any]) -> list[str]:
        """Save whole messages, all or none; returns one reference a message."""

        def work() -> list[str]:
            originals = rows.message_originals(self, session, messages)
            saved = self._save(originals)
            if any(original.reference not in saved for original in originals):
                raise StoreError(f"store {str(self.path)!r}: a message is larger than max_text_bytes; raise it")
            return [original.reference for original in originals]

        return await to_thread.run_sync(work)

    async def read(self, reference: str, *, session: str | None = None) -> Original:
        """One original, byte for byte; raises OriginalNotFound, OriginalExpired or OriginalUnreadable."""
        return await to_thread.run_sync(self._use, lambda db: rows.read(db, reference, session), session)

    async def known(self, references: Iterable[str]) -> dict[str, tuple[str, int]]:
        """Unit key and length of those references that are here."""
        wanted = list(references)
        if not wanted or not self._database.exists():
            return {}
        return await self._read(lambda db: rows.known(db, wanted))

    async def save_pass(self, record: PassRecord) -> None:
        """Save what a pass did, in one transaction; raises StoreError where it cannot be packed or written."""

        def work() -> None:
            packed = rows.pack_pass(record, self.path)
            self._write(lambda db: rows.insert_pass(db, record, packed, self._clock()))

        await to_thread.run_sync(work)

    async def find_passes(self, anchor: str, most_rows: int | None = None) -> list[PassHead]:
        """Passes whose output began with such a row and had at most so many rows, newest first."""
        if not self._database.exists():
            return []
        return await self._read(lambda db: rows.find_passes(db, anchor, most_rows))

    async def load_pass(self, number: int) -> PassRecord:
        """One record, by its head's number; raises OriginalNotFound or OriginalUnreadable."""
        return await to_thread.run_sync(self._use, lambda db: rows.load_pass(db, number), None)

    async def save_ledger(self, session: str, ledger: Mapping[str, Any]) -> None:
        """Join a ledger to the session's; two processes that save at once lose nothing."""
        await to_thread.run_sync(self._write, lambda db: rows.save_ledger(db, session, ledger, self._clock()))

    async def load_ledger(self, session: str) -> dict[str, Any] | None:
        """The session's ledger as plain JSON, or None where it has none."""
        if not self._database.exists():
            return None
        return await self._read(lambda db: rows.load_ledger(db, session))

    async def link_session(self, new: str, old: str) -> None:
        """A fork or rotation: `new` may read what `old` has, and begins with its ledger."""
        await to_thread.run_sync(self._write, lambda db: rows.link(db, new, old, self._clock()))

    async def rank(self, session: str, query: str, limit: int) -> Ranking:
        """The originals of a session that fit a query best. Of equal texts the newest counts."""
        if not self._database.exists():
            return Ranking([])
        await to_thread.run_sync(self.finish_index, session)
        return await self._read(lambda db: rows.rank(db, session, query, limit))

    def finish_index(self, session: str | None = None) -> int:
        """Take in for the search what was saved without, of one session or of all; returns how many texts it was.

        Not async: for a thread that nobody waits for. Raises StoreError.
        """
        done = 0
        while waiting := self._waiting(session):
            lines = [(number, owner, None if text is None else line_of(text)) for number, owner, text in waiting]
            self._write(lambda db, lines=lines: take_in(db, lines))  # type: ignore[misc]  # mypy cannot infer defaults
            done += len(lines)
        return done

    def _waiting(self, session: str | None) -> list[tuple[int, int, str | None]]:
        if not self._database.exists():
            return []
        return self._database.run(lambda db: rows.waiting(db, session, INDEX_CHUNK))

    def heads(self, trail: str) -> dict[str, tuple[int, str]]:
        """Count and head of each chain of an audit trail, as they were kept last; not async, sinks are not."""
        if not self._database.exists():
            return {}
        try:
            return self._database.run(lambda db: anchors.read(db, trail))
        except OriginalNotFound:
            return {}

    def keep_heads(self, trail: str, changed: Mapping[str, tuple[int, str]], gone: Iterable[str]) -> None:
        """Keep count and head of some chains, and forget others; one caller at a time, with `let_go` at the end.

        Heads are tiny: no limit of the store stops them.
        """
        self._held.run(lambda db: anchors.write(db, trail, changed, gone))

    def let_go(self) -> None:
        """Close what `keep_heads` keeps open."""
        self._held.close()

    async def stats(self, session: str | None = None) -> Stats:
        """What is in it, of all sessions or of one."""
        if not self._database.exists():
            return Stats(str(self.path), 0, 0, 0, 0, 0, 0, [])
        return await self._read(lambda db: rows.stats(db, self.path, session))

    async def keep(self, session: str) -> None:
        """A session that does not expire by age: it goes by hand, or last of all where the file has reached its size.

        Raises OriginalNotFound for a session that is not there.
        """
        await to_thread.run_sync(self._write, lambda db: keep(db, rows.find_session(db, session)))

    async def check(self) -> list[str]:
        """What SQLite finds wrong with the file, in its words: it reads all of it. Raises StoreError."""
        if not self._database.exists():
            return []
        found = await self._read(lambda db: [str(told) for (told,) in db.execute("PRAGMA quick_check")])
        lines = [line for told in found for line in told.splitlines() if not line.startswith("***")]
        return [] if lines == ["ok"] else lines

    async def prune(self, *, is_dry_run: bool = False, takes_kept: bool = False) -> Pruned:
        """Take out what the limits no longer allow and compact the file; a dry run only tells what would go.

        `takes_kept`: the limit of age counts for sessions too that are kept.
        """
        if not self._database.exists():
            return Pruned(0, 0, 0, 0)

        def work() -> Pruned:
            try:
                done = self._database.run(
                    lambda db: _stop(prune(db, self.limits, self._clock(), takes_kept=takes_kept), is_dry_run),
                    write=True,
                    free=True,
                )
            except _DryRun as stopped:
                return stopped.found
            self._compact()
            return done

        return await to_thread.run_sync(work)

    async def purge(self, session: str) -> Pruned:
        """Forget a session as if it had never been: it reads as unknown, and its texts are out of the file.

        Raises OriginalNotFound for a session that is not there. Those linked to it keep their own originals.
        """
        if not self._database.exists():
            raise OriginalNotFound(f"nothing is stored yet at {str(self.path)!r}")

        def work() -> Pruned:
            done = self._database.run(lambda db: purge(db, [rows.find_session(db, session)]), write=True, free=True)
            self._compact()
            return done

        return await to_thread.run_sync(work)

    async def export(self, take: Callable[[dict[str, Any]], None], session: str | None = None) -> int:
        """Hand every original that can be read, as plain JSON values, to `take`; returns their number."""
        if not self._database.exists():
            return 0
        return await self._read(lambda db: rows.export(db, take, session))

    def _compact(self) -> None:
        """Give the room back to the disk, and leave nothing of what went in the file or in the log beside it."""
        self._database.outside("VACUUM")
        self._database.outside("PRAGMA wal_checkpoint(TRUNCATE)")

    def _use(self, work: Callable[[sqlite3.Connection], R], session: str | None) -> R:
        """Read something of a session, which counts as a use of it. That is noted once a day, if it can be at once."""
        now = self._clock()

        def read(db: sqlite3.Connection) -> tuple[R, list[str]]:
            found = work(db)
            return found, rows.unused_since(db, {found.session, session or found.session}, now - DAY)

        found, idle = self._database.run(read)
        if idle:
            with suppress(StoreError):
                self._in_passing.run(lambda db: rows.use_sessions(db, idle, now), write=True, free=True)
        return found

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await to_thread.run_sync(self._database.run, work)

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._database.run(work, write=True)


class _DryRun(Exception):
    """Takes a transaction back and carries what it had found."""

    def __init__(self, found: Pruned) -> None:
        super().__init__()
        self.found = found


def _stop(found: Pruned, is_dry_run: bool) -> Pruned:  # noqa: FBT001
    if is_dry_run:
        raise _DryRun(found)
    return found
