"""Count and head of the chains of audit trails, in the table of single values."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping

__all__ = ["read", "write"]

# Before the name of a chain, which holds no blank, and that of its trail.
PREFIX = "anchor "


def read(db: sqlite3.Connection, trail: str) -> dict[str, tuple[int, str]]:
    """Count and head by chain."""
    rows = db.execute("SELECT name, value FROM meta WHERE substr(name, 1, ?) = ?", (len(PREFIX), PREFIX))
    found = {}
    for name, value in rows:
        _, chain, of = name.split(" ", 2)
        if of == _plain(trail):
            count, head = json.loads(value)
            found[chain] = (int(count), str(head))
    return found


def write(db: sqlite3.Connection, trail: str, changed: Mapping[str, tuple[int, str]], gone: Iterable[str]) -> None:
    """Keep some, forget others."""
    db.executemany(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)",
        [(_name(chain, trail), json.dumps(list(head)).encode()) for chain, head in changed.items()],
    )
    db.executemany("DELETE FROM meta WHERE name = ?", [(_name(chain, trail),) for chain in gone])


def _name(chain: str, trail: str) -> str:
    return f"{PREFIX}{chain} {_plain(trail)}"


def _plain(trail: str) -> str:
    """As SQLite takes it."""
    return trail.encode("utf-8", "backslashreplace").decode()
