"""The tables of the store's file, and how a file of an older version becomes one of this."""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path

from jev_engine.errors import OriginalNotFound, StoreError
from jev_engine.store import index
from jev_engine.store.blobs import body_of, marked_digests

__all__ = ["APPLICATION_ID", "SCHEMA_VERSION", "check_owner", "check_schema", "is_older"]

SCHEMA_VERSION = 2
APPLICATION_ID = int.from_bytes(b"jeve")
"""Tells our files from those of other programs; the first files of version 2 and those of version 1 have none."""
TABLES = """
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, parent INTEGER, used_at INTEGER NOT NULL, ledger BLOB
);
CREATE TABLE blobs (number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, form INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE originals (
    number INTEGER PRIMARY KEY, reference TEXT NOT NULL UNIQUE, session INTEGER NOT NULL, key TEXT NOT NULL,
    tool TEXT NOT NULL, blob INTEGER NOT NULL, chars INTEGER NOT NULL, terms INTEGER NOT NULL, saved_at INTEGER NOT NULL
);
CREATE INDEX originals_by_session ON originals (session);
CREATE INDEX originals_by_blob ON originals (blob);
CREATE TABLE passes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, session INTEGER NOT NULL, anchor TEXT NOT NULL, rows_out INTEGER NOT NULL,
    sketch TEXT NOT NULL, record BLOB NOT NULL, saved_at INTEGER NOT NULL
);
CREATE INDEX passes_by_anchor ON passes (anchor, rows_out);
CREATE INDEX passes_by_session ON passes (session);
CREATE TABLE pass_blobs (pass INTEGER NOT NULL, blob INTEGER NOT NULL, PRIMARY KEY (pass, blob)) WITHOUT ROWID;
CREATE INDEX pass_blobs_by_blob ON pass_blobs (blob);
CREATE TABLE expired (
    reference TEXT PRIMARY KEY, session INTEGER NOT NULL, expired_at INTEGER NOT NULL
) WITHOUT ROWID;
"""
META = "CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
OLD_TABLES = ("blobs", "originals", "passes")


def check_owner(db: sqlite3.Connection, path: Path) -> None:
    """Raises StoreError where the file is the database of another program; nothing is written for it."""
    (owner,) = db.execute("PRAGMA application_id").fetchone()
    if owner == APPLICATION_ID:
        return
    # The tables last: another process may make ours at this moment, and then they are there whatever was read before.
    version = _version(db)
    names = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    is_new = not names and not version
    if owner or not (is_new or names >= {"meta", *OLD_TABLES}):
        raise StoreError(
            f"store {str(path)!r} is a database of another program, and is left as it is: name another file with"
            " --store (in code: SqliteStore(path))"
        )


def is_older(db: sqlite3.Connection) -> bool:
    """Whether the file has to be brought up to date before it can be read."""
    version = _version(db)
    return 0 < version < SCHEMA_VERSION


def check_schema(db: sqlite3.Connection, path: Path, *, write: bool) -> None:
    """Make the tables, or bring them up to date, inside the transaction that is open.

    Raises OriginalNotFound where an empty file is to be read, StoreError for a file of a newer version.
    """
    version = _version(db)
    if version == SCHEMA_VERSION:
        return
    if version > SCHEMA_VERSION:
        message = f"store {str(path)!r} was written by a newer version of jev-engine (schema {version}); update it"
        raise StoreError(message)
    if version == 0 and not write:
        raise OriginalNotFound(f"nothing is stored yet at {str(path)!r}")
    if version == 0:
        db.execute(META)
        db.execute("INSERT INTO meta VALUES ('secret', ?)", (os.urandom(32),))
        _make_tables(db)
    else:
        _migrate_from_1(db)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _make_tables(db: sqlite3.Connection) -> None:
    for statement in TABLES.split(";"):
        if statement.strip():
            db.execute(statement)
    index.make(db)


def _migrate_from_1(db: sqlite3.Connection) -> None:
    """Version 1 had no sessions, no index, no limits, and kept a record's size inside the record."""
    for name in ("originals_by_session", "passes_by_anchor"):
        db.execute(f"DROP INDEX IF EXISTS {name}")
    for name in OLD_TABLES:
        db.execute(f"ALTER TABLE {name} RENAME TO old_{name}")
    _make_tables(db)
    db.execute(
        "INSERT INTO sessions (name, used_at) SELECT session, max(saved_at) FROM"
        " (SELECT session, saved_at FROM old_originals UNION ALL SELECT session, saved_at FROM old_passes)"
        " GROUP BY session"
    )
    db.execute("INSERT INTO blobs (digest, form, body) SELECT digest, 1, body FROM old_blobs")
    # A text that is gone keeps its reference, so that it reads as unreadable and not as unknown.
    db.execute(
        "INSERT INTO originals (reference, session, key, tool, blob, chars, terms, saved_at)"
        " SELECT o.reference, s.number, o.key, o.tool, coalesce(b.number, -1), o.chars, 0, o.saved_at"
        " FROM old_originals o JOIN sessions s ON s.name = o.session LEFT JOIN blobs b ON b.digest = o.digest"
        " ORDER BY o.saved_at, o.reference"
    )
    _migrate_passes(db)
    # The blobs go last: the old originals refer to them.
    for name in reversed(OLD_TABLES):
        db.execute(f"DROP TABLE old_{name}")
    rows = db.execute("SELECT number, session, blob FROM originals WHERE blob >= 0")
    for number, session, blob in rows.fetchall():
        if (text := body_of(db, blob)) is not None:
            index.add(db, number, session, index.line_of(text))


def _migrate_passes(db: sqlite3.Connection) -> None:
    rows: Iterator[tuple[int, str, bytes, int]] = db.execute(
        "SELECT p.number, p.anchor, p.record, p.saved_at FROM old_passes p ORDER BY p.number"
    )
    for number, anchor, record, saved_at in rows:
        try:
            packed = zlib.decompress(record).decode("utf-8", "surrogatepass")
            data = json.loads(packed)
            (session,) = db.execute("SELECT number FROM sessions WHERE name = ?", (data["session"],)).fetchone()
            place = (number, session, anchor, data["rows_out"], data["sketch"], record, saved_at)
        except (zlib.error, ValueError, KeyError, TypeError):
            continue  # a damaged record never fitted a history again
        db.execute("INSERT INTO passes VALUES (?, ?, ?, ?, ?, ?, ?)", place)
        for digest in marked_digests(data["originals"]):
            db.execute(
                "INSERT OR IGNORE INTO pass_blobs SELECT ?, number FROM blobs WHERE digest = ?", (number, digest)
            )
