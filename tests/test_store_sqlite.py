"""Originals in a file: for this user only, safe at once, honest about damage."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from passing import compress, long_text

from jev_engine.errors import OriginalNotFound, OriginalUnreadable, StoreError
from jev_engine.store import Original, PassRecord
from jev_engine.store.schema import SCHEMA_VERSION
from jev_engine.store.sqlite import SqliteStore
from jev_engine.testing import call, history, result, user


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "jev-engine" / "originals.sqlite3")


def original(store: SqliteStore, text: str = "text", key: str = "k") -> Original:
    return Original(store.reference("s", key), "s", key, "read", text)


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
async def test_folder_and_files_belong_to_this_user_only(store: SqliteStore, umask: int) -> None:
    """A32: 0700 and 0600 whatever the umask, for the files SQLite puts beside it too."""
    before = os.umask(umask)
    try:
        await store.save([original(store)])
        modes = {path.name: mode(path) for path in store.path.parent.iterdir()}
        with closing(sqlite3.connect(store.path)) as db, db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO meta VALUES ('x', 'y')")
            modes |= {path.name: mode(path) for path in store.path.parent.iterdir()}
        db.close()
    finally:
        os.umask(before)

    assert mode(store.path.parent) == "0o700"
    assert set(modes.values()) == {"0o600"}
    assert any(name.endswith("-wal") for name in modes)


async def test_nothing_is_created_before_the_first_write(store: SqliteStore) -> None:
    """Reading, asking and restoring leave no trace."""
    assert await store.known(["jx-0000000000000000"]) == {}
    assert await store.find_passes("a") == []
    with pytest.raises(OriginalNotFound):
        await store.read("jx-0000000000000000")

    assert not store.path.parent.exists()


def test_a_pass_that_takes_nothing_out_creates_nothing(store: SqliteStore) -> None:
    """Neither does a dry run."""
    messages = history(user("Go."), call("a"), result(long_text("a")), user("On."))
    compress(messages, lambda _: (1.0, 1.0), engine={"store": store}, pin_newest_calls=0)
    compress(messages, lambda _: (1.0, 0.0), engine={"store": store}, pin_newest_calls=0, options={"dry_run": True})

    assert not store.path.parent.exists()


async def test_originals_survive_the_process_that_saved_them(store: SqliteStore) -> None:
    """References too: the secret lives in the file."""
    saved = original(store, "half \ud83d, NUL \0, CRLF \r\n")
    await store.save([saved])
    again = SqliteStore(store.path)

    assert await again.read(saved.reference, session="s") == saved
    assert again.reference("s", "k") == saved.reference


async def test_references_of_two_files_differ(tmp_path: Path) -> None:
    """Nobody can guess the reference of somebody else's original."""
    one, two = SqliteStore(tmp_path / "a" / "o.sqlite3"), SqliteStore(tmp_path / "b" / "o.sqlite3")

    assert one.reference("s", "k") != two.reference("s", "k")


async def test_a_newer_schema_is_refused_and_left_alone(store: SqliteStore) -> None:
    """With what to do about it, on reading and on writing."""
    saved = original(store)
    await store.save([saved])
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    for work in (store.read(saved.reference), store.save([saved]), store.known([saved.reference])):
        with pytest.raises(StoreError, match=r"newer version of jev-engine.*update"):
            await work


WRITER = """
import sys, anyio
from jev_engine.store import Original
from jev_engine.store.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
async def main():
    for n in range(25):
        key = f"{sys.argv[2]}-{n}"
        await store.save([Original(store.reference("s", key), "s", key, "read", key * 100)])
        store._secret = None
anyio.run(main)
"""


def test_processes_that_write_at_once_lose_nothing(store: SqliteStore) -> None:
    """From the creation of the file on, with one secret between them."""
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(store.path), name], stderr=subprocess.PIPE, text=True)
        for name in ("a", "b", "c", "d")
    ]
    errors = [writer.communicate(timeout=120)[1] for writer in writers]
    wanted = {store.reference("s", f"{name}-{n}") for name in "abcd" for n in range(25)}

    assert errors == ["", "", "", ""]
    assert set(anyio.run(store.known, wanted)) == wanted


DAMAGE = {
    "another text": "UPDATE blobs SET body = (SELECT body FROM blobs ORDER BY length(body) LIMIT 1)",
    "cut short": "UPDATE blobs SET body = substr(body, 1, length(body) - 4)",
    "no text at all": "UPDATE blobs SET body = x''",
    "gone": "DELETE FROM blobs",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
async def test_a_damaged_original_is_unreadable_and_not_unknown(store: SqliteStore, damage: str) -> None:
    """G13: three different plain answers; never other bytes."""
    saved = original(store, "a long text " * 99)
    await store.save([saved, original(store, "short", key="other")])
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute(damage)
    db.close()
    with pytest.raises(OriginalUnreadable):
        await store.read(saved.reference)
    with pytest.raises(OriginalNotFound):
        await store.read(saved.reference, session="another session")


@pytest.mark.parametrize("content", [b"", b"not a database" * 400], ids=["empty", "something else"])
async def test_a_file_that_is_no_store_is_an_error_of_ours(store: SqliteStore, content: bytes) -> None:
    """An empty one is filled; anything else stays as it is."""
    store.path.parent.mkdir()
    store.path.write_bytes(content)
    if content:
        with pytest.raises(StoreError):
            await store.known(["jx-0000000000000000"])
        with pytest.raises(StoreError):
            await store.save_pass(PassRecord("s", "a", "k", 1, 1, [], {}))
        assert store.path.read_bytes() == content
    else:
        await store.save([original(store)])

        assert len(await store.known([store.reference("s", "k")])) == 1


def blocked(tmp_path: Path) -> Path:
    """A place no file can be made at, for root as well: its folder is a file."""
    (tmp_path / "file").write_text("in the way")
    return tmp_path / "file" / "originals.sqlite3"


async def test_where_nothing_can_be_written_saving_is_an_error_of_ours(tmp_path: Path) -> None:
    """It names the place and what to check."""
    store = SqliteStore(blocked(tmp_path))
    with pytest.raises(StoreError, match="check the folder's permissions"):
        await store.save_pass(PassRecord("s", "a", "k", 1, 1, [], {}))


def test_where_nothing_can_be_written_every_unit_stays(tmp_path: Path) -> None:
    """The pass gives the input object back."""
    messages = history(user("Go."), call("a"), result(long_text("a")), user("On."))
    store = SqliteStore(blocked(tmp_path))
    done = compress(messages, lambda _: (1.0, 0.0), engine={"store": store}, pin_newest_calls=0)

    assert done.messages is messages
    assert done.outcome == "failed"
    assert "StoreError" in done.reason


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_read_only_folder_can_still_be_read(store: SqliteStore) -> None:
    """A session on a read-only disk gets its originals back."""
    saved = original(store)
    await store.save([saved])
    store.path.parent.chmod(0o500)
    try:
        assert await store.read(saved.reference) == saved
        with pytest.raises(StoreError):
            await store.save([original(store, "more", key="l")])
    finally:
        store.path.parent.chmod(0o700)


async def test_equal_texts_are_stored_once_and_small(store: SqliteStore) -> None:
    """By content, compressed."""
    text = long_text("a", 100_000)
    await store.save([original(store, text, key=f"k{n}") for n in range(50)])

    assert sum(path.stat().st_size for path in store.path.parent.iterdir()) < 400_000


async def test_a_failed_save_saves_nothing(store: SqliteStore) -> None:
    """One transaction: the originals of a pass are safe together or not at all."""
    good = original(store)
    bad: Any = good._replace(reference="jx-2", text=None)
    with pytest.raises((StoreError, AttributeError)):
        await store.save([good, bad])

    assert await store.known([good.reference]) == {}


async def test_a_copy_of_the_file_is_a_store(store: SqliteStore, tmp_path: Path) -> None:
    """What was saved is in the file, not only beside it, once nobody has it open."""
    saved = original(store)
    await store.save([saved])
    copy = tmp_path / "copy.sqlite3"
    shutil.copy(store.path, copy)

    assert await SqliteStore(copy).read(saved.reference) == saved
