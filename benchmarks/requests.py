"""How few requests a history becomes, and how long asking takes.

    python benchmarks/requests.py                     300, 1,000 and 20,000 calls
    python benchmarks/requests.py --delay-ms 150      another server

Prints requests against the ideal (all rows as a window draws them, and all questions, over the room of a request),
bytes against the planning of the reference implementation, tracked memory of planning, and the wall time over loopback
against waves of the slowest request. Exits 1 where a bar of the design is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
import tracemalloc
from typing import Any

from ratios import synthetic

from jev_engine import ContextEngine, EngineConfig
from jev_engine.judges import JudgeRequest
from jev_engine.judges.asked import AskedJudge
from jev_engine.judges.endpoints import PRESETS
from jev_engine.judges.jev import JevAsker
from jev_engine.judges.planning import PlannedRequest, plan_requests
from jev_engine.questions import WORDING, fixed_cost, question_cost, questions_for
from jev_engine.state import render
from jev_engine.testing.server import FaultServer, Reply
from jev_engine.tokens import TWENTIETHS, cost
from jev_engine.windows import WINDOW_STAGE
from jev_engine_adapters.openai import adapter

TYPESAFE = PRESETS["typesafe"]


def request_for(messages: list[dict[str, Any]], **settings: Any) -> JudgeRequest:
    """Every call of a history as a candidate."""
    transcript = adapter.read(messages)
    return JudgeRequest(transcript, transcript.calls, None, None, frozenset({0}), EngineConfig(**settings))


def sent(planned: list[PlannedRequest]) -> int:
    """Bytes of all bodies."""
    total = 0
    for each in planned:
        questions = {name: q for call in each.calls for name, q in questions_for(call, WORDING).items()}
        total += len(each.state.text.encode()) + len(json.dumps(questions, ensure_ascii=False).encode())
    return total


def planning(calls: int) -> bool:
    """One row of planning; returns whether the bars hold."""
    messages = synthetic(calls)
    request = request_for(messages)
    tracemalloc.start()
    planned = plan_requests(request, budget=TYPESAFE.budget)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    rows = sum(cost(render(entry, WINDOW_STAGE, is_brief=True) or "") for entry in request.transcript.entries)
    asking = sum(question_cost(call, fixed_cost(WORDING)) for call in request.candidates)
    ideal = (rows + asking) / (TYPESAFE.budget.request_tokens * TWENTIETHS)
    decided = {call.number for each in planned for call in each.calls}
    size = len(json.dumps(messages))
    line = f"{calls:>7,} calls  {len(planned):>4} requests (ideal {ideal:.1f}), {planned[0].state.stage}"
    line += f"  {sent(planned) / 1e6:6.2f} MB sent  planning holds {peak / size:.2f}x the history's JSON"
    ok = len(decided) == calls and len(planned) <= max(2, 1.2 * math.ceil(ideal))
    if calls <= 300:  # beyond, the reference leaves out what it still asks about
        reference = plan_requests(request_for(messages, profile="reference"))
        share = sent(planned) / sent(reference) if reference else math.nan
        line += f"  {share:.2f}x the bytes of the reference planning ({len(reference)} requests)"
        ok &= not share > 0.5
    print(f"{line}  {'ok' if ok else 'OVER THE BAR'}", flush=True)
    return ok


def quick_answer(request: Any) -> dict[str, Any]:
    """Answers that cost the server, which shares this process, as little as can be."""
    return {"answers": {name: 0.1 if name.startswith("result") else 0.3 for name in request["questions"]}}


def waiting(calls: int, delay_seconds: float) -> bool:
    """Wall time against a server that takes its time; returns whether it is within 1.3 times the waves."""
    messages = synthetic(calls)
    with FaultServer(lambda *_: Reply(delay_seconds=delay_seconds), answer=quick_answer) as server:
        endpoint = TYPESAFE._replace(url=server.url, tokens_per_second=None)
        judge = AskedJudge(JevAsker(endpoint, key="a-key"), deadline_seconds=60)
        asyncio.run(ContextEngine(judge=judge).compress(synthetic(8), host="openai", dry_run=True))
        server.requests.clear()
        times = []
        for _ in range(3):  # the machine may be busy
            request = request_for(messages)
            started = time.perf_counter()
            verdict = asyncio.run(judge.judge(request))
            times.append(time.perf_counter() - started)
        took = min(times)
    waves = math.ceil(verdict.requests / request.config.concurrency)
    bar = 1.3 * waves * delay_seconds
    line = (
        f"{calls:>7,} calls  {verdict.requests} requests in {waves} waves of {delay_seconds * 1e3:.0f} ms: {took:.2f} s"
    )
    share = f"{took / (waves * delay_seconds):.2f}x (bar 1.30)"
    print(f"{line}, {share}  {'ok' if took <= bar else 'OVER THE BAR'}", flush=True)
    return took <= bar and not verdict.failures


def main() -> None:
    """Measure and print; exit 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=(300, 1_000, 20_000), help="calls")
    parser.add_argument("--delay-ms", type=float, default=150.0, help="what the server takes for a request")
    options = parser.parse_args()
    done = [planning(calls) for calls in options.sizes]
    done += [waiting(calls, options.delay_ms / 1_000) for calls in options.sizes if calls <= 1_000]
    sys.exit(0 if all(done) else 1)


if __name__ == "__main__":
    main()
