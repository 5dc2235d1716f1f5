"""Originals in one SQLite file, for this user only: they survive the process.

Texts are stored once by content, compressed. The file is created before the first write and not sooner, with mode
0600 in a folder of mode 0700.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from anyio import to_thread

from jev_engine.errors import OriginalNotFound, OriginalUnreadable, StoreError
from jev_engine.store import Original, PassRecord, keyed_reference

__all__ = ["SqliteStore", "default_path"]

T = TypeVar("T")

SCHEMA_VERSION = 1
SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE blobs (digest BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE originals (
    reference TEXT PRIMARY KEY, session TEXT NOT NULL, key TEXT NOT NULL, tool TEXT NOT NULL,
    digest BLOB NOT NULL REFERENCES blobs, chars INTEGER NOT NULL, saved_at INTEGER NOT NULL DEFAULT (unixepoch())
) WITHOUT ROWID;
CREATE INDEX originals_by_session ON originals (session);
CREATE TABLE passes (
    number INTEGER PRIMARY KEY, session TEXT NOT NULL, anchor TEXT NOT NULL, record BLOB NOT NULL,
    saved_at INTEGER NOT NULL DEFAULT (unixepoch())
);
CREATE INDEX passes_by_anchor ON passes (anchor);
"""
# Another process may hold the file while it commits a large pass.
BUSY_SECONDS = 10.0
# Strings of a row from this length on are stored as blobs of their own, shared with the originals.
BLOB_CHARS = 200
BLOB_MARK = "\0blob:"
CHUNK = 500


def default_path() -> Path:
    """The store in the user's data folder."""
    import platformdirs  # noqa: PLC0415  # only where a default place is needed

    return Path(platformdirs.user_data_dir("jev-engine", appauthor=False)) / "originals.sqlite3"


class SqliteStore:
    """Originals in one file. Safe to share between processes; every call opens and closes its own connection."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path) if path is not None else default_path()
        self._secret: bytes | None = None

    def reference(self, session: str, key: str) -> str:
        """The reference of a unit; creates the file, because its secret lives there."""
        if self._secret is None:
            self._secret = self._run(_read_secret, write=True)
        return keyed_reference(self._secret, session, key)

    async def save(self, originals: Sequence[Original]) -> set[str]:
        """Save originals in one transaction; raises StoreError where that fails."""
        await to_thread.run_sync(lambda: self._run(lambda db: _save(db, originals), write=True))
        return {original.reference for original in originals}

    async def read(self, reference: str, *, session: str | None = None) -> Original:
        """One original, byte for byte; raises OriginalNotFound or OriginalUnreadable."""
        return await to_thread.run_sync(lambda: self._run(lambda db: _read(db, reference, session)))

    async def known(self, references: Iterable[str]) -> dict[str, tuple[str, int]]:
        """Unit key and length of those references that are here."""
        wanted = list(references)
        if not wanted or not self.path.exists():
            return {}
        return await to_thread.run_sync(lambda: self._run(lambda db: _known(db, wanted)))

    async def save_pass(self, record: PassRecord) -> None:
        """Save what a pass did; raises StoreError where that fails."""
        await to_thread.run_sync(lambda: self._run(lambda db: _save_pass(db, record), write=True))

    async def find_passes(self, anchor: str) -> list[PassRecord]:
        """Records of passes whose output began with such a row, newest first."""
        if not self.path.exists():
            return []
        return await to_thread.run_sync(lambda: self._run(lambda db: _find_passes(db, anchor)))

    def _run(self, work: Callable[[sqlite3.Connection], T], *, write: bool = False) -> T:
        try:
            if write:
                self._create()
            elif not self.path.exists():
                raise OriginalNotFound(f"nothing is stored yet at {str(self.path)!r}")
            with self._open(write=write) as db:
                return work(db)
        except (sqlite3.Error, OSError, zlib.error, RecursionError, TypeError, ValueError) as error:
            message = f"store {str(self.path)!r}: {error}; check the folder's permissions and free space"
            raise StoreError(message) from error

    def _create(self) -> None:
        if self.path.exists():
            return
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        os.close(descriptor)

    @contextmanager
    def _open(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)) as db:
            if write:
                db.execute("PRAGMA journal_mode = WAL")
            # A transaction that was reported as saved must survive a power cut: markers point to it.
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                _check_schema(db, self.path, write=write)
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")


def _check_schema(db: sqlite3.Connection, path: Path, *, write: bool) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version == SCHEMA_VERSION:
        return
    if version == 0 and not write:
        raise OriginalNotFound(f"nothing is stored yet at {str(path)!r}")
    if version > SCHEMA_VERSION:
        message = f"store {str(path)!r} was written by a newer version of jev-engine (schema {version}); update it"
        raise StoreError(message)
    for statement in SCHEMA.split(";"):
        if statement.strip():
            db.execute(statement)
    db.execute("INSERT INTO meta VALUES ('secret', ?)", (os.urandom(32),))
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _read_secret(db: sqlite3.Connection) -> bytes:
    (secret,) = db.execute("SELECT value FROM meta WHERE name = 'secret'").fetchone()
    return bytes(secret)


def _put(db: sqlite3.Connection, text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    key = blake2b(raw, digest_size=16).digest()
    if db.execute("SELECT 1 FROM blobs WHERE digest = ?", (key,)).fetchone() is None:
        db.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (key, zlib.compress(raw, 6)))
    return key


def _get(db: sqlite3.Connection, key: bytes) -> str:
    row = db.execute("SELECT body FROM blobs WHERE digest = ?", (key,)).fetchone()
    try:
        raw = zlib.decompress(row[0]) if row is not None else None
    except zlib.error:
        raw = None
    if raw is None or blake2b(raw, digest_size=16).digest() != key:
        raise OriginalUnreadable(f"text {key.hex()} is damaged or missing")
    return raw.decode("utf-8", "surrogatepass")


def _save(db: sqlite3.Connection, originals: Sequence[Original]) -> None:
    for original in originals:
        db.execute(
            "INSERT OR IGNORE INTO originals (reference, session, key, tool, digest, chars) VALUES (?, ?, ?, ?, ?, ?)",
            (
                original.reference,
                original.session,
                original.key,
                original.tool.encode("utf-8", "replace").decode(),
                _put(db, original.text),
                len(original.text),
            ),
        )


def _read(db: sqlite3.Connection, reference: str, session: str | None) -> Original:
    # A reference may come from a model: half a character in it is no fault of the store.
    shown = reference.encode("utf-8", "replace").decode()
    row = db.execute("SELECT session, key, tool, digest FROM originals WHERE reference = ?", (shown,)).fetchone()
    if row is None or (session is not None and row[0] != session):
        raise OriginalNotFound(f"no original goes by {reference!r}")
    return Original(reference, row[0], row[1], row[2], _get(db, row[3]))


def _known(db: sqlite3.Connection, references: list[str]) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for start in range(0, len(references), CHUNK):
        part = references[start : start + CHUNK]
        marks = ",".join("?" * len(part))
        rows = db.execute(f"SELECT reference, key, chars FROM originals WHERE reference IN ({marks})", part)  # noqa: S608  # only question marks
        found.update({reference: (key, chars) for reference, key, chars in rows})
    return found


def _save_pass(db: sqlite3.Connection, record: PassRecord) -> None:
    packed = record._asdict()
    packed["originals"] = [[row, _pack(db, value)] for row, value in record.originals.items()]
    # Signs as they are: two halves of a character written as escapes would come back as one.
    body = zlib.compress(json.dumps(packed, ensure_ascii=False).encode("utf-8", "surrogatepass"), 6)
    db.execute("INSERT INTO passes (session, anchor, record) VALUES (?, ?, ?)", (record.session, record.anchor, body))


def _find_passes(db: sqlite3.Connection, anchor: str) -> list[PassRecord]:
    rows = db.execute("SELECT record FROM passes WHERE anchor = ? ORDER BY number DESC", (anchor,)).fetchall()
    records = []
    for (body,) in rows:
        data = json.loads(zlib.decompress(body).decode("utf-8", "surrogatepass"))
        data["originals"] = {row: _unpack(db, value) for row, value in data["originals"]}
        records.append(PassRecord(**data))
    return records


def _pack(db: sqlite3.Connection, value: Any) -> Any:
    """The value with its long strings replaced by references to blobs."""
    if isinstance(value, str):
        if len(value) >= BLOB_CHARS or value.startswith(BLOB_MARK):
            return BLOB_MARK + _put(db, value).hex()
        return value
    if isinstance(value, dict):
        return {name: _pack(db, item) for name, item in value.items()}
    if isinstance(value, list):
        return [_pack(db, item) for item in value]
    return value


def _unpack(db: sqlite3.Connection, value: Any) -> Any:
    if isinstance(value, str):
        return _get(db, bytes.fromhex(value.removeprefix(BLOB_MARK))) if value.startswith(BLOB_MARK) else value
    if isinstance(value, dict):
        return {name: _unpack(db, item) for name, item in value.items()}
    if isinstance(value, list):
        return [_unpack(db, item) for item in value]
    return value
