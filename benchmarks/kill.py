"""kill -9 during passes: no marker without its original, no broken store.

    python benchmarks/kill.py             200 runs
    python benchmarks/kill.py --runs 20   fewer

Each run is a process that compresses a growing session, with ledger, messages and pruning, over and over, and writes
every history it gets to a file, as a host does. It is killed at a random moment. Then every marker of the last history
that was written must lead to its original, byte for byte, the history must restore, and the file must pass SQLite's
own integrity check. All runs share one store.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "adapters")]

from jev_engine import ContextEngine, make_config  # noqa: E402  # the project beside this script
from jev_engine.errors import StoreError  # noqa: E402
from jev_engine.store.sqlite import Limits, SqliteStore  # noqa: E402
from jev_engine.testing import ScriptedJudge, call, history, result, user  # noqa: E402

LONGEST_RUN_SECONDS = 1.5
"""Long enough for a dozen passes on an idle machine; the moment of the kill is spread evenly over it."""
CALLS = 8
DAY = 86_400
REFERENCE = re.compile(r"intact as (jx-[0-9a-f]{16})")


def text_of(run: int, number: int) -> str:
    """The result of a call: known to whoever checks."""
    rng = random.Random(run * 1_000_003 + number)
    return f"result {number} of run {run}\n" + "\n".join(f"value_{rng.randrange(10**9)} = {n}" for n in range(120))


def store_at(folder: Path, run: int) -> SqliteStore:
    """The shared store; for every run ten days have passed, so that older sessions expire in the middle of passes."""
    return SqliteStore(folder / "store" / "originals.sqlite3", limits=Limits(max_originals=2_000),
                       clock=lambda: time.time() + 10 * run * DAY)  # fmt: skip


def engine_of(store: SqliteStore) -> ContextEngine:
    """Everything that may go, goes."""
    config = make_config(pin_newest_calls=0, min_freed_share=0, policy="threshold", keep_result=0.5, keep_call=0)
    return ContextEngine(config=config, judge=ScriptedJudge(lambda _: (1.0, 0.0)), store=store)


async def write_forever(folder: Path, run: int) -> None:
    """Passes, one after another, until somebody kills this process."""
    store = store_at(folder, run)
    engine = engine_of(store)
    seen: list[Any] = history(user("Go."))
    number = 0
    with (folder / "histories.jsonl").open("w", encoding="utf-8") as stream:
        while True:
            for _ in range(CALLS):
                name = f"c{number}"
                seen += [call("read", call_id=name), result(text_of(run, number), call_id=name)]
                number += 1
            done = await engine.compress(seen, host="openai", session=f"run-{run}")
            if done.outcome == "failed":
                raise RuntimeError(done.reason)
            seen = list(done.messages)
            stream.write(json.dumps({"calls": number, "messages": seen}) + "\n")
            stream.flush()
            await store.save_ledger(f"run-{run}", done.ledger.to_json())
            await store.save_messages(f"run-{run}", seen[-2:])
            await store.link_session(f"run-{run}.{number}", f"run-{run}")


async def check(folder: Path, run: int) -> Counter[str]:
    """What is wrong after a kill, by kind, and how much was looked at."""
    found: Counter[str] = Counter(runs=1)
    path = folder / "store" / "originals.sqlite3"
    if path.exists():
        with sqlite3.connect(path) as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if db.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                found["corrupt stores"] += 1
            if version:  # raises where the index does not hold together
                db.execute("INSERT INTO terms (terms) VALUES ('integrity-check')")
        db.close()
    lines = (folder / "histories.jsonl").read_text(encoding="utf-8").split("\n")
    if len(lines) < 2:
        found["killed before the first pass"] += 1
        return found
    written = json.loads(lines[-2])  # the last whole line
    found["passes"] += len(lines) - 1
    store = store_at(folder, run)
    for message in written["messages"]:
        text = message.get("content") or ""
        marked = REFERENCE.search(text) if message["role"] == "tool" else None
        if marked is None:
            continue
        found["markers"] += 1
        try:
            original = await store.read(marked.group(1), session=f"run-{run}")
        except StoreError as error:
            print(f"run {run}: {error}")
            found["dangling markers"] += 1
            continue
        if original.text != text_of(run, int(message["tool_call_id"][1:])):
            found["wrong originals"] += 1
    restored = await engine_of(store).restore(written["messages"], host="openai")
    results = [message["content"] for message in restored.messages if message["role"] == "tool"]
    if results != [text_of(run, number) for number in range(written["calls"])]:
        found["histories not restored"] += 1
    return found


def _write(folder: Path, run: int) -> None:
    asyncio.run(write_forever(folder, run))


def _check(folder: Path, run: int, answers: Any) -> None:
    answers.put(asyncio.run(check(folder, run)))


def main() -> None:
    """Run, kill, check, and print the table."""
    parser = argparse.ArgumentParser(description="Kill a writer in the middle of passes.")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    processes = multiprocessing.get_context("fork")
    folder = Path(tempfile.mkdtemp(prefix="kill-"))
    total: Counter[str] = Counter()
    try:
        for run in range(given.runs):
            (folder / "histories.jsonl").write_text("")
            writer = processes.Process(target=_write, args=(folder, run))
            writer.start()
            time.sleep(rng.uniform(0.01, LONGEST_RUN_SECONDS))
            if writer.exitcode is not None:
                sys.exit(f"run {run}: the writer ended by itself with {writer.exitcode}")
            os.kill(writer.pid or 0, signal.SIGKILL)
            writer.join()
            answers = processes.SimpleQueue()
            checker = processes.Process(target=_check, args=(folder, run, answers))
            checker.start()
            total.update(answers.get())
            checker.join()
    finally:
        shutil.rmtree(folder)
    bad = ("dangling markers", "wrong originals", "histories not restored", "corrupt stores")
    for name in ("runs", "killed before the first pass", "passes", "markers", *bad):
        print(f"{name:32s} {total[name]:8,}")
    sys.exit(1 if any(total[name] for name in bad) else 0)


if __name__ == "__main__":
    main()
