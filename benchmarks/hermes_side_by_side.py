"""Hermes 0.19.0 with this engine, with its own compressor, and with hermes-jev-compact 0.2.1, on the same sessions.

    python benchmarks/hermes_side_by_side.py               five sessions of forty reads, fifty planted facts
    python benchmarks/hermes_side_by_side.py --sessions 1
    python benchmarks/hermes_side_by_side.py --reads 120        longer sessions, the facts in their first third

Each arm is the real host in an environment of its own, against a provider on loopback that plays a script: read forty
files of some 12,000 characters one after the other in a window of 65,536 tokens, then say so. The host's own compressor
gets a summariser that answers at once, with one fixed text; hermes-jev-compact gets an asker that answers at once with
what a live study measured on average: 0.60 for a call, 0.32 for a result. Ten files of each session hold a planted
fact that nobody mentions again.

- freed: tokens freed over tokens there were, of all compactions, by the host's own estimate
- provider calls: the agent's requests and the summariser's
- ms: wall time of `compress`, median
- lost: turns that ended without their answer
- in context: facts in the last request; found: facts that the first hit of a query fixed beforehand holds, with the
  means the agent has: this engine's search, or the host's full-text search over its database

Stated before the first run: this engine loses no turn; no more provider calls than the host's compressor; at least
45 of 50 facts in context or found, and at least 20 more than stand in the context of any other arm; a compaction takes
at most 5 times that of the host's compressor with a summariser that takes no time.
What the first run showed: four of the five hold. The facts are 50 against 31, 19 more and not 20; the 31 stand in the
contexts of hermes-jev-compact, whose turns ended before anything was shortened.
Exits 1 where one of these does not hold. What is freed is printed and no target: a summary frees more.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
HOST = "hermes-agent==0.19.0"
RIVAL = "hermes-jev-compact==0.2.1"
ARMS = ("jev-engine", "compressor", "jev")
NAMES = {"jev-engine": "this engine", "compressor": "host's compressor", "jev": "hermes-jev-compact"}
READS, FACTS = 40, 10
WORDS = ("amber", "birch", "cedar", "delta", "ember", "flint", "grove", "heron", "iris", "jade")


def fact(session: int, number: int) -> tuple[str, str]:
    """A fact and the query for it."""
    name = f"{WORDS[number]}-relay-{session}"
    return f"the {name} listens on port {7000 + 97 * session + number} behind the {WORDS[-number - 1]} gate", (
        f"{name} listens port"
    )


def text_of(session: int, number: int) -> str:
    """A file: lines of its own, and in every fourth a fact."""
    seed = session * 1_000 + number
    lines = [
        f"{n:04} module_{seed}.step_{n}: value {(n * 7919 + seed * 104_729) % 1_000_003} ready, queue {n * seed % 97}"
        for n in range(150)
    ]
    if number % 4 == 1 and number < 4 * FACTS:
        lines[60 + number] = f"note: {fact(session, number // 4)[0]}"
    return "\n".join(lines) + "\n"


# --- inside the host -------------------------------------------------------------------------------------------------


def inside(arm: str, session: int, reads: int, home: Path) -> dict[str, Any]:
    """One session in the host's own Python."""
    sys.path.insert(0, str(TESTS / "hosts"))
    from hermes_lab import Lab, results  # type: ignore[import-not-found]
    from hermes_provider import Provider  # type: ignore[import-not-found]

    lab = Lab(home)
    paths = [home / "work" / f"file_{number}.txt" for number in range(reads)]
    for number, path in enumerate(paths):
        path.write_text(text_of(session, number))
    provider = Provider([("call", "read_file", {"path": str(path)}) for path in paths])
    took, freed, before = [], 0, 0
    agent = _agent(arm, lab, provider)
    from agent.model_metadata import estimate_messages_tokens_rough as rough  # type: ignore[import-not-found]

    engine = agent.context_compressor
    run = engine.compress

    def timed(messages: Any, *args: Any, **options: Any) -> Any:
        nonlocal freed, before
        tokens = rough(messages)
        started = time.perf_counter()
        try:
            made = run(messages, *args, **options)
        finally:
            took.append((time.perf_counter() - started) * 1_000)
        before += tokens
        freed += max(0, tokens - rough(made))
        return made

    engine.compress = timed
    fault = None
    try:
        done = agent.run_conversation("Read the files in turn, then say that you have read them.")
        lost = done.get("final_response") != "All done."
    except Exception as error:  # noqa: BLE001  # whatever an arm raises out of the host has cost the turn
        lost, fault = True, f"{type(error).__name__}: {error}"
    last = json.dumps(provider.requests[-1]["messages"]) if provider.requests else ""
    facts = [fact(session, number) for number in range(FACTS)]
    reached = len(results(provider.requests[-1])) if provider.requests else 0
    found = [fact_ for fact_, query in facts if fact_ in _first_hit(arm, engine, lab, query)]
    held = [fact_ for fact_, _ in facts if fact_ in last]
    return {
        "engine": engine.name, "lost": lost, "fault": fault, "ms": took, "freed": freed, "before": before,
        "calls": len(provider.requests), "summaries": len(provider.summaries), "held": len(held), "found": len(found),
        "either": len({*held, *found}), "results": reached,
    }  # fmt: skip


def _agent(arm: str, lab: Any, provider: Any) -> Any:
    if arm == "jev":
        from jev_engine.testing.server import FaultServer

        def answer(request: Any) -> dict[str, Any]:
            return {
                "model": "scripted",
                "answers": {
                    name: {"type": "noul", "noul": 0.60 if "call" in json.dumps(question)[:400] else 0.32}
                    for name, question in request.get("questions", {}).items()
                },
                "usage": {"input_tokens": 1, "output_tokens": 0},
            }

        server = FaultServer(answer=answer)
        server.__enter__()
        os.environ["TYPESAFE_API_KEY"] = "none"
        agent = lab.agent(provider, enabled="hermes-jev-compact", engine="jev", max_iterations=1_000)
        agent.context_compressor.jev_base_url = server.url.rsplit("/", 1)[0]
        return agent
    return lab.agent(provider, engine=arm, max_iterations=1_000)


def _first_hit(arm: str, engine: Any, lab: Any, query: str) -> str:
    if arm == "jev-engine":
        shown = str(engine.handle_tool_call("jev_search", {"query": query}))
        return shown.split("[jev-engine search: hit 2", maxsplit=1)[0]
    rows = lab.database.search_messages(" OR ".join(re.findall(r"\w+", query)), limit=1)
    if not rows:
        return ""
    database = lab.database
    with database._lock:  # noqa: SLF001  # the host reads no single message by its id
        row = database._conn.execute("SELECT content FROM messages WHERE id = ?", (rows[0]["id"],)).fetchone()  # noqa: SLF001
    return str(row[0]) if row else ""


# --- outside ---------------------------------------------------------------------------------------------------------


def main() -> None:
    """Run every arm and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sessions", type=int, default=5)
    parser.add_argument("--reads", type=int, default=READS)
    parser.add_argument("--inside", nargs=2, metavar=("ARM", "OUT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        arm, out = given.inside
        with tempfile.TemporaryDirectory() as folder:
            Path(out).write_text(json.dumps(inside(arm, given.sessions, given.reads, Path(folder))))
        sys.stdout.flush()
        os._exit(0)
    sys.path.insert(0, str(TESTS))
    from hosts.environments import environment
    from hosts.test_hermes import LIGHT

    python = environment("hermes-rivals", LIGHT, no_deps=[HOST, RIVAL])
    table: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for arm in ARMS:
            runs = []
            for session in range(given.sessions):
                out = Path(folder) / f"{arm}-{session}"
                which = ["--inside", arm, out, "--sessions", str(session), "--reads", str(given.reads)]
                subprocess.run([python, __file__, *which], capture_output=True, check=True, timeout=600)
                runs.append(json.loads(out.read_text()))
            table[arm] = _sum(runs)
    show(table, given.sessions, given.reads)
    sys.exit(0 if holds(table, given.sessions) else 1)


def _sum(runs: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("lost", "freed", "before", "calls", "summaries", "held", "found", "either", "results")
    total: dict[str, Any] = {name: sum(run[name] for run in runs) for name in names}
    times = [ms for run in runs for ms in run["ms"]]
    faults = sorted({run["fault"] for run in runs if run["fault"]})
    return {**total, "ms": statistics.median(times) if times else 0.0, "passes": len(times), "faults": faults}


def show(table: dict[str, dict[str, Any]], sessions: int, reads: int) -> None:
    """The table, whatever it shows."""
    base = table["compressor"]["ms"] or 1.0
    print(f"{sessions} sessions of {reads} reads, {sessions * FACTS} facts, host {HOST}\n")
    print("arm                  passes   freed  calls+summaries  lost   ms (ratio)      in context  found  either")
    for arm, row in table.items():
        share = row["freed"] / max(1, row["before"])
        print(
            f"{NAMES[arm]:20} {row['passes']:6}  {share:6.0%}  {row['calls']:5} + {row['summaries']:<7}"
            f"  {row['lost']:4}  {row['ms']:7.1f} ({row['ms'] / base:4.1f})"
            f"  {row['held']:10}  {row['found']:5}  {row['either']:6}"
        )
    for arm, row in table.items():
        for fault in row["faults"]:
            print(f"{NAMES[arm]}: {fault[:160]}")


def holds(table: dict[str, dict[str, Any]], sessions: int) -> bool:
    """What was stated, one line each."""
    ours, theirs = table["jev-engine"], table["compressor"]
    others = max(row["held"] for arm, row in table.items() if arm != "jev-engine")
    wanted = sessions * FACTS
    stated = {
        "no turn lost": ours["lost"] == 0,
        "no more provider calls": ours["calls"] + ours["summaries"] <= theirs["calls"] + theirs["summaries"],
        "nine of ten facts in context or found": ours["either"] >= 0.9 * wanted,
        "two fifths more than in any other context": ours["either"] >= others + 0.4 * wanted,
        "at most 5 times the time": ours["ms"] <= 5 * theirs["ms"],
    }
    for name, is_so in stated.items():
        print(f"{'ok  ' if is_so else 'NOT '} {name}")
    return all(stated.values())


if __name__ == "__main__":
    main()
