"""The tables of a report. Negative results are rows of the first one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from jev_engine.evaluate.bill import bill_table
from jev_engine.evaluate.bootstrap import Bootstrap, Measure
from jev_engine.evaluate.findings import findings_table, worth_names
from jev_engine.evaluate.lookback import AFTER_CALLS
from jev_engine.evaluate.policies import ORDERS, POLICIES, SHARES
from jev_engine.evaluate.results import AGE_EDGES, SIZE_EDGES, Results, Units
from jev_engine.evaluate.tables import Cell, Table

__all__ = ["LOOK_BACK_STEPS", "look_back_rows", "needed_by", "summarise"]

Floats = NDArray[np.float64]

LOOK_BACK_STEPS = ((0, 5), (5, 10), (10, 20), (20, 30))
LATENCY_CHARS = (100_000, 300_000, 1_000_000)
JUDGES = (
    ("worth", ""),
    ("worth by age and size, no text", ", age and size"),
    ("worth with a constant p", ", constant p"),
)


def summarise(results: Results) -> list[Table]:
    """All tables, the summary first. Tables that the replayed policies cannot fill are left out."""
    tables = [
        findings_table(results),
        _corpus_table(results),
        _policies_table(results),
        _matched_average(results),
        _matched_bytes(results),
        _judges_table(results),
        _predicted_table(results),
        bill_table(results),
        _needed_table(results, "age"),
        _needed_table(results, "size"),
        _needed_table(results, "kind"),
        _parts_table(results, "harness"),
        _parts_table(results, "project"),
        _look_back_table(results),
        _latency_table(results),
    ]
    return [table for table in tables if table.rows]


def _corpus_table(results: Results) -> Table:
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
        " again:"
        " repeated by a later result although it was there. Shares are means over sessions."
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


def _policies_table(results: Results) -> Table:
    boot = results.boot
    rows: list[list[Cell]] = []
    for name in results.policies:
        missed, out = results.column(name, "missed"), results.column(name, "out")
        rows.append(
            [
                name,
                boot.mean(results.freed(name)),
                boot.ratio(missed, out),
                boot.ratio(missed, results.needed),
                boot.mean(missed, ".2f"),
                boot.mean((missed > 0).astype(np.float64)),
                boot.mean(results.column(name, "predicted"), ".2f"),
                boot.mean(out, ".1f"),
            ]
        )
    about = (
        "Every policy through the engine at every cut. Freed: share of all characters of the history, markers charged."
        " Misjudged: missed of what went out. Needed lost: missed of all that was needed. Expected: the local"
        " judge's sum"
        " of P(needed) over what went out, whoever chose it. Calls that `reference` and `hermes-classic` remove are"
        " charged"
        " as results only."
    )
    columns = (
        "policy", "freed %", "misjudged %", "needed lost %", "misses per compaction", "any miss %", "expected misses",
        "results out",
    )  # fmt: skip
    return Table("policies", "Policies", about, columns, rows)


def _matched_average(results: Results) -> Table:
    """Policies against keep-last-N at the same average freed."""
    rows: list[list[Cell]] = []
    boot = results.boot
    for count in (5, 10, 15, 20):
        base = f"keep last {count}"
        if base not in results.policies:
            continue
        for title, ending in JUDGES:
            names = worth_names(results, ending)
            if len(names) < 2:
                continue
            misses, fewer = results.fewer_at_freed(names, base)
            mine = (
                Measure(float("nan")) if misses is None else boot.ratio_of_sessions(misses, np.ones(len(misses)), ".2f")
            )
            rows.append([base, boot.mean(results.freed(base)), boot.mean(results.column(base, "missed"), ".2f"),
                         title, mine, fewer])  # fmt: skip
    about = (
        "Misses per compaction when a policy frees, on average over sessions, exactly what keep-last-N frees: the"
        " miss cost"
        " is set once for all cuts, so the policy chooses where to free much and where little. A dash: it cannot"
        " free so much"
        " within its pins."
    )
    columns = ("against", "freed %", "its misses", "policy", "misses", "fewer misses %")
    return Table("matched-average", "Misses at equal average freed", about, columns, rows)


def _matched_bytes(results: Results) -> Table:
    rows: list[list[Cell]] = []
    boot = results.boot
    for share in SHARES:
        for order in ORDERS:
            name = f"{order}, {share:.0%} of bytes"
            if name not in results.policies:
                continue
            missed = boot.per_session(results.column(name, "missed"))
            row: list[Cell] = [
                f"{share:.0%}",
                order,
                boot.mean(results.freed(name)),
                boot.mean(results.column(name, "missed"), ".2f"),
            ]
            for other in ("oldest first", "random", "largest first"):
                base = f"{other}, {share:.0%} of bytes"
                known = base in results.policies
                fewer = (
                    boot.fewer(missed, boot.per_session(results.column(base, "missed")))
                    if known
                    else Measure(float("nan"))
                )
                row.append("" if other == order else fewer)
            rows.append(row)
    about = (
        "Every policy has to free the same share of the bytes that may go, at every single cut: only the order counts."
        " Fewer misses than recency, chance and size; intervals that hold 0 show no difference."
    )
    columns = (
        "bytes", "order", "freed %", "misses per compaction", "fewer than oldest first %", "fewer than random %",
        "fewer than largest first %",
    )  # fmt: skip
    return Table("matched-bytes", "Misses at equal bytes within each compaction", about, columns, rows)


def _judges_table(results: Results) -> Table:
    parts = [("local judge", "local", "", ""), ("age and size alone", "rules", "", "")]
    parts.append(("asked judge (recorded, or published medians)", "asked", "", ""))
    for field in ("harness", "project"):
        names = np.unique(getattr(results, field)).tolist()
        parts += [(f"local judge, {name}", "local", field, name) for name in names]
    rows: list[list[Cell]] = []
    for title, *part in parts:
        found = results.scores(*part)
        if found is None:
            continue
        measures = [Measure(*found.auc, ".3f"), Measure(*found.ap, ".3f"), Measure(*found.brier, ".4f")]
        measures += [Measure(*found.ece, ".4f"), Measure(*found.ratio, ".2f"), Measure(found.base_rate)]
        rows.append([title, *measures, found.rows])
    about = (
        "Ranking and calibration over results older than the newest three, every row counting once. ECE: ten bins"
        " of equal"
        f" mass. Sum p / needed: 1 is calibrated in the large. {results.unseen_sessions} of {len(results.sessions)}"
        f" sessions"
        " are judged by weights that never saw their project; published medians carry no signal and rank by chance."
    )
    columns = ("judge", "AUC", "AP", "Brier", "ECE", "sum p / needed", "needed %", "rows")
    return Table("judges", "The judge", about, columns, rows)


def _predicted_table(results: Results) -> Table:
    rows: list[list[Cell]] = []
    boot = results.boot
    names = [policy.name for policy in POLICIES if policy.group == "worth" and policy.name in results.policies]
    for name in names:
        predicted, missed = results.column(name, "predicted"), results.column(name, "missed")
        rows.append(
            [name, boot.mean(results.freed(name)), boot.mean(predicted, ".2f"), boot.mean(missed, ".2f"),
             boot.ratio(predicted, missed, ".2f")]
        )  # fmt: skip
    about = "The sum of P(needed) that the engine prints for a pass, against the misses hindsight counts."
    columns = ("policy", "freed %", "expected misses", "actual misses", "expected / actual")
    return Table("predicted", "Expected and actual misses", about, columns, rows)


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


def _needed_table(results: Results, field: str) -> Table:
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


def _parts_table(results: Results, field: str) -> Table:
    rows: list[list[Cell]] = []
    base, name = "keep last 10", "worth 5"
    values = getattr(results, field)
    if base not in results.policies or name not in results.policies:
        return Table(f"by-{field}", "", "", (), ())
    for each in np.unique(values).tolist():
        part = results.select(values == each)
        boot = part.boot
        missed = part.column(name, "missed")
        _, fewer = part.fewer_at_freed(worth_names(part), base)
        rows.append(
            [
                each,
                len(part.sessions),
                len(part.cuts),
                boot.mean(part.freed(base)),
                boot.mean(part.column(base, "missed"), ".2f"),
                fewer,
                boot.mean(part.freed(name)),
                boot.mean(missed, ".2f"),
                boot.ratio(part.column(name, "predicted"), missed, ".2f"),
            ]
        )
    about = (
        "`worth` against keep-last-10 at its average freed within this part, and the default miss cost of 5 by itself."
        " Parts with few sessions have wide intervals or none."
    )
    columns = (
        field, "sessions", "cuts", "keep last 10: freed %", "its misses", "worth: fewer misses %", "worth 5: freed %",
        "its misses ", "expected / actual",
    )  # fmt: skip
    return Table(f"by-{field}", f"By {field}", about, columns, rows)


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


def _look_back_table(results: Results) -> Table:
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
        "Calls that bring back at least 60 % of a result held before the boundary. This is a property of the"
        " corpus: its"
        " agents were compacted by their own hosts, by summary. What our passes would cause cannot be measured"
        " without a"
        " live agent, and is not claimed here."
    )
    columns = (
        "boundary", "boundaries", "sessions", *[f"calls {a + 1}-{b} %" for a, b in LOOK_BACK_STEPS], "per 30 calls",
        "reads repeating an earlier one %", "characters fetched again",
    )  # fmt: skip
    return Table("look-back", "Look-backs after real compactions, with a control", about, columns, rows)


def _latency_table(results: Results) -> Table:
    rows: list[list[Cell]] = []
    timed = np.array([row for session in results.sessions for row in session["latency"]], np.float64)
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
        " processes"
        " running: expect 15 % of noise. Not cached, not seeded."
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
