"""What a plugin is told after a pass: what to do, and what its user should see of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from jev_engine.config import EngineConfig
from jev_engine.result import CompressionResult

__all__ = ["LEAST_REDUCTION", "LOG_CHARS", "Verdict", "answer_of", "decision_lines", "failure", "verdict_of"]

LEAST_REDUCTION = 0.25
"""Below it a pass that leaves the window too full is handed over, as the reference plugin does."""
LOG_CHARS = 4_096
"""Longest line that Claude Code shows of a plugin."""
NUMBER_CHARS = 24
"""Room for the words before the first decision of a line, `decisions (12/34):`."""
ANSWER_VERSION = 1

Act = Literal["replace", "summarise", "skip"]


class Verdict(NamedTuple):
    """What becomes of a pass."""

    act: Act
    """Take the new history, let the host's own summariser work (on it, where it changed), or leave all as it is."""
    reason: str


def failure(reason: str) -> dict[str, Any]:
    """The answer after a fault: the host's own summariser works on the history as it is."""
    line = f"left to the built-in summary: {reason}"
    return {"v": ANSWER_VERSION, "act": "summarise", "reason": reason, "steps": None, "toast": line, "log": [line]}


def verdict_of(result: CompressionResult, given: Mapping[str, Any], config: EngineConfig) -> Verdict:
    """Whether the new history stands.

    A pass that the plugin itself asked for replaces or leaves; one that a person or the host asked for has to free
    enough, or the host's summariser goes on, unless the settings say `handover = "never"`.
    """
    is_asked = given.get("trigger") != "plugin"
    if result.outcome == "failed":
        return Verdict("summarise" if is_asked else "skip", result.reason)
    has_changed = result.messages is not given["messages"]
    if not is_asked:
        return Verdict("replace" if has_changed else "skip", result.reason)
    reduction = reduction_of(given["messages"], result.messages)
    if has_changed and (reduction >= LEAST_REDUCTION or not _is_too_full(result, given, config)):
        return Verdict("replace", result.reason)
    if config.handover == "never":
        return Verdict("replace" if has_changed else "skip", result.reason)
    return Verdict("summarise", f"pruning frees {reduction:.0%} only: {result.reason}")


def chars_of(messages: Sequence[Any]) -> int:
    """Characters of texts and results; arguments never change."""
    return sum([len(e["text"]) + sum([len(r["text"]) for r in e["results"] if isinstance(r["text"], str)])
                for e in messages])  # fmt: skip


def reduction_of(before: Sequence[Any], after: Sequence[Any]) -> float:
    """Share of the text that is gone, decisions of earlier passes that are carried out again included."""
    if after is before:
        return 0.0
    chars = chars_of(before)
    return 1 - chars_of(after) / chars if chars else 0.0


def _is_too_full(result: CompressionResult, given: Mapping[str, Any], config: EngineConfig) -> bool:
    """Whether the window would call for the next pass at once; where its size is unknown, it would."""
    window, used = given.get("window_tokens"), given.get("used_tokens")
    if not isinstance(window, int | float) or not isinstance(used, int | float) or window <= 0:
        return True
    return used - result.stats.freed_tokens >= config.trigger_share * window


def answer_of(
    result: CompressionResult, verdict: Verdict, host: Any, given: Mapping[str, Any], stored: int
) -> dict[str, Any]:
    """The answer to a pass; raises RebuildError where its steps would break a pair."""
    messages: Sequence[Any] = given["messages"]
    after = result.messages
    made = None
    if verdict.act == "replace":
        made = host.operations(messages, after, given)
    elif verdict.act == "summarise" and after is not messages:
        made = host.edits(messages, after)
    log = decision_lines(result)
    if made is not None and verdict.act == "replace":
        counts = (
            (made.thinking, "rows of thinking only are not carried over"),
            (made.replaced, "results hold an image or other content that is not carried over"),
            (made.brought, "results took in the text that came with them, of a skill most often"),
        )
        log += [f"{count} {what}" for count, what in counts if count]
    log += [f"warning: {each}"[:LOG_CHARS] for each in (*result.stats.warnings, *result.stats.failures)]
    before, later = chars_of(messages), chars_of(after)
    reduction = 1 - later / before if before else 0.0
    toast = _toast(result, verdict, len(messages), made, reduction)
    stats = result.stats
    return {
        "v": ANSWER_VERSION,
        "act": verdict.act,
        "reason": verdict.reason,
        "steps": None if made is None else made.steps,
        "gone": [] if made is None else made.gone,
        "rows": len(messages),
        "toast": toast,
        "log": [toast, *log],
        "stats": {
            "outcome": result.outcome,
            "reduction": round(reduction, 4),
            "chars_before": before,
            "chars_after": later,
            "freed_tokens": stats.freed_tokens,
            "expected_misses": round(stats.expected_misses, 3),
            "requests": stats.requests,
            "uses_memory": stats.uses_memory,
            "stored_messages": stored,
            "ms": round(stats.ms, 1),
        },
    }


def _toast(result: CompressionResult, verdict: Verdict, rows: int, made: Any, reduction: float) -> str:
    """One line for the user: what was kept of how much, and how it was decided."""
    stats = result.stats
    counts = {"truncate": 0, "keep": 0, "remove": 0}
    for decision in result.decisions:
        counts[decision.action] += 1
    kept = rows if made is None else rows - len(made.gone)
    stage = f"state {stats.state_tokens:,} tokens ({stats.state_stage})" if stats.state_stage else "no state sent"
    parts = [
        f"{kept} of {rows} messages kept",
        f"{reduction:.0%} less",
        f"{counts['truncate']} results shortened, {counts['remove']} calls removed, {counts['keep']} kept whole",
        f"{stats.expected_misses:.1f} misses expected",
        f"{stage}, {stats.requests} requests",
        result.outcome if verdict.act == "replace" else f"{result.outcome}; {_act_in_words(verdict)}",
    ]
    return "; ".join(parts)


def _act_in_words(verdict: Verdict) -> str:
    if verdict.act == "skip":
        return f"left as it is: {verdict.reason}"
    return f"left to the built-in summary: {verdict.reason}"


def decision_lines(result: CompressionResult, most: int = LOG_CHARS) -> list[str]:
    """Every decision, in as few lines of at most `most` characters as it takes; several are numbered (1/3)."""
    entries = []
    for decision in result.decisions:
        p = decision.probability
        shown = "" if p is None else f" p={p.p_result:.2f}"
        entries.append(
            f"{decision.label}:{_plain(decision.call.tool)}:{decision.action}{shown} {decision.reason}"[: most // 2]
        )
    if not entries:
        return ["decisions: none"]
    chunks: list[list[str]] = [[]]
    size = 0
    for entry in entries:
        if chunks[-1] and size + len(entry) + 2 > most - NUMBER_CHARS:
            chunks.append([])
            size = 0
        chunks[-1].append(entry)
        size += len(entry) + 2
    total = len(chunks)
    return [
        f"decisions{f' ({number}/{total})' if total > 1 else ''}: {', '.join(chunk)}"
        for number, chunk in enumerate(chunks, 1)
    ]


def _plain(text: str) -> str:
    """Without anything that a terminal would act on."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:60])
