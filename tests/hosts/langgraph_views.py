"""View mode on the real libraries: the view is a function of checkpoint and ledger, however the agent is run."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
from contextlib import asynccontextmanager, closing, contextmanager

import pytest
from langchain.agents.middleware import HumanInTheLoopMiddleware, human_in_the_loop
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command
from langgraph_agents import (
    HAS_DELTA,
    CountingJudge,
    PlannedModel,
    agent,
    ask,
    engine,
    fetch,
    pairs_are_whole,
    plain,
    prefix_breaks,
    steps,
    text_of_step,
    thread,
)

import jev_engine_adapters.langgraph as ours
from jev_engine.ledger import Ledger, LedgerEntry
from jev_engine_adapters.langgraph import JevMiddleware, compacted_view
from jev_engine_adapters.langgraph.state import ThreadState

pytestmark = pytest.mark.anyio
MARKS_PEOPLE = "lc_source" in inspect.getsource(human_in_the_loop)


@pytest.fixture
def anyio_backend():
    """LangGraph runs on asyncio only."""
    return "asyncio"


@contextmanager
def memory(_):
    yield InMemorySaver()


@contextmanager
def sqlite_file(path):
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection, connection:
        yield SqliteSaver(connection)
    connection.close()


@asynccontextmanager
async def aio_sqlite_file(path):
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        yield saver


@pytest.fixture(params=["memory", "sqlite"])
def saver(request, tmp_path):
    """A checkpointer in memory, and one in a file."""
    with memory(None) if request.param == "memory" else sqlite_file(tmp_path / "c.db") as checkpointer:
        yield checkpointer


@pytest.fixture(params=["plain", "delta"] if HAS_DELTA else ["plain"])
def channel(request):
    """Messages under `add_messages`, and in a DeltaChannel."""
    return {"state_schema": ours.JevDeltaAgentState} if request.param == "delta" else {}


def shown_and_state(model, built, config):
    """What the model saw last, and what compacted_view makes of the checkpoint it saw it in."""
    values = built.get_state(config).values
    before_reply = values["messages"][: -_rows_after(values["messages"])]
    return plain(model.seen[-1]), plain(compacted_view(before_reply, values.get("jev_ledger")))


def _rows_after(messages):
    last = next(row for row in range(len(messages) - 1, -1, -1) if isinstance(messages[row], AIMessage))
    return len(messages) - last


@pytest.mark.parametrize("saver", [memory, sqlite_file])
@pytest.mark.parametrize("run", ["invoke", "stream"])
def test_the_view_is_what_checkpoint_and_ledger_say(tmp_path, saver, run):
    """Sync: the last request is reproduced from the saved state alone, and the state still holds every original."""
    model, judge = PlannedModel(plan=steps(30, per_turn=2)), CountingJudge()
    with saver(tmp_path / "c.db") as checkpointer:
        built = agent(model, JevMiddleware(engine(judge)), checkpointer=checkpointer)
        if run == "invoke":
            built.invoke(ask(), thread())
        else:
            for _ in built.stream(ask(), thread(), stream_mode=["updates", "messages", "custom"]):
                pass
        shown, rebuilt = shown_and_state(model, built, thread())
        results = [m for m in built.get_state(thread()).values["messages"] if isinstance(m, ToolMessage)]

    assert shown == rebuilt
    assert [m.content for m in results] == [text_of_step(step) for step in range(60)]
    assert all(pairs_are_whole(messages) for messages in model.seen)
    assert judge.requests == prefix_breaks(model.seen) > 1
    assert len(judge.questions) == len(set(judge.questions))


@pytest.mark.parametrize("saver", [memory, aio_sqlite_file])
async def test_the_same_holds_without_threads(tmp_path, saver):
    """Async: on both savers, by ainvoke and by astream."""
    for run in ("ainvoke", "astream"):
        model, judge = PlannedModel(plan=steps(30, per_turn=2)), CountingJudge()
        opened = saver(tmp_path / f"{run}.db")
        checkpointer = opened.__enter__() if saver is memory else await opened.__aenter__()
        built = agent(model, JevMiddleware(engine(judge)), checkpointer=checkpointer)
        if run == "ainvoke":
            await built.ainvoke(ask(), thread())
        else:
            async for _ in built.astream(ask(), thread(), stream_mode=["updates", "messages"]):
                pass
        values = (await built.aget_state(thread())).values
        shown = plain(model.seen[-1])
        rebuilt = plain(compacted_view(values["messages"][:-1], values["jev_ledger"]))
        if saver is not memory:
            await opened.__aexit__(None, None, None)

        assert shown == rebuilt
        assert judge.requests == prefix_breaks(model.seen) > 1


def test_sync_and_async_show_the_same_bytes():
    """Two ways to run one plan, one sequence of requests."""
    seen = []
    for is_async in (False, True):
        model = PlannedModel(plan=steps(25))
        built = agent(model, JevMiddleware(engine()), checkpointer=InMemorySaver())
        asyncio.run(built.ainvoke(ask(), thread())) if is_async else built.invoke(ask(), thread())
        seen.append([plain(messages) for messages in model.seen])

    assert seen[0] == seen[1]


def test_the_ledger_is_private_and_the_input_schema_stays_as_it_was():
    """Neither the result of a run nor its schemas name the channel; the checkpoint has it."""
    model = PlannedModel(plan=steps(20))
    built = agent(model, JevMiddleware(engine()), checkpointer=InMemorySaver())

    done = built.invoke(ask(), thread())

    assert "jev_ledger" not in done
    assert "jev_ledger" not in str(built.get_input_jsonschema())
    assert "jev_ledger" not in str(built.get_output_jsonschema())
    assert len(ThreadState.from_json(built.get_state(thread()).values["jev_ledger"]).ledger)


def test_time_travel_replays_the_same_view_without_asking(saver, channel):
    """Running the last step again from its checkpoint asks nobody and shows the model the same bytes."""
    model, judge = PlannedModel(plan=steps(30)), CountingJudge()
    built = agent(model, JevMiddleware(engine(judge)), checkpointer=saver, **channel)
    built.invoke(ask(), thread())
    last, asked = plain(model.seen[-1]), judge.requests
    before = next(s for s in built.get_state_history(thread()) if s.next == ("model",))

    judge.answer = lambda _: (0.0, 0.0)  # a judge that changed its mind
    built.invoke(None, before.config)

    assert plain(model.seen[-1]) == last
    assert judge.requests == asked


async def test_time_travel_and_forks_hold_without_threads(tmp_path):
    """AsyncSqliteSaver: the last step run again, and a fork from the middle, begin with the bytes shown then."""
    async with aio_sqlite_file(tmp_path / "c.db") as checkpointer:
        model, judge = PlannedModel(plan=steps(30)), CountingJudge()
        built = agent(model, JevMiddleware(engine(judge)), checkpointer=checkpointer)
        await built.ainvoke(ask(), thread())
        last, asked = plain(model.seen[-1]), judge.requests
        history = [s async for s in built.aget_state_history(thread()) if s.next == ("model",)]
        lengths = {len((await built.aget_state(thread())).values["messages"]) for _ in range(6)}

        await built.ainvoke(None, history[0].config)
        again = plain(model.seen[-1])
        await built.ainvoke(ask("Do it another way."), history[15].config)
        values = history[15].values
        fork = plain(model.seen[32])[:-1]

    assert lengths == {62}
    assert again == last
    assert fork == plain(compacted_view(values["messages"], values.get("jev_ledger")))
    assert judge.requests == asked  # the fork's own passes found every answer paid for
    assert len(judge.questions) == len(set(judge.questions))


def test_every_earlier_checkpoint_still_shows_what_was_shown_then(saver, channel):
    """The request of each model step is reproduced from the checkpoint after it."""
    model = PlannedModel(plan=steps(25))
    built = agent(model, JevMiddleware(engine()), checkpointer=saver, **channel)
    built.invoke(ask(), thread())

    replies = [s for s in built.get_state_history(thread()) if s.values["messages"] and
               isinstance(s.values["messages"][-1], AIMessage)]  # fmt: skip
    replayed = [plain(compacted_view(s.values["messages"][:-1], s.values.get("jev_ledger"))) for s in reversed(replies)]

    assert replayed == [plain(messages) for messages in model.seen]


def test_a_fork_goes_on_from_its_own_ledger(saver, channel):
    """A fork from the middle has the decisions of the middle, and the main line keeps its own."""
    model = PlannedModel(plan=steps(40))
    built = agent(model, JevMiddleware(engine()), checkpointer=saver, **channel)
    built.invoke(ask(), thread())
    whole = built.get_state(thread())
    middle = [s for s in built.get_state_history(thread()) if s.next == ("model",)][20]
    known = ThreadState.from_json(middle.values.get("jev_ledger"))
    count = len(model.seen)

    built.invoke(ask("Do it another way."), middle.config)

    first = model.seen[count]
    assert plain(first)[:-1] == plain(compacted_view(middle.values["messages"], middle.values.get("jev_ledger")))
    assert len(known.ledger) < len(ThreadState.from_json(whole.values["jev_ledger"]).ledger)
    assert built.get_state(whole.config).values["jev_ledger"] == whole.values["jev_ledger"]


def test_six_reads_of_one_checkpoint_are_the_same(saver, channel):
    """Reading applies nothing and asks nobody."""
    model, judge = PlannedModel(plan=steps(25)), CountingJudge()
    built = agent(model, JevMiddleware(engine(judge)), checkpointer=saver, **channel)
    built.invoke(ask(), thread())
    asked = judge.requests

    read = [built.get_state(thread()).values for _ in range(6)]

    assert {len(values["messages"]) for values in read} == {52}
    assert all(values["jev_ledger"] == read[0]["jev_ledger"] for values in read)
    assert judge.requests == asked


def test_an_interrupt_and_its_resume_change_no_decision(saver):
    """A person approves every tenth call; views go on where they were, and the person's words are never judged."""

    def plan(number, messages):
        if number >= 24:
            return AIMessage("All done.")
        if number % 10 == 9:
            return AIMessage("", tool_calls=[{"name": "publish", "args": {"text": "x" * 3_000}, "id": f"p{number}"}])
        return steps(24)(number, messages)

    def publish(text: str) -> str:
        """Publish a text."""
        return f"published {len(text)}"

    model = PlannedModel(plan=plan)
    reject = HumanInTheLoopMiddleware(interrupt_on={"publish": {"allowed_decisions": ["approve", "reject"]}})
    # Newer versions mark what a person said; with older ones the tools a person answers for have to be named.
    jev = JevMiddleware(engine(pin_short_chars=0), exclude_tools=["publish"] if not MARKS_PEOPLE else [])
    built = agent(model, reject, jev, checkpointer=saver, tools=[fetch, publish])
    done = built.invoke(ask(), thread())
    answer = "No: " + "say why it is safe first. " * 40
    decisions = [{"type": "reject", "message": answer}, {"type": "approve"}]
    while "__interrupt__" in done:
        done = built.invoke(Command(resume={"decisions": [decisions.pop(0)]}), thread())

    assert not decisions
    assert prefix_breaks(model.seen) >= 1
    assert all(pairs_are_whole(messages) for messages in model.seen)
    assert any(answer in str(message.content) for message in model.seen[-1] if isinstance(message, ToolMessage))


def test_a_step_run_again_after_a_fault_asks_nobody(saver):
    """The model fails right after a pass; the resumed step shows the same bytes from memory."""
    fails = {"at": None}

    def plan(number, messages):
        shown = sum("jev-engine" in str(m.content) for m in messages)
        if shown and fails["at"] is None:
            fails["at"] = plain(messages)
            raise RuntimeError("the provider is down")
        return steps(20)(number, messages)

    model, judge = PlannedModel(plan=plan), CountingJudge()
    judge.is_calibrated = True  # answers of such a judge are not kept: what helps is that the decision is
    built = agent(model, JevMiddleware(engine(judge)), checkpointer=saver)
    with pytest.raises(RuntimeError, match="provider is down"):
        built.invoke(ask(), thread())
    asked, failed = judge.requests, len(model.seen)

    judge.answer = lambda _: (0.9, 0.9)  # a judge that changed its mind
    built.invoke(None, thread())

    assert plain(model.seen[failed]) == fails["at"]
    assert asked == 1


def test_ledgers_that_meet_in_the_channel_are_joined():
    """Two writes of one step, in either order: the agent's channel has our reducer."""
    parts = [
        ThreadState(Ledger.of([LedgerEntry(f"{n:032x}", "truncate", f"jx-{n:016x}", f"[{n}]", 900)])) for n in range(2)
    ]
    for first, second in (parts, parts[::-1]):
        built = agent(PlannedModel(plan=steps(1)), JevMiddleware(engine()), checkpointer=InMemorySaver())
        for part in (first, second):
            built.update_state(thread(), {"jev_ledger": part.to_json()}, as_node="model")
        kept = ThreadState.from_json(built.get_state(thread()).values["jev_ledger"])

        assert kept == parts[0].merge(parts[1])


def test_another_process_takes_the_thread_up(tmp_path):
    """A new engine and a new middleware over the same file: the first request begins with the last view."""
    with sqlite_file(tmp_path / "c.db") as checkpointer:
        model = PlannedModel(plan=steps(20))
        agent(model, JevMiddleware(engine()), checkpointer=checkpointer).invoke(ask(), thread())
        last = plain(model.seen[-1])
    with sqlite_file(tmp_path / "c.db") as checkpointer:
        again = PlannedModel(plan=lambda *_: AIMessage("Hello again."))
        agent(again, JevMiddleware(engine()), checkpointer=checkpointer).invoke(ask("And now?"), thread())

    assert plain(again.seen[0])[: len(last)] == last


def test_what_goes_wrong_shows_the_history_as_it_came():
    """A ledger of a later version is left alone, in the view and in the state."""
    model = PlannedModel(plan=lambda *_: AIMessage("Hello."))
    built = agent(model, JevMiddleware(engine()), checkpointer=InMemorySaver())
    later = {"version": 99, "packed": "?"}
    built.update_state(thread(), {"messages": [("user", "Hi.")], "jev_ledger": later}, as_node="model")

    built.invoke(ask("Again."), thread())

    assert [m.content for m in model.seen[-1]] == ["Hi.", "Again."]
    assert built.get_state(thread()).values["jev_ledger"] == later


def test_without_a_checkpointer_and_thread_it_works_too():
    """The session is then named by how the history began; nothing is remembered between runs."""
    model, judge = PlannedModel(plan=steps(25)), CountingJudge()

    done = agent(model, JevMiddleware(engine(judge))).invoke(ask(), {"recursion_limit": 500})

    assert len(done["messages"]) == 52
    assert judge.requests == prefix_breaks(model.seen) > 0
