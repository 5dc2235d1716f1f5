"""The store on disk at 100,000 originals: put, expand, search, size, and a plain file read beside them.

    python benchmarks/store.py                    all of it, about five minutes
    python benchmarks/store.py --originals 10000  smaller
    python benchmarks/store.py --levels           what each zlib level costs and saves

Texts are the tool results of ../shared/corpus; further copies have their names and numbers changed in every second
line, so that no text and few names repeat. Without the corpus texts are synthetic, and the output says so.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import re
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "adapters")]
CORPUS = ROOT.parent / "shared" / "corpus" / "trajectories.jsonl.gz"

from jev_engine.evaluate.corpus import read_sessions  # noqa: E402  # the project beside this script
from jev_engine.recall.search import search  # noqa: E402
from jev_engine.store import Original  # noqa: E402
from jev_engine.store.expand import expand  # noqa: E402
from jev_engine.store.sqlite import SqliteStore  # noqa: E402

SHORTEST = 500
"""Shorter results are pinned and never stored [config `pin_short_chars`]."""
PER_SESSION = 1_000
PUT = 100
QUERY_WORDS = 40
"""Words of a query, as many as a message of an agent has in the median."""
BARS = {"expand p99 ms": 5.0, "search p99 ms": 50.0, "put of 100 results, median ms": 100.0, "on disk / raw text": 0.55}
NAME = re.compile(r"[A-Za-z_]{5,}|\d{3,}")


def corpus_texts() -> list[str]:
    """Distinct tool results that may be stored."""
    found: dict[str, None] = {}
    for session in read_sessions(CORPUS):
        for message in session.messages:
            text = message.get("content") or ""
            if message["role"] == "tool" and len(text) >= SHORTEST:
                found.setdefault(text)
    return list(found)


def synthetic_texts(rng: random.Random, count: int) -> list[str]:
    """Code-like texts of 0.5 to 12 kB."""
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(3, 11))) for _ in range(5_000)]
    return [
        "\n".join(
            f"    {rng.choice(words)}_{rng.choice(words)} = {rng.choice(words)}({rng.choice(words)}, {n})"
            for n in range(rng.randrange(12, 280))
        )
        for _ in range(count)
    ]


def varied(text: str, copy: int, rng: random.Random) -> str:
    """A text like this one, with other names in every second line."""

    def renamed(found: re.Match[str]) -> str:
        word = found.group()
        if word.isdigit():
            return str(rng.randrange(10 ** len(word)))
        return word if rng.random() < 0.9 else f"{word[:3]}{_LETTERS[copy % 26]}{word[3:]}{_LETTERS[copy // 26 % 26]}"

    lines = text.split("\n")
    lines[::2] = [NAME.sub(renamed, line) for line in lines[::2]]
    return f"{copy}\n" + "\n".join(lines)


_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def texts(count: int) -> tuple[Iterator[str], str]:
    """So many texts, and where they come from."""
    rng = random.Random(7)
    real = CORPUS.is_file()
    base = corpus_texts() if real else synthetic_texts(rng, 2_000)
    rng.shuffle(base)
    made = (
        base[n % len(base)] if n < len(base) else varied(base[n % len(base)], n // len(base), rng) for n in range(count)
    )
    source = "tool results of ../shared/corpus" if real else "SYNTHETIC texts"
    return made, f"{source}, {len(base):,} distinct, {max(0, count - len(base)):,} varied copies"


def percentile(values: list[float], share: float) -> float:
    """The value below which this share lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class Times:
    """Milliseconds of each call: on the wall, and of this process alone, which a busy machine does not stretch."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self._started = (0.0, 0.0)

    def __enter__(self) -> None:
        self._started = (time.perf_counter(), time.process_time())

    def __exit__(self, *_: object) -> None:
        self.wall.append((time.perf_counter() - self._started[0]) * 1_000)
        self.cpu.append((time.process_time() - self._started[1]) * 1_000)

    def __str__(self) -> str:
        wall, cpu = ([percentile(each, share) for share in (0.5, 0.99)] for each in (self.wall, self.cpu))
        return f"wall p50 {wall[0]:.2f}, p99 {wall[1]:.2f} ms; CPU p50 {cpu[0]:.2f}, p99 {cpu[1]:.2f} ms"


async def fill(store: SqliteStore, made: Iterator[str], plain: Path) -> tuple[list[tuple[str, str]], Times, int]:
    """Save everything in puts of 100, 1,000 originals a session; returns (session, reference), times, bytes."""
    known: list[tuple[str, str]] = []
    puts, raw = Times(), 0
    batch: list[Original] = []
    for number, text in enumerate(made):
        session = f"session-{number // PER_SESSION}"
        batch.append(Original(store.reference(session, f"{number}"), session, f"{number}", "read", text))
        known.append((session, batch[-1].reference))
        raw += len(text.encode("utf-8", "surrogatepass"))
        if number % 100 == 0:
            (plain / f"{number}.txt").write_text(text, encoding="utf-8", errors="surrogatepass")
        if len(batch) == PUT:
            with puts:
                await store.save(batch)
            batch = []
    await store.save(batch)
    return known, puts, raw


async def measure(count: int, folder: Path) -> bool:
    """Fill a store and print a line for each bar."""
    made, source = texts(count)
    print(f"{count:,} originals: {source}")
    store = SqliteStore(folder / "store" / "originals.sqlite3")
    plain = folder / "plain"
    plain.mkdir()
    known, puts, raw = await fill(store, made, plain)
    gc.freeze()  # what this script holds is not what is measured
    rng = random.Random(3)
    expands, searches, files = Times(), Times(), Times()
    for _ in range(2_000):
        session, reference = rng.choice(known)
        with expands:
            await expand(store, session, reference)
    names = list(plain.iterdir())
    for _ in range(2_000):
        path = rng.choice(names)
        with files:
            path.read_text(encoding="utf-8", errors="surrogatepass")
    for _ in range(500):
        session, reference = rng.choice(known)
        words = (await store.read(reference)).text.split()
        query = " ".join(rng.sample(words, min(QUERY_WORDS, len(words))))
        with searches:
            await search(store, session, query)
    size = sum(path.stat().st_size for path in store.path.parent.iterdir())
    rows: list[tuple[str, float]] = [
        ("expand p99 ms", percentile(expands.wall, 0.99)),
        ("search p99 ms", percentile(searches.wall, 0.99)),
        ("put of 100 results, median ms", percentile(puts.wall, 0.5)),
        ("on disk / raw text", size / raw),
    ]
    for name, value in rows:
        print(f"{'ok  ' if value <= BARS[name] else 'MISS'} {name:32s} {value:8.2f}   bar {BARS[name]:g}")
    for title, times in (("expand", expands), ("plain file", files), ("search", searches), ("put of 100", puts)):
        print(f"     {title:12s} {times}")
    print(f"     raw {raw / 1e6:,.0f} MB, mean {raw / count:,.0f} bytes; file {size / 1e6:,.0f} MB; load of the machine"
          f" {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")  # fmt: skip
    return all(value <= BARS[name] for name, value in rows)


def levels() -> None:
    """Time and size of each zlib level over single texts."""
    made, source = texts(5_000)
    bodies = [text.encode("utf-8", "surrogatepass") for text in made]
    raw = sum(map(len, bodies))
    print(source)
    for level in (1, 3, 6, 9):
        started = time.perf_counter()
        size = sum(len(zlib.compress(body, level)) for body in bodies)
        print(
            f"level {level}: {size / raw:.4f} of the text, {(time.perf_counter() - started) * 1e9 / raw:.1f} ns a byte"
        )


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description="Put, expand, search and size of the store on disk.")
    parser.add_argument("--originals", type=int, default=100_000)
    parser.add_argument("--levels", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the store is made; it is taken away afterwards")
    given = parser.parse_args()
    if given.levels:
        levels()
        return
    folder = Path(tempfile.mkdtemp(prefix="store-", dir=given.folder))
    try:
        ok: Any = asyncio.run(measure(given.originals, folder))
    finally:
        shutil.rmtree(folder)
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
