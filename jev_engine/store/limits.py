"""How much is kept and how long, and how it goes: by age first, then the longest unused.

A session that is in use keeps whatever its ledger names, because markers in its history point there, and everything
where nobody saved a ledger for it. One from which a session in use has sprung is in use too. What goes leaves its
reference behind, so that it reads as expired; only a purge forgets that too.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jev_engine.store import MESSAGE_TOOL, index

__all__ = ["Limits", "Pruned", "is_due", "keep", "prune", "purge", "room_for", "used_bytes"]

DAY = 86_400
PRUNE_SECONDS = 3_600
"""Limits of age are looked at once an hour at most, on a write."""
GRACE_SECONDS = 3_600
"""What was saved this recently stays although no ledger names it yet: its pass may still be running."""
TARGET_SHARE = 0.9
"""A limit that was reached is undercut by a tenth, so that not every save has to make room."""
TOMBSTONE_DAYS = 365
"""References of what expired are kept this long, about 60 bytes each."""
KEPT = "kept "
"""Begins the name, in the table of single values, of what notes that a session does not expire by age."""
IN_USE = f"""
WITH RECURSIVE live (number) AS (
    SELECT number FROM sessions WHERE used_at >= :since
    UNION SELECT number FROM sessions JOIN meta ON meta.name = '{KEPT}' || number WHERE :keeps
    UNION SELECT parent FROM sessions JOIN live USING (number) WHERE parent IS NOT NULL
)"""  # noqa: S608  # a constant
"""Numbers of sessions that are in use: used since a time, kept where that counts, or the origin of such a one."""
PURGE_CHUNK = 500
"""Originals that go at a time: question marks of one statement, as `rows.CHUNK`."""


class Limits(NamedTuple):
    """What a store keeps. Days count from the last use: a pass, a saved ledger, a link, an original that is read."""

    max_age_days: float = 30
    """Sessions unused for longer go, if they are not kept (`SqliteStore.keep`); in the others, originals older than
    this that their ledger does not name."""
    max_originals: int = 200_000
    """Twice the number at which reading and searching were measured [benchmarks/store.py]."""
    max_total_bytes: int = 4 << 30
    """Size of the file; about 3 million pages of tool output. Stores without limits reached 63 GB
    (anomalyco/opencode#29694)."""
    max_text_bytes: int = 64 << 20
    """A larger result stays in the history: no model's window holds it anyway."""
    live_days: float = 7
    """Sessions used within this are never taken to make room; only what their ledgers do not name is."""


class Pruned(NamedTuple):
    """What went."""

    originals: int
    passes: int
    sessions: int
    """Sessions of which nothing is left."""
    freed_bytes: int
    """Room inside the file; the file itself shrinks when it is compacted."""


def used_bytes(db: sqlite3.Connection) -> int:
    """Bytes of the file that hold something."""
    (pages,), (free,), (size,) = (
        db.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def room_for(db: sqlite3.Connection, limits: Limits, count: int, size: int) -> bool:
    """Whether so many originals of so many bytes fit without making room."""
    # Numbers grow by one, so the highest bounds the count; counting itself walks through all of them.
    (kept,) = db.execute("SELECT coalesce(max(number), 0) FROM originals").fetchone()
    if kept + count > limits.max_originals:
        (kept,) = db.execute("SELECT count(*) FROM originals").fetchone()
    return bool(kept + count <= limits.max_originals and used_bytes(db) + size <= limits.max_total_bytes)


def is_due(db: sqlite3.Connection, now: float) -> bool:
    """Whether ages should be looked at again; notes that they were."""
    row = db.execute("SELECT value FROM meta WHERE name = 'pruned_at'").fetchone()
    if row is not None and now - float(row[0]) < PRUNE_SECONDS:
        return False
    db.execute("INSERT OR REPLACE INTO meta VALUES ('pruned_at', ?)", (str(now),))
    return True


def keep(db: sqlite3.Connection, session: int) -> None:
    """Note that a session does not expire by age."""
    db.execute("INSERT OR IGNORE INTO meta VALUES (?, '')", (f"{KEPT}{session}",))


def prune(
    db: sqlite3.Connection, limits: Limits, now: float, *, count: int = 0, size: int = 0, takes_kept: bool = False
) -> Pruned:
    """Take out what the limits no longer allow, and make room for so many originals of so many bytes more.

    `takes_kept`: the limit of age counts for kept sessions too.
    """
    before, counts_before = used_bytes(db), _counts(db)
    oldest = now - limits.max_age_days * DAY
    for session in _unused(db, oldest, keeps=not takes_kept):
        _expire_session(db, session, now)
    _expire_unnamed(db, oldest, now)
    if not room_for(db, limits, count, size):
        target = limits._replace(
            max_originals=int(limits.max_originals * TARGET_SHARE),
            max_total_bytes=int(limits.max_total_bytes * TARGET_SHARE),
        )
        _make_room(db, target, now, count, size)
    db.execute("DELETE FROM expired WHERE expired_at < ?", (now - TOMBSTONE_DAYS * DAY,))
    _forget_empty(db)
    return _gone(db, counts_before, before)


def purge(db: sqlite3.Connection, sessions: Iterable[int]) -> Pruned:
    """Forget sessions: originals, passes, ledgers, and that they were ever there."""
    before, counts_before = used_bytes(db), _counts(db)
    for session in sessions:
        _expire_session(db, session, None)
        db.execute("DELETE FROM expired WHERE session = ?", (session,))
        db.execute("UPDATE sessions SET parent = NULL WHERE parent = ?", (session,))
        db.execute("DELETE FROM sessions WHERE number = ?", (session,))
    index.tidy(db)
    return _gone(db, counts_before, before)


def _gone(db: sqlite3.Connection, counts_before: list[int], bytes_before: int) -> Pruned:
    originals, passes, sessions = (b - a for b, a in zip(counts_before, _counts(db), strict=True))
    return Pruned(originals, passes, sessions, bytes_before - used_bytes(db))


def _counts(db: sqlite3.Connection) -> list[int]:
    tables = ("originals", "passes", "sessions WHERE used_at > 0")
    return [int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in tables]  # noqa: S608  # constants


def _unused(db: sqlite3.Connection, since: float, *, keeps: bool) -> list[int]:
    """Sessions not in use since a time: kept ones last, else the longest unused first."""
    rows = db.execute(
        f"{IN_USE} SELECT number FROM sessions LEFT JOIN meta ON meta.name = '{KEPT}' || number"  # noqa: S608  # constants
        " WHERE used_at > 0 AND number NOT IN live ORDER BY value IS NOT NULL, used_at",
        {"since": since, "keeps": keeps},
    )
    return [number for (number,) in rows]


def _make_room(db: sqlite3.Connection, target: Limits, now: float, count: int, size: int) -> None:
    for session in _unused(db, now - target.live_days * DAY, keeps=False):
        _expire_session(db, session, now)
        if room_for(db, target, count, size):
            return
    _expire_unnamed(db, now - GRACE_SECONDS, now, until=(target, count, size))


def _expire_unnamed(
    db: sqlite3.Connection, before: float, now: float, until: tuple[Limits, int, int] | None = None
) -> None:
    """Expire originals saved before a time that no ledger names, oldest first.

    Messages are named by none: what a host has summarised can be had back as long as its session is in use. The same
    holds for all originals of a session whose ledger nobody saved: nobody can tell which of them its history needs.
    """
    rows = db.execute(
        "SELECT o.number, reference FROM originals o JOIN sessions s ON s.number = o.session"
        " WHERE s.ledger IS NOT NULL AND saved_at < ? AND key NOT LIKE ? ORDER BY saved_at",
        (before, f"{MESSAGE_TOOL}.%"),
    )
    old = rows.fetchall()
    if not old:
        return
    named = _named(db)
    unnamed = [number for number, reference in old if reference not in named]
    for start in range(0, len(unnamed), PURGE_CHUNK):
        _expire(db, unnamed[start : start + PURGE_CHUNK], now)
        if until is not None and room_for(db, *until):
            return


def _named(db: sqlite3.Connection) -> set[str]:
    """References that ledgers name; sessions out of use have lost theirs by now."""
    named: set[str] = set()
    for (packed,) in db.execute("SELECT ledger FROM sessions WHERE ledger IS NOT NULL"):
        named.update(
            entry[2] for entry in json.loads(zlib.decompress(packed).decode("utf-8", "surrogatepass"))["entries"]
        )
    return named


def _expire_session(db: sqlite3.Connection, session: int, now: float | None) -> None:
    """Take out everything of a session; without a time no trace of its references stays."""
    numbers = [n for (n,) in db.execute("SELECT number FROM originals WHERE session = ?", (session,))]
    for start in range(0, len(numbers), PURGE_CHUNK):
        _expire(db, numbers[start : start + PURGE_CHUNK], now)
    passes = "SELECT number FROM passes WHERE session = ?"
    blobs = {b for (b,) in db.execute(f"SELECT blob FROM pass_blobs WHERE pass IN ({passes})", (session,))}  # noqa: S608
    db.execute(f"DELETE FROM pass_blobs WHERE pass IN ({passes})", (session,))  # noqa: S608  # a constant
    db.execute("DELETE FROM passes WHERE session = ?", (session,))
    _drop_blobs(db, blobs)
    db.execute("DELETE FROM meta WHERE name = ?", (f"{KEPT}{session}",))
    # Not used any more, from now on: what is left of it is only the owner of its expired references.
    db.execute("UPDATE sessions SET ledger = NULL, used_at = 0 WHERE number = ?", (session,))


def _expire(db: sqlite3.Connection, numbers: Sequence[int], now: float | None) -> None:
    marks = ",".join("?" * len(numbers))
    rows = db.execute(f"SELECT number, session, blob FROM originals WHERE number IN ({marks})", numbers).fetchall()  # noqa: S608
    for number, session, blob in rows:
        index.remove(db, number, session, blob)
    if now is not None:
        db.execute(
            f"INSERT OR REPLACE INTO expired SELECT reference, session, ? FROM originals WHERE number IN ({marks})",  # noqa: S608
            (int(now), *numbers),
        )
    db.execute(f"DELETE FROM originals WHERE number IN ({marks})", numbers)  # noqa: S608  # only question marks
    _drop_blobs(db, {blob for _, _, blob in rows})


def _drop_blobs(db: sqlite3.Connection, candidates: Iterable[int]) -> None:
    db.executemany(
        "DELETE FROM blobs WHERE number = ? AND NOT EXISTS (SELECT 1 FROM originals WHERE blob = blobs.number)"
        " AND NOT EXISTS (SELECT 1 FROM pass_blobs WHERE blob = blobs.number)",
        [(number,) for number in candidates],
    )


def _forget_empty(db: sqlite3.Connection) -> None:
    db.execute(
        "DELETE FROM sessions WHERE used_at = 0 AND NOT EXISTS (SELECT 1 FROM expired WHERE session = sessions.number)"
        " AND NOT EXISTS (SELECT 1 FROM sessions child WHERE child.parent = sessions.number)"
    )
