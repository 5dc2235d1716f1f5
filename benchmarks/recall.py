"""Does search find what an agent needs again? Its own next message is the query, needed identifiers removed.

    python benchmarks/recall.py                 all sessions of ../shared/corpus, about two minutes
    python benchmarks/recall.py --sessions 40   fewer

Removed set R: at each cut, all results but the newest three and those of up to 500
characters, by lowest P(needed) per character, while the expected misses stay within 1. P comes from the fold that never
saw the project. A need is a removed original that hindsight finds needed; the query is the message that needs it,
without the lines and identifiers that prove the need. Everything goes through the product: the store's `rank` and
`recall.search.window_of`. The window meets the need where it holds two points of the evidence, as the label demands.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "adapters")]
CORPUS = ROOT.parent / "shared" / "corpus" / "trajectories.jsonl.gz"

from jev_engine.atoms import lines_of  # noqa: E402  # the project beside this script
from jev_engine.evaluate.corpus import Segment, cuts_of, parse_session, read_lines  # noqa: E402
from jev_engine.evaluate.folds import load_folds  # noqa: E402
from jev_engine.evaluate.hindsight import LINE_MARK, THETA, Evidence, Hindsight, look_back, tokens_of  # noqa: E402
from jev_engine.evaluate.vocabulary import Vocabulary, count_vocabulary  # noqa: E402
from jev_engine.judges.features import FEATURES, FeatureCache, tabulate  # noqa: E402
from jev_engine.judges.local import is_unfamiliar, probabilities_of  # noqa: E402
from jev_engine.recall.search import window_of  # noqa: E402
from jev_engine.store import Original, OriginalStore  # noqa: E402
from jev_engine.store.memory import MemoryStore  # noqa: E402
from jev_engine.store.sqlite import SqliteStore  # noqa: E402
from jev_engine.tools import argument_text  # noqa: E402

PINNED, PINNED_CHARS, BUDGET = 3, 500, 1.0
RANKS = (1, 3, 5)
BARS = {"top 3": 75.0, "top 5": 84.0, "window meets the need": 80.0}
DRAWS = 400
AGE = FEATURES.index("age")


class Need(NamedTuple):
    """One needed original at one cut."""

    session: str
    out: int
    """Originals that were out."""
    rank: int
    """1 for the first; 99 where it is not found."""
    is_met: bool
    """The window of the right original holds enough."""
    is_all: bool
    """It holds all lines and identifiers."""
    chars: int


def removed_at(segment: Segment, row: int, cache: FeatureCache, fold: dict[int, float]) -> set[int]:
    """Call numbers of R."""
    table = tabulate(segment.before(row), cache)
    unfamiliar = is_unfamiliar(table)
    p = {}
    for call, features, unit in zip(table.calls, table.rows, table.timeline.units, strict=True):
        known = probabilities_of(unit, features[AGE], fold[call.number], None, is_unfamiliar=unfamiliar)
        p[call.number] = known[1]
    old = [call for call in list(table.calls)[:-PINNED] if len(call.result or "") > PINNED_CHARS]
    removed: set[int] = set()
    spent = 0.0
    for call in sorted(old, key=lambda call: (p[call.number] / len(call.result or ""), call.number)):
        spent += p[call.number]
        if spent > BUDGET:
            break
        removed.add(call.number)
    return removed


def query_of(message: dict[str, Any], evidence: list[Evidence]) -> str:
    """What the agent wrote, without the lines and identifiers that prove the need."""
    parts = [message.get("content") or "", message.get("reasoning") or message.get("reasoning_content") or ""]
    parts += [argument_text(call["function"]["arguments"] or "") for call in message.get("tool_calls") or ()]
    tokens = {each.token for each in evidence}
    lines = {token.removeprefix(LINE_MARK) for token in tokens if token.startswith(LINE_MARK)}
    text = "\n".join(line for part in parts for line in part.split("\n") if not lines_of(line) & lines)
    for token in sorted((t for t in tokens if not t.startswith(LINE_MARK)), key=len, reverse=True):
        text = text.replace(token.decode("utf-8", "replace").removeprefix("F:"), " ")
    return text


def needs_at(hindsight: Hindsight, row: int, removed: set[int]) -> dict[int, list[int]]:
    """Units of R that are needed, by the row of the message that first needs them."""
    points: Counter[tuple[int, int]] = Counter()
    for each in hindsight.evidence_at(row):
        if hindsight.units[each.unit].number in removed:
            points[each.unit, each.used_at] += each.points
    first: dict[int, int] = {}
    for (unit, used), total in sorted(points.items(), key=lambda item: item[0][1]):
        if total >= THETA:
            first.setdefault(unit, used)
    found: dict[int, list[int]] = defaultdict(list)
    for unit, used in first.items():
        found[used].append(unit)
    return found


async def rank_needs(segment: Segment, common: Any, folds: Any, store: OriginalStore) -> list[Need]:
    """All needs of a segment, ranked and shown by the product."""
    hindsight = look_back(segment.transcript, common)
    by_row: dict[int, list[Evidence]] = defaultdict(list)
    for each in hindsight.evidence:
        by_row[each.used_at].append(each)
    cache = FeatureCache()
    name = segment.session.session_id
    found = []
    for row in cuts_of(segment):
        fold = folds.get((name, segment.number, row))
        if fold is None:
            continue
        removed = removed_at(segment, row, cache, fold)
        needs = needs_at(hindsight, row, removed)
        if not needs:
            continue
        session = f"{name}/{segment.number}/{row}"
        units = [unit for unit, call in enumerate(hindsight.units) if call.number in removed]
        reference = {unit: store.reference(session, str(unit)) for unit in units}
        await store.save(
            [
                Original(
                    reference[unit], session, str(unit), hindsight.units[unit].tool, hindsight.units[unit].result or ""
                )
                for unit in units
            ]
        )
        for used, wanted in needs.items():
            evidence = [each for each in by_row[used] if each.unit in wanted]
            query = query_of(segment.messages[used], evidence)
            ranked = [match.reference for match in (await store.rank(session, query, max(RANKS))).matches]
            for unit in wanted:
                place = ranked.index(reference[unit]) + 1 if reference[unit] in ranked else 99
                text = hindsight.units[unit].result or ""
                start, end = window_of(text, query)
                held = tokens_of(text[start:end])
                mine = [each for each in evidence if each.unit == unit]
                points = sum(each.points for each in mine if each.token in held)
                is_all = all(each.token in held for each in mine)
                found.append(Need(name, len(units), place, points >= THETA, is_all, len(text)))
    return found


_WORKER: list[Any] = []


def start(vocabulary: Vocabulary, on_disk: bool) -> None:  # noqa: FBT001  # a pool passes by place
    """What a worker process needs for every session."""
    _WORKER[:] = [vocabulary, load_folds().by_place(), on_disk]


def work(numbered: tuple[int, str]) -> list[Need]:
    """One session."""
    vocabulary, folds, on_disk = _WORKER
    session = parse_session(numbered[1], f"line-{numbered[0]}")
    common = vocabulary.of_project(session.project)
    with tempfile.TemporaryDirectory(prefix="recall-") as folder:
        store: OriginalStore = SqliteStore(Path(folder) / "o.sqlite3") if on_disk else MemoryStore()
        return [
            need for segment in session.segments() for need in asyncio.run(rank_needs(segment, common, folds, store))
        ]


def interval(needs: list[Need], value: Any) -> str:
    """Share of needs in per cent, with 95 % bootstrap over sessions."""
    by_session: dict[str, list[bool]] = defaultdict(list)
    for need in needs:
        by_session[need.session].append(value(need))
    sessions = list(by_session.values())
    rng = random.Random(0)
    draws = []
    for _ in range(DRAWS):
        drawn = [hit for each in rng.choices(sessions, k=len(sessions)) for hit in each]
        draws.append(100 * sum(drawn) / len(drawn))
    draws.sort()
    low, high = draws[int(0.025 * DRAWS)], draws[int(0.975 * DRAWS) - 1]
    return f"{share(needs, value):5.1f} % [{low:.0f}, {high:.0f}]"


def share(needs: list[Need], value: Any) -> float:
    """In per cent."""
    return 100 * sum(map(value, needs)) / max(1, len(needs))


def main() -> None:
    """Read the corpus, search, and print the table."""
    parser = argparse.ArgumentParser(description="Search when the agent asks, on recorded sessions.")
    parser.add_argument("--sessions", type=int)
    parser.add_argument("--memory", action="store_true", help="the store in memory instead of the one on disk")
    given = parser.parse_args()
    if not CORPUS.is_file():
        sys.exit("NOT MEASURED: no ../shared/corpus beside the project")
    lines = list(enumerate(read_lines(CORPUS), 1))
    vocabulary = count_vocabulary(parse_session(line, f"line-{number}") for number, line in lines)
    with ProcessPoolExecutor(2, initializer=start, initargs=(vocabulary, not given.memory)) as pool:
        needs = [need for found in pool.map(work, lines[: given.sessions], chunksize=4) for need in found]
    where = "memory" if given.memory else "disk, FTS5"
    print(f"{len(needs):,} needed originals of {len({need.session for need in needs})} sessions; store: {where}")
    rows = [(f"top {rank}", lambda need, rank=rank: need.rank <= rank) for rank in RANKS]
    rows.append(("window meets the need", lambda need: need.is_met))
    rows.append(("window holds all of it", lambda need: need.is_all))
    failed = False
    for title, part in (
        ("all needs", needs),
        ("20 originals or more out", [need for need in needs if need.out >= 20]),
        ("originals above 8,000 characters", [need for need in needs if need.chars > 8_000]),
    ):
        print(f"{title}: {len(part):,}, mean {sum(n.out for n in part) / max(1, len(part)):.1f} out")
        for name, value in rows if part else ():
            bar = BARS.get(name)
            missed = part is needs and bar is not None and share(part, value) < bar
            failed = failed or missed
            print(
                f"  {'MISS' if missed else '    '} {name:24s} {interval(part, value)}{f'   bar {bar:g}' if bar else ''}"
            )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
