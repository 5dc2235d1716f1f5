"""Indices over a history for the features: who holds an atom last, where it was used, what is near.

One walk in the order of time, made of set and dict operations only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import chain, compress, islice
from operator import eq

from jev_engine.atoms import Facts
from jev_engine.tools import CallInfo
from jev_engine.transcript import ToolCall

__all__ = ["KeptFacts", "Timeline", "UnitFacts"]

REUSE_AGE = 3
"""A use counts as a reuse when the result is older than this many results: newer ones are pinned anyway."""
REUSE_POINTS = 2
"""Atoms one message must use at once to count as a reuse, as in the hindsight label."""
PLAN_UNITS = 60
"""How many units back the current plan or to-do list is looked for; older ones are about other work."""


class UnitFacts:
    """What a call and its result say, kept in the cache."""

    __slots__ = ("argument_chars", "facts", "failed", "file_atom", "folder", "info", "plan", "static")

    def __init__(
        self,
        facts: Facts,
        info: CallInfo,
        failed: bool,  # noqa: FBT001  # one field of many, in the order of the class
        static: tuple[bool, ...],
        plan: frozenset[bytes] | None,
        argument_chars: int,
    ) -> None:
        self.facts = facts
        self.info = info
        self.failed = failed
        self.static = static
        """Columns that never change: partial, is_code, is_test, is_doc."""
        self.plan = plan
        """Atoms of the plan or to-do list this call writes; None if it writes none."""
        self.argument_chars = argument_chars
        folder, _, name = info.path.rpartition("/")
        self.folder = folder
        self.file_atom = b"F:" + name.encode("utf-8", "replace") if name else b""


class KeptFacts:
    """What a message that stays says: text, reasoning and arguments, kept in the cache."""

    __slots__ = ("argument_chars", "atoms", "text_chars")

    def __init__(self, atoms: frozenset[bytes], text_chars: int, argument_chars: int) -> None:
        self.atoms = atoms
        self.text_chars = text_chars
        self.argument_chars = argument_chars

    @property
    def chars(self) -> int:
        """Characters of text, reasoning and arguments."""
        return self.text_chars + self.argument_chars


class Kept:
    """A message that stays, in its place."""

    __slots__ = ("facts", "has_reasoning", "role", "row")

    def __init__(self, row: int, role: str, facts: KeptFacts, *, has_reasoning: bool) -> None:
        self.row = row
        self.role = role
        self.has_reasoning = has_reasoning
        self.facts = facts


class Timeline:
    """Units and kept messages of a history with the indices that the features read."""

    def __init__(self, calls: Sequence[ToolCall], units: Sequence[UnitFacts], kept: Sequence[Kept]) -> None:
        self.calls = calls
        """Closed calls in the order of their results."""
        self.units = units
        self.kept = kept
        self.rows = [call.result_row for call in calls]
        """Message row of each result."""
        self._walk()
        self._index_lines()
        self._index_paths()
        self._index_present()

    def age_at(self, row: int) -> int:
        """How many results have arrived since message `row`."""
        return len(self.rows) - bisect_left(self.rows, row)

    def _walk(self) -> None:
        """Latest holder and uses of every atom, and which units were used while they were old."""
        last: dict[bytes, int] = {}
        kept: set[bytes] = set()
        last_use: dict[bytes, int] = {}
        uses: Counter[bytes] = Counter()
        self.reused: set[int] = set()
        self.quoted: set[int] = set()
        arrived = 0
        for message in self.kept:
            while arrived < len(self.rows) and self.rows[arrived] < message.row:
                last.update(dict.fromkeys(self.units[arrived].facts.atoms, arrived))
                arrived += 1
            atoms = message.facts.atoms
            fresh = atoms - kept
            kept |= fresh
            if message.role != "assistant":
                continue
            last_use.update(dict.fromkeys(atoms, message.row))
            uses.update(atoms)
            for unit, points in Counter(map(last.__getitem__, last.keys() & fresh)).items():
                if points >= REUSE_POINTS:
                    self.quoted.add(unit)
                    if arrived - unit > REUSE_AGE:
                        self.reused.add(unit)
        for unit in range(arrived, len(self.rows)):
            last.update(dict.fromkeys(self.units[unit].facts.atoms, unit))
        self.kept_atoms = kept
        self.last_use = last_use
        self.uses = uses
        for atom in kept.intersection(last):  # from here on: the atoms that only a result holds
            del last[atom]
        self.exclusive = Counter(last.values())
        self.exclusive_files = Counter([unit for atom, unit in last.items() if atom[:2] == b"F:"])

    def _index_lines(self) -> None:
        """First and last holder of every line that several units hold; most lines have one, and need no index."""
        units = self.units
        every = sorted(chain.from_iterable([unit.facts.lines for unit in units]))  # half the memory of a set
        repeated = set(compress(every, map(eq, every, islice(every, 1, None))))
        del every
        self.shared_lines: dict[int, set[int]] = {}
        """For each unit that has any, its lines that other units hold too."""
        if repeated:
            shares = [(i, repeated.intersection(unit.facts.lines)) for i, unit in enumerate(units)]
            self.shared_lines = {i: lines for i, lines in shares if lines}
        self.last_line: dict[int, int] = {}
        self.first_line: dict[int, int] = {}
        for i, lines in self.shared_lines.items():
            self.last_line.update(dict.fromkeys(lines, i))
        for i, lines in reversed(self.shared_lines.items()):
            self.first_line.update(dict.fromkeys(lines, i))
        last_of = Counter(self.last_line.values())
        shared = self.shared_lines
        self.exclusive_lines = [
            len(unit.facts.lines) - len(shared.get(i, ())) + last_of[i] for i, unit in enumerate(units)
        ]

    def _index_paths(self) -> None:
        """Who touched which path, which call succeeded last, and where file names are mentioned."""
        self.touches: dict[str, list[int]] = {}
        self.edits: dict[str, list[int]] = {}
        self.reads: dict[str, list[int]] = {}
        self.succeeded: dict[int, int] = {}
        for i, unit in enumerate(self.units):
            info = unit.info
            if not unit.failed:
                self.succeeded[info.same] = i
            if info.path:
                self.touches.setdefault(info.path, []).append(i)
                if info.kind == "edit":
                    self.edits.setdefault(info.path, []).append(i)
                elif info.kind == "read":
                    self.reads.setdefault(info.path, []).append(i)
        names = {unit.file_atom for unit in self.units if unit.file_atom}
        self.mentions: dict[bytes, list[int]] = {}
        for message in self.kept:
            for name in message.facts.atoms & names:
                self.mentions.setdefault(name, []).append(message.row)

    def _index_present(self) -> None:
        """What the end of the history is about."""
        kept, units = self.kept, self.units
        none: frozenset[bytes] = frozenset()
        users = [message.facts.atoms for message in kept if message.role == "user"]
        self.near_user = users[-1] if users else none
        self.near_goal = users[0] if users else none
        self.near_kept_3 = none.union(*[message.facts.atoms for message in kept[-3:]])
        self.near_kept_10 = none.union(*[message.facts.atoms for message in kept[-10:]])
        self.near_results_3 = none.union(*[unit.facts.atoms for unit in units[-3:]])
        self.near_results_10 = none.union(*[unit.facts.atoms for unit in units[-10:]])
        self.row_kept_3 = kept[-3].row if len(kept) >= 3 else 0
        self.row_kept_10 = kept[-10].row if len(kept) >= 10 else 0
        self.plan = self._current_plan()
        self.edited_folders = {u.folder for u in units[-10:] if u.info.kind == "edit" and u.folder}
        self.assistant_rows = [message.row for message in kept if message.role == "assistant"]
        self.user_rows = [message.row for message in kept if message.role == "user"]
        self.context_chars = sum([m.facts.chars for m in kept]) + sum([u.facts.chars for u in units])

    def _current_plan(self) -> frozenset[bytes]:
        """The newest whole plan, or the tasks created one by one since."""
        plan: frozenset[bytes] = frozenset()
        for i in range(len(self.units) - 1, max(-1, len(self.units) - PLAN_UNITS), -1):
            written = self.units[i].plan
            if written is not None:
                plan |= written
                if self.calls[i].tool.lower() != "taskcreate":
                    break
        return plan
