"""Texts by content: each is stored once, compressed, and proved by its digest when it is read."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

from jev_engine.errors import OriginalUnreadable

__all__ = ["Blob", "blob_of", "body_of", "get", "get_marked", "marked_digests", "pack", "put", "unpack"]

RAW, ZLIB = 0, 1
LEVEL = 6
"""zlib level: 0.302 of the text; 9 makes it 0.301 at 1.5 times the time, 1 makes it 0.336 at a third
[benchmarks/store.py --levels]."""
RAW_BYTES = 100
"""Shorter texts are stored as they are: zlib seldom saves more than the row costs."""
BLOB_CHARS = 200
"""Strings of a row from this length on are stored as blobs of their own, shared with the originals."""
BLOB_MARK = "\0blob:"
"""Stands in a row before the digest of a string that was taken out of it."""


class Blob(NamedTuple):
    """A text ready to be written."""

    digest: bytes
    form: int
    body: bytes


def blob_of(text: str) -> Blob:
    """The text as it is stored; no connection is needed for it, so it is made before the file is locked."""
    raw = text.encode("utf-8", "surrogatepass")
    digest = blake2b(raw, digest_size=16).digest()
    if len(raw) >= RAW_BYTES:
        body = zlib.compress(raw, LEVEL)
        if len(body) < len(raw):
            return Blob(digest, ZLIB, body)
    return Blob(digest, RAW, raw)


def put(db: sqlite3.Connection, blob: Blob) -> int:
    """Write a blob that is not there yet; returns its number."""
    row = db.execute("SELECT number FROM blobs WHERE digest = ?", (blob.digest,)).fetchone()
    if row is not None:
        return int(row[0])
    return int(db.execute("INSERT INTO blobs (digest, form, body) VALUES (?, ?, ?)", blob).lastrowid or 0)


def get(db: sqlite3.Connection, number: int) -> str:
    """The text of a blob; raises OriginalUnreadable where it is damaged or missing."""
    return _text(db.execute("SELECT digest, form, body FROM blobs WHERE number = ?", (number,)).fetchone())


def get_marked(db: sqlite3.Connection, digest: bytes) -> str:
    """The text with this digest; raises OriginalUnreadable where it is damaged or missing."""
    return _text(db.execute("SELECT digest, form, body FROM blobs WHERE digest = ?", (digest,)).fetchone())


def body_of(db: sqlite3.Connection, number: int) -> str | None:
    """The text of a blob, or None where it is damaged or missing."""
    try:
        return get(db, number)
    except OriginalUnreadable:
        return None


def _text(row: tuple[bytes, int, bytes] | None) -> str:
    if row is None:
        raise OriginalUnreadable("its text is missing")
    digest, form, body = row
    try:
        raw = zlib.decompress(body) if form == ZLIB else bytes(body)
    except zlib.error:
        raw = None
    if raw is None or blake2b(raw, digest_size=16).digest() != digest:
        raise OriginalUnreadable(f"text {digest.hex()} is damaged")
    return raw.decode("utf-8", "surrogatepass")


def pack(value: Any, found: dict[bytes, Blob]) -> Any:
    """The JSON value with its long strings replaced by marks; their blobs go to `found`."""
    if isinstance(value, str):
        if len(value) >= BLOB_CHARS or value.startswith(BLOB_MARK):
            blob = blob_of(value)
            found[blob.digest] = blob
            return BLOB_MARK + blob.digest.hex()
        return value
    if isinstance(value, dict):
        return {name: pack(item, found) for name, item in value.items()}
    if isinstance(value, list):
        return [pack(item, found) for item in value]
    return value


def unpack(db: sqlite3.Connection, value: Any) -> Any:
    """The JSON value that `pack` took apart; raises OriginalUnreadable."""
    if isinstance(value, str):
        return get_marked(db, _digest(value)) if value.startswith(BLOB_MARK) else value
    if isinstance(value, dict):
        return {name: unpack(db, item) for name, item in value.items()}
    if isinstance(value, list):
        return [unpack(db, item) for item in value]
    return value


def marked_digests(value: Any) -> Iterator[bytes]:
    """Digests of the blobs a packed value refers to."""
    if isinstance(value, str):
        if value.startswith(BLOB_MARK):
            yield _digest(value)
        return
    items: Iterable[Any] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in items:
        yield from marked_digests(item)


def _digest(mark: str) -> bytes:
    return bytes.fromhex(mark.removeprefix(BLOB_MARK))
