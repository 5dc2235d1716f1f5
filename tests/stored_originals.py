"""Originals as store tests make them, what names them, and what a file holds of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from jev_engine.ledger import Ledger, LedgerEntry
from jev_engine.store import Original
from jev_engine.store.sqlite import SqliteStore

__all__ = ["naming", "original", "texts_in"]


def original(store: SqliteStore, session: str, key: str, text: str | None = None) -> Original:
    """One of a session; its text is its own unless one is given."""
    return Original(store.reference(session, key), session, key, "read", text or f"{key} of {session}: " + "word " * 99)


def naming(*originals: Original) -> dict[str, Any]:
    """A ledger that names these."""
    return Ledger.of(LedgerEntry(o.key, "truncate", o.reference, "[out]", len(o.text)) for o in originals).to_json()


def texts_in(path: Path) -> int:
    """How many texts a file holds."""
    with closing(sqlite3.connect(path)) as db, db:
        (count,) = db.execute("SELECT count(*) FROM blobs").fetchone()
    db.close()
    return count
