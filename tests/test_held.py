"""The connection that stays open writes to the file that is there, and is closed with its owner."""

from __future__ import annotations

import gc
import os
import sqlite3
from pathlib import Path

import pytest

from jev_engine.audit.anchor import StoreAnchor
from jev_engine.audit.chain import Head
from jev_engine.store.database import Database, Held
from jev_engine.store.sqlite import SqliteStore


@pytest.fixture
def anchor(tmp_path: Path) -> StoreAnchor:
    return StoreAnchor(SqliteStore(tmp_path / "o.sqlite3"), tmp_path / "trail.jsonl")


def again(folder: Path) -> dict[str, Head]:
    """What another process would read."""
    return StoreAnchor(SqliteStore(folder / "o.sqlite3"), folder / "trail.jsonl").read()


def test_what_changed_is_written_and_what_went_is_forgotten(anchor: StoreAnchor, tmp_path: Path) -> None:
    anchor.write({"a": Head(1, "x"), "b": Head(2, "y")})
    anchor.write({"a": Head(3, "z")})

    assert again(tmp_path) == {"a": Head(3, "z")}


def test_two_trails_of_one_store_do_not_see_each_other(anchor: StoreAnchor, tmp_path: Path) -> None:
    other = StoreAnchor(SqliteStore(tmp_path / "o.sqlite3"), tmp_path / "trail.jsonl 2")
    anchor.write({"a": Head(1, "x")})
    other.write({"a": Head(9, "y")})

    assert again(tmp_path) == {"a": Head(1, "x")}


def test_a_file_that_was_moved_away_is_left_alone(anchor: StoreAnchor, tmp_path: Path) -> None:
    anchor.write({"a": Head(1, "x")})
    (tmp_path / "o.sqlite3").rename(tmp_path / "old.sqlite3")
    anchor.write({"a": Head(2, "y"), "b": Head(1, "z")})

    assert again(tmp_path)["b"] == Head(1, "z")


def test_an_owner_that_goes_closes_it(tmp_path: Path) -> None:
    anchor = StoreAnchor(SqliteStore(tmp_path / "o.sqlite3"), tmp_path / "trail.jsonl")
    anchor.write({"a": Head(1, "x")})
    connection = anchor._store._held._db
    assert connection is not None
    del anchor
    gc.collect()

    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_writes_with_a_connection_of_its_own(anchor: StoreAnchor, tmp_path: Path) -> None:
    anchor.write({"a": Head(1, "x")})
    child = os.fork()
    if child == 0:
        try:
            anchor.write({"a": Head(2, "y")})
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert again(tmp_path) == {"a": Head(2, "y")}

    anchor.write({"a": Head(3, "z")})
    assert again(tmp_path) == {"a": Head(3, "z")}


def test_small_writes_do_not_wait_for_the_disk_but_originals_do(tmp_path: Path) -> None:
    modes: list[int] = []

    def look(db: sqlite3.Connection) -> None:
        modes.append(db.execute("PRAGMA synchronous").fetchone()[0])

    database = Database(tmp_path / "o.sqlite3", 1.0, 10**9)
    Held(database).run(look)
    database.run(look, write=True)

    assert modes == [1, 2]  # NORMAL, FULL
