"""The search index inside the store's file: FTS5 without content, terms made by `recall.terms`.

Each original is one row: its distinct terms, and a term for its session, so that a search never walks through other
sessions' texts. What leaves has to be named term by term, so another way to make terms needs a new schema version,
which makes the index anew. Where this Python's SQLite lacks FTS5 there is no index, and a search looks for the words.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from jev_engine.recall.ranking import best, pick_terms
from jev_engine.recall.terms import terms_of
from jev_engine.store.blobs import body_of

__all__ = ["NO_FTS5", "add", "has_fts5", "has_terms", "line_of", "make", "remove", "search", "take_in", "waiting"]

NO_FTS5 = (
    "this store has no index, because the SQLite of this Python or of the one that made it lacks FTS5: the words "
    "themselves were looked for"
)
COMMON_DOCS = 256
"""Originals of a session from which on a term tells little: it is left out while others tell more. Of 1,000 originals a
quarter weighs a fifth of what a single one does, and reading them takes three times as long."""
PLAIN_ORIGINALS = 2_000
"""Newest originals that are looked through without an index, about 10 MB of text."""
# The joints that `recall.terms` leaves inside a term belong to it.
TABLE = (
    "CREATE VIRTUAL TABLE terms USING fts5("
    "line, content='', detail=none, columnsize=0, tokenize=\"ascii tokenchars '_.-/$'\")"
)


def has_fts5(db: sqlite3.Connection) -> bool:
    """Whether this SQLite can search; a file made with it may be opened by one without."""
    try:
        return bool(db.execute("SELECT sqlite_compileoption_used('ENABLE_FTS5')").fetchone()[0])
    except sqlite3.OperationalError:  # a build that does not tell how it was made
        return False


def make(db: sqlite3.Connection) -> None:
    """Create the index, where FTS5 is there."""
    if has_fts5(db):
        db.execute(TABLE)


def _is_there(db: sqlite3.Connection) -> bool:
    return has_fts5(db) and db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'terms'").fetchone() is not None


def has_terms(query: str) -> bool:
    """Whether there is anything to look for."""
    return bool(terms_of(query))


def line_of(text: str) -> str:
    """The distinct terms of a text in one line: what the index takes in, made before the file is locked."""
    return " ".join(terms_of(text))


def add(db: sqlite3.Connection, number: int, session: int, line: str) -> None:
    """Take in one original."""
    if not _is_there(db):
        return
    db.execute("INSERT INTO terms (rowid, line) VALUES (?, ?)", (number, f"${session} {line}"))
    db.execute("UPDATE originals SET terms = ? WHERE number = ?", (line.count(" ") + 1, number))


def add_many(db: sqlite3.Connection, rows: Sequence[tuple[int, int, str]]) -> None:
    """Take in originals: number, session and line of each."""
    if not _is_there(db):
        return
    db.executemany("INSERT INTO terms (rowid, line) VALUES (?, ?)", [(n, f"${s} {line}") for n, s, line in rows])
    db.executemany("UPDATE originals SET terms = ? WHERE number = ?", [(li.count(" ") + 1, n) for n, _, li in rows])


def waiting(db: sqlite3.Connection, chain: Sequence[int] | None, most: int) -> list[tuple[int, int, str | None]]:
    """Originals that were saved without being taken in, of some sessions or of all: number, session and text."""
    if not _is_there(db):
        return []
    marks = "" if chain is None else f" AND session IN ({','.join('?' * len(chain))})"
    found = db.execute(
        f"SELECT number, session, blob FROM originals WHERE terms = 0{marks} LIMIT ?",  # noqa: S608  # question marks
        (*(chain or ()), most),
    )
    return [(number, session, body_of(db, blob)) for number, session, blob in found.fetchall()]


def take_in(db: sqlite3.Connection, rows: Sequence[tuple[int, int, str | None]]) -> None:
    """Take in originals that waited, where nobody else has done so meanwhile; without a line there is no text."""
    still = [
        row
        for row in rows
        if db.execute("SELECT 1 FROM originals WHERE number = ? AND terms = 0", row[:1]).fetchone() is not None
    ]
    add_many(db, [(number, session, line) for number, session, line in still if line is not None])
    gone = [(number,) for number, _, line in still if line is None]
    db.executemany("UPDATE originals SET terms = -1 WHERE number = ?", gone)


def remove(db: sqlite3.Connection, number: int, session: int, blob: int) -> None:
    """Take out one original while its text is still there: FTS5 without content has to be told what it held."""
    if not _is_there(db):
        return
    held = db.execute("SELECT terms FROM originals WHERE number = ?", (number,)).fetchone()
    if held is not None and held[0] > 0 and (text := body_of(db, blob)) is not None:
        line = f"${session} {line_of(text)}"
        db.execute("INSERT INTO terms (terms, rowid, line) VALUES ('delete', ?, ?)", (number, line))


def tidy(db: sqlite3.Connection) -> None:
    """Merge the index, so that terms of originals that went are no longer in the file."""
    if _is_there(db):
        db.execute("INSERT INTO terms (terms) VALUES ('optimize')")


def search(db: sqlite3.Connection, chain: Sequence[int], query: str, limit: int) -> list[tuple[int, float]] | None:
    """Numbers and scores of the best originals of these sessions, best first; None where there is no index."""
    if not _is_there(db):
        return None
    owners = " OR ".join(f'"${number}"' for number in chain)
    postings = {}
    for term in pick_terms(terms_of(query)):
        match = f'({owners}) AND "{term}"'
        # Newest first: of a term that occurs everywhere only the newest originals are seen.
        rows = db.execute(
            "SELECT rowid FROM terms WHERE terms MATCH ? ORDER BY rowid DESC LIMIT ?", (match, COMMON_DOCS)
        )
        postings[term] = [number for (number,) in rows]
    telling = {term: found for term, found in postings.items() if len(found) < COMMON_DOCS and found}
    marks = ",".join("?" * len(chain))
    (count,) = db.execute(f"SELECT count(*) FROM originals WHERE session IN ({marks})", tuple(chain)).fetchone()  # noqa: S608

    def lengths(numbers: Sequence[int]) -> dict[int, int]:
        places = ",".join("?" * len(numbers))
        rows = db.execute(f"SELECT number, terms FROM originals WHERE number IN ({places})", tuple(numbers))  # noqa: S608
        return dict(rows.fetchall())

    return best(telling or postings, count, lengths, limit)


def plain_search(db: sqlite3.Connection, chain: Sequence[int], query: str, limit: int) -> list[tuple[int, float]]:
    """The same without an index: how many of the query's terms stand in a text, in its newest originals."""
    wanted = pick_terms(terms_of(query))
    marks = ",".join("?" * len(chain))
    rows = db.execute(
        f"SELECT number, blob FROM originals WHERE session IN ({marks}) ORDER BY number DESC LIMIT {PLAIN_ORIGINALS}",  # noqa: S608
        tuple(chain),
    )
    scored = []
    for number, blob in rows.fetchall():
        text = (body_of(db, blob) or "").lower()
        score = sum(term in text for term in wanted)
        if score:
            scored.append((number, float(score)))
    return sorted(scored, key=lambda each: (-each[1], -each[0]))[:limit]
