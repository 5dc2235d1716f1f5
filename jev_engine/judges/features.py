"""What is known about every unit at the moment of a compaction, as numbers.

Pure and causal: a `Transcript` is all that is read, and it ends now. The work on texts is done once per text and
kept in a `FeatureCache`; a pass then costs set operations only. Everything is linear in the length of the history.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from math import log1p, sqrt

from jev_engine.atoms import forget_words
from jev_engine.judges.cache import FeatureCache
from jev_engine.judges.timeline import Kept, Timeline
from jev_engine.tools import KINDS
from jev_engine.transcript import Transcript

__all__ = ["FEATURES", "FeatureCache", "FeatureTable", "tabulate"]

FEATURES = (
    # where it stands
    "age", "age_share", "age_turns", "age_users", "units",
    # what it is
    "chars", "lines", "atoms", "argument_chars", "failed", "resolved", "partial", "is_code", "is_test", "is_doc",
    # its file
    "has_path", "later_reads", "later_edits", "earlier_touches", "touch_age", "named_3", "named_10", "named_age",
    "named", "edited_nearby", "edits_before", "read_unedited", "planned_file",
    # other results with the same lines
    "superseded", "repeated",
    # what the agent has used of it, and what only it holds
    "used", "used_share", "use_age", "uses", "exclusive", "exclusive_share", "exclusive_lines", "unused",
    # what it shares with the present
    "near_kept_3", "near_kept_10", "near_user", "near_goal", "near_results_3", "near_results_10", "shared_kept_10",
    "shared_results_10", "near_plan",
    # the session so far
    "edits", "edits_10", "reads_10", "context", "context_share", "same_kind_after", "written_10",
    *[f"kind_{kind}" for kind in KINDS],
    # how the agent works in this session
    "reuse", "reuse_share", "reuse_read_share", "reuse_chars_share", "reuse_recent_share", "quote_share", "edit_share",
    "read_share", "text_per_call", "arguments_per_call", "written_share", "no_reasoning",
    # relative to the other units
    "rank_chars", "rank_exclusive", "kind_share", "z_chars",
    # openings
    "exclusive_files", "siblings", "quoted",
)  # fmt: skip
"""Names of the columns, in order. Counts and sizes are on a log scale (`log1p`), shares in 0..1."""


class FeatureTable:
    """One row of numbers per closed unit."""

    __slots__ = ("_rows", "calls", "timeline")

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.calls = timeline.calls
        """Closed calls in the order of their results; `rows[i]` belongs to `calls[i]`."""
        self._rows: list[list[float]] | None = None

    @property
    def rows(self) -> list[list[float]]:
        """All rows, columns as in `FEATURES`."""
        if self._rows is None:
            self._rows = [row for _, row in self.each_row()]
        return self._rows

    def each_row(self, wanted: Container[int] | None = None) -> Iterator[tuple[int, list[float]]]:
        """Positions and rows one by one: together they take more memory than the history.

        `wanted` are numbers of calls; None means all.
        """
        timeline = self.timeline
        if not self.calls:
            return
        session = _session_columns(timeline)
        style = _style_columns(timeline)
        relative = _relative_columns(timeline)
        after = _same_kind_after(timeline)
        siblings = Counter([call.turn for call in self.calls])
        for i, call in enumerate(self.calls):
            if wanted is not None and call.number not in wanted:
                continue
            unit = timeline.units[i]
            kept_too = timeline.kept_atoms.intersection(unit.facts.atoms)
            row = _place_and_size(timeline, i)
            row += _file_columns(timeline, i)
            row += _copy_and_use(timeline, i, kept_too)
            row += _nearness(timeline, i, kept_too)
            row += (*session[:4], unit.facts.chars / (timeline.context_chars or 1), after[i], session[4])
            row += _KIND_COLUMNS[unit.info.kind]
            row += style
            row += relative[i]
            row += (log1p(timeline.exclusive_files[i]), siblings[call.turn], i in timeline.quoted)
            yield i, row


def tabulate(transcript: Transcript, cache: FeatureCache) -> FeatureTable:
    """The features of every closed unit, at the end of this history."""
    closed = [call for call in transcript.calls if call.result is not None]
    closed.sort(key=lambda call: call.result_row)
    kept, units = [], {}
    for entry in transcript.entries:  # a message, then its calls: their arguments are parsed once
        kept.append(Kept(entry.row, entry.role, cache.kept(entry), has_reasoning=bool(entry.reasoning)))
        units.update({call.number: cache.unit(call) for call in entry.calls if call.result is not None})
    forget_words()
    return FeatureTable(Timeline(closed, [units[call.number] for call in closed], kept))


_KIND_COLUMNS = {kind: tuple([float(kind == other) for other in KINDS]) for kind in KINDS}


def _place_and_size(timeline: Timeline, i: int) -> list[float]:
    unit = timeline.units[i]
    facts = unit.facts
    total = len(timeline.units)
    row = timeline.rows[i]
    resolved = unit.failed and timeline.succeeded.get(unit.info.same, -1) > i
    return [
        total - i,
        (total - i) / total,
        len(timeline.assistant_rows) - bisect_left(timeline.assistant_rows, row),
        len(timeline.user_rows) - bisect_left(timeline.user_rows, row),
        total,
        log1p(facts.chars),
        log1p(facts.line_count),
        log1p(len(facts.atoms)),
        log1p(unit.argument_chars),
        unit.failed,
        resolved,
        *unit.static,
    ]


_NO_PLACES: list[int] = []


def _file_columns(timeline: Timeline, i: int) -> tuple[float, ...]:
    unit = timeline.units[i]
    kind, path = unit.info.kind, unit.info.path
    total = len(timeline.units)
    age = total - i
    if not path:
        return (0, 0, 0, 0, age, 0, 0, total, 0, 0, 0, kind == "read", 0)
    touches = timeline.touches[path]
    edits = timeline.edits.get(path, _NO_PLACES)
    reads = timeline.reads.get(path, _NO_PLACES)
    earlier = bisect_left(touches, i)
    edits_before = bisect_left(edits, i)
    later_edits = len(edits) - edits_before - (kind == "edit")
    later_reads = len(reads) - bisect_left(reads, i) - (kind == "read")
    touch_age = total - touches[-1] if touches[-1] > i else age
    named = 0
    named_age, named_3, named_10 = total, False, False
    mentions = timeline.mentions.get(unit.file_atom)
    if mentions:
        named = len(mentions) - bisect_left(mentions, timeline.calls[i].row + 1)
        named_3 = mentions[-1] >= timeline.row_kept_3
        named_10 = mentions[-1] >= timeline.row_kept_10
        if named:
            named_age = timeline.age_at(mentions[-1])
    return (
        1, later_reads, later_edits, earlier, touch_age, named_3, named_10, named_age, log1p(named),
        unit.folder in timeline.edited_folders, edits_before, kind == "read" and later_edits == 0,
        unit.file_atom in timeline.plan,
    )  # fmt: skip


def _copy_and_use(timeline: Timeline, i: int, kept_too: set[bytes]) -> tuple[float, ...]:
    """Copies elsewhere, uses so far and what nothing else holds; `kept_too` are the atoms that kept text holds."""
    facts = timeline.units[i].facts
    atoms, lines = facts.atoms, facts.lines
    superseded = repeated = 0.0
    shared = timeline.shared_lines.get(i)
    if shared:
        superseded = _most_elsewhere(map(timeline.last_line.__getitem__, shared), i) / len(lines)
        repeated = _most_elsewhere(map(timeline.first_line.__getitem__, shared), i) / len(lines)
    used = uses = 0
    last_use = -1
    row = timeline.rows[i]
    for atom in timeline.last_use.keys() & kept_too:
        at = timeline.last_use[atom]
        if at > row:
            used += 1
            uses += timeline.uses[atom]
            last_use = max(last_use, at)
    use_age = timeline.age_at(last_use) if last_use >= 0 else len(timeline.units) + 5
    exclusive = timeline.exclusive[i]
    return (
        superseded, repeated, log1p(used), used / (len(atoms) + len(lines) + 1), use_age, log1p(uses),
        log1p(exclusive), exclusive / (len(atoms) or 1), log1p(timeline.exclusive_lines[i]),
        log1p(len(atoms) - len(kept_too)),
    )  # fmt: skip


def _most_elsewhere(holders: Iterable[int], i: int) -> int:
    """The most lines of a unit that one other unit holds."""
    counts = Counter(holders)
    counts.pop(i, None)
    return max(counts.values(), default=0)


def _nearness(timeline: Timeline, i: int, kept_too: set[bytes]) -> tuple[float, ...]:
    """Atoms shared with what the session is about now, scaled by the root of the unit's own count."""
    atoms = timeline.units[i].facts.atoms
    scale = sqrt(len(atoms) or 1)
    age = len(timeline.units) - i
    kept_10 = timeline.near_kept_10 & kept_too
    results_10 = timeline.near_results_10.intersection(atoms) if age > 3 else _NOTHING
    results_3 = len(timeline.near_results_3 & results_10)
    shared_10 = len(results_10) if age > 10 else 0
    return (
        len(timeline.near_kept_3 & kept_10) / scale,
        len(kept_10) / scale,
        len(timeline.near_user & kept_too) / scale,
        len(timeline.near_goal & kept_too) / scale,
        results_3 / scale,
        shared_10 / scale,
        log1p(len(kept_10)),
        log1p(shared_10),
        len(timeline.plan & kept_too) / scale,
    )


_NOTHING: frozenset[bytes] = frozenset()
_LOOKING = frozenset(("read", "search", "list"))


def _session_columns(timeline: Timeline) -> tuple[float, ...]:
    kinds = [unit.info.kind for unit in timeline.units]
    written = sum([message.facts.chars for message in timeline.kept[-10:]])
    return (
        kinds.count("edit"),
        kinds[-10:].count("edit"),
        sum([kind in _LOOKING for kind in kinds[-10:]]),
        log1p(timeline.context_chars),
        log1p(written),
    )


def _same_kind_after(timeline: Timeline) -> list[int]:
    """For each unit, how many later units are of its kind."""
    seen: Counter[str] = Counter()
    after = [0] * len(timeline.units)
    for i in range(len(timeline.units) - 1, -1, -1):
        kind = timeline.units[i].info.kind
        after[i] = seen[kind]
        seen[kind] += 1
    return after


STYLE_CHARS = 1_500
"""Smaller results are hardly ever reused (1 to 2 %) and would only dilute the shares."""
_SOURCES = frozenset(("read", "web", "subagent", "search"))


def _style_columns(timeline: Timeline) -> tuple[float, ...]:
    """How much the agent of this session reuses and writes; the constants are priors against small counts."""
    units = timeline.units
    total = len(units)
    old = range(max(0, total - 3))
    sources = [i for i in old if units[i].facts.chars >= STYLE_CHARS and units[i].info.kind in _SOURCES]
    recent = [i for i in sources if i >= total - 30]
    reused = timeline.reused
    old_reused = [i for i in old if i in reused]
    old_chars = sum([units[i].facts.chars for i in old])
    kinds = [unit.info.kind for unit in units]
    agent = [message for message in timeline.kept if message.role == "assistant"]
    text = sum([message.facts.text_chars for message in agent])
    arguments = sum([message.facts.argument_chars for message in agent])
    result_chars = sum([unit.facts.chars for unit in units])
    return (
        len(old_reused),
        len(old_reused) / (len(old) + 10),
        sum([i in reused for i in sources]) / (len(sources) + 4),
        sum([units[i].facts.chars for i in old_reused]) / (old_chars + 20_000),
        sum([i in reused for i in recent]) / (len(recent) + 3),
        sum([i in timeline.quoted for i in sources]) / (len(sources) + 4),
        kinds.count("edit") / total,
        sum([kind in _LOOKING for kind in kinds]) / total,
        log1p(text / total),
        log1p(arguments / total),
        log1p(text + arguments) - log1p(result_chars),
        not any(message.has_reasoning for message in agent),
    )


def _relative_columns(timeline: Timeline) -> list[tuple[float, ...]]:
    """Each unit against the others: rank of size, rank of what only it holds, share of its kind, size in deviations."""
    units = timeline.units
    chars = [unit.facts.chars for unit in units]
    logs = [log1p(size) for size in chars]
    only = [timeline.exclusive[i] + 2 * timeline.exclusive_lines[i] for i in range(len(units))]
    mean = sum(logs) / len(logs)
    spread = sqrt(sum([(value - mean) ** 2 for value in logs]) / len(logs)) + 0.5
    by_kind: Counter[str] = Counter()
    for unit in units:
        by_kind[unit.info.kind] += unit.facts.chars
    shares = [size / (by_kind[unit.info.kind] + 1) for size, unit in zip(chars, units, strict=True)]
    scores = [(value - mean) / spread for value in logs]
    return list(zip(_ranks(chars), _ranks(only), shares, scores, strict=True))


def _ranks(values: list[int]) -> list[float]:
    """Rank of each value in 0..1, ties in the order of time."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    for rank, i in enumerate(order):
        ranks[i] = rank / max(1, len(values) - 1)
    return ranks
