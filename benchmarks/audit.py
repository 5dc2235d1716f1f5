"""Cost of the audit trail, and whether it stays within its size.

    python benchmarks/audit.py                overhead at 1,000 calls, in round trips of the history's JSON
    python benchmarks/audit.py --events 1000000    so many events, rotated within the limit, and verified

Overhead is CPU time of the process, all threads, of a first pass with the trail less one without: the median of pairs,
in which either goes first as often as the other. The anchor of the trail lies in a store, as it does for the command.
Ends with 1 above a bar.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from ratios import synthetic

from jev_engine import ContextEngine, make_config
from jev_engine.audit.anchor import StoreAnchor
from jev_engine.audit.files import trail_files
from jev_engine.audit.jsonl import JsonlSink
from jev_engine.audit.verify import verify
from jev_engine.store.sqlite import SqliteStore
from jev_engine.testing import ScriptedJudge

OVERHEAD = 0.3


def answer(call: Any) -> tuple[float, float]:
    """An answer for every unit, each its own."""
    return 0.9, (call.number * 37 % 100) / 400


def one_pass(messages: list[dict[str, Any]], sinks: list[Any]) -> float:
    """CPU seconds of a first pass."""
    engine = ContextEngine(config=make_config(min_freed_share=0.0), judge=ScriptedJudge(answer), sinks=sinks)
    gc.collect()
    start = time.process_time()
    done = asyncio.run(engine.compress(messages, host="openai"))
    spent = time.process_time() - start
    assert done.outcome in ("committed", "over_capacity"), done.reason
    assert not done.stats.warnings, done.stats.warnings
    return spent


def overhead(calls: int, runs: int) -> float:
    """Median overhead in round trips."""
    messages = synthetic(calls)
    trips, extra = [], []
    with tempfile.TemporaryDirectory() as folder:
        trail = Path(folder) / "trail.jsonl"
        anchor = StoreAnchor(SqliteStore(Path(folder) / "originals.sqlite3"), trail)
        sink = JsonlSink(trail, key=b"k" * 32, anchor=anchor)
        for run in range(runs + 2):
            start = time.process_time()
            json.loads(json.dumps(messages))
            trips.append(time.process_time() - start)
            pair: dict[bool, float] = {}
            for with_trail in (False, True) if run % 2 else (True, False):
                pair[with_trail] = one_pass(messages, [sink] if with_trail else [])
            extra.append(pair[True] - pair[False])
    # The first pairs pay for imports.
    return statistics.median(extra[2:]) / statistics.median(trips[2:])


def many(events: int) -> None:
    """So many events into a trail of four files of 8 MB; prints size, memory and time, and verifies what stays."""
    from jev_engine.events import ModelCalled, Origin
    from jev_engine.events.batch import Batch

    limit, files = 8 * 1024 * 1024, 4
    event = ModelCalled(
        id="0" * 32, at=1.0, origin=Origin(actor="host", host="openai", engine_version="0"), session="5e55",
        pass_id="", sequence=1, model="m", max_tokens=5_000,
    ).model_dump_json(exclude_none=True).encode()  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trail.jsonl"
        sink = JsonlSink(path, key=b"k" * 32, max_bytes=limit, max_files=files)
        start = time.monotonic()
        for first in range(0, events, 1_000):
            sink.emit_many(Batch("5e55", [event] * min(1_000, events - first)))
        sink.close()
        seconds = time.monotonic() - start
        size = sum(each.stat().st_size for each in trail_files(path))
        found = verify(path, sink.anchor.read())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        verdict = "ok" if size <= limit * files and found.is_whole else "FAILED"
        print(f"{events:,} events in {seconds:.1f} s: {len(trail_files(path))} files of {limit * files / 2**20:.0f} MB")
        print(f"  {size / 2**20:.1f} MB, {found.lines:,} lines whole, peak memory {peak:.0f} MB  {verdict}")
    sys.exit(verdict != "ok")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--events", type=int, default=0)
    given = parser.parse_args()
    if given.events:
        many(given.events)
        return
    found = overhead(given.calls, given.runs)
    print(f"overhead of the trail at {given.calls:,} calls: {found:.2f}x round trip (bar {OVERHEAD}x)"
          f"  {'ok' if found <= OVERHEAD else 'ABOVE'}")  # fmt: skip
    sys.exit(found > OVERHEAD)


if __name__ == "__main__":
    main()
