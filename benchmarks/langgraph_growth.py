"""How checkpoints grow: the size of a SQLite checkpoint file after an agent's run, by way of pruning.

    python benchmarks/langgraph_growth.py [--steps 120] [--ours]

Needs the extra `langgraph` and `langgraph-checkpoint-sqlite`. A fake chat model asks for one result of 8,000 characters
per step; a scripted judge keeps a quarter of them. Trigger 20,000 tokens of a window of 120,000, newest 6 messages
pinned, batches of 8,000 tokens. Ends with an error where a way of ours needs more than the best figure known for it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
# In place of this folder, whose `requests.py` would be taken for the library.
sys.path[:1] = [str(ROOT / "tests" / "hosts"), str(ROOT), str(ROOT / "adapters")]

# Megabytes after 120 steps, the best that was measured for each way before this adapter was written
# (langgraph 1.2.24, AsyncSqliteSaver, the same workload).
WINDOW = {"window_tokens": 120_000, "trigger_share": 1 / 6, "target_share": 1 / 6}
BEST_AT_120 = {"view": 125.9, "persist": 59.7, "persist, delta": 3.45, "marker, delta": 2.9, "persist, exit": 0.43}


class Way(NamedTuple):
    """One way of keeping a history short, or not at all."""

    name: str
    mode: str | None = None
    state: str | None = None
    durability: str | None = None
    has_hook: bool = False


WAYS = [
    Way("no pruning"),
    Way("no pruning, exit", durability="exit"),
    Way("no pruning, delta", state="JevDeltaAgentState"),
    Way("an empty before_model hook", has_hook=True),
    Way("view", "view"),
    Way("view, delta", "view", "JevDeltaAgentState"),
    Way("persist", "persist"),
    Way("persist, delta", "persist", "JevDeltaAgentState"),
    Way("persist, exit", "persist", durability="exit"),
    Way("marker", "marker", "JevAgentState"),
    Way("marker, delta", "marker", "JevDeltaAgentState"),
]


async def grow(way: Way, steps: int, folder: Path) -> dict[str, Any]:
    """Run an agent; returns sizes in megabytes, and what was asked."""
    from langchain.agents.middleware import AgentMiddleware
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from langgraph_agents import CountingJudge, JevMiddleware, PlannedModel, agent, ask, engine, thread
    from langgraph_agents import steps as plan

    import jev_engine_adapters.langgraph as ours
    from jev_engine.store.sqlite import SqliteStore

    class Hook(AgentMiddleware):
        def before_model(self, state: Any, runtime: Any) -> None:
            return None

    judge, model = CountingJudge(), PlannedModel(plan=plan(steps))
    originals = folder / "originals.db"
    middleware: list[Any] = [Hook()] if way.has_hook else []
    if way.mode is not None:
        made = engine(judge, store=SqliteStore(originals), pin_newest_calls=0, pin_newest_messages=6, **WINDOW)
        middleware.append(JevMiddleware(made, mode=way.mode, expand_tool=False))
    options = {} if way.state is None else {"state_schema": getattr(ours, way.state)}
    async with AsyncSqliteSaver.from_conn_string(str(folder / "c.db")) as saver:
        built = agent(model, *middleware, checkpointer=saver, **options)
        run = {} if way.durability is None else {"durability": way.durability}
        await built.ainvoke(ask(), thread(), **run)
        await saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    last = sum(len(str(message.content)) for message in model.seen[-1]) // 4
    stored = originals.stat().st_size if originals.exists() and way.mode else 0
    size = (folder / "c.db").stat().st_size
    return {
        "mb": size / 1e6,
        "stored": stored / 1e6,
        "judge": judge.requests,
        "units": len(judge.questions),
        "last": last,
    }


def main() -> int:
    """Print the table; the exit code tells whether ours are at or below the best known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--ours", action="store_true", help="leave out what is only there to compare with")
    given = parser.parse_args()
    steps = given.steps
    print(f"| {steps} steps | checkpoints MB | originals MB | judge calls / questions | tokens of the last view |")
    print("| --- | --- | --- | --- | --- |")
    worse = []
    for way in [way for way in WAYS if way.mode or not given.ours]:
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(grow(way, steps, Path(folder)))
        asked = f"{found['judge']} / {found['units']}"
        print(f"| {way.name} | {found['mb']:.2f} | {found['stored']:.2f} | {asked} | {found['last']:,} |", flush=True)
        best = BEST_AT_120.get(way.name) if steps == 120 else None
        if best is not None and round(found["mb"], 2) > best:
            worse.append(f"{way.name}: {found['mb']:.2f} MB where {best} is the best known")
    for line in worse:
        print(f"WORSE {line}")
    return bool(worse)


if __name__ == "__main__":
    raise SystemExit(main())
