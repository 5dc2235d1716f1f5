"""Getting originals back: from the state, from our store, from a BaseStore; and persist mode, which depends on that."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from functools import partial

import anyio
import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.memory import InMemoryStore
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
from jev_engine import ContextEngine
from jev_engine.errors import ConfigError, StoreError
from jev_engine.store.expand import expanded_reference
from jev_engine.store.memory import MemoryStore
from jev_engine.store.sqlite import SqliteStore
from jev_engine_adapters.langgraph import (
    BaseStoreOriginals,
    JevMiddleware,
    make_expand_tool,
    make_search_tool,
)
from jev_engine_adapters.langgraph.state import ThreadState

COUNT = 24


def expands(reference, pages=1):
    """A plan: read an original again, page by page."""

    def reply(_, messages):
        done = sum(expanded_reference(str(m.content)) is not None for m in messages)
        if done >= pages:
            return AIMessage("I have it.")
        call = {
            "name": "jev_expand",
            "args": {"id": reference, "offset": done * 5_000, "limit": 5_000},
            "id": f"e{done}",
        }
        return AIMessage("", tool_calls=[call])

    return reply


def pages_of(messages):
    texts = [str(m.content) for m in messages]
    return [text.rpartition("\n[jev-engine expand ")[0] for text in texts if expanded_reference(text) is not None]


def references_of(values):
    """What is out: reference and step, by the thread's own ledger."""
    ledger = ThreadState.from_json(values["jev_ledger"]).ledger
    return [entry.reference for entry in ledger]


@pytest.mark.parametrize("is_async", [False, True])
def test_an_original_is_read_byte_for_byte_after_a_restart(tmp_path, is_async):
    """View mode needs no store: only the SQLite checkpoint survives, and the pages put together are the result."""
    path = tmp_path / "c.db"
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        model = PlannedModel(plan=steps(COUNT))
        built = agent(model, JevMiddleware(engine()), checkpointer=SqliteSaver(connection))
        built.invoke(ask(), thread())
        references = references_of(built.get_state(thread()).values)

    async def again(reference):
        async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
            model = PlannedModel(plan=expands(reference, pages=2))
            built = agent(model, JevMiddleware(engine()), checkpointer=saver)
            return (await built.ainvoke(ask("Read it again."), thread()))["messages"]

    if is_async:
        done = anyio.run(again, references[0])
    else:
        with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
            model = PlannedModel(plan=expands(references[0], pages=2))
            built = agent(model, JevMiddleware(engine()), checkpointer=SqliteSaver(connection))
            done = built.invoke(ask("Read it again."), thread())["messages"]

    assert len(references) > 5
    assert "".join(pages_of(done)) in {text_of_step(step) for step in range(COUNT)}


def test_the_model_is_shown_a_tool_with_three_plain_arguments():
    """The runtime is LangGraph's business."""
    made = make_expand_tool()

    assert made.name == "jev_expand"
    assert set(made.tool_call_schema.model_json_schema()["properties"]) == {"id", "offset", "limit"}
    assert [t.name for t in JevMiddleware(search_tool=True).tools] == ["jev_expand", "jev_search"]
    assert JevMiddleware(expand_tool=False).tools == []


def test_markers_name_the_tool_only_where_it_is_offered():
    """Otherwise the model would call what it does not have."""
    shown = {}
    for is_offered in (True, False):
        model = PlannedModel(plan=steps(20))
        agent(model, JevMiddleware(engine(), expand_tool=is_offered)).invoke(ask(), {"recursion_limit": 200})
        shown[is_offered] = str(model.seen[-1])

    assert "call jev_expand with this id" in shown[True]
    assert "jev_expand" not in shown[False]
    assert "the original is intact as jx-" in shown[False]


@pytest.mark.parametrize("reference", ["jx-0123456789abcdef", "nonsense", "jx-" + "x" * 5_000])
def test_an_id_nobody_knows_is_answered_in_words(reference):
    """Never an exception that ends the run."""
    model = PlannedModel(plan=lambda number, _: AIMessage("Well.") if number else AIMessage(
        "", tool_calls=[{"name": "jev_expand", "args": {"id": reference}, "id": "e"}]))  # fmt: skip

    done = agent(model, JevMiddleware(engine())).invoke(ask())["messages"]

    assert "No original goes by this id" in done[-2].content
    assert done[-1].content == "Well."


def test_persist_mode_refuses_a_store_in_memory():
    """Before anything is lost, and saying what to give instead."""
    for build in (
        lambda: JevMiddleware(mode="persist"),
        lambda: JevMiddleware(ContextEngine(store=MemoryStore()), mode="marker"),
    ):
        with pytest.raises(ConfigError, match=r"lives in memory only.*SqliteStore"):
            build()


def persisted(
    tmp_path, *, state=None, mode="persist", store=None, model=None, judge=None, checkpointer=None, **options
):
    """An agent that writes what it decides."""
    store = store or SqliteStore(tmp_path / "originals.db")
    jev = JevMiddleware(engine(judge, store=store), mode=mode, **options)
    return agent(
        model or PlannedModel(plan=steps(COUNT, per_turn=2)), jev, checkpointer=checkpointer or InMemorySaver(),
        **({} if state is None else {"state_schema": state}),
    )  # fmt: skip


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("mode", "state"),
    [("persist", None), ("persist", "JevAgentState"), ("marker", "JevAgentState"),
     *([("persist", "JevDeltaAgentState"), ("marker", "JevDeltaAgentState")] if HAS_DELTA else [])],
)  # fmt: skip
def test_persist_mode_shortens_the_state_and_keeps_every_original(tmp_path, mode, state, is_async):
    """Same ids, same order, whole pairs; each original is in the store, byte for byte; each question asked once."""
    model, judge = PlannedModel(plan=steps(COUNT, per_turn=2)), CountingJudge()
    store = SqliteStore(tmp_path / "originals.db")
    state = None if state is None else getattr(ours, state)
    built = persisted(tmp_path, state=state, mode=mode, store=store, model=model, judge=judge)
    if is_async:
        anyio.run(built.ainvoke, ask(), thread())
    else:
        built.invoke(ask(), thread())
    values = built.get_state(thread()).values
    results = [m for m in values["messages"] if isinstance(m, ToolMessage)]
    out = {row: m for row, m in enumerate(results) if m.content != text_of_step(row)}
    originals = [anyio.run(store.read, m.content.split("intact as ")[1][:19]).text for m in out.values()]

    assert len(out) == len(references_of(values)) > 10
    assert originals == [text_of_step(row) for row in out]
    assert len({m.id for m in values["messages"]}) == len(values["messages"]) == 2 + 3 * COUNT
    assert all(pairs_are_whole(messages) for messages in model.seen)
    assert judge.requests == prefix_breaks(model.seen)
    assert len(judge.questions) == len(set(judge.questions))


def test_both_modes_show_the_model_the_same_bytes(tmp_path):
    """Where the text is kept makes no difference to what is sent."""
    seen = []
    for mode in ("view", "persist"):
        model = PlannedModel(plan=steps(COUNT))
        store = SqliteStore(tmp_path / "one.db")
        persisted(tmp_path, mode=mode, store=store, model=model).invoke(ask(), thread())
        seen.append([plain(messages) for messages in model.seen])

    assert seen[0] == seen[1]


def test_a_persisted_original_is_expanded_from_the_store(tmp_path):
    """In another process, with another middleware over the same two files."""
    path = tmp_path / "c.db"
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        built = persisted(tmp_path, checkpointer=SqliteSaver(connection))
        built.invoke(ask(), thread())
        reference = references_of(built.get_state(thread()).values)[3]
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        model = PlannedModel(plan=expands(reference, pages=2))
        built = persisted(tmp_path, model=model, checkpointer=SqliteSaver(connection))
        done = built.invoke(ask("Read it again."), thread())["messages"]

    assert "".join(pages_of(done)) in {text_of_step(step) for step in range(2 * COUNT)}


def test_the_stream_of_messages_stays_as_it_was(tmp_path):
    """Replacements by id are not told again as new messages."""
    built = persisted(tmp_path)

    parts = [m for m, _ in built.stream(ask(), thread(), stream_mode="messages") if isinstance(m, ToolMessage)]

    assert sorted(m.content for m in parts) == sorted(text_of_step(step) for step in range(2 * COUNT))


def test_a_name_of_ones_own_for_the_tool():
    """The engine's setting names it, in the markers and to the model."""
    jev = JevMiddleware(engine(expand_tool="read_again"))
    model = PlannedModel(plan=steps(20))

    agent(model, jev).invoke(ask(), {"recursion_limit": 200})

    assert [tool.name for tool in jev.tools] == ["read_again"]
    assert "call read_again with this id" in str(model.seen[-1])


def test_another_thread_reads_nothing_of_it(tmp_path):
    """An id of one thread is unknown in another one, though both share a store."""
    built = persisted(tmp_path)
    built.invoke(ask(), thread())
    reference = references_of(built.get_state(thread()).values)[0]
    call = {"name": "jev_expand", "args": {"id": reference}, "id": "e"}
    model = PlannedModel(plan=lambda number, _: AIMessage("Well.") if number else AIMessage("", tool_calls=[call]))

    done = persisted(tmp_path, model=model).invoke(ask("Read it."), thread("another"))["messages"]

    assert "No original goes by this id" in done[-2].content


def test_a_persisted_history_is_restored_whole(tmp_path):
    """`engine.restore` undoes every pass: the thread's messages as they would be without us."""
    store = SqliteStore(tmp_path / "originals.db")
    built = persisted(tmp_path, store=store)
    built.invoke(ask(), thread())
    messages = built.get_state(thread()).values["messages"]

    done = anyio.run(partial(ContextEngine(store=store).restore, messages, host="langgraph"))

    assert done.passes >= 1
    assert done.left == []
    assert [m.content for m in done.messages if isinstance(m, ToolMessage)] == [
        text_of_step(step) for step in range(2 * COUNT)
    ]
    assert [m.id for m in done.messages] == [m.id for m in messages]


def test_a_thread_may_change_from_view_to_persist_mode(tmp_path):
    """What was decided in view mode is then written too, and its originals, which no store had, are saved first."""
    checkpointer = InMemorySaver()
    viewed = agent(PlannedModel(plan=steps(COUNT)), JevMiddleware(engine()), checkpointer=checkpointer)
    viewed.invoke(ask(), thread())
    store = SqliteStore(tmp_path / "o.db")
    reply = PlannedModel(plan=lambda *_: AIMessage("Hello again."))
    built = persisted(tmp_path, store=store, model=reply, checkpointer=checkpointer)

    built.invoke(ask("And now?"), thread())
    values = built.get_state(thread()).values
    results = [m for m in values["messages"] if isinstance(m, ToolMessage)]
    out = {step: m.content for step, m in enumerate(results) if m.content != text_of_step(step)}
    originals = {step: anyio.run(store.read, text.split("intact as ")[1][:19]).text for step, text in out.items()}

    assert len(out) == len(references_of(values)) > 5
    assert originals == {step: text_of_step(step) for step in out}


class BrokenStore(MemoryStore):
    """A store that takes nothing; not one of ours, so that persist mode does not refuse it."""

    async def save(self, originals):
        raise StoreError("disk full")


def test_what_cannot_be_saved_stays_in_the_state(tmp_path):
    """No original in the store, no replacement: the history is as it came, and the run goes on."""
    broken = SqliteStore(tmp_path / "x.db")
    broken.save = BrokenStore().save
    model = PlannedModel(plan=steps(COUNT))
    built = persisted(tmp_path, store=broken, model=model)

    built.invoke(ask(), thread())

    results = [m for m in built.get_state(thread()).values["messages"] if isinstance(m, ToolMessage)]
    assert [m.content for m in results] == [text_of_step(step) for step in range(COUNT)]
    assert prefix_breaks(model.seen) == 0


@tool(response_format="content_and_artifact")
def query(step: int, chars: int = 8_000) -> tuple[str, list]:
    """Rows of a query: a text for the model, everything in the artifact."""
    return text_of_step(step, chars), [[step] * 10] * 50


def test_artifacts_leave_with_their_results_and_are_kept_whole(tmp_path):
    """A11: the checkpoint shrinks, ids stay, and the whole message is in the store under a reference."""
    store = SqliteStore(tmp_path / "originals.db")

    def plan(number, messages):
        reply = steps(COUNT)(number, messages)
        return reply.model_copy(update={"tool_calls": [{**call, "name": "query"} for call in reply.tool_calls]})

    jev = JevMiddleware(engine(store=store), mode="persist")
    built = agent(PlannedModel(plan=plan), jev, checkpointer=InMemorySaver(), tools=[query, fetch])
    built.invoke(ask(), thread())
    results = [m for m in built.get_state(thread()).values["messages"] if isinstance(m, ToolMessage)]
    marks = {step: m.response_metadata.get("context_editing") for step, m in enumerate(results)}
    out = {step: mark for step, mark in marks.items() if mark}
    stored = {step: json.loads(anyio.run(store.read, mark["artifact"]).text) for step, mark in out.items()}

    assert len(out) > 5
    assert all(m.artifact is None for step, m in enumerate(results) if step in out)
    assert all(m.artifact == [[step] * 10] * 50 for step, m in enumerate(results) if step not in out)
    assert {step: row["artifact"] for step, row in stored.items()} == {step: [[step] * 10] * 50 for step in out}
    assert {step: row["id"] for step, row in stored.items()} == {step: results[step].id for step in out}


def test_persist_mode_over_the_stores_of_a_graph(tmp_path):
    """Originals in a BaseStore: written by a sync run, read by an async one."""
    base = InMemoryStore()
    built = persisted(tmp_path, store=BaseStoreOriginals(base))
    built.invoke(ask(), thread())
    values = built.get_state(thread()).values
    reference = references_of(values)[0]
    checkpointer = built.checkpointer
    model = PlannedModel(plan=expands(reference, pages=2))
    # The tool alone, without our middleware: it finds the BaseStore the graph was compiled with.
    reader = agent(model, checkpointer=checkpointer, tools=[make_expand_tool()], store=base)

    done = anyio.run(reader.ainvoke, ask("Read it again."), thread())["messages"]

    assert "".join(pages_of(done)) in {text_of_step(step) for step in range(2 * COUNT)}


def test_without_any_store_a_search_says_so():
    """A plain answer, not an exception."""
    call = {"name": "jev_search", "args": {"query": "x"}, "id": "s"}
    model = PlannedModel(plan=lambda number, _: AIMessage("Well.") if number else AIMessage("", tool_calls=[call]))

    for run in ("invoke", "ainvoke"):
        built = agent(model, tools=[make_search_tool()])
        done = built.invoke(ask()) if run == "invoke" else anyio.run(built.ainvoke, ask())

        assert "no store of originals is set up" in done["messages"][-2].content


def test_search_finds_what_is_out(tmp_path):
    """By words of the text; the answer names the id for jev_expand."""

    def plan(number, _):
        call = {"name": "jev_search", "args": {"query": "step 3 quick fox"}, "id": "s"}
        return AIMessage("Found.") if number > COUNT + 1 else AIMessage("", tool_calls=[call])

    checkpointer = InMemorySaver()
    persisted(tmp_path, checkpointer=checkpointer, search_tool=True).invoke(ask(), thread())
    built = persisted(tmp_path, checkpointer=checkpointer, search_tool=True, model=PlannedModel(plan=plan))

    done = built.invoke(ask("Find it."), thread())["messages"]

    assert "hit 1 of 3, original jx-" in done[-2].content
    assert "step " in done[-2].content
