"""One conversation: one pass at a time, a ledger that survives the process, rotations that keep it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from anyio import to_thread

from jev_engine import ContextEngine, make_config
from jev_engine.answers import RawAnswer
from jev_engine.errors import StoreError
from jev_engine.judges import JudgeRequest, Verdict
from jev_engine.sessions import Session
from jev_engine.store.memory import MemoryStore
from jev_engine.store.sqlite import SqliteStore
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
    """In the order in which the passes ended."""
    compress: Callable[[dict[str, Any]], Awaitable[None]]
    ask_again: Callable[..., None]


@asynccontextmanager
async def waiting_pass(**options: Any) -> AsyncIterator[Waiting]:
    """A pass of a session whose judge thinks as long as the block lasts."""
    judge, messages, results = WaitingJudge(), session_of(), []
    session = Session(engine(judge), "one")

    async def compress(options: dict[str, Any]) -> None:
        results.append(await session.compress(messages, **options))

    async with anyio.create_task_group() as group:
        group.start_soon(compress, options)
        await judge.arrived.wait()
        yield Waiting(judge, messages, results, compress, lambda **other: group.start_soon(compress, other))
        judge.go.set()


async def test_a_second_caller_gets_the_result_of_the_pass_that_runs() -> None:
    """A29: two calls at once on one session ask the judge once."""
    async with waiting_pass() as one:
        one.ask_again()
        await anyio.wait_all_tasks_blocked()

    assert one.judge.asked == 1
    assert [r.outcome for r in one.results] == ["committed", "committed"]
    assert one.results[0].messages == one.results[1].messages


async def test_any_number_of_callers_at_once_get_the_result_of_the_pass_that_runs(tmp_path: Path) -> None:
    """More than there are worker threads (40), of which the pass itself needs one for its file."""
    messages, results = session_of(), list[Any]()
    one = Session(engine(gone(), SqliteStore(tmp_path / "originals.sqlite3")), "one")

    async def compress() -> None:
        results.append(await one.compress(messages))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(compress)

    assert {done.outcome for done in results} == {"committed"}
    assert all(done.messages is results[0].messages for done in results)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_a_caller_in_another_thread_gets_the_result_of_the_pass_that_runs(backend: str) -> None:
    """Its event loop is another one, and may be of another kind."""
    waits = threading.Event()

    async def compress(one: Waiting) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(one.compress, {})
            await anyio.wait_all_tasks_blocked()
            waits.set()

    with anyio.fail_after(30):
        async with waiting_pass() as one:
            other = threading.Thread(target=partial(anyio.run, compress, one, backend=backend))
            other.start()
            await to_thread.run_sync(waits.wait)
        await to_thread.run_sync(other.join)

    assert one.judge.asked == 1
    assert [r.outcome for r in one.results] == ["committed"] * 2


@pytest.mark.parametrize("other", [{"dry_run": True}, {"force": True}, {"goal": "the importer"}, {"current_tokens": 9}])
async def test_a_caller_that_asks_for_something_else_has_its_own_pass(other: dict[str, Any]) -> None:
    """Behind the one that runs, and with its own arguments."""
    async with waiting_pass() as one:
        one.ask_again(**other)
        await anyio.wait_all_tasks_blocked()
        asked_meanwhile = one.judge.asked
    ran, had_turn = one.results

    assert asked_meanwhile == 1
    assert had_turn.messages is not ran.messages
    assert ran.outcome == "committed"


async def test_beside_a_pass_that_changes_a_dry_run_changes_nothing() -> None:
    """And beside a dry run the pass that was asked for is made."""
    async with waiting_pass() as real:
        real.ask_again(dry_run=True)
        await anyio.wait_all_tasks_blocked()
    async with waiting_pass(dry_run=True) as dry:
        dry.ask_again(force=True)
        await anyio.wait_all_tasks_blocked()

    assert real.results[1].messages is real.messages
    assert dry.results[0].messages is dry.messages
    assert dry.results[1].changed
    assert len(dry.results[1].ledger) == 5


async def test_behind_a_cancelled_pass_a_caller_has_the_pass_it_asked_for() -> None:
    """What it asked for is not lost: a dry run stays one, and nothing is stored."""
    judge, messages, results = WaitingJudge(), session_of(), []
    one = Session(engine(judge), "one")

    async def dry() -> None:
        results.append(await one.compress(messages, dry_run=True))

    async with anyio.create_task_group() as waiting:
        async with anyio.create_task_group() as group:
            group.start_soon(one.compress, messages)
            await judge.arrived.wait()
            waiting.start_soon(dry)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        judge.go.set()

    assert results[0].messages is messages
    assert results[0].outcome == "committed"
    assert len(one.ledger or ()) == 0


async def test_a_dry_run_leaves_no_trace_in_its_session() -> None:
    """Neither a pass that went through nor a wait before the next."""
    one = Session(engine(gone()), "one")
    one.trigger.report(130_000)
    done = await one.compress(session_of(), dry_run=True)

    assert done.outcome == "committed"
    assert one.last is None
    assert one.should_compress()


async def test_a_judge_that_waits_for_a_pass_of_its_own_session_is_told_so() -> None:
    """It would wait for ever; its units stay undecided, and the pass goes on."""

    class Circular(WaitingJudge):
        async def judge(self, request: JudgeRequest) -> Verdict:
            await one.compress(messages)
            return Verdict()

    messages = session_of()
    one = Session(engine(Circular()), "one")
    with anyio.fail_after(10):
        done = await one.compress(messages)

    assert any("the very session it works for" in failure for failure in done.stats.failures)


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
