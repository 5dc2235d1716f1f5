"""What `compress` tells a person: one line per call, then what it comes to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from jev_engine.cli.show import (
    CallRow,
    call_table,
    console_for,
    emit,
    emit_facts,
    number,
    percent,
    plain,
    several,
    tally,
)

if TYPE_CHECKING:
    from rich.console import Console

    from jev_engine.result import CompressionResult

__all__ = ["Ending", "show_compression"]

# Sessions up to this many calls are shown whole: about a screen and a half.
WHOLE_CALLS = 40
# Of longer ones: the calls that free most, and the largest that stay.
MOST_CHANGED, MOST_KEPT = 30, 8
WORDS = {"keep": "kept", "truncate": "shortened", "remove": "removed"}


class Ending(NamedTuple):
    """Where things went, for the last lines."""

    name: str
    out: str | None
    store: Path
    is_dry: bool
    written: bool
    read_only: str | None
    chosen_store: str | None
    resume: str | None = None
    """The command by which the host goes on with what was written."""


def show_compression(result: CompressionResult, ending: Ending, stream: IO[str], *, show_all: bool) -> None:
    """Print table and summary."""
    console = console_for(stream)
    rows = rows_of(result)
    if rows:
        sections, left_out = ([rows], "") if show_all or len(rows) <= WHOLE_CALLS else choose(rows)
        emit(console, call_table(sections, console, with_judgement=True), *([left_out, ""] if left_out else []))
    _summary(console, result, ending)


def rows_of(result: CompressionResult) -> list[CallRow]:
    """One row per call in the order of the history, pinned ones too."""
    decided = {decision.call.number: decision for decision in result.decisions}
    total = len(result.transcript.calls)
    rows = []
    for call in result.transcript.calls:
        decision = decided.get(call.number)
        if decision is None:
            rows.append(CallRow(call, total - call.number, "pinned", result.pinned.get(call.number, "not judged")))
            continue
        p = decision.probability.p_result if decision.probability else None
        # What would have gone in a better pass is said once, in the summary.
        reason = decision.reason.partition(":")[0] if decision.reason.startswith("pass ") else decision.reason
        age = total - call.number
        rows.append(CallRow(call, age, WORDS[decision.action], reason, p, decision.freed_tokens))
    return rows


def choose(rows: list[CallRow]) -> tuple[list[list[CallRow]], str]:
    """What is shown of a long session, and a line about what is not."""
    changed = [row for row in rows if row.action in ("shortened", "removed")]
    kept = [row for row in rows if row.action == "kept"]
    most = sorted(changed, key=lambda row: row.freed_tokens, reverse=True)[:MOST_CHANGED]
    largest = sorted(kept, key=lambda row: row.call.tokens, reverse=True)[:MOST_KEPT]
    sections = [sorted(part, key=lambda row: row.call.number) for part in (most, largest) if part]
    hidden = Counter(row.action for row in rows)
    hidden.subtract(row.action for part in sections for row in part)
    words = tally({word: count for word, count in hidden.most_common() if count > 0})
    shown = " and ".join(
        text for text, part in (("those that free most", most), ("the largest that stay", largest)) if part
    )
    return sections, f"Shown: {shown or 'none'}. Not shown: {words} (--all shows every call)." if words else ""


def _summary(console: Console, result: CompressionResult, ending: Ending) -> None:
    from rich.text import Text  # noqa: PLC0415

    stats = result.stats
    actions = Counter(WORDS[decision.action] for decision in result.decisions)
    dry = " (dry run)" if ending.is_dry else ""
    style = {"committed": "bold green", "failed": "bold red"}.get(result.outcome, "bold yellow")
    head = Text(f"{result.outcome}{dry}", style=style)
    head.append(f": {plain(result.reason)}", style="bold")
    counts = tally({word: actions[word] for word in ("shortened", "removed", "kept") if actions[word]})
    pinned = f"{sum(stats.pinned.values()):,} pinned ({tally(stats.pinned)})" if stats.pinned else ""
    lines = [("calls", f"{stats.calls:,}: {', '.join(part for part in (counts, pinned) if part)}")]
    if stats.odd:
        lines.append(("other rows", f"{tally(stats.odd)}; left as they are"))
    share = percent(stats.freed_tokens / stats.tokens_before) if stats.tokens_before else "0 %"
    lines.append(("tokens", f"{number(stats.tokens_before)} → {number(stats.tokens_after)}, {share} freed"))
    if stats.freed_tokens:
        honest = "" if stats.is_calibrated else " (uncalibrated: the judge's answers were never fitted to outcomes)"
        honest += ", with what was learned from this project's earlier sessions" if stats.uses_memory else ""
        lines.append(("expected misses", f"{misses_of(stats.expected_misses)}{honest}"))
        if stats.break_even_calls is not None:
            calls = round(stats.break_even_calls)
            when = f"after about {several(calls, 'more model call')}" if calls else "at once"
            lines.append(("pays off", f"{when}, counting the prompt cache that is written anew"))
        path = plain(str(ending.store))
        until = "; they stay there until you take them out (jev-engine store) or it is full"
        lines.append(("originals", f"would go to {path}" if ending.is_dry else f"in {path}{until}"))
    emit(console, head)
    emit_facts(console, lines)
    emit(console, "")
    # Not wrapped: it may hold a command to copy.
    console.print(Text(last_line(result, ending)), soft_wrap=True)


def misses_of(expected: float) -> str:
    """Expected misses, as exact as such a number can be."""
    if expected >= 10:
        return f"{expected:,.0f}"
    return f"{expected:.2f}" if expected >= 0.01 else "less than 0.01"


def last_line(result: CompressionResult, ending: Ending) -> str:
    """What was done with the session, and what to do next."""
    out = plain(ending.out or "OUT")
    if result.outcome == "failed":
        return "Nothing was written."
    if ending.written and ending.out == "-":
        how = "" if result.changed else ", unchanged"
        return f"Written to standard output{how}." + (f" To go on with it: {ending.resume}." if ending.resume else "")
    if ending.written and not result.changed:
        return f"Written to {out}, unchanged."
    if ending.written:
        store = f" --store {plain(ending.chosen_store)}" if ending.chosen_store else ""
        resume = f" To go on with it: {ending.resume}." if ending.resume else ""
        return f"Written to {out}.{resume} To have everything back: jev-engine restore {out}{store}"
    if not result.changed:
        remedy = " --force would take out what there is." if result.outcome == "not_worth_it" else ""
        return f"Nothing to write.{remedy}"
    if ending.read_only:
        return f"Nothing was written or stored. {ending.read_only}"
    how = "leave out --dry-run" if ending.out else "add -o OUT"
    return f"Nothing was written or stored. To write the shorter session, {how}."
