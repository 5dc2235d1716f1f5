"""Tables about the corpus itself and about time: nothing in them depends on a policy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from jev_engine.evaluate.bootstrap import Bootstrap, Measure
from jev_engine.evaluate.lookback import AFTER_CALLS
from jev_engine.evaluate.results import AGE_EDGES, SIZE_EDGES, Results, Units
from jev_engine.evaluate.tables import Cell, Table

__all__ = [
    "LOOK_BACK_STEPS",
    "corpus_table",
    "latency_table",
    "look_back_rows",
    "look_back_table",
    "needed_by",
    "needed_table",
]

Floats = NDArray[np.float64]

LOOK_BACK_STEPS = ((0, 5), (5, 10), (10, 20), (20, 30))
"""Classes of calls after a boundary, up to `lookback.AFTER_CALLS`."""
LATENCY_CHARS = (100_000, 300_000, 1_000_000)
"""Upper edges of the classes of histories by characters."""


def corpus_table(results: Results) -> Table:
    """What was replayed, by harness."""
    rows: list[list[Cell]] = []
    judged = results.judged
    for harness in [*np.unique(results.harness).tolist(), "all"]:
        of = np.ones(len(results.cuts), bool) if harness == "all" else results.harness == harness
        units = judged if harness == "all" else judged.where(judged.harness == harness)
        boot = Bootstrap(units.session.tolist(), results.seed)
        rows.append(
            [
                harness,
                len(np.unique(results.project[of])),
                len(np.unique(results.session[of])),
                int(of.sum()),
                len(units.needed),
                boot.mean(units.needed.astype(np.float64)),
                boot.mean(units.refetched.astype(np.float64)),
                Measure(float(np.median(results.of("tokens")[of])), form=",.0f"),
            ]
        )
    about = (
        "What was replayed. Results older than the newest three, at every cut; needed: used verbatim later; fetched"
        " again: repeated by a later result although it was there. Shares are means over sessions."
    )
    columns = (
        "harness",
        "projects",
        "sessions",
        "cuts",
        "results at cuts",
        "needed %",
        "fetched again %",
        "median tokens",
    )
    return Table("corpus", "The corpus", about, columns, rows)


def needed_by(units: Units, field: str) -> list[tuple[str, NDArray[np.bool_]]]:
    """Classes of age, size or kind, each with the units in it."""
    values = getattr(units, field)
    if field == "kind":
        return [(str(kind), values == kind) for kind in np.unique(values)]
    edges = AGE_EDGES if field == "age" else SIZE_EDGES
    classes = np.searchsorted(np.array(edges), values)
    lows = [0, *edges]
    names = [f"{low + 1:,}-{high:,}" if high > low + 1 else f"{high:,}" for low, high in zip(lows, edges, strict=False)]
    names.append(f"over {edges[-1]:,}")
    return [(name, classes == i) for i, name in enumerate(names)]


def needed_table(results: Results, field: str) -> Table:
    """How often results are needed, by `age`, `size` or `kind`, beside what the judge says."""
    units = results.units if field == "age" else results.judged
    total_chars = units.size.sum()
    rows: list[list[Cell]] = []
    for name, chosen in needed_by(units, field):
        if not chosen.any():
            continue
        part = units.where(chosen)
        boot = Bootstrap(part.session.tolist(), results.seed)
        needed, p = part.needed.astype(np.float64), part.local
        count = np.bincount(np.unique(part.session, return_inverse=True)[1]).astype(np.float64)
        weigh = boot.per_session(needed) * count, boot.per_session(p) * count
        rows.append(
            [name, boot.ratio_of_sessions(weigh[0], count), boot.ratio_of_sessions(weigh[1], count),
             Measure(float(part.size.sum() / total_chars)), len(part.needed)]
        )  # fmt: skip
    what = {"age": "age in calls", "size": "size in characters", "kind": "kind of tool"}[field]
    about = f"Needed results by {what}, every row counting once" + (
        "." if field == "age" else "; older than three calls."
    )
    columns = (what, "needed %", "local judge's mean p %", "share of result characters %", "rows")
    return Table(f"needed-by-{field}", f"Needed by {what}", about, columns, rows)


def look_back_rows(results: Results, *, real: bool) -> tuple[list[str], Floats, Floats]:
    """Boundaries of one sort: session, and per boundary look-backs and calls in each step after it."""
    names, backs, calls = [], [], []
    for session in results.lookbacks:
        for boundary in session["lookback"]:
            if boundary["real"] == real:
                back = boundary["back"]
                names.append(session["session"])
                backs.append([sum(back[a:b]) for a, b in LOOK_BACK_STEPS])
                calls.append([len(back[a:b]) for a, b in LOOK_BACK_STEPS])
    return names, np.array(backs, np.float64), np.array(calls, np.float64)


def look_back_table(results: Results) -> Table:
    """Look-backs after real compactions and after none."""
    rows: list[list[Cell]] = []
    for title, real in (("after real compactions", True), ("control, nothing compacted", False)):
        names, backs, calls = look_back_rows(results, real=real)
        if not names:
            continue
        boot = Bootstrap(names, results.seed)
        shares = [boot.ratio(backs[:, step], calls[:, step]) for step in range(len(LOOK_BACK_STEPS))]
        per_30 = boot.ratio(backs.sum(1) * AFTER_CALLS, calls.sum(1), ".1f")
        reads = [
            (sum(each["reads"]), len(each["reads"]), each["chars"])
            for session in results.lookbacks
            for each in session["lookback"]
            if each["real"] == real
        ]
        again, total, chars = (np.array(column, np.float64) for column in zip(*reads, strict=True))
        rows.append(
            [title, len(names), len(set(names)), *shares, per_30, boot.ratio(again, total), boot.mean(chars, ",.0f")]
        )
    about = (
        "Calls that bring back at least 60 % of a result held before the boundary. This is a property of the corpus:"
        " its agents were compacted by their own hosts, by summary. What our passes would cause cannot be measured"
        " without a live agent, and is not claimed here."
    )
    columns = (
        "boundary", "boundaries", "sessions", *[f"calls {a + 1}-{b} %" for a, b in LOOK_BACK_STEPS], "per 30 calls",
        "reads repeating an earlier one %", "characters fetched again",
    )  # fmt: skip
    return Table("look-back", "Look-backs after real compactions, with a control", about, columns, rows)


def latency_table(results: Results) -> Table:
    """How long a pass takes, by characters of the history."""
    rows: list[list[Cell]] = []
    timed = np.array([row for session in results.sessions for row in session["latency"]], np.float64).reshape(-1, 3)
    edges: Sequence[float] = (0, *LATENCY_CHARS, np.inf)
    names = ["up to 100k", "100k to 300k", "300k to 1M", "over 1M", "all"]
    for name, low, high in zip(names, (*edges[:-1], 0), (*edges[1:], np.inf), strict=True):
        part = timed[(timed[:, 0] > low) & (timed[:, 0] <= high)]
        if len(part):
            ratio = part[:, 2] / np.maximum(part[:, 1], 1e-5)
            found = [
                part[:, 2].sum() / max(part[:, 1].sum(), 1e-5),
                np.median(ratio),
                np.percentile(ratio, 95),
                ratio.max(),
            ]
            times = [Measure(float(np.median(part[:, column]) * 1_000), form=".1f") for column in (1, 2)]
            rows.append([name, len(part), *times, *[Measure(float(value), form=".2f") for value in found]])
    about = (
        "Processor time of a first pass with default settings and the engine's own judge, and of"
        " `json.loads(json.dumps(messages))` on the same history, once per context at its last cut, with other"
        " processes running: expect 15 % of noise. Not cached, not seeded."
    )
    columns = (
        "characters",
        "contexts",
        "round trip ms",
        "pass ms",
        "ratio in total",
        "median",
        "95th percentile",
        "worst",
    )
    return Table("latency", "Time of a pass, relative to a JSON round trip", about, columns, rows)
