"""What holds for every history, every answer and every setting."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import answers_for, any_histories, histories

from jev_engine import ContextEngine, make_config
from jev_engine.config import EngineConfig
from jev_engine.ledger import Ledger, LedgerEntry
from jev_engine.store.memory import MemoryStore
from jev_engine.store.sqlite import SqliteStore
from jev_engine.testing import ScriptedJudge
from jev_engine.transcript import ToolCall
from jev_engine_adapters.openai import adapter

# Settings under which much is judged and much may go, so that properties meet decisions and not only pins.
REMOVING = make_config(profile="reference", pin_newest_messages=0, pin_first_message=False, head_chars=0)
CUTTING = make_config(profile="reference", pin_newest_messages=2, head_chars=300)
WORTH = make_config(pin_newest_calls=0, pin_short_chars=100, min_freed_share=0.0, miss_cost=0.01)
GUARDED = make_config(profile="hermes-classic", pin_newest_calls=1, pin_short_chars=50, min_freed_share=0.0)
configs = st.sampled_from([REMOVING, CUTTING, WORTH, GUARDED, EngineConfig(), make_config(profile="reference")])
scripts = st.lists(answers_for(), min_size=1, max_size=7)


class ByContent:
    """A judge whose answers depend on the unit alone, wherever it stands: the same in every pass."""

    def __init__(self, answers: Sequence[tuple[float | None, float | None]]) -> None:
        self.answers = answers

    def __call__(self, call: ToolCall) -> tuple[float | None, float | None]:
        occurrence = int(call.key.partition(".")[2] or 0)
        digest = int(call.key.partition(".")[0], 16)
        return self.answers[(digest + occurrence) % len(self.answers)]


def compress(messages: list[Any], config: EngineConfig, script: Any, store: Any = None, **options: Any) -> Any:
    """One pass from plain code."""
    engine = ContextEngine(config=config, judge=ScriptedJudge(ByContent(script)), store=store)
    return anyio.run(lambda: engine.compress(messages, host="openai", **options))


def words(messages: Sequence[Any]) -> list[Any]:
    """Every row that is no result, without its calls and without rows that hold nothing else."""
    rows = [{n: v for n, v in m.items() if n != "tool_calls"} if isinstance(m, dict) else m for m in messages]
    return [m for m in rows if not (isinstance(m, dict) and (m.get("role") == "tool" or is_empty(m)))]


def is_empty(message: dict[str, Any]) -> bool:
    return message.get("role") == "assistant" and not str(message.get("content") or "").strip()


def orphans(messages: Sequence[Any]) -> tuple[int, int]:
    """Results without a call, and calls without a result."""
    transcript = adapter.read(messages)
    return sum(transcript.odd.values()), sum(call.is_open for call in transcript.calls)


@given(any_histories(), configs, scripts)
def test_texts_stay_verbatim_and_in_order(messages: list[Any], config: EngineConfig, script: Any) -> None:
    """G4: every word of user, assistant and system, and every field beside results."""
    done = compress(messages, config, script)

    assert words(done.messages) == words(messages)


@given(any_histories(), configs, scripts)
def test_no_pass_fails_and_none_leaves_an_orphan(messages: list[Any], config: EngineConfig, script: Any) -> None:
    """G1 and G3: what was paired stays paired or goes as a whole."""
    done = compress(messages, config, script)

    assert done.outcome != "failed", done.reason
    assert orphans(done.messages) == orphans(messages)


@given(any_histories(), configs, scripts)
def test_untouched_messages_are_the_same_objects(messages: list[Any], config: EngineConfig, script: Any) -> None:
    """Every row of the output is an input row, or the edit of one that a decision names."""
    done = compress(messages, config, script)
    edited = {d.call.row for d in done.decisions if d.action != "keep"}
    edited |= {d.call.result_row for d in done.decisions if d.action != "keep"}

    assert len(done.index_map) == len(messages)
    for row, place in enumerate(done.index_map):
        if row not in edited:
            assert done.messages[place] is messages[row]
    if not edited:
        assert done.messages is messages


@given(any_histories(), configs, scripts)
def test_the_input_is_never_changed(messages: list[Any], config: EngineConfig, script: Any) -> None:
    """Neither the list nor anything in it."""
    before, rows = copy.deepcopy(messages), list(messages)
    compress(messages, config, script)

    assert messages == before
    assert all(a is b for a, b in zip(rows, messages, strict=True))


@given(any_histories(), configs, scripts)
def test_a_second_pass_with_the_same_answers_changes_nothing(
    messages: list[Any], config: EngineConfig, script: Any
) -> None:
    """G12, for a host that keeps the output: the very same list comes back."""
    store = MemoryStore()
    first = compress(messages, config, script, store)
    second = compress(first.messages, config, script, store, session=first.session)

    assert second.messages is first.messages, (first, second)


@given(any_histories(), configs, scripts)
def test_originals_and_the_ledger_give_the_same_bytes_again(
    messages: list[Any], config: EngineConfig, script: Any
) -> None:
    """G12, for a host that sends its originals each time, with and without another pass."""
    store = MemoryStore()
    first = compress(messages, config, script, store)
    again = compress(messages, config, script, store, session=first.session, ledger=first.ledger)
    applied = ContextEngine(config=config).apply(messages, first.ledger, host="openai")

    assert again.messages == first.messages
    assert again.ledger == first.ledger
    assert applied == first.messages
    assert ContextEngine().apply(applied, first.ledger, host="openai") is applied


@given(any_histories(), any_histories(3), configs, scripts)
def test_restore_undoes_every_pass(messages: list[Any], newer: list[Any], config: EngineConfig, script: Any) -> None:
    """`restore(compress(x)) == x`: after one pass, and after two with new turns between."""
    store = MemoryStore()
    restores(messages, newer, config, script, store)


@settings(max_examples=50)
@given(histories(4), histories(2), configs, scripts)
def test_restore_undoes_every_pass_from_a_file(
    messages: list[Any], newer: list[Any], config: EngineConfig, script: Any
) -> None:
    """The same through SQLite, half characters included."""
    with tempfile.TemporaryDirectory() as folder:
        restores(messages, newer, config, script, SqliteStore(Path(folder) / "store" / "o.sqlite3"))


def restores(messages: list[Any], newer: list[Any], config: EngineConfig, script: Any, store: Any) -> None:
    engine = ContextEngine(config=config, judge=ScriptedJudge(ByContent(script)), store=store)

    async def both() -> None:
        first = await engine.compress(messages, host="openai")
        once = await engine.restore(first.messages, host="openai")
        second = await engine.compress([*first.messages, *newer], host="openai", session=first.session)
        twice = await engine.restore(second.messages, host="openai")

        assert once.messages == messages
        assert twice.messages == [*messages, *newer]

    anyio.run(both)


@given(histories(), scripts, st.floats(0, 1), st.floats(0, 1))
def test_a_higher_threshold_never_keeps_more(messages: list[Any], script: Any, one: float, two: float) -> None:
    """With `threshold` and without guards, for both thresholds."""
    low, high = sorted((one, two))
    order = ["remove", "truncate", "keep"]
    for name in ("keep_result", "keep_call"):
        lenient, strict = (
            compress(messages, REMOVING.model_copy(update={name: value}), script).decisions for value in (low, high)
        )
        for kept, cut in zip(lenient, strict, strict=True):
            if "too short to shorten" not in (kept.reason, cut.reason):
                assert order.index(cut.action) <= order.index(kept.action)


@given(histories(), scripts, answers_for(), st.integers(0, 20))
def test_answers_of_one_unit_touch_no_other(messages: list[Any], script: Any, answer: Any, which: int) -> None:
    """With `threshold` and without guards."""
    before = compress(messages, REMOVING, script)
    by_key = ByContent(script)
    chosen = before.decisions[which % len(before.decisions)].call.key if before.decisions else ""
    engine = ContextEngine(config=REMOVING, judge=ScriptedJudge(lambda c: answer if c.key == chosen else by_key(c)))
    after = anyio.run(lambda: engine.compress(messages, host="openai"))
    others = [
        ((one.action, one.text), (two.action, two.text))
        for one, two in zip(before.decisions, after.decisions, strict=True)
        if one.call.key != chosen
    ]

    assert all(one == two for one, two in others)


@given(any_histories(), configs, scripts)
def test_copies_of_equal_units_end_equal_or_untouched(messages: list[Any], config: EngineConfig, script: Any) -> None:
    """What replaces a result is shorter than it, and names a reference that the store knows."""
    store = MemoryStore()
    done = compress(messages, config, script, store)

    for decision in done.decisions:
        if decision.action == "truncate":
            assert len(decision.text) < len(decision.call.result or "")
        if decision.action != "keep":
            original = anyio.run(store.read, decision.call.reference)
            assert original.text == decision.call.result


entries = st.builds(
    LedgerEntry,
    st.sampled_from(["a", "b", "c.1"]),
    st.sampled_from(["truncate", "remove"]),
    st.sampled_from(["jx-1", "jx-2"]),
    st.text(max_size=3),
    st.integers(0, 9),
)
ledgers = st.lists(entries, max_size=6).map(Ledger.of)


@given(ledgers, ledgers, ledgers)
def test_merging_ledgers_is_a_join(one: Ledger, two: Ledger, three: Ledger) -> None:
    """In any order, any number of times, to the same ledger."""
    assert one.merge(two) == two.merge(one)
    assert one.merge(two).merge(three) == one.merge(two.merge(three))
    assert one.merge(one) == one
    assert one.merge(two).merge(two) == one.merge(two)
    assert Ledger.from_json(one.to_json()) == one
