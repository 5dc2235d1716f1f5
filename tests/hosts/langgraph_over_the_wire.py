"""A judge over HTTP behind an agent: one client for sync runs, async runs and many event loops."""

from __future__ import annotations

import asyncio

import anyio
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_agents import PlannedModel, agent, ask, engine, prefix_breaks, steps, thread

from jev_engine.judges.asked import AskedJudge
from jev_engine.judges.jev import JevAsker
from jev_engine.testing.server import FaultServer, Reply
from jev_engine_adapters.langgraph import JevMiddleware


def judge_of(server):
    return AskedJudge(JevAsker(server.url, key="k-0123456789"), name="jev", deadline_seconds=5.0)


async def within_a_loop(built, name):
    """Sync code called from async code."""
    return built.invoke(ask(), thread(name))


WAYS = {
    "plain": lambda built, name: built.invoke(ask(), thread(name)),
    "a loop": lambda built, name: asyncio.run(built.ainvoke(ask(), thread(name))),
    "another loop": lambda built, name: asyncio.run(built.ainvoke(ask(), thread(name))),
    "anyio": lambda built, name: anyio.run(built.ainvoke, ask(), thread(name)),
    "within a loop": lambda built, name: asyncio.run(within_a_loop(built, name)),
    "plain again": lambda built, name: built.invoke(ask(), thread(name)),
}


def test_one_judge_serves_every_kind_of_caller():
    """Plain code, a new event loop for each run, sync code within a running loop: every request arrives."""
    with FaultServer() as server:
        model = PlannedModel(plan=steps(16))
        built = agent(model, JevMiddleware(engine(judge_of(server))), checkpointer=InMemorySaver())
        asked = {}
        for name, way in WAYS.items():
            before = len(server.requests)
            done = way(built, name)
            asked[name] = len(server.requests) - before
            assert done["messages"][-1].content == "All done."

    assert set(asked.values()) == {asked["plain"]}
    assert asked["plain"] >= 1


def test_a_provider_that_is_down_costs_decisions_and_no_answer():
    """The local judge decides, or units stay; the run is not lost."""
    with FaultServer(lambda *_: Reply(401)) as server:
        model = PlannedModel(plan=steps(16))
        built = agent(model, JevMiddleware(engine(judge_of(server), undecided="keep")), checkpointer=InMemorySaver())

        done = built.invoke(ask(), thread())

    assert done["messages"][-1].content == "All done."
    assert server.requests
    assert prefix_breaks(model.seen) == 0
