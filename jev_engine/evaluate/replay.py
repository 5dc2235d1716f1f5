"""Every session at every cut through the real engine, under every policy, and what hindsight says about it.

What is measured is the product: `ContextEngine.compress(dry_run=True)` reads, pins, judges, decides and shortens; then
each needed atom is looked for in what the pass would have left. An atom is lost only if all its holders are gone; text
that stays (a head, outcome lines) still holds what stands in it.
Single passes over histories as they were recorded; growing sessions with several passes are another room's work.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jev_engine import hookimpl
from jev_engine.answers import RawAnswer
from jev_engine.config import EngineConfig
from jev_engine.decisions import ANSWER_TOKENS, REFETCH_TOKENS, Decision
from jev_engine.engine import ContextEngine
from jev_engine.errors import JudgeError
from jev_engine.evaluate.corpus import Segment, Session, cuts_of
from jev_engine.evaluate.hindsight import THETA, Hindsight, look_back, tokens_of
from jev_engine.evaluate.lookback import boundaries_of
from jev_engine.evaluate.policies import Policy, View, age_and_size, published_medians
from jev_engine.evaluate.vocabulary import Vocabulary
from jev_engine.judges import Judge, JudgeRequest, Verdict
from jev_engine.judges.features import FEATURES, FeatureCache, FeatureTable, tabulate
from jev_engine.judges.local import is_unfamiliar, probabilities_of
from jev_engine.plugins import load_plugins
from jev_engine.result import CompressionResult
from jev_engine.transcript import Transcript

__all__ = ["PASS_FIELDS", "FixedJudge", "Recorded", "replay_session", "rows_at", "units_lost"]

HOST = "openai"
"""The form of the corpus: Chat Completions messages."""
PASS_FIELDS = (
    "freed_chars", "freed_tokens", "out", "missed", "predicted", "suffix_tokens", "refetch_tokens", "changed",
)  # fmt: skip
"""What is kept of one pass, in this order: sizes freed, units shortened or removed, units missed, the local judge's
sum of
P(needed) over what went out, tokens behind the first edit, tokens of missed results that would be fetched again."""
Recorded = Mapping[str, tuple[float | None, float | None]]
"""Recorded answers (P(call), P(result)) by unit key."""

_AGE = FEATURES.index("age")


class FixedJudge:
    """Answers by call number, known beforehand."""

    name = "fixed"

    def __init__(self, answers: Mapping[int, RawAnswer], *, is_calibrated: bool) -> None:
        self.answers = answers
        self.is_calibrated = is_calibrated

    async def judge(self, request: JudgeRequest) -> Verdict:
        """The known answers for the candidates."""
        numbers = ((call.key, self.answers.get(call.number)) for call in request.candidates)
        return Verdict({key: answer for key, answer in numbers if answer is not None})


class _ReadOnce:
    """The adapter of the corpus, but each history is read once, however many policies look at it.

    A dry run changes nothing of a transcript that a later one would see.
    """

    name = "recorded"

    def __init__(self) -> None:
        self._adapter = load_plugins(entry_points=False).adapter(HOST)
        self._messages: Sequence[Any] = ()
        self.transcript: Transcript = self._adapter.read(())
        """Of the history that is held."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def hold(self, messages: Sequence[Any]) -> None:
        """Read a history, and give the same transcript for it until another one is held."""
        self._messages, self.transcript = messages, self._adapter.read(messages)

    def read(self, messages: Sequence[Any]) -> Transcript:
        """The transcript of a history."""
        return self.transcript if messages is self._messages else self._adapter.read(messages)

    @hookimpl
    def register_adapters(self, register: Callable[[Any], None]) -> None:
        """Hand itself to an engine."""
        register(self)


class _Cut(NamedTuple):
    """One imagined compaction and what is needed to score it."""

    segment: Segment
    row: int
    messages: list[dict[str, Any]]
    """The history as it stood."""
    hindsight: Hindsight
    view: View


def rows_at(segment: Segment, cuts: int | Sequence[int] | None) -> list[int]:
    """Message rows to cut at: all of them, so many of them evenly spread, or those after given numbers of results."""
    rows = cuts_of(segment)
    if cuts is None or not rows:
        return rows
    if isinstance(cuts, int):
        if cuts >= len(rows):
            return rows
        return [rows[round((i + 1) * len(rows) / cuts) - 1] for i in range(cuts)]
    wanted = set(cuts)
    return [row for row in rows if sum(unit.result_row < row for unit in segment.units) in wanted]


def replay_session(
    session: Session,
    policies: Sequence[Policy],
    vocabulary: Vocabulary,
    *,
    seed: int = 0,
    cuts: int | Sequence[int] | None = None,
    folds: Mapping[tuple[str, int, int], Mapping[int, float]] | None = None,
    recorded: Recorded | None = None,
    judge: Judge | None = None,
) -> dict[str, Any]:
    """All cuts of a session under all policies, as plain JSON values; numbers only, no text of the session.

    `folds` are log-odds of a judge that never saw the session's project, by (session, segment, row) and call number;
    where they have a cut, they stand for the local judge. `judge` is asked at every cut, not looked up in `recorded`.
    Deterministic but for `latency`, and for what the judge says.
    """
    is_common = vocabulary.of_project(session.project)
    found: list[dict[str, Any]] = []
    latency = []
    for segment in session.segments():
        rows = rows_at(segment, cuts)
        if not rows:
            continue
        hindsight = look_back(segment.transcript, is_common)
        found += asyncio.run(_replay_segment(segment, rows, hindsight, policies, seed, folds or {}, recorded, judge))
        latency.append(asyncio.run(_latency(segment.messages[: rows[-1]])))
    return {
        "session": session.session_id,
        "project": session.project,
        "harness": session.harness,
        "cuts": found,
        "lookback": boundaries_of(session),
        "latency": latency,
    }


async def _replay_segment(
    segment: Segment,
    rows: Sequence[int],
    hindsight: Hindsight,
    policies: Sequence[Policy],
    seed: int,
    folds: Mapping[tuple[str, int, int], Mapping[int, float]],
    recorded: Recorded | None,
    judge: Judge | None,
) -> list[dict[str, Any]]:
    """One engine and one cache of features for all cuts of a segment: texts are worked on once."""
    reader = _ReadOnce()
    engine = ContextEngine(plugins=load_plugins([reader], entry_points=False))
    cache = FeatureCache()
    session = segment.session.session_id
    found = []
    for row in rows:
        verdicts = hindsight.verdicts(row)
        needed = frozenset(hindsight.units[i].number for i, verdict in enumerate(verdicts) if verdict.needed)
        table = tabulate(segment.before(row), cache)
        view = View(table, (seed, session, segment.number, row), needed)
        fold = folds.get((session, segment.number, row))
        view.local = _local_answers(table, fold)
        view.rules = age_and_size(view)
        cut = _Cut(segment, row, segment.messages[:row], hindsight, view)
        reader.hold(cut.messages)
        first = await _pass(engine, cut, policies[0], published_medians(view))
        keys = {call.number: call.key for call in reader.transcript.calls}
        if judge is not None:
            view.asked = await _ask(engine, cut, judge)
        else:
            view.asked = published_medians(view) if recorded is None else _recorded_answers(recorded, keys)
        record = _describe(cut, first, verdicts, is_unseen=fold is not None)
        for policy in policies:
            done = await _pass(engine, cut, policy, policy.answers(view))
            record["policies"][policy.name] = _measure(cut, done)
        found.append(record)
    return found


def _local_answers(table: FeatureTable, fold: Mapping[int, float] | None) -> dict[int, RawAnswer]:
    """The local judge's answers, with its floors, from the shipped weights or from a fold that left the project out."""
    from jev_engine.judges import weights  # noqa: PLC0415  # generated: the log-odds of a fold need it not

    unfamiliar = is_unfamiliar(table)
    answers = {}
    for call, row, unit in zip(table.calls, table.rows, table.timeline.units, strict=True):
        log_odds = fold[call.number] if fold is not None and call.number in fold else weights.log_odds(row)
        known = probabilities_of(unit, row[_AGE], log_odds, None, is_unfamiliar=unfamiliar)
        answers[call.number] = RawAnswer(*known)
    return answers


async def _ask(engine: ContextEngine, cut: _Cut, judge: Judge) -> dict[int, RawAnswer]:
    """What a judge answers about the candidates of a cut, by call number; nothing where nobody answers."""
    engine.config = EngineConfig()
    seen = await engine.inspect(cut.messages, host=_ReadOnce.name)
    candidates = seen.pins.candidates
    if not candidates:
        return {}
    try:
        asked = JudgeRequest(seen.transcript, candidates, None, None, seen.pins.rows, engine.config)
        verdict = await judge.judge(asked)
    except JudgeError:
        return {}
    numbers = {call.key: call.number for call in candidates}
    return {numbers[key]: answer for key, answer in verdict.answers.items()}


def _recorded_answers(recorded: Recorded, keys: Mapping[int, str]) -> dict[int, RawAnswer]:
    return {number: RawAnswer(*recorded[key]) for number, key in keys.items() if key in recorded}


async def _pass(
    engine: ContextEngine, cut: _Cut, policy: Policy, answers: Mapping[int, RawAnswer]
) -> CompressionResult:
    """One pass of the real engine. A forced pass with nothing to free keeps to its prices and never declines."""
    engine.config = policy.config()
    engine.judge = FixedJudge(answers, is_calibrated=policy.is_calibrated)
    if policy.is_gated:
        return await engine.compress(cut.messages, host=_ReadOnce.name, dry_run=True)
    return await engine.compress(cut.messages, 1, force=True, host=_ReadOnce.name, dry_run=True)


def units_lost(hindsight: Hindsight, row: int, left: Mapping[int, str]) -> list[int]:
    """Indices of the units that are missed after a cut at message `row`.

    `left` holds, for each unit that was shortened or removed, by its index, the text that stays in its place.
    """
    held: dict[int, set[bytes]] = {}
    points: dict[tuple[int, int], int] = defaultdict(int)
    for each in hindsight.evidence_at(row):
        if all(holder in left for holder in each.holders):
            for holder in each.holders:
                if holder not in held:
                    held[holder] = tokens_of(left[holder])
            if not any(each.token in held[holder] for holder in each.holders):
                points[each.unit, each.used_at] += each.points
    return sorted({unit for (unit, _), total in points.items() if total >= THETA})


def _measure(cut: _Cut, done: CompressionResult) -> list[float]:
    """What is kept of one pass: see `PASS_FIELDS`."""
    out: list[Decision] = [decision for decision in done.decisions if decision.action != "keep"]
    index = {unit.number: i for i, unit in enumerate(cut.hindsight.units)}
    left = {index[decision.call.number]: decision.text for decision in out}
    missed = set(units_lost(cut.hindsight, cut.row, left))
    tokens = {index[decision.call.number]: decision.call.tokens for decision in out}
    stats = done.stats
    predicted = sum(cut.view.local[decision.call.number].p_result or 0.0 for decision in out)
    return [
        stats.chars_before - stats.chars_after,
        stats.freed_tokens,
        len(out),
        len(missed),
        round(predicted, 5),
        stats.cache_suffix_tokens,
        sum(min(tokens[unit], REFETCH_TOKENS) for unit in missed),
        int(bool(out)),
    ]


def _describe(cut: _Cut, done: CompressionResult, verdicts: Sequence[Any], *, is_unseen: bool) -> dict[str, Any]:
    """A cut and its units in numbers."""
    view = cut.view
    stats = done.stats
    rate = stats.tokens_before / max(1, stats.chars_before)

    def result_answers(answers: Mapping[int, RawAnswer]) -> list[float | None]:
        found = [answers[call.number].p_result if call.number in answers else None for call in view.calls]
        return [None if p is None else round(p, 5) for p in found]

    calls_left, ahead, growth = _ahead(cut)
    return {
        "segment": cut.segment.number,
        "row": cut.row,
        "unseen": is_unseen,
        "chars": stats.chars_before,
        "tokens": stats.tokens_before,
        "calls_left": calls_left,
        "ahead_tokens": round(ahead * rate),
        "growth_tokens": round(growth * rate),
        "answer_tokens": ANSWER_TOKENS,
        "age": [view.ages[call.number] for call in view.calls],
        "size": [view.chars(call) for call in view.calls],
        "kind": [view.kind(call) for call in view.calls],
        "needed": [int(verdict.needed) for verdict in verdicts],
        "refetched": [int(verdict.refetched) for verdict in verdicts],
        "p": {
            "local": result_answers(view.local),
            "rules": result_answers(view.rules),
            "asked": result_answers(view.asked),
        },
        "policies": {},
    }


def _ahead(cut: _Cut) -> tuple[int, int, int]:
    """Model calls after the cut, the sum over them of the characters in context, and how many characters are new."""
    transcript = cut.segment.transcript
    sizes: dict[int, int] = defaultdict(int)
    for entry in transcript.entries:
        sizes[entry.row] += len(entry.text) + sum(len(call.arguments) for call in entry.calls)
    for call in transcript.calls:
        if call.result is not None:
            sizes[call.result_row] += len(call.result)
    responses = {entry.row for entry in transcript.entries if entry.role == "assistant"}
    calls_left = total = so_far = before = 0
    for row in range(len(cut.segment.messages)):
        if row == cut.row:
            before = so_far
        if row in responses and row >= cut.row:
            calls_left += 1
            total += so_far
        so_far += sizes[row]
    return calls_left, total, so_far - before


async def _latency(messages: Sequence[dict[str, Any]]) -> list[float]:
    """Characters, and processor seconds of a JSON round trip and of a first pass with default settings."""
    started = time.process_time()
    text = json.dumps(messages)
    json.loads(text)
    between = time.process_time()
    await ContextEngine().compress(messages, host=HOST)
    return [len(text), round(between - started, 5), round(time.process_time() - between, 5)]
