"""What the store's tables hold: every query, each inside a transaction that somebody else has opened."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jev_engine.errors import JevEngineError, OriginalExpired, OriginalNotFound, OriginalUnreadable, StoreError
from jev_engine.ledger import Ledger
from jev_engine.store import (
    Match,
    Original,
    OriginalStore,
    PassHead,
    PassRecord,
    Ranking,
    blobs,
    index,
    message_original,
)
from jev_engine.store.limits import KEPT, Limits, used_bytes

__all__ = [
    "Kept", "SessionStats", "Stats", "export", "find_passes", "find_session", "insert", "insert_pass", "known", "link",
    "load_ledger", "load_pass", "message_originals", "pack_pass", "prepare", "rank", "read", "read_secret",
    "save_ledger", "stats", "unused_since", "use_sessions", "waiting",
]  # fmt: skip

CHUNK = 500
"""Question marks of one statement; old builds of SQLite take 999."""
SAME_TEXTS = 4
"""A search asks for this many times the hits it needs, because copies of one text count once."""
LINE_SHARE = 0.35
"""Characters of a text's terms for one of the text, over the results of eight public sessions (2.9 million)."""
PACKED = 6
"""zlib level of records and ledgers, as of texts."""


class Kept(NamedTuple):
    """An original ready to be written."""

    original: Original
    blob: blobs.Blob
    line: str | None
    """For the index; None where it is taken in later."""
    size: int
    """Bytes it will take, about: its text, its terms, its row."""


class SessionStats(NamedTuple):
    """What is kept of one session."""

    name: str
    originals: int
    chars: int
    passes: int
    used_at: int
    since: int
    """When the oldest of its originals was saved, or its last use where it has none."""
    is_kept: bool
    """It does not expire by age, see `SqliteStore.keep`."""


class Stats(NamedTuple):
    """What is in a store. Bytes are those of the file; characters those of the originals, before compression."""

    path: str
    file_bytes: int
    used_bytes: int
    originals: int
    chars: int
    passes: int
    expired: int
    sessions: list[SessionStats]
    """The last used first."""


# --- originals --------------------------------------------------------------------------------------------------------


def prepare(original: Original, limits: Limits, *, index_later: bool = False) -> Kept | None:
    """The original as it will be written, or None where it is too large; raises StoreError for what is no text."""
    if not isinstance(original.text, str):
        raise StoreError(f"original {original.reference!r} is no text but {type(original.text).__name__}")
    if len(original.text) > limits.max_text_bytes:
        return None
    blob = blobs.blob_of(original.text)
    line = None if index_later else index.line_of(original.text)
    terms = len(original.text) * LINE_SHARE if line is None else len(line)
    size = len(blob.body) + int(terms) // 2 + 300
    reference, session, key, tool = map(_shown, original[:-1])
    return Kept(Original(reference, session, key, tool, original.text), blob, line, size)


def insert(db: sqlite3.Connection, kept: Sequence[Kept], now: float) -> None:
    """Write originals; those that are there already stay as they are."""
    sessions = use_sessions(db, dict.fromkeys(each.original.session for each in kept), now)
    added = []
    for each in kept:
        reference, session, key, tool, text = each.original
        if db.execute("SELECT 1 FROM originals WHERE reference = ?", (reference,)).fetchone() is not None:
            continue
        number = db.execute(
            "INSERT INTO originals (reference, session, key, tool, blob, chars, terms, saved_at)"
            " VALUES (?, ?, ?, ?, ?, ?, 0, ?)",
            (reference, sessions[session], key, tool, blobs.put(db, each.blob), len(text), int(now)),
        ).lastrowid
        if each.line is not None:
            added.append((number or 0, sessions[session], each.line))
    index.add_many(db, added)
    db.executemany("DELETE FROM expired WHERE reference = ?", [(each.original.reference,) for each in kept])


def message_originals(store: OriginalStore, session: str, messages: Sequence[Any]) -> list[Original]:
    """Messages as originals; raises StoreError where one is no plain JSON value."""
    try:
        # Signs as they are: two halves of a character written as escapes would come back as one.
        texts = [json.dumps(message, ensure_ascii=False) for message in messages]
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"a message is no plain JSON value, or nested too deep: {error}") from None
    return [message_original(store, session, text) for text in texts]


def read(db: sqlite3.Connection, reference: str, session: str | None) -> Original:
    """One original; raises OriginalNotFound, OriginalExpired or OriginalUnreadable."""
    # A reference may come from a model: half a character in it is no fault of the store.
    shown = _shown(reference)
    chain = None if session is None else _chain(db, session)
    row = db.execute(
        "SELECT o.session, s.name, o.key, o.tool, o.blob FROM originals o JOIN sessions s ON s.number = o.session"
        " WHERE o.reference = ?",
        (shown,),
    ).fetchone()
    if row is not None and (chain is None or row[0] in chain):
        try:
            return Original(shown, row[1], row[2], row[3], blobs.get(db, row[4]))
        except OriginalUnreadable as error:
            raise OriginalUnreadable(f"original {shown!r}: {error}") from None
    gone = db.execute("SELECT session FROM expired WHERE reference = ?", (shown,)).fetchone()
    if gone is not None and (chain is None or gone[0] in chain):
        raise OriginalExpired(
            f"original {shown!r} has expired: its session was unused for longer than the store keeps one, or the store"
            " was full"
        )
    raise OriginalNotFound(f"no original goes by {reference[:40]!r}")


def known(db: sqlite3.Connection, references: list[str]) -> dict[str, tuple[str, int]]:
    """Unit key and length of those that are there."""
    found: dict[str, tuple[str, int]] = {}
    wanted = list(map(_shown, references))
    for start in range(0, len(wanted), CHUNK):
        part = wanted[start : start + CHUNK]
        marks = ",".join("?" * len(part))
        rows = db.execute(f"SELECT reference, key, chars FROM originals WHERE reference IN ({marks})", part)  # noqa: S608  # only question marks
        found.update({reference: (key, chars) for reference, key, chars in rows})
    return found


def waiting(db: sqlite3.Connection, session: str | None, most: int) -> list[tuple[int, int, str | None]]:
    """Originals that the index has not taken in yet, of a session and those it was linked to, or of all."""
    return index.waiting(db, None if session is None else _chain(db, session), most)


def rank(db: sqlite3.Connection, session: str, query: str, limit: int) -> Ranking:
    """The originals of a session that fit a query best."""
    chain = _chain(db, session)
    if not chain or not index.has_terms(query):
        return Ranking([])
    found = index.search(db, chain, query, limit * SAME_TEXTS)
    note = "" if found is not None else index.NO_FTS5
    if found is None:
        found = index.plain_search(db, chain, query, limit * SAME_TEXTS)
    matches: list[Match] = []
    seen: set[int] = set()
    for number, score in found:
        row = db.execute("SELECT reference, tool, chars, blob FROM originals WHERE number = ?", (number,)).fetchone()
        if row is not None and row[3] not in seen and len(matches) < limit:
            seen.add(row[3])
            matches.append(Match(row[0], row[1], row[2], score))
    return Ranking(matches, note)


def export(db: sqlite3.Connection, take: Callable[[dict[str, Any]], None], session: str | None) -> int:
    """Hand out every original that can be read, oldest first."""
    owner = None if session is None else find_session(db, session)
    rows = db.execute(
        "SELECT o.reference, s.name, o.key, o.tool, o.saved_at, o.blob FROM originals o"
        " JOIN sessions s ON s.number = o.session WHERE ? IS NULL OR s.number = ? ORDER BY o.number",
        (owner, owner),
    )
    names = ("reference", "session", "key", "tool", "saved_at")
    count = 0
    for *facts, blob in rows:
        text = blobs.body_of(db, blob)
        if text is not None:
            take({**dict(zip(names, facts, strict=True)), "text": text})
            count += 1
    return count


# --- passes -----------------------------------------------------------------------------------------------------------


def pack_pass(record: PassRecord, path: Path) -> tuple[bytes, dict[bytes, blobs.Blob]]:
    """The record as it is written, and the texts it shares; raises StoreError for what is no plain JSON value."""
    found: dict[bytes, blobs.Blob] = {}
    packed = record._asdict()
    try:
        packed["originals"] = [[row, blobs.pack(value, found)] for row, value in record.originals.items()]
        body = json.dumps(packed, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"store {str(path)!r}: a message is no plain JSON value, or nested too deep: {error}"
        ) from None
    return zlib.compress(body, PACKED), found


def insert_pass(
    db: sqlite3.Connection, record: PassRecord, packed: tuple[bytes, dict[bytes, blobs.Blob]], now: float
) -> None:
    """Write a record and the texts that are not there yet."""
    (session,) = use_sessions(db, [record.session], now).values()
    body, texts = packed
    number = db.execute(
        "INSERT INTO passes (session, anchor, rows_out, sketch, record, saved_at) VALUES (?, ?, ?, ?, ?, ?)",
        (session, record.anchor, record.rows_out, record.sketch, body, int(now)),
    ).lastrowid
    db.executemany(
        "INSERT OR IGNORE INTO pass_blobs VALUES (?, ?)", [(number, blobs.put(db, b)) for b in texts.values()]
    )


def find_passes(db: sqlite3.Connection, anchor: str, most_rows: int | None) -> list[PassHead]:
    """Heads of the records, newest first: no record is unpacked for it."""
    rows = db.execute(
        "SELECT number, rows_out, sketch FROM passes WHERE anchor = ? AND (? IS NULL OR rows_out <= ?)"
        " ORDER BY number DESC",
        (anchor, most_rows, most_rows),
    )
    return [PassHead(*row) for row in rows]


def load_pass(db: sqlite3.Connection, number: int) -> PassRecord:
    """One record with its texts."""
    row = db.execute("SELECT record FROM passes WHERE number = ?", (number,)).fetchone()
    if row is None:
        raise OriginalNotFound(f"no pass has the number {number}")
    try:
        data = json.loads(zlib.decompress(row[0]).decode("utf-8", "surrogatepass"))
    except (zlib.error, ValueError):
        raise OriginalUnreadable(f"the record of pass {number} is damaged") from None
    data["originals"] = {place: blobs.unpack(db, value) for place, value in data["originals"]}
    return PassRecord(**data)


# --- sessions ---------------------------------------------------------------------------------------------------------


def read_secret(db: sqlite3.Connection) -> bytes:
    """What references are keyed with."""
    (secret,) = db.execute("SELECT value FROM meta WHERE name = 'secret'").fetchone()
    return bytes(secret)


def use_sessions(db: sqlite3.Connection, names: Iterable[str], now: float) -> dict[str, int]:
    """Numbers of sessions, which are in use from now on; new ones are noted."""
    found = {}
    for name in map(_shown, names):
        db.execute("INSERT OR IGNORE INTO sessions (name, used_at) VALUES (?, ?)", (name, int(now)))
        db.execute("UPDATE sessions SET used_at = max(used_at, ?) WHERE name = ?", (int(now), name))
        (found[name],) = db.execute("SELECT number FROM sessions WHERE name = ?", (name,)).fetchone()
    return found


def unused_since(db: sqlite3.Connection, names: Iterable[str], before: float) -> list[str]:
    """Those of these sessions that were used last before a time; those of which nothing is left are not named."""
    question = "SELECT 1 FROM sessions WHERE name = ? AND used_at > 0 AND used_at < ?"
    return [name for name in names if db.execute(question, (_shown(name), before)).fetchone() is not None]


def find_session(db: sqlite3.Connection, name: str) -> int:
    """The number of a session; raises OriginalNotFound."""
    row = db.execute("SELECT number FROM sessions WHERE name = ?", (_shown(name),)).fetchone()
    if row is None:
        raise OriginalNotFound(f"no session goes by {name[:80]!r}")
    return int(row[0])


def _chain(db: sqlite3.Connection, name: str) -> list[int]:
    """A session and those it was linked to, nearest first; a loop ends where it began."""
    rows = db.execute(
        "WITH RECURSIVE chain (number) AS (SELECT number FROM sessions WHERE name = ?"
        " UNION SELECT parent FROM sessions JOIN chain USING (number) WHERE parent IS NOT NULL)"
        " SELECT number FROM chain",
        (_shown(name),),
    )
    return [number for (number,) in rows]


def link(db: sqlite3.Connection, new: str, old: str, now: float) -> None:
    """Make `old` the one `new` came from, once; a session that has a parent keeps it."""
    new, old = _shown(new), _shown(old)
    numbers = use_sessions(db, (new, old), now)
    if new == old or numbers[new] in _chain(db, old):
        return
    (parent,) = db.execute("SELECT parent FROM sessions WHERE name = ?", (new,)).fetchone()
    if parent is not None:
        return
    db.execute("UPDATE sessions SET parent = ? WHERE name = ?", (numbers[old], new))
    if (ledger := load_ledger(db, old)) is not None:
        save_ledger(db, new, ledger, now)


def save_ledger(db: sqlite3.Connection, session: str, ledger: Mapping[str, Any], now: float) -> None:
    """Join a ledger to the session's."""
    session = _shown(session)
    use_sessions(db, [session], now)
    try:
        joined = Ledger.from_json(ledger)
        if (before := load_ledger(db, session)) is not None:
            joined = Ledger.from_json(before).merge(joined)
    except JevEngineError as error:
        raise StoreError(f"the ledger of session {session[:80]!r} cannot be saved: {error}") from None
    body = json.dumps(joined.to_json(), ensure_ascii=False).encode("utf-8", "surrogatepass")
    db.execute("UPDATE sessions SET ledger = ? WHERE name = ?", (zlib.compress(body, PACKED), session))


def load_ledger(db: sqlite3.Connection, session: str) -> dict[str, Any] | None:
    """The session's ledger as plain JSON."""
    row = db.execute("SELECT ledger FROM sessions WHERE name = ?", (_shown(session),)).fetchone()
    if row is None or row[0] is None:
        return None
    found: dict[str, Any] = json.loads(zlib.decompress(row[0]).decode("utf-8", "surrogatepass"))
    return found


def stats(db: sqlite3.Connection, path: Path, session: str | None) -> Stats:
    """What is in the file, of all sessions in it or of one."""
    owner = None if session is None else find_session(db, session)
    rows = db.execute(
        "SELECT s.name, count(o.number), coalesce(sum(o.chars), 0),"
        " (SELECT count(*) FROM passes WHERE session = s.number), s.used_at, coalesce(min(o.saved_at), s.used_at),"
        " EXISTS (SELECT 1 FROM meta WHERE meta.name = ? || s.number)"
        " FROM sessions s LEFT JOIN originals o ON o.session = s.number"
        " WHERE (? IS NULL AND s.used_at > 0) OR s.number = ?"
        " GROUP BY s.number ORDER BY s.used_at DESC, s.number DESC",
        (KEPT, owner, owner),
    )
    found = [SessionStats(*row)._replace(is_kept=bool(row[-1])) for row in rows]
    (expired,) = db.execute("SELECT count(*) FROM expired WHERE ? IS NULL OR session = ?", (owner, owner)).fetchone()
    return Stats(
        str(path),
        path.stat().st_size,
        used_bytes(db),
        sum(each.originals for each in found),
        sum(each.chars for each in found),
        sum(each.passes for each in found),
        expired,
        found,
    )


def _shown(text: str) -> str:
    """A name as SQLite takes it: half a character as its escape, so that two names stay two."""
    return text.encode("utf-8", "backslashreplace").decode()
