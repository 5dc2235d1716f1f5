"""What a compaction costs the plugin: the whole way over the socket and back, against a JSON round trip of the same.

    python benchmarks/claude_code_pass.py [--calls 500] [--passes 100]

Prints the ratio of a first pass and of a repeated one to `json.loads(json.dumps(request))`, in CPU time of both sides
together and by the clock; the memory of the process over many passes; how long a small session waits while a large one
is worked on. Sessions are made from those in ../shared/sessions, and where these are missing, made up.
Ends with 1 above the bars: 14x, 10 percent of growth after the first ten passes, a small session that waits for the
large one to end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from jev_engine.serve.client import ask
from jev_engine.serve.places import FOLDER_VARIABLE, places
from jev_engine.serve.process import ensure, stop

BAR_RATIO = 14.0
BAR_GROWTH = 0.10
ROOT = Path(__file__).resolve().parents[1]
SESSIONS = ROOT.parent / "shared" / "sessions" / "claude-code"
WORDS = "parse token node left right value error return import class def test assert open close read write".split()


def conversation(calls: int, seed: int = 7) -> list[dict[str, Any]]:
    """A session of so many calls, as the plugin sends it: from real sessions where they are, else made up."""
    files = sorted(SESSIONS.glob("*.jsonl"))
    return real(files, calls, seed) if files else made_up(calls, seed)


def real(files: list[Path], calls: int, seed: int) -> list[dict[str, Any]]:
    """Rows of real sessions, one file after another, ids told apart by the seed."""
    rows: list[dict[str, Any]] = []
    made = 0
    for file in [*files[seed % len(files) :], *files, *files]:
        for line in filter(None, file.read_text(encoding="utf-8").split("\n")):
            row = json.loads(line)
            if row.get("type") not in ("user", "assistant") or row.get("isSidechain") or row.get("isMeta"):
                continue
            found = slim(len(rows), row, f"{seed}-{len(rows) // 3000}")
            rows.append(found)
            made += len(found["calls"])
            if made >= calls and found["results"]:
                return rows
    return rows


def slim(i: int, row: Any, mark: str) -> dict[str, Any]:
    """A row of a session file as the plugin sends it."""
    content = row["message"]["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    calls = [
        {"id": f"{mark}{b['id']}", "name": b["name"], "input": b["input"]} for b in blocks if b["type"] == "tool_use"
    ]
    results = [
        {"id": f"{mark}{b['tool_use_id']}", "text": plain(b.get("content")), "error": bool(b.get("is_error"))}
        for b in blocks
        if b["type"] == "tool_result"
    ]
    return entry(i, row["type"], text, calls=calls, results=results)


def plain(content: Any) -> str:
    """The text of a result."""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content or ())


def made_up(calls: int, seed: int) -> list[dict[str, Any]]:
    """Reads, searches and commands of 1,000 to 4,000 characters, in a vocabulary of a small project."""
    chance = random.Random(seed)
    names = [f"{chance.choice(WORDS)}_{chance.choice(WORDS)}_{n % 40}" for n in range(400)]
    rows: list[dict[str, Any]] = [entry(0, "user", f"Port module {seed} to the new interface.")]
    for number in range(calls):
        tool = chance.choice(("Read", "Bash", "Grep"))
        given = {"file_path": f"/work/src/part_{number}.py"} if tool == "Read" else {"command": f"run {number} --all"}
        lines = [f"{n:>6}  {chance.choice(names)} = {chance.choice(names)}({chance.choice(names)})"
                 for n in range(chance.randrange(20, 80))]  # fmt: skip
        call = {"id": f"toolu_{seed}_{number}", "name": tool, "input": given}
        rows.append(entry(len(rows), "assistant", "", calls=[call]))
        result = {"id": call["id"], "text": "\n".join(lines), "error": False}
        rows.append(entry(len(rows), "user", "", results=[result]))
        if number % 9 == 8:
            rows.append(entry(len(rows), "assistant", f"Part {number} is done."))
            rows.append(entry(len(rows), "user", "Go on."))
    return rows


def entry(i: int, role: str, text: str, **more: Any) -> dict[str, Any]:
    """One slim entry."""
    return {"i": i, "role": role, "text": text, "calls": [], "results": [], **more}


def request(session: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """What the plugin asks at `/compact`."""
    given = {"v": 1, "host": "claude-code-plugin", "session_id": session, "trigger": "manual"}
    return {**given, "expand_tool": "mcp__jev-engine__expand", "options": {}, "messages": messages}


def timed(work: Any, times: int = 1) -> float:
    """The fastest of so many goes, in seconds."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def memory_kb(pid: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--passes", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER_VARIABLE] = folder
        os.environ["XDG_DATA_HOME"] = folder
        running = ensure(port=0)
        try:
            return measure(running.pid, given.calls, given.passes)
        finally:
            stop()


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of this one together."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + time.process_time()


def spent(pid: int, work: Any) -> tuple[float, float]:
    """CPU time and time by the clock, in seconds."""
    start, cpu = time.perf_counter(), cpu_seconds(pid)
    work()
    return cpu_seconds(pid) - cpu, time.perf_counter() - start


def measure(pid: int, calls: int, passes: int) -> int:
    """All figures; 0 where they keep the bars."""
    socket = places().socket
    ask(socket, "/plugin/compact", request("warm", conversation(20, 1)))
    ratios = []
    for seed in range(2, 7):
        asked = request(f"session-{seed}", conversation(calls, seed))
        size = len(json.dumps(asked))
        trips = [spent(pid, lambda asked=asked: json.loads(json.dumps(asked))) for _ in range(7)]
        # Of both sides, one tick of the other process's clock is 10 ms: so many goes that it does not matter.
        trip_cpu, trip = statistics.median(cpu for cpu, _ in trips), min(clock for _, clock in trips)
        first_cpu, first = spent(pid, lambda asked=asked: ask(socket, "/plugin/compact", asked))
        again_cpu, again = spent(pid, lambda asked=asked: ask(socket, "/plugin/compact", asked))
        ratios.append(first_cpu / trip_cpu)
        print(
            f"{calls} calls, {size:,} characters: round trip {trip_cpu * 1e3:.1f} ms CPU; first pass"
            f" {first_cpu * 1e3:.0f} ms CPU ({first_cpu / trip_cpu:.1f}x; by the clock {first / trip:.1f}x), again"
            f" {again_cpu * 1e3:.0f} ms ({again_cpu / trip_cpu:.1f}x; {again / trip:.1f}x)"
        )
    ratio = statistics.median(ratios)
    sizes = []
    asked = request("many", conversation(calls, 9))
    for _ in range(passes):
        ask(socket, "/plugin/compact", asked)
        sizes.append(memory_kb(pid))
    early, late = sizes[min(9, len(sizes) - 1)], sizes[-1]
    growth = late / early - 1 if early else 0.0
    print(f"{passes} passes: {early:,} kB after ten, {late:,} kB at the end ({growth:+.1%})")
    alone, beside, large = waiting(socket, calls)
    print(
        f"a session of 20 calls: {alone * 1e3:.0f} ms alone, {beside * 1e3:.0f} ms beside one of {calls * 4} calls,"
        f" which takes {large * 1e3:.0f} ms"
    )
    good = ratio <= BAR_RATIO and growth <= BAR_GROWTH and beside < large / 2
    print(f"median ratio {ratio:.1f}x (bar {BAR_RATIO:.0f}x): {'holds' if good else 'DOES NOT HOLD'}")
    return 0 if good else 1


def waiting(socket: Path, calls: int) -> tuple[float, float, float]:
    """How long a small session waits for its answer, alone and while a large one is worked on, and how long that is."""
    small = request("small", conversation(20, 5))
    large = request("large", conversation(calls * 4, 6))
    took: list[float] = []
    alone = timed(lambda: ask(socket, "/plugin/compact", small), 3)
    worker = threading.Thread(target=lambda: took.append(timed(lambda: ask(socket, "/plugin/compact", large))))
    worker.start()
    time.sleep(0.05)
    beside = timed(lambda: ask(socket, "/plugin/compact", small))
    worker.join()
    return alone, beside, took[0]


if __name__ == "__main__":
    sys.exit(main())
