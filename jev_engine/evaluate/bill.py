"""What a single pass saves and costs on the input bill of the calls that followed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jev_engine.config import EngineConfig
from jev_engine.decisions import ANSWER_TOKENS
from jev_engine.evaluate.bootstrap import Measure
from jev_engine.evaluate.results import Results
from jev_engine.evaluate.tables import Cell, Table

__all__ = ["EXTRA_CALLS", "Bill", "bill_of", "bill_table"]

Floats = NDArray[np.float64]

EXTRA_CALLS = (1, 5, 10)
"""Extra model calls that one miss costs: a re-read, a derailed turn, a derailed task."""
SHOWN = (
    "keep last 3", "keep last 10", "keep last 20", "worth 1", "worth 3", "worth 5", "worth 10", "balanced, as shipped",
    "worth 5, constant p", "worth 5, age and size", "all but the last 3 and short results", "reference, asked judge",
    "oracle (hindsight)",
)  # fmt: skip


class Bill(NamedTuple):
    """Prices of one policy at every cut, in fresh input tokens."""

    total: Floats
    """Input bill of the calls after the cut without any pass: context read from the cache, new text written to it."""
    saved: Floats
    """Freed tokens that those calls need not read."""
    rewritten: Floats
    """Text behind the first edit, written to the cache once more."""
    per_call: Floats
    """What each extra call per miss costs, over all misses of the pass."""
    refetched: Floats
    """Missed results that come back and stay."""

    def net(self, extra_calls: float) -> Floats:
        """What remains of the saving when a miss costs so many extra calls."""
        return self.saved - self.rewritten - extra_calls * self.per_call - self.refetched


def bill_of(results: Results, policy: str) -> Bill:
    """The bill under the default prices of the settings."""
    prices = EngineConfig()
    read, write, output = prices.read_price, prices.write_price, prices.output_price
    calls = results.of("calls_left")
    freed = results.column(policy, "freed_tokens")
    context = results.of("tokens") - freed
    refetched = results.column(policy, "refetch_tokens")
    changed = results.column(policy, "changed")
    return Bill(
        total=read * results.of("ahead_tokens") + (write - read) * results.of("growth_tokens"),
        saved=read * freed * calls,
        rewritten=(write - read) * results.column(policy, "suffix_tokens") * changed,
        per_call=results.column(policy, "missed") * (read * context + output * ANSWER_TOKENS),
        refetched=write * refetched + read * refetched * calls / 2,  # it comes back half way, on average
    )


def break_even_calls(results: Results, policy: str) -> Floats:
    """Calls until the freed tokens have paid for what is written anew, at the cuts where something went out."""
    prices = EngineConfig()
    freed = results.column(policy, "freed_tokens")
    some = freed > 0
    rewrite = (prices.write_price - prices.read_price) * results.column(policy, "suffix_tokens")[some]
    return np.asarray(rewrite / (prices.read_price * freed[some]))


def bill_table(results: Results) -> Table:
    """Saving, rewriting and misses as shares of the bill, and the net at several costs of a miss."""
    rows: list[list[Cell]] = []
    boot = results.boot
    for name in [name for name in SHOWN if name in results.policies]:
        bill = bill_of(results, name)
        even = break_even_calls(results, name)
        median = Measure(float(np.median(even)) if len(even) else float("nan"), form=".1f")
        parts = [boot.ratio(part, bill.total) for part in (bill.saved, bill.rewritten)]
        misses = [boot.ratio(cost * bill.per_call + bill.refetched, bill.total) for cost in EXTRA_CALLS]
        net = [boot.ratio(bill.net(cost), bill.total) for cost in EXTRA_CALLS]
        rows.append([name, median, *parts, *misses, *net])
    about = (
        "One pass at each cut and the calls that really followed, as shares of their input bill (cached read 0.1,"
        " write 1.25, output 5 times a fresh input token). Break-even: median over passes that free something. A miss"
        " costs extra calls and fetching the result again. Cuts are imagined at every size of context: a host that"
        " waits for its trigger breaks the cache more rarely and frees more at once."
    )
    columns = (
        "policy", "break-even calls", "saved %", "rewriting %", *[f"misses x{cost} %" for cost in EXTRA_CALLS],
        *[f"net x{cost} %" for cost in EXTRA_CALLS],
    )  # fmt: skip
    return Table("bill", "The input bill after one pass", about, columns, rows)
