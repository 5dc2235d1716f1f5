"""restore(compress^n(x)) == x: every session of the corpus after all passes of its simulated run.

    python benchmarks/restore.py                      everything, 100,000 and 30,000 tokens (minutes)
    python benchmarks/restore.py --sessions 20        some sessions, spread over the corpus
    python benchmarks/restore.py --window 50000       other windows

Each session grows call by call; at each pass the host keeps only what the engine gave it, and results that turn out to
be missing are fetched again. At the end the history is restored from the store alone and compared with the rows as
they would stand without any pass. Hosts' summaries are off: what they replace is not the engine's to restore.
Prints the counts and exits 1 where one history did not come back.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from pathlib import Path

from jev_engine.engine import ContextEngine
from jev_engine.evaluate.corpus import Session, read_sessions
from jev_engine.evaluate.turn_arms import ArmJudge, FrozenZone, parse_arm
from jev_engine.evaluate.turns import SYSTEM_TOKENS, Context, Walk, count_tokens
from jev_engine.evaluate.vocabulary import Vocabulary, load_vocabulary
from jev_engine.judges.features import FeatureCache
from jev_engine.plugins import load_plugins

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus" / "trajectories.jsonl.gz"
ARMS = ("worth 5, handover=never", "keep last 3, handover=never")


async def check(session: Session, windows: list[int], vocabulary: Vocabulary, counts: Counter[str]) -> None:
    """All contexts of a session under all arms."""
    for segment in session.segments():
        context = Context(segment, vocabulary)
        judge = ArmJudge(FeatureCache(), None)
        for window in windows:
            for name in ARMS:
                arm = parse_arm(name)
                zone = FrozenZone()
                plugins = load_plugins([zone], entry_points=False)
                config = arm.config(window)
                engine = ContextEngine(config=config, judge=judge, plugins=plugins, counter=count_tokens)
                judge.way = arm.way
                # Small windows would be full before the first word.
                walk = Walk(context, arm, engine, zone, min(SYSTEM_TOKENS, window // 5))
                await walk.run()
                restored = await engine.restore(walk.rows, host="openai")
                counts["histories"] += 1
                counts["with passes"] += bool(walk.passes)
                counts["passes"] += len(walk.passes)
                counts["undone"] += restored.passes
                counts["fetched again"] += int(walk.tally["misses"])
                counts["!not restored"] += restored.messages != walk.originals
                counts["!markers left"] += len(restored.left)
                counts["!failed passes"] += int(walk.tally["failed"])


def main() -> None:
    """Run, print, and exit 1 where a history did not come back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, help="sessions of the corpus, spread over it; default all")
    parser.add_argument("--window", type=int, action="append", help="context windows in tokens")
    options = parser.parse_args()
    if not CORPUS.exists():
        sys.exit("../shared is not there: nothing to check against")
    counts: Counter[str] = Counter()
    vocabulary = load_vocabulary()
    total = sum(1 for _ in read_sessions(CORPUS))
    step = max(1, total // options.sessions) if options.sessions else 1
    for number, session in enumerate(read_sessions(CORPUS)):
        if number % step == 0:
            asyncio.run(check(session, options.window or [100_000, 30_000], vocabulary, counts))
            counts["sessions"] += 1
        if number % 50 == 49:
            print(f"  {number + 1} of {total} sessions …", file=sys.stderr, flush=True)
    for name in sorted(counts, key=lambda n: (n.startswith("!"), n)):
        print(f"{counts[name]:>9,}  {name}")
    sys.exit(1 if any(count for name, count in counts.items() if name.startswith("!")) else 0)


if __name__ == "__main__":
    main()
