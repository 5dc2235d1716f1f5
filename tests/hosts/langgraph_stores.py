"""A LangGraph `BaseStore` as a store of originals."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing

import anyio
import pytest
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore as BaseSqliteStore
from langgraph.store.sqlite.aio import AsyncSqliteStore as AsyncBaseSqliteStore

from jev_engine.errors import StoreError
from jev_engine.store import Original
from jev_engine.testing import check_store
from jev_engine_adapters.langgraph import BaseStoreOriginals


@pytest.mark.parametrize("made", ["memory", "sqlite"])
def test_a_base_store_keeps_the_contract_of_a_store(made):
    """The public suite, over LangGraph's stores in memory and in SQLite."""
    with ExitStack() as opened:

        def fresh():
            if made == "memory":
                return BaseStoreOriginals(InMemoryStore())
            connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
            store = BaseSqliteStore(opened.enter_context(closing(connection)))
            store.setup()
            return BaseStoreOriginals(store)

        report = anyio.run(check_store, fresh)

    assert report.ok, report


def test_an_async_store_keeps_the_contract_too(tmp_path):
    """Opened in the loop it is used from."""

    async def check():
        async with AsyncBaseSqliteStore.from_conn_string(str(tmp_path / "s.db")) as store:
            await store.setup()
            kept = BaseStoreOriginals(store)
            original = Original(kept.reference("s", "k"), "s", "k", "read", "half \ud83d \0 sign")
            await kept.save([original])
            return original, await kept.read(original.reference, session="s"), await kept.rank("s", "sign", 3)

    original, back, found = anyio.run(check)

    assert back == original
    assert [match.reference for match in found.matches] == [original.reference]


class Failing(InMemoryStore):
    """A store whose writes fail after a while."""

    left = 0

    async def aput(self, *given, **named):
        if not self.left:
            raise OSError("disk full")
        self.left -= 1
        await super().aput(*given, **named)


def test_a_base_store_that_fails_says_so():
    """None saved is an error; some saved are named; a message that is no JSON is refused before anything is written."""
    failing = Failing()
    store = BaseStoreOriginals(failing)
    originals = [Original(store.reference("s", f"k{n}"), "s", f"k{n}", "read", f"text {n}") for n in range(3)]

    async def check():
        with pytest.raises(StoreError, match="failed to put: OSError: disk full"):
            await store.save(originals)
        failing.left = 4
        saved = await store.save(originals)
        failing.left = 2
        with pytest.raises(StoreError, match="not all messages"):
            await store.save_messages("s", [{"a": 1}, {"b": 2}])
        with pytest.raises(StoreError, match="no plain JSON value"):
            await store.save_messages("s", [object()])
        return saved

    assert anyio.run(check) == {original.reference for original in originals[:2]}
