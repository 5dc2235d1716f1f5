"""Restoring: the whole history back, after any passes, in any order of the world."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from passing import long_text

from jev_engine import ContextEngine, make_config
from jev_engine.store.memory import MemoryStore
from jev_engine.store.sqlite import SqliteStore
from jev_engine.testing import ScriptedJudge, assistant, call, history, result, system, user

REMOVES = make_config(profile="reference", pin_newest_messages=0)
SHORTENS = make_config(pin_newest_calls=0, min_freed_share=0)


def engine(store: Any, config: Any = REMOVES, script: Any = lambda _: (0.0, 0.0)) -> ContextEngine:
    return ContextEngine(config=config, judge=ScriptedJudge(script), store=store)


def work(name: str, turns: int = 3) -> list[Any]:
    rows = [
        row
        for n in range(turns)
        for row in (call("read", call_id=f"{name}{n}"), result(long_text(f"{name}{n}"), call_id=f"{name}{n}"))
    ]
    return [user(f"Do {name}."), *rows]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s" / "o.sqlite3")


@pytest.mark.parametrize("config", [REMOVES, SHORTENS], ids=["removed", "shortened"])
async def test_ten_passes_with_new_turns_between_are_undone(store: Any, config: Any) -> None:
    """Every row of the session, as it was."""
    everything, seen = [system("Rules."), user("Go.")], [system("Rules."), user("Go.")]
    for number in range(10):
        newer = work(f"part{number}", 2)
        everything += newer
        done = await engine(store, config).compress([*seen, *newer], session="s")
        seen = list(done.messages)
    restored = await engine(store, config).restore([*seen, user("Now."), assistant("Yes.")])

    assert restored.messages == [*everything, user("Now."), assistant("Yes.")]
    assert restored.passes == 10
    assert restored.left == []


async def test_a_history_that_looks_the_same_after_a_pass_is_not_undone_twice(store: Any) -> None:
    """Equal ids and sizes: the rows after a removal look like the rows before it."""
    rows = [
        row
        for n in range(6)
        for row in (call("read", call_id="k"), result("same start " * 9 + f"{n}" * 900, call_id="k"))
    ]
    messages = [user("Go."), *rows]
    done = await engine(store, script={"t2": (0.0, 0.0)}).compress(messages, host="openai")
    restored = await engine(store).restore(done.messages)

    assert done.outcome == "committed"
    assert restored.messages == messages
    assert restored.passes == 1


async def test_two_sessions_that_begin_alike_do_not_mix(store: Any) -> None:
    """One system prompt, one first wish, different work."""
    one, two = history(system("Rules."), *work("one")), history(system("Rules."), *work("two"))
    first = await engine(store).compress(one)
    second = await engine(store).compress(two)

    assert (await engine(store).restore(first.messages)).messages == one
    assert (await engine(store).restore(second.messages)).messages == two


async def test_histories_of_the_same_texts_keep_the_fields_each_has_of_its_own(store: Any) -> None:
    """One conversation, saved three times: nothing in the texts tells the records of its passes apart."""
    saved = [[{**row, "saved_at": number} for row in history(*work("one"))] for number in range(3)]
    passes = [await engine(store, SHORTENS).compress(messages) for messages in saved]

    for messages, done in zip(saved, passes, strict=True):
        assert done.outcome == "committed"
        assert (await engine(store).restore(done.messages)).messages == messages


async def test_the_input_of_restore_is_not_changed(store: Any) -> None:
    """And what was never compressed comes back as it is."""
    plain = work("one")
    done = await engine(store, SHORTENS).compress(plain)
    before = list(done.messages)
    await engine(store).restore(done.messages)

    assert all(a is b for a, b in zip(before, done.messages, strict=True))
    assert (await engine(store).restore(plain)).messages == plain
    assert (await engine(store).restore([])).messages == []


async def test_markers_without_a_record_lead_back_one_by_one(store: Any) -> None:
    """A history cut by the host fits no record: what its markers name comes back all the same."""
    done = await engine(store, SHORTENS).compress(work("one"))
    restored = await engine(store).restore(list(done.messages)[3:])

    assert restored.messages == work("one")[3:]
    assert (restored.passes, restored.by_marker, restored.left) == (0, 2, [])


async def test_an_empty_store_restores_nothing(store: Any) -> None:
    """A history compressed elsewhere stays as it is, without an error."""
    done = await engine(MemoryStore(secret=b"elsewhere"), SHORTENS).compress(work("one"))
    restored = await engine(store).restore(done.messages)

    assert restored.messages == done.messages
    assert restored.left == []


async def test_a_history_without_a_word_never_becomes_nothing() -> None:
    """An empty history has no record by which it could be brought back, and no provider takes one."""
    messages = history(*[row for n in range(3) for row in (call("read", n=n), result(f"{n}\n" * 900))])
    config = make_config(
        profile="reference", pin_newest_messages=0, pin_first_message=False, head_chars=0, min_freed_share=0.0
    )
    engine = ContextEngine(config=config, judge=ScriptedJudge(lambda _: (0.0, 0.0)))

    done = await engine.compress(messages, host="openai")
    back = await engine.restore(done.messages, host="openai")

    assert [decision.action for decision in done.decisions] == ["remove", "remove", "truncate"]
    assert len(done.messages) == 2
    assert back.messages == messages
