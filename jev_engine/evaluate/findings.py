"""The first table of a report: what holds and what does not, one row each, with intervals."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from jev_engine.evaluate.bill import bill_of
from jev_engine.evaluate.bootstrap import Measure
from jev_engine.evaluate.policies import POLICIES
from jev_engine.evaluate.results import Results
from jev_engine.evaluate.tables import Cell, Table

__all__ = ["WEAK_AUC", "budget_names", "findings_table", "worth_names"]

Floats = NDArray[np.float64]
Row = list[Cell]

WEAK_AUC = 0.85
WEAK_RATIO = (0.67, 1.5)
"""A harness is weak where the judge ranks below this, or its sum of p is off by more than this: the pooled figures on
unseen projects are in docs/training-report.md."""
FULL, HEADS = "all but the last 3 and short results", ("300-character", "2,000-character")
TARGET_FREED = 0.40
"""The share freed at which misses are quoted: near what keep-last-10 frees."""


def findings_table(results: Results) -> Table:
    """What a reader should take away; rows that the replayed policies cannot fill are left out."""
    rows = [
        *_judge(results),
        *_default(results),
        *_money(results),
        *_orders(results),
        *_heads(results),
        *_rules(results),
        *_weak(results),
    ]
    about = (
        "Measured on this corpus, with 95 % intervals over sessions. Fewer misses: how much smaller the number of"
        " needed results lost is, at the freed share named in the row. Negative results stand here like any other."
    )
    return Table("summary", "Summary", about, ("question", "measured", "reading"), rows)


def _read(fewer: Measure) -> str:
    if fewer.low is None or fewer.high is None:
        return "not reached within its pins"
    if fewer.low > 0:
        return "better"
    return "worse" if fewer.high < 0 else "no difference shown"


def budget_names(results: Results) -> list[str]:
    """The replayed policies that spend a budget of expected misses."""
    return [policy.name for policy in POLICIES if policy.group == "budget" and policy.name in results.policies]


def worth_names(results: Results, ending: str = "") -> list[str]:
    """The replayed `worth` policies at all miss costs, with the local judge (no ending) or with another p."""
    return [
        policy.name
        for policy in POLICIES
        if policy.group == ("baseline worth" if ending else "worth")
        and not policy.is_gated
        and policy.name.endswith(ending)
        and policy.name in results.policies
    ]


def _judge(results: Results) -> Iterator[Row]:
    boot, known = results.boot, results.policies
    found = results.scores("local")
    if found is not None:
        yield ["Local judge: ranking (AUC)", Measure(*found.auc, ".3f"), "0.5 is chance"]
        yield ["Local judge: calibration error (ECE)", Measure(*found.ece, ".4f"), f"base rate {found.base_rate:.3f}"]
    base = "keep last 10"
    mine = worth_names(results)
    if base not in known or len(mine) < 2:  # two prices to mix
        return
    misses, fewer = results.fewer_at_freed(mine, base)
    freed = boot.mean(results.freed(base)).value
    yield [f"`worth` against keep-last-10, both freeing {freed:.1%}: fewer misses %", fewer, _read(fewer)]
    if budget_names(results):
        spent = results.fewer_at_freed(budget_names(results), base)[1]
        question = f"A budget of expected misses instead of a price, at the same {freed:.1%}: fewer misses %"
        yield [question, spent, _read(spent)]
    for title, ending in (("age and size alone", ", age and size"), ("a constant p", ", constant p")):
        others = results.fewer_at_freed(worth_names(results, ending), base)[0]
        if misses is not None and others is not None:
            fewer = boot.fewer(misses, others)
            yield [
                f"The judge against {title} in the same rule, at the same freed share: fewer misses %",
                fewer,
                _read(fewer),
            ]
    at_target = results.at_freed(mine, TARGET_FREED)
    if at_target is not None:
        per_pass = boot.ratio_of_sessions(at_target, np.ones(len(at_target)), ".2f")
        yield [f"Misses per compaction where `worth` frees {TARGET_FREED:.0%} on average", per_pass, ""]


def _default(results: Results) -> Iterator[Row]:
    boot = results.boot
    for name, about in (
        ("balanced, as shipped", "declines where a pass does not pay"),
        ("worth 5", "every pass carried out"),
        ("reference, asked judge", "nearly all goes where answers sit below 0.5"),
    ):
        if name in results.policies:
            yield [f"Freed by “{name}” %", boot.mean(results.freed(name)), about]
            yield [f"Misses per compaction of “{name}”", boot.mean(results.column(name, "missed"), ".2f"), about]
    if "worth 5" in results.policies:
        ratio = boot.ratio(results.column("worth 5", "predicted"), results.column("worth 5", "missed"), ".2f")
        yield ["Expected over actual misses of “worth 5”", ratio, "1 is calibrated"]


def _money(results: Results) -> Iterator[Row]:
    boot = results.boot
    base = "keep last 10"
    for name in ("balanced, as shipped", "worth 5", "reference, asked judge"):
        if name in results.policies and base in results.policies:
            mine, other = bill_of(results, name), bill_of(results, base)
            total = boot.per_session(mine.total)
            gap = boot.ratio_of_sessions(boot.per_session(mine.net(5) - other.net(5)), total)
            question = (
                f"Input bill after one pass where a miss costs 5 calls: “{name}” saves more than keep-last-10, points"
            )
            yield [question, gap, _read(gap)]


def _orders(results: Results) -> Iterator[Row]:
    boot = results.boot
    for mine, base, share in (
        ("oldest first", "random", "30%"),
        ("judge, lowest p first", "oldest first", "50%"),
        ("largest first", "oldest first", "50%"),
        ("judge, lowest p per character first", "oldest first", "50%"),
        ("judge, lowest p per character first", "largest first", "50%"),
        ("judge, lowest p per character first", "age and size, lowest p per character first", "50%"),
    ):
        names = [f"{order}, {share} of bytes" for order in (mine, base)]
        if all(name in results.policies for name in names):
            one, other = (boot.per_session(results.column(name, "missed")) for name in names)
            fewer = boot.fewer(one, other)
            yield [f"“{mine}” against “{base}”, {share} of bytes at every cut: fewer misses %", fewer, _read(fewer)]


def _heads(results: Results) -> Iterator[Row]:
    boot = results.boot
    for size in HEADS:
        name = f"the same, {size} head stays"
        if name in results.policies and FULL in results.policies:
            left = boot.per_session(results.column(name, "missed"))
            full = boot.per_session(results.column(FULL, "missed"))
            share = boot.ratio_of_sessions(left, full)
            yield [
                f"A {size} head kept: share of the misses of no head that remain %",
                share,
                "100: the head is useless",
            ]


def _rules(results: Results) -> Iterator[Row]:
    boot = results.boot
    for name, about in (
        ("superseded reads by path", "a path read or edited again does not make the old text dead"),
        ("contained in a later result", "the text itself is there again"),
        ("cheap kinds only", "safe, and frees little"),
    ):
        if name in results.policies:
            wrong = boot.ratio(results.column(name, "missed"), results.column(name, "out"))
            yield [f"“{name}”, frees {boot.mean(results.freed(name)).value:.1%}: misjudged %", wrong, about]


def _weak(results: Results) -> Iterator[Row]:
    for harness in np.unique(results.harness).tolist():
        found = results.scores("local", "harness", harness)
        if found is None:
            yield [f"Harness {harness}", "-", "too few needed results to say anything"]
            continue
        low, high = WEAK_RATIO
        is_weak = found.auc[0] < WEAK_AUC or not low <= found.ratio[0] <= high
        reading = f"sum p / needed {found.ratio[0]:.2f}" + ("; weak" if is_weak else "")
        yield [f"Harness {harness}: ranking (AUC)", Measure(*found.auc, ".3f"), reading]
