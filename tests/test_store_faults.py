"""Files that are locked, odd, old, or used by many at once: a clear outcome, and nothing lost."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import zlib
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from stored_originals import naming, original, texts_in

from jev_engine import ContextEngine, make_config
from jev_engine.errors import OriginalNotFound, OriginalUnreadable, StoreError
from jev_engine.ledger import Ledger
from jev_engine.recall.search import search
from jev_engine.store import Original, PassRecord
from jev_engine.store.expand import expand
from jev_engine.store.schema import SCHEMA_VERSION, check_owner
from jev_engine.store.sqlite import SqliteStore
from jev_engine.testing import ScriptedJudge, call, history, result, user


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jev-engine" / "originals.sqlite3"


# --- faults -----------------------------------------------------------------------------------------------------------


async def test_a_file_somebody_else_holds_is_waited_for_and_then_told(path: Path) -> None:
    """Not "database is locked" alone: what to do, and the setting."""
    store = SqliteStore(path, busy_seconds=0.05)
    saved = original(store, "s", "k")
    await store.save([saved])
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreError, match=r"another process holds it.*busy_seconds"):
            await store.save([original(store, "s", "l")])
        assert await store.read(saved.reference) == saved
    finally:
        holder.close()
    await store.save([original(store, "s", "l")])

    assert (await store.stats()).originals == 2


async def test_while_another_process_holds_the_file_the_event_loop_goes_on(path: Path) -> None:
    """A pass of a new engine waits in a thread, from its first look at the file on."""
    messages = history(user("Go."), call("read"), result("line\n" * 2_000), user("On."))
    await SqliteStore(path).save([original(SqliteStore(path), "s", "k")])
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    engine = ContextEngine(
        judge=ScriptedJudge(lambda _call: (1.0, 0.0)),
        store=SqliteStore(path, busy_seconds=20),
        config=make_config(pin_newest_calls=0),
    )
    outcomes = []

    async def compress() -> None:
        outcomes.append((await engine.compress(messages)).outcome)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(compress)
            await anyio.wait_all_tasks_blocked()
            holder.close()  # which only a loop that goes on can do

    assert outcomes == ["committed"]


FOREIGN = {
    "with tables": ["CREATE TABLE bookmarks (url TEXT)"],
    "with a version like ours": ["CREATE TABLE meta (name TEXT)", f"PRAGMA user_version = {SCHEMA_VERSION}"],
    "without anything yet": ["PRAGMA user_version = 7"],
    "with a name": ["PRAGMA application_id = 252006673"],
    "with a view": ["CREATE VIEW one AS SELECT 1"],
}


@pytest.mark.parametrize("kind", FOREIGN)
async def test_the_database_of_another_program_is_left_as_it_is(tmp_path: Path, kind: str) -> None:
    """Neither read as an empty store nor written to, not even in its header."""
    path = tmp_path / "places.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        for statement in FOREIGN[kind]:
            db.execute(statement)
    db.close()
    before = path.read_bytes()
    store = SqliteStore(path)
    for work in (
        lambda: to_thread.run_sync(store.reference, "s", "k"),
        lambda: store.save_ledger("s", Ledger().to_json()),
        lambda: store.read("jx-1"),
        store.check,
        lambda: to_thread.run_sync(store.keep_heads, "trail", {"all": (1, "head")}, ()),
        store.prune,
    ):
        with pytest.raises(StoreError, match=r"database of another program.*name another file"):
            await work()

    assert path.read_bytes() == before
    assert not path.with_name(path.name + "-wal").exists()


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_file_that_becomes_a_store_while_it_is_looked_at_is_one(path: Path, number: int) -> None:
    """Another process makes it before any of the statements that look whose it is: nothing is refused."""

    class Interrupted(sqlite3.Connection):
        statements = 0

        def execute(self, *given: Any) -> sqlite3.Cursor:
            self.statements += 1
            if self.statements == number:
                SqliteStore(path).reference("s", "k")
            return super().execute(*given)

    path.parent.mkdir()
    with closing(sqlite3.connect(path, factory=Interrupted)) as db:
        check_owner(db, path)


def test_a_store_says_whose_it_is(path: Path) -> None:
    """In its header, where programs that look at files find it."""
    SqliteStore(path).reference("s", "k")

    assert path.read_bytes()[68:72] == b"jeve"


def damage_last_page(path: Path) -> None:
    """Where its rows begin is no longer true."""
    body = bytearray(path.read_bytes())
    body[-4_096 + 8 : -4_096 + 24] = b"\xff" * 16
    path.write_bytes(body)


async def test_damage_is_found(path: Path) -> None:
    """By reading all of it; a file that is whole has none, and neither has one that is not there."""
    store = SqliteStore(path)
    nothing = await store.check()
    await store.save([original(store, "s", f"k{number}") for number in range(200)])
    whole = await store.check()
    damage_last_page(path)

    assert (nothing, whole) == ([], [])
    assert await store.check()


async def test_a_path_no_file_can_have_is_an_error_of_ours(tmp_path: Path) -> None:
    """On asking, reading and writing alike."""
    store = SqliteStore(tmp_path / ("x" * 5_000))
    record = PassRecord("s", "a", "k", 1, 1, [], {})
    for work in (store.known(["jx-1"]), store.read("jx-1"), store.find_passes("a"), store.save_pass(record)):
        with pytest.raises(StoreError, match="too long; name another file"):
            await work
    with pytest.raises(StoreError):
        await SqliteStore(tmp_path / "a\0b").save_pass(record)


async def test_what_is_no_plain_json_cannot_be_stored_as_a_message(path: Path) -> None:
    """All or none."""
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="no plain JSON"):
        await store.save_messages("s", [{"content": "fine"}, {"content": object()}])

    assert (await store.stats()).originals == 0


async def test_a_ledger_that_is_none_is_refused_and_the_old_one_stays(path: Path) -> None:
    """Of a newer version, or of something else."""
    store = SqliteStore(path)
    await store.save_ledger("s", naming(original(store, "s", "k")))
    before = await store.load_ledger("s")
    for bad in ({}, {"version": 99, "entries": []}, {"version": 1, "entries": [["k"]]}):
        with pytest.raises(StoreError):
            await store.save_ledger("s", bad)

    assert await store.load_ledger("s") == before


async def test_a_file_without_an_index_is_searched_word_by_word(path: Path) -> None:
    """As where SQLite lacks FTS5; the note says so."""
    store = SqliteStore(path)
    await store.save([original(store, "s", "k", "def parse_row(header): pass"), original(store, "s", "l", "other")])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DROP TABLE terms")
    db.close()
    await store.save([original(store, "s", "m", "row of houses")])
    found = await search(store, "s", "parse row")

    assert [hit.text for hit in found.hits] == ["def parse_row(header): pass", "row of houses"]
    assert "FTS5" in found.note
    assert "FTS5" in found.shown


# --- files of the version before --------------------------------------------------------------------------------------

OLD_SCHEMA = """
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


def make_old_file(path: Path) -> None:
    """A store of version 1: two originals, one whose text is gone, a pass that shares a text, a damaged record."""
    path.parent.mkdir(parents=True)
    db = sqlite3.connect(path)
    db.executescript(OLD_SCHEMA)
    db.execute("INSERT INTO meta VALUES ('secret', ?)", (b"s" * 32,))

    def put(text: str) -> bytes:
        raw = text.encode("utf-8", "surrogatepass")
        digest = blake2b(raw, digest_size=16).digest()
        db.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (digest, zlib.compress(raw)))
        return digest

    rows = [("jx-1", "s", "k1", put("parse_row: half \ud83d"), 18), ("jx-2", "t", "k2", put("of another"), 10)]
    rows.append(("jx-3", "s", "k3", b"gone", 4))
    db.executemany("INSERT INTO originals VALUES (?, ?, ?, 'read', ?, ?, unixepoch())", rows)
    shared = "\0blob:" + put("shared " * 99).hex()
    record = {"session": "s", "anchor": "a", "sketch": "k", "rows_in": 2, "rows_out": 1, "removed": [1],
              "originals": [[1, {"content": shared}]]}  # fmt: skip
    for body in (zlib.compress(json.dumps(record).encode()), b"damaged"):
        db.execute("INSERT INTO passes (session, anchor, record) VALUES ('s', 'a', ?)", (body,))
    db.execute("PRAGMA user_version = 1")
    db.commit()
    db.close()


@pytest.mark.parametrize("first", ["read", "write"])
async def test_a_file_of_the_version_before_is_brought_up_to_date(path: Path, first: str) -> None:
    """On the first use, whatever it is: originals, passes, search, and the references it gives."""
    make_old_file(path)
    store = SqliteStore(path)
    if first == "write":
        await store.save([original(store, "s", "new")])
    found = await store.read("jx-1", session="s")
    (head,) = await store.find_passes("a", 1)

    assert found == Original("jx-1", "s", "k1", "read", "parse_row: half \ud83d")
    assert (await store.load_pass(head.number)).originals == {1: {"content": "shared " * 99}}
    assert head.sketch == "k"
    with pytest.raises(OriginalUnreadable):
        await store.read("jx-3")
    with pytest.raises(OriginalNotFound):
        await store.read("jx-2", session="s")
    assert [match.reference for match in (await store.rank("s", "parse", 3)).matches] == ["jx-1"]
    key = blake2b(b"s\0k", key=b"s" * 32, digest_size=8).hexdigest()
    assert store.reference("s", "k") == f"jx-{key}"
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


async def test_texts_of_a_file_brought_up_to_date_go_with_their_sessions(path: Path) -> None:
    """Shared texts only when nothing holds them any more."""
    make_old_file(path)
    store = SqliteStore(path)
    await store.purge("s")

    assert texts_in(path) == 1
    assert (await store.read("jx-2")).text == "of another"


# --- many at once -----------------------------------------------------------------------------------------------------

WORKER = """
import sys, anyio
from jev_engine.ledger import Ledger, LedgerEntry
from jev_engine.store import Original
from jev_engine.store.sqlite import SqliteStore
path, me = sys.argv[1:]
async def session(number):
    store, name = SqliteStore(path), f"session-{number}"
    for turn in range(4):
        keys = [f"{me}-{turn}-{n}" for n in range(5)]
        made = [Original(store.reference(name, k), name, k, "read", f"{k} of {name} " * 50) for k in keys]
        assert len(await store.save(made)) == 5
        entries = [LedgerEntry(o.key, "truncate", o.reference, "[out]", 1) for o in made]
        await store.save_ledger(name, Ledger.of(entries).to_json())
        for each in made:
            assert await store.read(each.reference, session=name) == each
        assert (await store.rank(name, f"what is of {name}", 3)).matches
async def main():
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(session, number)
anyio.run(main)
"""


@pytest.mark.slow
def test_twenty_sessions_in_two_processes_lose_nothing(path: Path) -> None:
    """From the creation of the file on; no original is lost or foreign, no "database is locked" reaches anybody."""
    command = [sys.executable, "-c", WORKER, str(path)]
    workers = [subprocess.Popen([*command, me], stderr=subprocess.PIPE, text=True) for me in ("a", "b")]
    errors = [worker.communicate(timeout=300)[1] for worker in workers]
    store = SqliteStore(path)

    async def check() -> None:
        for number in range(20):
            name = f"session-{number}"
            keys = [f"{me}-{turn}-{n}" for me in "ab" for turn in range(4) for n in range(5)]
            ledger = Ledger.from_json(await store.load_ledger(name))
            assert set(ledger.by_key) == set(keys)
            for key in keys:
                page = await expand(store, name, store.reference(name, key))
                assert page.text == f"{key} of {name} " * 50
                foreign = await expand(store, f"session-{(number + 1) % 20}", store.reference(name, key))
                assert foreign.status == "unknown"

    assert errors == ["", ""]
    anyio.run(check)
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()
