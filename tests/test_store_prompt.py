"""A store of somebody else's: no answer of it is waited for longer than its deadline, and its faults are a store's."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from trio.testing import MockClock

from jev_engine import ContextEngine
from jev_engine.errors import StoreError
from jev_engine.recall.search import search
from jev_engine.sessions import Session
from jev_engine.store.expand import expand
from jev_engine.store.memory import MemoryStore
from jev_engine.store.prompt import STORE_SECONDS
from jev_engine.testing import ScriptedJudge, call, history, result, user

READS = [row for n in range(8) for row in (call("read", path=f"{n}.py"), result(f"line {n}\n" * 900))]
MESSAGES = history(user("Fix it."), *READS, user("Go on."))


class Odd(MemoryStore):
    """A store one method of which does what it is told instead of its work."""

    def __init__(self, method: str, instead: Any, deadline_seconds: float | None = 0.05) -> None:
        super().__init__()
        self.method, self.instead = method, instead
        if deadline_seconds is not None:
            self.deadline_seconds = deadline_seconds

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__(self, "__dict__")
        if name != own.get("method"):
            return super().__getattribute__(name)

        async def odd(*_: Any, **__: Any) -> Any:
            return await own["instead"]()

        return odd


async def raises() -> Any:
    raise KeyError("no such bucket")


async def nothing() -> Any:
    return None


def engine_on(store: Any) -> ContextEngine:
    return ContextEngine(judge=ScriptedJudge(lambda _: (0.9, 0.001)), store=store)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("instead", "said"),
    [(anyio.sleep_forever, "did not end within 0.05 s"), (raises, "KeyError"), (nothing, "returned NoneType")],
    ids=["hangs", "raises", "nothing"],
)
async def test_a_store_that_does_not_save_gives_the_history_back(instead: Any, said: str) -> None:
    done = await engine_on(Odd("save", instead)).compress(MESSAGES, force=True)

    assert done.outcome == "failed"
    assert done.messages is MESSAGES
    assert done.reason.startswith("StoreError: store Odd: `save` ")
    assert said in done.reason


@pytest.mark.anyio
async def test_a_store_that_cannot_tell_what_it_knows_keeps_what_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over a shortened history goes on without the store's word: doubt keeps."""
    store = Odd("nothing yet", anyio.sleep_forever)
    engine = engine_on(store)
    shorter = (await engine.compress(MESSAGES, force=True)).messages
    monkeypatch.setattr(store, "method", "known")
    again = await engine.compress(shorter, force=True)

    assert any("`known` did not end within" in warning for warning in again.stats.warnings)
    assert again.messages == shorter


@pytest.mark.anyio
async def test_nothing_else_that_asks_a_store_waits_for_ever() -> None:
    """A restore, a session's ledger, an original, a search."""
    hanging = {name: Odd(name, anyio.sleep_forever) for name in ("find_passes", "load_ledger", "read", "rank")}
    with anyio.fail_after(5):
        with pytest.raises(StoreError, match="find_passes"):
            await engine_on(hanging["find_passes"]).restore(MESSAGES)
        done = await Session(engine_on(hanging["load_ledger"]), "s").compress(MESSAGES, force=True)
        page = await expand(hanging["read"], "s", "jx-0123456789abcdef")
        found = await search(hanging["rank"], "s", "line")

    assert done.outcome == "committed"
    assert (page.status, found.hits) == ("failed", [])


def test_a_store_without_a_deadline_of_its_own_has_that_of_the_built_in_one() -> None:
    """On a clock that jumps to where somebody has to act."""

    async def one() -> float:
        began = anyio.current_time()
        done = await engine_on(Odd("save", anyio.sleep_forever, None)).compress(MESSAGES, force=True)
        assert done.outcome == "failed"
        return anyio.current_time() - began

    seconds = anyio.run(one, backend="trio", backend_options={"clock": MockClock(autojump_threshold=0)})

    assert STORE_SECONDS <= seconds < STORE_SECONDS + 1
