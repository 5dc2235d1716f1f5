"""The hindsight label: what of a context was needed after all, read from what the agent wrote later.

Deterministic, no model. Defined in docs/evidence.md.
An atom or line of a result is evidence that the result was needed when it is its latest holder, nothing that a
compactor keeps holds it, and the agent writes it before anything shows it again.
A unit is *needed* at a cut when one later message of the agent collects two points (a line counts 2, an atom 1).
Every atom gives one interval (its holder, its first use], so all cuts of a segment cost one pass.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jev_engine.atoms import TEXT_CAP, atoms_of, lines_of
from jev_engine.tools import argument_text
from jev_engine.transcript import ToolCall, Transcript

__all__ = [
    "COPY_HOLDERS", "LABEL_VERSION", "REFETCH_CHARS", "REFETCH_SHARE", "Evidence", "Hindsight", "Verdict", "copy_lines",
    "explain", "look_back", "tokens_of",
]  # fmt: skip

LABEL_VERSION = "h2"
"""Version of this label, printed with every table."""
THETA = 2
"""Points one message must collect: 8.4 / 4.9 / 3.5 % of results are needed at 1 / 2 / 3 points (2,262 cuts of 291
public sessions)."""
REFETCH_SHARE = 0.6
"""Share of a later result's line characters that were already there, for it to be a re-fetch."""
REFETCH_CHARS = 200
"""Line characters a result needs for that share to mean something."""
COPY_LINE = 12
"""Shortest line compared for re-fetches, in characters."""
COPY_HOLDERS = 60
"""Lines in more results than this are boilerplate and bring nothing back."""
LINE_MARK = b"L:"
"""Stands before lines, so that lines and atoms are never mixed up."""


class Evidence(NamedTuple):
    """One atom or line that the agent used after it could only have come from a result."""

    unit: int
    """Index of the latest holder before the use."""
    holders: tuple[int, ...]
    """All results that held it before the use: it is lost only when all are gone."""
    used_at: int
    """Message row of the first use."""
    points: int
    token: bytes
    """The atom, or the line behind `LINE_MARK`."""


class Verdict(NamedTuple):
    """What hindsight says about one unit at one cut."""

    points: int
    """The most points one later message collects."""
    needed: bool
    refetched: bool
    """Fetched again later although it was still there, and not needed before."""

    @property
    def dead(self) -> bool:
        """Neither needed nor fetched again."""
        return not self.needed and not self.refetched


class Hindsight:
    """The labels of one segment."""

    __slots__ = ("_groups", "evidence", "refetched_at", "units")

    def __init__(self, units: list[ToolCall], evidence: list[Evidence], refetched_at: list[int]) -> None:
        self.units = units
        """In the order of their results; indices of this module point here."""
        self.evidence = evidence
        self.refetched_at = refetched_at
        """Row of the last result that repeats this one, -1 if none does."""
        points: dict[tuple[int, int], int] = Counter()
        for each in evidence:
            points[each.unit, each.used_at] += each.points
        self._groups: list[list[tuple[int, int]]] = [[] for _ in units]
        for (unit, row), total in points.items():
            self._groups[unit].append((row, total))

    def count_before(self, row: int) -> int:
        """Units whose result stands before message `row`."""
        return bisect_left(self.units, row, key=lambda unit: unit.result_row)

    def verdicts(self, row: int) -> list[Verdict]:
        """One verdict per unit before the cut at message `row`."""
        found = []
        for unit in range(self.count_before(row)):
            points = max([total for used, total in self._groups[unit] if used >= row], default=0)
            needed = points >= THETA
            found.append(Verdict(points, needed, not needed and self.refetched_at[unit] >= row))
        return found

    def evidence_at(self, row: int) -> list[Evidence]:
        """Evidence that a cut at message `row` puts at risk."""
        end = self.count_before(row)
        return [each for each in self.evidence if each.unit < end and each.used_at >= row]


def tokens_of(text: str) -> set[bytes]:
    """Atoms and marked lines of a text."""
    return atoms_of(text) | {LINE_MARK + line for line in lines_of(text)}


def look_back(transcript: Transcript, is_common: Callable[[bytes], bool]) -> Hindsight:
    """Label every unit of a finished segment. `is_common` says which tokens are vocabulary and prove nothing."""
    closed = [call for call in transcript.calls if call.result is not None]
    units = sorted(closed, key=lambda call: (call.result_row, call.number))
    held = [tokens_of(call.result or "") for call in units]
    first_use = _first_uses(transcript, set().union(*held))
    holders: dict[bytes, list[int]] = defaultdict(list)
    for unit, tokens in enumerate(held):
        row = units[unit].result_row
        for token in tokens:
            used = first_use.get(token)
            if used is not None and used[1] and row < used[0]:
                holders[token].append(unit)
    evidence = [
        Evidence(of[-1], tuple(of), first_use[token][0], 2 if token.startswith(LINE_MARK) else 1, token)
        for token, of in holders.items()
        if not is_common(token)
    ]
    evidence.sort(key=lambda each: (each.used_at, each.unit, each.token))
    return Hindsight(units, evidence, _refetches(units))


def _first_uses(transcript: Transcript, held: set[bytes]) -> dict[bytes, tuple[int, bool]]:
    """Row at which each held token first stands in kept text, and whether the agent wrote it there."""
    found: dict[bytes, tuple[int, bool]] = {}
    for entry in transcript.entries:
        text = entry.text + "\n" + entry.reasoning if entry.reasoning else entry.text
        tokens = tokens_of(text)
        for call in entry.calls:
            tokens |= tokens_of(argument_text(call.arguments))
        use = (entry.row, entry.role == "assistant")
        for token in tokens & held:
            found.setdefault(token, use)
    return found


def copy_lines(text: str) -> Counter[bytes]:
    """Characters per distinct line of a result, for telling that one result repeats another."""
    counts: Counter[bytes] = Counter()
    for line in text[:TEXT_CAP].encode("utf-8", "surrogatepass").split(b"\n"):
        bare = line.strip(b" \t\r0123456789:|+->\xe2\x86\x92\xc2\xa0")
        if len(bare) >= COPY_LINE:
            counts[bare] += len(bare)
    return counts


def _refetches(units: Sequence[ToolCall]) -> list[int]:
    """For each unit the row of the last result that repeats most of itself from it, -1 if none."""
    lines = [copy_lines(call.result or "") for call in units]
    holders: dict[bytes, list[int]] = defaultdict(list)
    for unit, counts in enumerate(lines):
        for line in counts:
            holders[line].append(unit)
    shared: list[Counter[int]] = [Counter() for _ in units]
    for line, of in holders.items():
        if 2 <= len(of) <= COPY_HOLDERS:
            for place, later in enumerate(of):
                chars = lines[later][line]
                shared[later].update(dict.fromkeys(of[:place], chars))
    last = [-1] * len(units)
    for later, earlier in enumerate(shared):
        total = sum(lines[later].values())
        if total >= REFETCH_CHARS:
            for unit, chars in earlier.items():
                if chars >= REFETCH_SHARE * total:
                    last[unit] = units[later].result_row
    return last


def explain(hindsight: Hindsight, unit: int, row: int) -> list[str]:
    """The evidence about one unit at one cut, strongest message first, as lines for a human reader."""
    call = hindsight.units[unit]
    verdict = hindsight.verdicts(row)[unit]
    word = "needed" if verdict.needed else "refetched" if verdict.refetched else "dead"
    lines = [f"{call.label} {call.tool} ({len(call.result or '')} chars) at row {row}: {word}"]
    by_use: dict[int, list[Evidence]] = defaultdict(list)
    for each in hindsight.evidence_at(row):
        if each.unit == unit:
            by_use[each.used_at].append(each)
    for used, group in sorted(by_use.items(), key=lambda item: (-sum(e.points for e in item[1]), item[0])):
        lines.append(f"  row {used}: {sum(each.points for each in group)} points")
        for each in group:
            others = f", also in {len(each.holders) - 1} other results" if len(each.holders) > 1 else ""
            shown = each.token.removeprefix(LINE_MARK).decode("utf-8", "replace")
            lines.append(f"    {each.points} {'line' if each.points == 2 else 'atom'} {shown!r}{others}")
    if hindsight.refetched_at[unit] >= row:
        lines.append(f"  repeated by the result at row {hindsight.refetched_at[unit]}")
    return lines
