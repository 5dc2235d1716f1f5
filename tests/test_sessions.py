"""One conversation: one pass at a time, a ledger that survives the process, rotations that keep it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
import pytest

from jev_engine import ContextEngine, make_config
from jev_engine.answers import RawAnswer
from jev_engine.errors import StoreError
from jev_engine.judges import JudgeRequest, Verdict
from jev_engine.sessions import Session
from jev_engine.store.memory import MemoryStore
from jev_engine.testing import ScriptedJudge, call, history, result, user


class WaitingJudge:
    """Answers when it is told to, and counts how often it is asked."""

    name = "waiting"
    is_calibrated = True

    def __init__(self) -> None:
        self.asked = 0
        self.arrived = anyio.Event()
        self.go = anyio.Event()

    async def judge(self, request: JudgeRequest) -> Verdict:
        self.asked += 1
        self.arrived.set()
        await self.go.wait()
        return Verdict({c.key: RawAnswer(0.9, 0.001) for c in request.candidates})


def session_of(number: int = 8) -> list[Any]:
    """A history of large results."""
    rows = [user("Fix the importer.")]
    for n in range(number):
        rows += [call("read", path=f"src/{n}.py"), result(f"# {n}\n" + "def step(row): return row\n" * 300)]
    return history(*rows)


def engine(judge: Any, store: Any = None) -> ContextEngine:
    return ContextEngine(judge=judge, store=store, config=make_config(min_freed_share=0.0))


def gone() -> ScriptedJudge:
    """Nothing is needed."""
    return ScriptedJudge(lambda _call: (0.9, 0.001))


class Waiting(NamedTuple):
    """A pass that waits for its judge."""

    judge: WaitingJudge
    messages: list[Any]
    results: list[Any]
    ask_again: Callable[[], None]


@asynccontextmanager
async def waiting_pass() -> AsyncIterator[Waiting]:
    """A pass of a session whose judge thinks as long as the block lasts."""
    judge, messages, results = WaitingJudge(), session_of(), []
    session = Session(engine(judge), "one")

    async def compress() -> None:
        results.append(await session.compress(messages))

    async with anyio.create_task_group() as group:
        group.start_soon(compress)
        await judge.arrived.wait()
        yield Waiting(judge, messages, results, lambda: group.start_soon(compress))
        judge.go.set()


async def test_a_second_caller_gets_the_result_of_the_pass_that_runs() -> None:
    """A29: two calls at once on one session ask the judge once."""
    async with waiting_pass() as one:
        one.ask_again()
        await anyio.wait_all_tasks_blocked()

    assert one.judge.asked == 1
    assert [r.outcome for r in one.results] == ["committed", "committed"]
    assert one.results[0].messages == one.results[1].messages


async def test_two_sessions_do_not_block_each_other() -> None:
    """A29: a pass that waits in one session leaves the other alone."""
    slow, quick = WaitingJudge(), gone()
    waiting, other = Session(engine(slow), "one"), Session(engine(quick), "two")

    async with anyio.create_task_group() as group:
        group.start_soon(waiting.compress, session_of())
        await slow.arrived.wait()
        done = await other.compress(session_of())
        slow.go.set()

    assert done.outcome == "committed"


async def test_a_cancelled_pass_leaves_no_lock() -> None:
    """The next call runs as if nothing had been."""
    judge = WaitingJudge()
    one = Session(engine(judge), "one")

    async with anyio.create_task_group() as group:
        group.start_soon(one.compress, session_of())
        await judge.arrived.wait()
        group.cancel_scope.cancel()
    judge.go.set()
    done = await one.compress(session_of())

    assert done.outcome == "committed"


async def test_rows_added_while_a_pass_runs_follow_unchanged() -> None:
    """A30: what the user wrote meanwhile is neither lost nor judged."""
    async with waiting_pass() as one:
        later = [*one.messages, user("And the exporter, please.")]
    grown = one.results[0].onto(later)

    assert grown.messages[-1] is later[-1]
    assert grown.messages[:-1] == one.results[0].messages
    assert grown.index_map[-1] == len(grown.messages) - 1


async def test_a_result_is_discarded_where_the_rows_it_was_made_from_have_changed() -> None:
    """A30: the history as it is now comes back, with the reason."""
    done = await Session(engine(gone()), "one").compress(messages := session_of())
    edited = [user("Something else."), *messages[1:]]
    late = done.onto(edited)

    assert late.messages is edited
    assert late.outcome == "failed"
    assert "changed" in late.reason


async def test_a_result_that_changes_while_the_judge_thinks_is_not_overwritten() -> None:
    """A30: a host that edits a row in place gets its history back as it is."""
    async with waiting_pass() as one:
        one.messages[2]["content"] = "edited by the host " * 200

    assert one.results[0].outcome == "failed"
    assert one.results[0].messages is one.messages
    assert one.messages[2]["content"].startswith("edited by the host")


async def test_the_ledger_survives_the_process_and_stays_with_its_session() -> None:
    """A host that sends originals again gets the same history from a new process; another session does not."""
    store = MemoryStore()
    messages = session_of()
    first = await Session(engine(gone(), store), "one").compress(messages)
    again = await Session(engine(ScriptedJudge({}), store), "one").compress(messages)
    other = await Session(engine(ScriptedJudge({}), store), "two").compress(messages)

    assert again.messages == first.messages
    assert again.stats.pinned["already out"] == 5
    assert other.messages is messages


async def test_a_rotated_session_takes_the_ledger_over() -> None:
    """A fork or rotation keeps what is out; a plain new session sees nothing of it."""
    store = MemoryStore()
    messages = session_of()
    first = await Session(engine(gone(), store), "parent").compress(messages)
    child = await Session(engine(ScriptedJudge({}), store), "child", came_from="parent").compress(messages)

    assert child.messages == first.messages


async def test_the_trigger_hears_of_every_pass() -> None:
    """After a pass usage is unknown until the host reports it."""
    one = Session(engine(gone()), "one")
    one.trigger.report(130_000)
    before = one.should_compress()
    await one.compress(session_of())

    assert before
    assert not one.should_compress(150_000)


class Forgetful(MemoryStore):
    """Keeps originals, but no ledger."""

    async def save_ledger(self, session: str, ledger: Any) -> None:
        raise StoreError("no room")

    async def load_ledger(self, session: str) -> Any:
        raise StoreError("no room")


async def test_a_ledger_that_cannot_be_kept_is_a_warning() -> None:
    """The pass stands: markers lead back to every original."""
    done = await Session(engine(gone(), Forgetful()), "one").compress(session_of())

    assert done.outcome == "committed"
    assert any("ledger" in warning for warning in done.stats.warnings)


@pytest.mark.parametrize("goal", [None, "the importer"])
async def test_answers_are_paid_for_once_over_the_passes_of_a_session(goal: str | None) -> None:
    """Units kept in one pass are not asked about in the next under the same goal."""
    judge = ScriptedJudge(lambda _call: (0.9, 0.9), is_calibrated=False)
    one = Session(engine(judge), "one")
    await one.compress(session_of(8), goal=goal)
    await one.compress(session_of(10), goal=goal)

    assert [len(labels) for labels in judge.asked] == [5, 2]
