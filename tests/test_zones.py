"""What a pass may touch: the frozen zone stays as it is unless thawing pays."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jev_engine import ContextEngine, make_config
from jev_engine.testing import ScriptedJudge, call, history, result, user
from jev_engine.zones import frozen_rows
from jev_engine_adapters.openai import adapter

LARGE = "def step(row): return row\n" * 400


def session(*needed: float, size: str = LARGE) -> tuple[list, dict]:
    """A history of large results, and a script with what is needed of each."""
    rows = [user("Fix the importer.")]
    for number in range(len(needed)):
        rows += [call("read", path=f"src/{number}.py"), result(f"{number}\n{size}")]
    return history(*rows), {f"call_{n + 1}": (0.9, p) for n, p in enumerate(needed)}


def engine(script: dict, **options) -> ContextEngine:
    return ContextEngine(judge=ScriptedJudge(script), config=make_config(**options))


def grow(messages: list, needed: list[float], script: dict) -> list:
    """The history after more calls; the script learns about them."""
    first = sum(len(m.get("tool_calls", ())) for m in messages) + 1
    rows = list(messages)
    for offset, p in enumerate(needed):
        name = f"call_{first + offset}"
        script[name] = (0.9, p)
        rows += [
            call("read", call_id=name, path=f"src/{name}.py"),
            result(f"{name}\n{LARGE}", call_id=name),
        ]
    return rows


def test_nothing_is_frozen_before_the_first_pass():
    """There is no edit whose cache could be lost."""
    messages, _ = session(0.01, 0.01)

    assert frozen_rows(adapter.read(messages)) == 0


def test_a_later_pass_leaves_the_rows_before_the_last_edit_alone():
    """A unit that became worthless in the frozen zone stays, because rewriting the cache would cost more."""
    messages, script = session(*[0.9] * 30, 0.001, 0.001, 0.001, 0.9, 0.9, 0.9)
    run = engine(script, min_freed_share=0.0, horizon_calls=60.0)
    first = asyncio.run(run.compress(messages))
    # The first unit is not needed any more, and a new large one is not either.
    script["call_1"] = (0.9, 0.02)
    longer = grow(first.messages, [0.001, 0.9, 0.9, 0.9], script)
    run.config = make_config(min_freed_share=0.0, horizon_calls=60.0)
    second = asyncio.run(run.compress(longer))

    assert first.outcome == second.outcome == "committed"
    assert second.stats.frozen_rows > 60
    assert not second.stats.is_thawed
    assert {d.label for d in second.decisions if d.reason.startswith("frozen")} == {"t1"}
    assert all(new is old for new, old in zip(second.messages[:60], longer[:60], strict=True))


@pytest.mark.parametrize("why", ["forced", "cold"])
def test_force_and_a_cold_cache_thaw(why):
    """Then nothing is lost by rewriting, or it has to be."""
    messages, script = session(*[0.9] * 30, 0.001, 0.001, 0.001, 0.9, 0.9, 0.9)
    run = engine(script, min_freed_share=0.0, horizon_calls=60.0)
    first = asyncio.run(run.compress(messages))
    script["call_1"] = (0.9, 0.001)
    run.config = make_config(min_freed_share=0.0, horizon_calls=60.0)
    options = {"force": True} if why == "forced" else {"cache_is_cold": True}
    second = asyncio.run(run.compress(grow(first.messages, [0.9] * 3, script), **options))

    assert second.stats.is_thawed
    assert "t1" in [d.label for d in second.decisions if d.action != "keep"]


def test_a_thaw_that_pays_is_made_by_itself():
    """Many worthless units in the frozen zone are worth the cache that is written anew."""
    messages, script = session(*[0.9] * 12, 0.001, 0.9, 0.9, 0.9)
    run = engine(script, min_freed_share=0.0, horizon_calls=60.0)
    first = asyncio.run(run.compress(messages))
    for number in range(1, 13):
        script[f"call_{number}"] = (0.9, 0.001)
    second = asyncio.run(run.compress(grow(first.messages, [0.9] * 3, script)))

    assert second.stats.is_thawed
    assert sum(d.action == "truncate" for d in second.decisions) == 12


@settings(max_examples=60, deadline=None)
@given(
    passes=st.lists(st.lists(st.floats(0, 0.4), min_size=1, max_size=5), min_size=1, max_size=6),
    forced=st.sets(st.integers(0, 5)),
)
def test_the_frozen_prefix_is_byte_identical_over_any_number_of_passes(passes, forced):
    """Turns, passes and forced passes in any order: what a pass says it froze is the same objects afterwards."""
    script: dict = {}
    run = engine(script, min_freed_share=0.0, window_tokens=20_000)
    messages = [user("Fix the importer.")]
    for number, needed in enumerate(passes):
        messages = grow(messages, needed, script)
        done = asyncio.run(run.compress(messages, force=number in forced))

        assert done.outcome != "failed"
        frozen = done.stats.frozen_rows
        assert all(new is old for new, old in zip(done.messages[:frozen], messages[:frozen], strict=True))
        messages = done.messages
    restored = asyncio.run(run.restore(messages))

    assert [m for m in restored.messages if m["role"] == "tool" and m["content"].startswith("[jev-engine")] == []
