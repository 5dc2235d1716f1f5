"""Hold the promise against every real session: each trajectory of the corpus at five cuts, and the session files.

    python benchmarks/promise.py                  everything (several minutes)
    python benchmarks/promise.py --sessions 20    some sessions, spread over the corpus

For each history, profile and judge it checks: no text changed, no pair broken, untouched messages are the same
objects, the input is not mutated, a second pass with the same answers changes nothing, and
restore(compress(x)) == x. It prints the counts and exits 1 where one of them is not zero.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import pickle
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jev_engine import ContextEngine, make_config
from jev_engine.judges import Judge
from jev_engine.testing import ScriptedJudge
from jev_engine.transcript import ToolCall
from jev_engine_adapters.claude_code import adapter as claude_code
from jev_engine_adapters.openai import adapter as openai

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"
CUTS = 5


def by_key(call: ToolCall) -> tuple[float, float]:
    """Answers that differ from unit to unit and depend on nothing but the unit."""
    return int(call.key[:4], 16) / 65_535, int(call.key[4:8], 16) / 65_535


# Name, settings, judge: what the default does, and answers that remove, shorten and keep about a third each.
ARMS: list[tuple[str, dict[str, Any], Judge | None]] = [
    ("balanced, local judge", {}, None),
    ("balanced, forced", {"window_tokens": 20_000}, None),
    ("threshold, scripted", {"policy": "threshold", "keep_result": 0.4, "keep_call": 0.5, "min_freed_share": 0}, None),
    ("reference, scripted", {"profile": "reference"}, None),
]


def texts_of(messages: list[Any]) -> list[tuple[Any, Any]]:
    """Every text that is nobody's to change, in order."""
    return [(m.get("role"), m.get("content")) for m in messages if m.get("role") != "tool" and m.get("content")]


def pairs_of(messages: list[Any]) -> Counter[Any]:
    """Ids of calls and results by number of halves: in a sound history both counts agree."""
    halves: Counter[Any] = Counter()
    for message in messages:
        for call in message.get("tool_calls") or []:
            halves[call["id"]] += 1
        if message.get("role") == "tool":
            halves[message["tool_call_id"]] -= 1
    return +halves + -halves


async def check(messages: list[Any], arm: tuple[str, dict[str, Any], Judge | None], counts: Counter[str]) -> None:
    """One history under one arm."""
    name, settings, judge = arm
    judge = ScriptedJudge(by_key) if "scripted" in name else judge
    engine = ContextEngine(config=make_config(**settings), judge=judge)
    before = pickle.dumps(messages)
    done = await engine.compress(messages, host="openai", session="s")
    counts["passes"] += 1
    counts[done.outcome] += 1
    counts["units judged"] += len(done.decisions)
    counts["shortened"] += sum(d.action == "truncate" for d in done.decisions)
    counts["removed"] += sum(d.action == "remove" for d in done.decisions)
    counts["! input mutated"] += pickle.dumps(messages) != before
    counts["! texts changed"] += texts_of(done.messages) != texts_of(messages)
    counts["! pairs broken"] += pairs_of(done.messages) != pairs_of(messages)
    touched = {d.call.result_row for d in done.decisions if d.action != "keep"}
    touched |= {d.call.row for d in done.decisions if d.action == "remove"}
    counts["! untouched rows not the same object"] += sum(
        target is None or done.messages[target] is not messages[row]
        for row, target in enumerate(done.index_map)
        if row not in touched
    )
    counts["! failed"] += done.outcome == "failed"
    counts["! expanding edits"] += done.stats.chars_after > done.stats.chars_before
    if judge is not None:
        again = await engine.compress(done.messages, host="openai", session="s")
        counts["! second pass changed something"] += again.messages is not done.messages
    counts["! apply differs from the pass"] += engine.apply(messages, done.ledger, host="openai") != done.messages
    restored = await engine.restore(done.messages, host="openai")
    counts["! restore differs from the input"] += restored.messages != messages


def corpus(sessions: int | None) -> Iterator[list[Any]]:
    """Histories of the corpus: each session cut after a fifth, two fifths, … of its messages."""
    path = SHARED / "corpus" / "trajectories.jsonl.gz"
    step = 1 if sessions is None else max(1, 283 // sessions)
    with gzip.open(path, "rt") as lines:
        for number, line in enumerate(lines):
            if number % step:
                continue
            messages = json.loads(line)["messages"]
            for cut in range(1, CUTS + 1):
                yield messages[: len(messages) * cut // CUTS]


async def check_files(counts: Counter[str]) -> None:
    """The session files of Claude Code: read and judged, as a dry run."""
    for path in sorted((SHARED / "sessions" / "claude-code").glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
        done = await ContextEngine().compress(rows, host="claude-code", dry_run=True, force=True)
        calls = len(claude_code.read(rows).calls)
        counts["session files"] += 1
        counts["! session files failed"] += done.outcome == "failed" or done.messages is not rows
        print(f"  {path.name}: {len(rows)} rows, {calls} calls, {len(done.decisions)} judged, {done.outcome}")


async def run(sessions: int | None) -> Counter[str]:
    """Everything; returns the counts."""
    counts: Counter[str] = Counter()
    for number, messages in enumerate(corpus(sessions)):
        counts["histories"] += 1
        assert openai.sniff(messages) or not messages
        for arm in ARMS:
            await check(messages, arm, counts)
        if number % 50 == 49:
            print(f"  {number + 1} histories …", file=sys.stderr, flush=True)
    await check_files(counts)
    return counts


def main() -> None:
    """Run, print, and exit 1 where the promise did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, help="sessions of the corpus, spread over it; default all")
    options = parser.parse_args()
    if not SHARED.exists():
        sys.exit("../shared is not there: nothing to check against")
    counts = asyncio.run(run(options.sessions))
    for name in sorted(counts, key=lambda n: (n.startswith("!"), n)):
        print(f"{counts[name]:>9,}  {name}")
    sys.exit(1 if any(n for name, n in counts.items() if name.startswith("!")) else 0)


if __name__ == "__main__":
    main()
