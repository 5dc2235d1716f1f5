"""The tables of a report. Negative results are rows of the first one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from jev_engine.evaluate.bill import bill_table
from jev_engine.evaluate.bootstrap import Measure
from jev_engine.evaluate.corpus_tables import corpus_table, latency_table, look_back_table, needed_table
from jev_engine.evaluate.findings import budget_names, findings_table, worth_names
from jev_engine.evaluate.policies import ORDERS, POLICIES, SHARES
from jev_engine.evaluate.results import Results
from jev_engine.evaluate.tables import Cell, Table

__all__ = ["summarise"]

CONTEXT_TOKENS = (20_000, 50_000, 100_000)
"""Upper edges of the classes of histories by tokens; beyond the last a pass is due (docs/evidence.md)."""
JUDGES = (
    ("worth, local judge", ""),
    ("worth by age and size, no text", ", age and size"),
    ("worth with a constant p", ", constant p"),
)


def summarise(results: Results) -> list[Table]:
    """All tables, the summary first. Tables that the replayed policies cannot fill are left out."""
    tables = [
        findings_table(results),
        corpus_table(results),
        _policies_table(results),
        _matched_average(results),
        _matched_bytes(results),
        _judges_table(results),
        _predicted_table(results),
        bill_table(results),
        needed_table(results, "age"),
        needed_table(results, "size"),
        needed_table(results, "kind"),
        _parts_table(results, "harness"),
        _parts_table(results, "project"),
        _context_table(results),
        look_back_table(results),
        latency_table(results),
    ]
    return [table for table in tables if table.rows]


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
        " Misjudged: missed of what went out. Needed lost: missed of all that was needed. Misses: per compaction."
        " Expected: the local judge's sum of P(needed) over what went out, whoever chose it. Out: results shortened or"
        " removed. Calls that `reference` and `hermes-classic` remove are charged as results only."
    )
    columns = (
        "policy", "freed %", "misjudged %", "needed lost %", "misses", "any miss %", "expected", "out",
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
        rules = [(title, worth_names(results, ending)) for title, ending in JUDGES]
        for title, names in [*rules, ("budget of expected misses, local judge", budget_names(results))]:
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
        " miss cost is set once for all cuts, so the policy chooses where to free much and where little. A dash: it"
        " cannot free so much within its pins."
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
        "bytes", "order", "freed %", "misses", "fewer than oldest first %", "fewer than random %",
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
        "Ranking and calibration over results older than the newest three, every row counting once. ECE: ten bins of"
        f" equal mass. Sum p / needed: 1 is calibrated in the large. {results.unseen_sessions} of"
        f" {len(results.sessions)} sessions are judged by weights that never saw their project; published medians"
        " carry no signal and rank by chance."
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


def _context_table(results: Results) -> Table:
    rows: list[list[Cell]] = []
    base, shipped = "keep last 10", "balanced, as shipped"
    tokens = results.of("tokens")
    if base not in results.policies or shipped not in results.policies:
        return Table("by-context", "", "", (), ())
    for low, high in pairwise((0, *CONTEXT_TOKENS, float("inf"))):
        chosen = (tokens > low) & (tokens <= high)
        if not chosen.any():
            continue
        part = results.select(chosen)
        boot = part.boot
        name = f"up to {high:,.0f}" if high < float("inf") else f"over {low:,.0f}"
        cells: list[Cell] = [name, len(part.sessions), len(part.cuts)]
        cells += [boot.mean(part.freed(base)), boot.mean(part.column(base, "missed"), ".2f")]
        cells += [boot.mean(part.column(shipped, "changed")), boot.mean(part.freed(shipped))]
        rows.append([*cells, boot.mean(part.column(shipped, "missed"), ".2f")])
    about = (
        "The default as it ships, by the size of the history: how often it goes through with a pass, what all cuts"
        " free on average (declined ones free nothing), and misses per cut. Recorded contexts are mostly far smaller"
        " than the one at which a pass is due (100,000 tokens in a window of 200,000)."
    )
    columns = (
        "tokens", "sessions", "cuts", "keep last 10: freed %", "its misses", "default: passes carried out %", "freed %",
        "misses",
    )  # fmt: skip
    return Table("by-context", "By size of the history", about, columns, rows)
