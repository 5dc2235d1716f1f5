"""What the agent asks back is a look-back: it stays for a while, and is not stored again (A33)."""

from __future__ import annotations

import asyncio
from typing import Any

from jev_engine import ContextEngine, make_config
from jev_engine.store.expand import expand
from jev_engine.testing import ScriptedJudge, call, history, result, user

LARGE = "def step(row): return row\n" * 300


def engine() -> ContextEngine:
    return ContextEngine(
        judge=ScriptedJudge(lambda _call: (0.9, 0.001)),
        config=make_config(min_freed_share=0.0, pin_newest_calls=0, expand_tool="jev_expand"),
    )


async def expanded(run: ContextEngine, messages: list[Any], reference: str, name: str) -> list[Any]:
    """The history after the agent has called the tool."""
    page = await expand(run.store, "s", reference)
    return [*messages, call("jev_expand", call_id=name, id=reference), result(page.shown, call_id=name)]


def test_an_expanded_result_stays_for_ten_calls_and_then_goes_under_the_same_id() -> None:
    """Expand, compress, expand, compress: one original, however often it is asked back."""

    async def run() -> tuple[Any, Any, str]:
        one = engine()
        first = await one.compress(history(user("Go."), call("read", path="a.py"), result(LARGE)), session="s")
        reference = first.decisions[0].call.reference
        asked = await expanded(one, first.messages, reference, "call_2")
        fresh = await one.compress(asked, session="s")
        for number in range(3, 13):
            asked += [call("bash", call_id=f"call_{number}"), result("ok", call_id=f"call_{number}")]
        old = await one.compress(asked, session="s")
        return fresh, old, reference

    fresh, old, reference = asyncio.run(run())

    assert fresh.pinned[2] == "expanded"
    assert fresh.stats.look_backs == 1
    assert [d.call.reference for d in old.decisions if d.action == "truncate"] == [reference]
    assert reference in old.messages[4]["content"]


def test_a_page_in_another_store_is_an_ordinary_result() -> None:
    """Text that looks like a page is ours only if the store knows its id."""
    page = f"{LARGE}\n[jev-engine expand jx-0123456789abcdef: all 7,800 characters, this is the whole original]"
    done = asyncio.run(engine().compress(history(user("Go."), call("cat"), result(page)), session="s"))

    assert done.outcome == "committed"
    assert done.stats.look_backs == 0
