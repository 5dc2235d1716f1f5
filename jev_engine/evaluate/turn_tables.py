"""The tables of growing sessions: passes by number, the bill, paired differences, and the bars they are held to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jev_engine.evaluate.bill import EXTRA_CALLS
from jev_engine.evaluate.bootstrap import Bootstrap, Measure
from jev_engine.evaluate.tables import Cell, Table
from jev_engine.evaluate.turn_arms import BASE, NOTHING, SHIPPED, parse_arm

__all__ = ["FEW_SESSIONS", "LAST_PASS", "TurnResults", "summarise_turns"]

Floats = NDArray[np.float64]

LAST_PASS = 20
"""Passes are counted one by one up to this."""
FEW_SESSIONS = 3
"""Fewer sessions than this have no interval: there is nothing to resample."""
FEW_ARMS = 5
"""Of so many arms each has its own table of passes; of more only the default and what it is compared with."""
MISSES_BAR, SAVING_BAR_1, SAVING_BAR_5 = 0.65, -0.01, 0.02
"""What the default has to hold in a window of 100,000 tokens against keep-last-10 with the same minimum gain: at most
0.65 of its misses, no more prefix breaks, at most one point of the bill less where a miss costs one extra call and two
points more where it costs five."""
BAR_WINDOW = 100_000


class TurnResults:
    """The replayed contexts of one window, summed by session."""

    def __init__(self, sessions: Sequence[dict[str, Any]], window: int, seed: int) -> None:
        self.window = window
        chosen = ((s, [c for c in s["contexts"] if c["window"] == window]) for s in sessions)
        self.sessions = [(session, contexts) for session, contexts in chosen if contexts]
        self.boot = Bootstrap([session["session"] for session, _ in self.sessions], seed)
        self.has_intervals = len(self.sessions) >= FEW_SESSIONS

    @cached_property
    def arms(self) -> list[str]:
        """Names of the arms that were replayed."""
        return list(self.sessions[0][1][0]["arms"])

    @property
    def contexts(self) -> int:
        """How many contexts reach the trigger in this window."""
        return sum(len(contexts) for _, contexts in self.sessions)

    def sums(self, arm: str, field: str) -> Floats:
        """One number of an arm, summed over the contexts of each session."""
        return self.counted(arm, lambda record: record[field])

    def counted(self, arm: str, count: Callable[[dict[str, Any]], float]) -> Floats:
        """Anything of the record of an arm, summed over the contexts of each session."""
        return np.array([sum(count(c["arms"][arm]) for c in contexts) for _, contexts in self.sessions], np.float64)

    def bill(self, arm: str, extra_calls: float) -> Floats:
        """The bill of each session where a miss costs so many extra calls, in fresh input tokens."""
        return self.sums(arm, "bill") + extra_calls * self.sums(arm, "extra")

    def ratio(self, top: Floats, bottom: Floats, form: str = "%") -> Measure:
        """The ratio of two sums over sessions, with an interval where there are enough of them."""
        found = self.boot.ratio_of_sessions(top, bottom, form)
        return found if self.has_intervals else Measure(found.value, form=form)

    def saving(self, arm: str, extra_calls: float, base: str = NOTHING) -> Measure:
        """What an arm saves against another, as a share of the bill without any compaction."""
        return self.ratio(self.bill(base, extra_calls) - self.bill(arm, extra_calls), self.bill(NOTHING, 0))

    def breaks(self, arm: str) -> Measure:
        """Prefix breaks per call."""
        return self.ratio(self.sums(arm, "breaks"), self.sums(arm, "calls"))

    def passes(self, arm: str, number: int, last: int | None = None) -> list[list[dict[str, Any]]]:
        """The passes of this number (or up to `last`), by session; numbers begin at 1."""
        chosen = slice(number - 1, number if last is None else last)
        return [[p for c in contexts for p in c["arms"][arm]["passes"][chosen]] for _, contexts in self.sessions]


def summarise_turns(
    sessions: Sequence[dict[str, Any]], windows: Sequence[int], seed: int, *, has_bars: bool = True
) -> list[Table]:
    """All tables of all windows; windows that no context fills are left out. Without bars there is no verdict."""
    tables: list[Table] = []
    for window in windows:
        results = TurnResults(sessions, window, seed)
        if not results.sessions:
            continue
        few = len(results.arms) <= FEW_ARMS
        shown = [name for name in results.arms if name in (SHIPPED, BASE) or (few and name != NOTHING)]
        tables += [bars_table(results, has_bars=has_bars), bill_table(results), paired_table(results)]
        tables += [passes_table(results, name) for name in shown]
    return [table for table in tables if table.rows]


def _title(results: TurnResults, what: str) -> str:
    return f"{what}, window of {results.window:,} tokens"


def bill_table(results: TurnResults) -> Table:
    """Every arm against no compaction."""
    rows: list[list[Cell]] = []
    contexts = results.counted(NOTHING, lambda _: 1.0)
    for name in results.arms:
        calls = results.sums(name, "calls")
        rows.append(
            [
                name,
                _per_hundred(results.breaks(name)),
                results.ratio(results.sums(name, "misses"), contexts, ".2f"),
                *[results.saving(name, cost) for cost in EXTRA_CALLS],
                results.ratio(results.sums(name, "declined"), contexts, ".2f"),
                results.ratio(results.sums(name, "handovers"), contexts, ".2f"),
                results.ratio(results.sums(name, "over"), calls),
            ]
        )
    about = (
        f"{results.contexts} contexts of {len(results.sessions)} sessions that reach the default trigger. Saved: share"
        " of the input bill without any compaction (cached read 0.1, write 1.25, output 5 times a fresh input token),"
        " where a miss costs 1, 5 or 10 extra calls; the re-fetched text is billed in all of them. Breaks: calls whose"
        " cached prefix a pass or a summary broke. Declined: passes that changed nothing. Over: calls with more tokens"
        " than the window holds. A summary also loses what nobody quotes: that is not counted."
    )
    columns = (
        "arm", "breaks per 100 calls", "misses per context", *[f"saved x{cost} %" for cost in EXTRA_CALLS],
        "declined per context", "hand-overs per context", "calls over the window %",
    )  # fmt: skip
    key = f"turns-bill-{results.window}"
    return Table(key, _title(results, "The bill of growing sessions"), about, columns, rows)


def _per_hundred(share: Measure) -> Measure:
    low = None if share.low is None else 100 * share.low
    high = None if share.high is None else 100 * share.high
    return Measure(100 * share.value, low, high, ".1f")


def paired_table(results: TurnResults) -> Table:
    """Every arm against keep-last-10 with the same minimum gain, at the same trigger where that was replayed."""
    rows: list[list[Cell]] = []
    bases = {_trigger(results, name): name for name in results.arms if name == BASE or name.startswith(f"{BASE}, ")}
    for name in [name for name in results.arms if name != NOTHING and name not in bases.values()]:
        base = bases.get(_trigger(results, name))
        if base is None:
            continue
        rows.append(
            [
                name,
                *[results.saving(name, cost, base) for cost in EXTRA_CALLS],
                results.ratio(results.sums(name, "misses"), results.sums(base, "misses"), ".2f"),
                results.ratio(results.sums(name, "breaks"), results.sums(base, "breaks"), ".2f"),
            ]
        )
    about = (
        f"Paired over the same sessions against `{BASE}` at the same trigger: points of the bill saved beyond it"
        " (negative: it saves more), and the ratios of misses and of prefix breaks."
    )
    columns = ("arm", *[f"points x{cost}" for cost in EXTRA_CALLS], "misses ratio", "breaks ratio")
    key = f"turns-paired-{results.window}"
    return Table(key, _title(results, "Against keep-last-10"), about, columns, rows)


def _trigger(results: TurnResults, name: str) -> float:
    return parse_arm(name).config(results.window).trigger_share


def passes_table(results: TurnResults, arm: str) -> Table:
    """The passes of one arm by their number."""
    rows: list[list[Cell]] = []
    for number in range(1, LAST_PASS + 2):
        found = results.passes(arm, number, None if number <= LAST_PASS else 10_000)
        if any(found):
            cells = _pass_cells(results, found, is_judged=parse_arm(arm).way in ("local", "constant"))
            rows.append([str(number) if number <= LAST_PASS else f"> {LAST_PASS}", *cells])
    about = (
        f"Passes of `{arm}` that changed something, by their number within a context. Before: tokens of the prompt."
        " Freed: share of it, the system prompt included. Expected: misses by the engine's own sum of P(needed); seen:"
        " misses that hindsight counts against the pass. Judged: units it looked at; new: those no earlier pass had"
        " judged, which is what a paid judge is asked. Thaw: it opened the frozen zone. Since: calls since the pass"
        " before. Even: calls until it has paid for the cache it broke, median. Reach: the target share is reached."
        " Force: the window was full. Hand: the host summarised after it."
    )
    columns = (
        "pass", "n", "before", "freed %", "expected", "seen", "judged", "new", "thaw %", "since", "even", "reach %",
        "force %", "hand %",
    )  # fmt: skip
    return Table(f"turns-passes-{results.window}-{arm}", _title(results, f"Pass by pass: {arm}"), about, columns, rows)


def _pass_cells(results: TurnResults, found: list[list[dict[str, Any]]], *, is_judged: bool) -> list[Cell]:
    count = np.array([len(passes) for passes in found], np.float64)

    def mean(value: Callable[[dict[str, Any]], float], form: str = "%") -> Measure:
        top = np.array([sum(map(value, passes)) for passes in found], np.float64)
        share = results.ratio(top, count, form)
        return share if (count > 0).sum() >= FEW_SESSIONS else share._replace(low=None, high=None)

    def plain(field: str, form: str = "%") -> Measure:
        return mean(lambda each: each[field], form)._replace(low=None, high=None)

    even = [each["even"] for passes in found for each in passes if each["even"] is not None]
    return [
        int(count.sum()),
        plain("before", ",.0f"),
        mean(lambda each: (each["before"] - each["after"]) / max(1, each["before"])),
        plain("expected", ".2f") if is_judged else "",
        mean(lambda each: each["missed"], ".2f"),
        plain("judged", ".0f"),
        plain("fresh", ".0f"),
        plain("thawed"),
        plain("since", ".0f"),
        Measure(float(np.median(even)) if even else float("nan"), form=".1f"),
        plain("reached"),
        plain("forced"),
        plain("handover"),
    ]


def bars_table(results: TurnResults, *, has_bars: bool = True) -> Table:
    """The default against what it has to hold; in other windows the same figures without a verdict."""
    rows: list[list[Cell]] = []
    if SHIPPED in results.arms and BASE in results.arms:
        misses = results.ratio(results.sums(SHIPPED, "misses"), results.sums(BASE, "misses"), ".2f")
        breaks = results.ratio(results.sums(SHIPPED, "breaks"), results.sums(BASE, "breaks"), ".2f")
        one, five, ten = (results.saving(SHIPPED, cost, BASE) for cost in EXTRA_CALLS)
        held = has_bars and results.window == BAR_WINDOW
        failed = Measure(float(sum(results.sums(name, "failed").sum() for name in results.arms)), form=".0f")
        stuck = results.ratio(results.sums(SHIPPED, "over"), results.sums(SHIPPED, "calls"))
        rows = [
            _bar("misses, ratio", misses, f"at most {MISSES_BAR}", misses.value <= MISSES_BAR, held=held),
            _bar("prefix breaks, ratio", breaks, "at most 1", breaks.value <= 1, held=held),
            _bar("points of the bill, a miss costs 1 call", one, "at least -1", one.value >= SAVING_BAR_1, held=held),
            _bar("points of the bill, 5 calls", five, "at least 2", five.value >= SAVING_BAR_5, held=held),
            _bar("points of the bill, 10 calls", ten, "", is_met=True, held=False),
            _bar("calls over the window %", stuck, "0", stuck.value == 0, held=held),
            _bar("failed passes of all arms", failed, "0", failed.value == 0, held=held),
        ]
    about = f"`{SHIPPED}` (the default settings) against `{BASE}`, paired over the same sessions."
    columns = ("what", "found", "bar", "reading")
    key = f"turns-bars-{results.window}"
    return Table(key, _title(results, "The default against keep-last-10"), about, columns, rows)


def _bar(what: str, found: Measure, bar: str, is_met: bool, *, held: bool) -> list[Cell]:  # noqa: FBT001  # a verdict
    verdict = ("held" if is_met else "missed") if held else ""
    return [what, found, bar if held else "", verdict]
