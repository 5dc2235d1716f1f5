"""The interim local judge: fixed rules, no text model, not calibrated.

It knows size, age, and whether a later result repeats the text. Base rates are those of evaluation.md section 4.
"""

from __future__ import annotations

from bisect import bisect_left

from jev_engine.answers import RawAnswer
from jev_engine.transcript import ToolCall, Transcript

__all__ = ["answer_by_rules"]

# Share of results needed again by age in calls, and relative to it by size in characters (evaluation.md section 4).
AGES, BY_AGE = (1, 2, 3, 5, 10, 20, 40, 80, 160), (0.154, 0.114, 0.10, 0.095, 0.094, 0.078, 0.037, 0.021, 0.012, 0.007)
SIZES, BY_SIZE = (300, 1_500, 4_000, 10_000, 30_000), (0.1, 0.5, 1.4, 2.6, 4.5, 6.5)
# A result whose lines a later result shows again: none of 2,000 such was needed (evaluation.md section 5).
REPEATED = 0.001
PROBES = 8


def answer_by_rules(transcript: Transcript, candidates: list[ToolCall]) -> dict[str, RawAnswer]:
    """P(call matters) and P(result needed) for each candidate, by unit key."""
    if not candidates:
        return {}
    newest = len(transcript.calls)
    latest: dict[str, int] = {}
    probes: dict[int, list[str]] = {}
    for call in transcript.calls:
        lines = probes[call.number] = _probe(call.result or "")
        latest.update(dict.fromkeys(lines, call.number))
    answers: dict[str, RawAnswer] = {}
    for call in candidates:
        lines = probes[call.number]
        if len(lines) >= PROBES and all(latest[line] > call.number for line in lines):
            answers[call.key] = RawAnswer(1.0, REPEATED)
            continue
        age = BY_AGE[bisect_left(AGES, newest - call.number + 1)]
        size = BY_SIZE[bisect_left(SIZES, len(call.result or ""))]
        answers[call.key] = RawAnswer(1.0, min(0.6, age * size))
    return answers


def _probe(text: str) -> list[str]:
    """Up to eight lines spread over a text, long enough to be its own."""
    step = max(1, len(text) // PROBES)
    lines = []
    for start in range(0, len(text), step):
        begin = text.find("\n", start, start + step) + 1
        line = text[begin : begin + 200].split("\n", 1)[0].strip() if begin else ""
        if len(line) >= 25:
            lines.append(line)
    return lines
