"""A store that saves first and takes texts in for the search afterwards: nothing is lost to a search."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing

import pytest

from jev_engine.store import Original
from jev_engine.store.sqlite import SqliteStore
from jev_engine.testing import check_store

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(tmp_path):
    """A store that indexes later."""
    made = SqliteStore(tmp_path / "originals.sqlite3")
    made.index_later = True
    return made


def originals(store, *texts, session="s1"):
    """Originals of a session."""
    return [Original(store.reference(session, f"k{t}"), session, f"k{t}", "read", t) for t in texts]


def waiting(store):
    """How many texts no search has seen yet."""
    with closing(sqlite3.connect(store.path)) as db:
        return db.execute("SELECT count(*) FROM originals WHERE terms = 0").fetchone()[0]


async def test_the_contract_of_a_store_holds(tmp_path):
    """Searching included: a search takes in what waits."""
    made = iter(range(1_000))

    def fresh():
        store = SqliteStore(tmp_path / f"{next(made)}.sqlite3")
        store.index_later = True
        return store

    report = await check_store(fresh)

    assert report.ok, str(report)


async def test_a_search_finds_what_was_never_taken_in(store):
    """Also in another process, after the one that saved it has gone."""
    await store.save(originals(store, "the parser reads tokens", "the weather is fine"))
    assert waiting(store) == 2

    found = await SqliteStore(store.path).rank("s1", "parser tokens", 3)

    assert [match.chars for match in found.matches] == [len("the parser reads tokens")]
    assert waiting(store) == 0


async def test_only_the_session_that_is_searched_has_to_wait(store):
    """Others are taken in when somebody asks."""
    await store.save([*originals(store, "alpha beta"), *originals(store, "gamma delta", session="s2")])

    await store.rank("s1", "alpha", 3)

    assert waiting(store) == 1
    assert store.finish_index() == 1
    assert store.finish_index() == 0


async def test_what_waits_can_be_purged(store):
    """An index without content must not be told to forget what it never held."""
    await store.save([*originals(store, "alpha beta"), *originals(store, "alpha gamma", session="s2")])
    store.finish_index("s2")

    await store.purge("s1")

    assert [match.chars for match in (await store.rank("s2", "alpha", 3)).matches] == [len("alpha gamma")]
    assert (await store.rank("s1", "alpha", 3)).matches == []


async def test_a_text_that_cannot_be_read_does_not_stop_the_others(store):
    """It is passed over, once and for all."""
    await store.save(originals(store, "alpha " * 50, "beta " * 50))
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE blobs SET body = x'00' WHERE number = 1")

    assert store.finish_index() == 2
    assert store.finish_index() == 0
    assert len((await store.rank("s1", "beta", 3)).matches) == 1


async def test_two_that_finish_at_once_take_each_text_in_once(store):
    """The background thread, and a search."""
    await store.save(originals(store, *(f"word{n} common" for n in range(250))))

    threads = [threading.Thread(target=store.finish_index) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with closing(sqlite3.connect(store.path)) as db:
        assert db.execute("SELECT count(*) FROM terms WHERE terms MATCH 'word7'").fetchone()[0] == 1
    assert waiting(store) == 0
