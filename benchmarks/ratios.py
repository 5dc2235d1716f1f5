"""Cost of the engine as a ratio to `json.loads(json.dumps(messages))` of the same history, in one run.

    python benchmarks/ratios.py                     all rows
    python benchmarks/ratios.py --sizes 100 1000    some sizes
    python benchmarks/ratios.py --sessions 5        fewer real sessions

Each history is measured in a fresh process, in CPU time of that process, garbage collection as it comes.
Real sessions are read from ../shared/corpus; without it their rows are left out, and the output says so.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT.parent / "shared" / "corpus" / "trajectories.jsonl.gz"
SIZES = (100, 300, 1_000, 5_000, 20_000)
# Bars of the design: first pass, repeat pass, apply alone, growth of memory; by number of calls.
FIRST = {100: 2.2, 300: 2.2, 1_000: 2.0, 5_000: 2.0, 20_000: 2.0}
REPEAT = {100: 0.8, 300: 0.8, 1_000: 0.8, 5_000: 1.0, 20_000: 1.0}
APPLY, MEMORY = 0.5, 0.9
REAL_TOTAL, REAL_WORST = 1.9, 2.8
SHOULD_COMPRESS_US = 50.0
LATER = 40
REPEATS = 5


def synthetic(calls: int, seed: int = 7) -> list[dict[str, Any]]:
    """A session of so many calls: code-like results of 1 to 4 kB, a user row every 25 calls."""
    rng = random.Random(seed)
    names = [f"{a}_{b}" for a in ("parse", "load", "index", "merge", "plan") for b in ("rows", "tree", "cache", "user")]
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Please make the importer faster."}]
    for number in range(calls):
        path = f"src/{rng.choice(names)}/{rng.choice(names)}_{number % 97}.py"
        tool, arguments = rng.choice((("read", {"path": path}), ("bash", {"command": f"pytest -q {path}"})))
        lines = [
            f"    {rng.choice(names)}_{rng.randrange(10**4)} = {rng.choice(names)}(self.{rng.choice(names)}, {n})"
            for n in range(rng.randrange(18, 70))
        ]
        call = {"id": f"c{number}", "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": "\n".join(lines)})
        if number % 25 == 24:
            messages.append({"role": "assistant", "content": "That part is done, the next one follows. " * 4})
            messages.append({"role": "user", "content": "Good, go on."})
    return messages


def real(index: int) -> list[dict[str, Any]]:
    """The messages of one session of the corpus."""
    with gzip.open(CORPUS, "rt") as lines:
        for number, line in enumerate(lines):
            if number == index:
                return list(json.loads(line)["messages"])
    raise IndexError(index)


def long_sessions(count: int) -> list[int]:
    """So many sessions of at least 40 calls, spread over the corpus; below that the event loop is half the pass."""
    with gzip.open(CORPUS, "rt") as lines:
        long = [n for n, line in enumerate(lines) if line.count('"role":"tool"') + line.count('"role": "tool"') >= 40]
    return long[:: max(1, len(long) // count)][:count]


class InstantAsker:
    """Answers at once, differently for each question, from the digits of its id."""

    async def ask(self, state: str, questions: Mapping[str, Mapping[str, Any]]) -> Mapping[str, float]:
        """Numbers between 0 and 1; results are mostly not needed."""
        return {
            name: (sum(name.encode()) * 37 % 101) / (1_010 if name.startswith("result") else 101) for name in questions
        }


def peak_mb() -> float:
    """Peak resident memory of this process since the last reset, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1_024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024


def reset_peak() -> None:
    """Forget the peak so far (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def measure(kind: str, number: int, judge: str) -> dict[str, Any]:
    """One history in this process: CPU seconds of a round trip and of the engine, and growth of memory."""
    from jev_engine import ContextEngine
    from jev_engine.judges.asked import AskedJudge
    from jev_engine.testing import ScriptedJudge

    def at_once(call: Any) -> tuple[float, float]:
        return int(call.key[:4], 16) / 65_535, int(call.key[4:8], 16) / 655_350

    messages = synthetic(number) if kind == "calls" else real(number)
    engine = ContextEngine(
        judge={"instant": ScriptedJudge(at_once), "asked": AskedJudge(InstantAsker()), "local": None}[judge]
    )
    size_mb = len(json.dumps(messages)) / 1e6

    async def run() -> dict[str, Any]:
        # Modules that a first pass imports (the event loop's, above all) are the process's cost, not the pass's. A pass
        # that takes nothing out, as this one, has no deadline to keep, for which anyio brings in its own.
        with anyio.move_on_after(60):
            await engine.compress(synthetic(12, seed=1), host="openai", force=True)
        reset_peak()
        before_mb = peak_mb()
        clock = time.process_time
        start = clock()
        first = await engine.compress(messages, host="openai", force=True)
        first_s = clock() - start
        memory = (peak_mb() - before_mb) / size_mb
        # Means of five: one full collection of the interpreter's garbage would otherwise fall into one of them or not.
        start = clock()
        for _ in range(REPEATS):
            await engine.compress(messages, host="openai", force=True, ledger=first.ledger)
        repeat_s = (clock() - start) / REPEATS
        start = clock()
        for _ in range(REPEATS):
            engine.apply(messages, first.ledger, host="openai")
        apply_s = (clock() - start) / REPEATS
        start = clock()
        for _ in range(1_000):
            engine.should_compress(100_000)
        should_us = (clock() - start) * 1_000
        # Forty messages later: the pass before them is made first, by an engine that has seen nothing else.
        fresh = ContextEngine(judge=engine.judge)
        early = await fresh.compress(messages[:-LATER], host="openai", force=True)
        start = clock()
        await fresh.compress(messages, host="openai", force=True, ledger=early.ledger)
        return {
            "first": first_s, "repeat": repeat_s, "apply": apply_s, "later": clock() - start, "memory": memory,
            "should_us": should_us, "outcome": first.outcome, "requests": first.stats.requests,
            "stage": first.stats.state_stage, "calls": first.stats.calls, "freed": first.reduction_ratio, "mb": size_mb,
        }  # fmt: skip

    return asyncio.run(run())


def round_trip(kind: str, number: int) -> dict[str, Any]:
    """One round trip of a history in this process, as cold as the pass it is compared with."""
    json.loads(json.dumps(synthetic(12, seed=1)))
    messages = synthetic(number) if kind == "calls" else real(number)
    start = time.process_time()
    json.loads(json.dumps(messages))
    return {"round_trip": time.process_time() - start}


def in_fresh_process(kind: str, number: int, judge: str) -> dict[str, Any]:
    """Pass and round trip, each in processes of their own; the best of three each, because the machine may be busy."""
    passes = [_child(kind, number, judge) for _ in range(3)]
    trips = [_child(kind, number, "none")["round_trip"] for _ in range(3)]
    best = min(passes, key=lambda run: run["first"])
    for name in ("repeat", "apply", "later", "memory"):
        best[name] = min(run[name] for run in passes)
    return best | {"round_trip": min(trips)}


def _child(kind: str, number: int, judge: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", kind, str(number), judge]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    if out.returncode:
        sys.exit(out.stderr)
    return dict(json.loads(out.stdout.splitlines()[-1]))


def show(name: str, row: dict[str, Any], bars: dict[str, float]) -> bool:
    """Print one row of ratios; returns whether all bars hold."""
    unit = row["round_trip"]
    ratios = {k: row[k] / unit for k in ("first", "repeat", "apply", "later")} | {"memory": row["memory"]}
    ok = all(ratios[k] <= bar for k, bar in bars.items()) and row["should_us"] <= SHOULD_COMPRESS_US
    cells = "  ".join(f"{k} {v:5.2f}{'' if k not in bars or v <= bars[k] else '!'}" for k, v in ratios.items())
    print(
        f"{name:>16}  {row['calls']:>6} calls {row['mb']:7.2f} MB  {cells}  should_compress {row['should_us']:.1f} us"
        f"  {row['requests']} requests ({row['stage']})  {'ok' if ok else 'OVER THE BAR'}",
        flush=True,
    )
    return ok


def main() -> None:
    """Measure and print; exit 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="calls of the synthetic sessions")
    parser.add_argument("--sessions", type=int, default=20, help="number of corpus sessions, spread over the corpus")
    parser.add_argument("--judge", choices=("instant", "asked", "local"), default="instant")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        kind, number, judge = options.one
        one = round_trip(kind, int(number)) if judge == "none" else measure(kind, int(number), judge)
        print(json.dumps(one))
        return
    ok = True
    local = options.judge == "local"
    firsts: dict[int, float] = {}
    print("ratios to one json.loads(json.dumps(messages)); memory relative to the JSON")
    for size in options.sizes:
        row = in_fresh_process("calls", size, options.judge)
        firsts[size] = row["first"] / row["round_trip"]
        bars = {"first": FIRST.get(size, 2.0), "repeat": REPEAT.get(size, 1.0), "apply": APPLY, "memory": MEMORY}
        ok &= show(f"synthetic {size}", row, {"memory": 1.5} if local else bars)
    if 1_000 in firsts and 20_000 in firsts and not local:
        growth = firsts[20_000] / firsts[1_000]
        print(f"ratio at 20k over ratio at 1k: {growth:.2f} (bar 1.25)")
        ok &= growth <= 1.25
    if options.sessions and CORPUS.exists():
        numbers = long_sessions(options.sessions)
        rows = [in_fresh_process("session", number, options.judge) for number in numbers]
        worst = 12.0 if local else REAL_WORST
        for number, row in zip(numbers, rows, strict=True):
            ok &= show(f"session {number}", row, {"first": worst})
        sums = {k: sum(r[k] for r in rows) for k in ("first", "repeat", "later", "round_trip")}
        total = sums["first"] / sums["round_trip"]
        print(
            f"real sessions in total: first {total:.2f} (bar {9.0 if local else REAL_TOTAL}), "
            f"repeat {sums['repeat'] / sums['round_trip']:.2f}, "
            f"40 messages later {sums['later'] / sums['round_trip']:.2f}" + (" (bar 3)" if local else "")
        )
        ok &= total <= (9.0 if local else REAL_TOTAL) and (not local or sums["later"] <= 3 * sums["round_trip"])
    elif options.sessions:
        print("real sessions: left out, ../shared/corpus is not there")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
