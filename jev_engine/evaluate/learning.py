"""Learn a project's memory from its finished sessions: hindsight labels against the shipped judge's answers.

Pure Python, no numbers of anybody else. Sessions are taken in one after another; what each would have gained from those
before it is measured on the way, so that the figures shown are never in-sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from jev_engine.evaluate.calibrate import reliability
from jev_engine.evaluate.corpus import AFTER_CUT, CUT_RESULTS, FIRST_CUTS, Session, units_of
from jev_engine.evaluate.hindsight import look_back
from jev_engine.evaluate.memory import ProjectMemory, recall
from jev_engine.evaluate.vocabulary import count_vocabulary, load_vocabulary
from jev_engine.host import Adapter
from jev_engine.judges.features import FeatureCache
from jev_engine.judges.local import local_probabilities
from jev_engine.transcript import ToolCall, Transcript

__all__ = ["Gain", "Recording", "Row", "is_common_in", "label_recording", "learn", "measure"]

JUDGED_AGE = 3
"""The newest results are pinned everywhere."""

Row = tuple[float, bool]
"""The shipped judge's P(needed), and whether it was."""


class Recording(NamedTuple):
    """One session as its host recorded it."""

    name: str
    messages: Sequence[Any]
    adapter: Adapter
    transcript: Transcript


class Gain(NamedTuple):
    """Quality of probabilities over some rows."""

    log_loss: float
    ece: float
    predicted: float
    """Sum of the probabilities."""
    needed: int
    rows: int


def is_common_in(recordings: Iterable[Recording], project: str) -> Callable[[bytes], bool]:
    """What proves nothing here: the shipped vocabulary, and what most sessions of the project contain."""
    sessions = (
        Session(recording.name, project, recording.adapter.name, _as_corpus(recording.transcript))
        for recording in recordings
    )
    own = count_vocabulary(sessions)
    own.common = frozenset()  # one user's projects are too few to tell what is common everywhere
    try:
        shipped = load_vocabulary()
    except FileNotFoundError:  # not trained yet: the user's own words have to do
        return own.of_project(project)
    return (shipped | own).of_project(project)


def _as_corpus(transcript: Transcript) -> list[dict[str, Any]]:
    texts: list[dict[str, Any]] = [{"content": entry.text} for entry in transcript.entries]
    for call in transcript.calls:
        calls = [{"function": {"arguments": call.arguments}}]
        texts.append({"content": call.result or "", "tool_calls": calls})
    return texts


def cut_rows(transcript: Transcript) -> list[int]:
    """Message rows to cut at, after whole turns, spaced as in the corpus."""
    units = units_of(transcript)
    if len(units) < CUT_RESULTS:
        return []
    last_of_turn: dict[int, int] = {}
    for call in units:
        last_of_turn[call.turn] = max(last_of_turn.get(call.turn, 0), call.result_row)
    rows: list[int] = []
    count = FIRST_CUTS[0]
    step = iter(FIRST_CUTS[1:])
    while count <= len(units) - AFTER_CUT:
        row = last_of_turn[units[count - 1].turn] + 1
        before = sum(unit.result_row < row for unit in units)
        if before <= len(units) - AFTER_CUT and row not in rows:
            rows.append(row)
        count = next(step, count + max(15, count // 4))
    return rows


def label_recording(recording: Recording, is_common: Callable[[bytes], bool]) -> list[Row]:
    """The shipped judge's answer for every old result at every cut, and what hindsight says."""
    transcript = recording.transcript
    rows = cut_rows(transcript)
    if not rows:
        return []
    hindsight = look_back(transcript, is_common)
    places = {_place(unit): i for i, unit in enumerate(hindsight.units)}
    cache = FeatureCache()
    found: list[Row] = []
    for row in rows:
        before = recording.adapter.read(recording.messages[:row])
        answers = local_probabilities(before, cache)
        verdicts = hindsight.verdicts(row)
        closed = units_of(before)
        for age, call in enumerate(reversed(closed), 1):
            unit = places.get(_place(call))
            # A row of a side branch is in no later history, so nothing can be said about it.
            if age > JUDGED_AGE and unit is not None and unit < len(verdicts):
                found.append((answers[call.number][1], verdicts[unit].needed))
    return found


def _place(call: ToolCall) -> tuple[int, int, str]:
    return call.row, call.result_row, str(call.call_id)


def learn(memory: ProjectMemory, sessions: Iterable[Sequence[Row]]) -> tuple[list[Row], list[Row]]:
    """Add sessions one by one; returns their rows as the shipped judge and as the memory before each saw them."""
    before: list[Row] = []
    after: list[Row] = []
    for rows in sessions:
        if not rows:
            continue
        fitted = memory.fit()
        before += rows
        after += [(recall(p, fitted), needed) for p, needed in rows]
        memory.add_session([p for p, _ in rows], [needed for _, needed in rows])
    return before, after


def measure(rows: Sequence[Row]) -> Gain:
    """Log loss, calibration error over ten bins of equal mass, and predicted against actual."""
    edge = 1e-6
    total = 0.0
    for p, needed in rows:
        held = min(1 - edge, max(edge, p))
        total -= math.log(held if needed else 1 - held)
    error = sum(abs(p - share) * count for p, share, count in reliability(rows))
    return Gain(total / len(rows), error / len(rows), sum(p for p, _ in rows), sum(was for _, was in rows), len(rows))
