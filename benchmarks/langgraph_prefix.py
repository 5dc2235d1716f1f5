"""What pruning does to a provider's cached prefix, and how often the judge is asked, over an agent's run.

    python benchmarks/langgraph_prefix.py [--steps 60]

Needs the extra `langgraph`. One result of 8,000 characters per step, trigger 20,000 tokens; a scripted judge keeps a
quarter of the results. A prefix breaks where a request does not begin with all of the request before it. Cost is in
prices of a fresh token: 1.25 for what is written to the cache, 0.1 for what is read from it. Ends with an error where a
batch minimum of 16,000 tokens breaks more than 7 prefixes, makes more than 7 calls of the judge, or asks twice.
"""

from __future__ import annotations

import argparse
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# In place of this folder, whose `requests.py` would be taken for the library.
sys.path[:1] = [str(ROOT / "tests" / "hosts"), str(ROOT), str(ROOT / "adapters")]

MOST_BREAKS = 7
BATCHES = (0, 4_000, 8_000, 16_000)
WRITE, READ = 1.25, 0.1


def cost_of(seen: list[list[Any]]) -> float:
    """What a run of requests costs with prompt caching, in prices of a fresh token; 4 characters are a token."""
    from langgraph_agents import plain

    requests = [[(str(row), len(str(row)) / 4) for row in plain(messages)] for messages in seen]
    total = WRITE * sum(tokens for _, tokens in requests[0])
    for before, now in pairwise(requests):
        same = next(
            (at for at, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now))
        )
        total += READ * sum(tokens for _, tokens in now[:same]) + WRITE * sum(tokens for _, tokens in now[same:])
    return total


def run(steps: int, middleware: list[Any]) -> list[list[Any]]:
    """The requests of a run."""
    from langgraph_agents import PlannedModel, agent, ask, thread
    from langgraph_agents import steps as plan

    model = PlannedModel(plan=plan(steps))
    agent(model, *middleware).invoke(ask(), thread())
    return model.seen


def main() -> int:
    """Print the table; the exit code tells whether the bars hold."""
    from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware
    from langgraph_agents import CountingJudge, JevMiddleware, engine, prefix_breaks

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    steps = parser.parse_args().steps
    print(f"| {steps} steps | prefix breaks | cost | judge calls | questions | asked twice |")
    print("| --- | --- | --- | --- | --- | --- |")
    theirs = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=20_000, keep=3)])
    for name, middleware in (("no pruning", []), ("ContextEditingMiddleware 20k, keep 3", [theirs])):
        seen = run(steps, middleware)
        print(f"| {name} | {prefix_breaks(seen)} | {cost_of(seen):,.0f} | 0 | 0 | 0 |")
    fits = True
    for batch in BATCHES:
        judge = CountingJudge()
        seen = run(steps, [JevMiddleware(engine(judge), min_batch_tokens=batch)])
        breaks, asked = prefix_breaks(seen), len(judge.questions)
        twice = asked - len(set(judge.questions))
        row = f"{breaks} | {cost_of(seen):,.0f} | {judge.requests} | {asked} | {twice}"
        print(f"| JevMiddleware, batches from {batch:,} tokens | {row} |")
        if batch == max(BATCHES):
            fits = breaks <= MOST_BREAKS and judge.requests <= MOST_BREAKS and not twice
    return not fits


if __name__ == "__main__":
    raise SystemExit(main())
