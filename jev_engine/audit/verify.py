"""Whether a trail is what was written: every line, in its place, by whom, and with the anchor also its end.

Three things can vouch for a line. Its hash ties it to the line before, which anybody can compute: that finds accidents.
Its seal takes the trail's key. The anchor, kept elsewhere, knows the end of each chain. What neither key nor anchor
vouch for is told apart from what is wrong: a writer that died before it could keep the anchor leaves such lines too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from jev_engine.audit.chain import START, Head, Line, body_of, hash_of, seal_of
from jev_engine.audit.files import read_lines, trail_files
from jev_engine.audit.torn import cut_off
from jev_engine.audit.upkeep import PURGED, UPKEEP, UPKEEP_START, Taken, read_note
from jev_engine.errors import AuditError

__all__ = ["Fault", "Verified", "verify"]

MOST_LOOKS = 4
"""At a trail whose files are rotated or purged while it is read."""

Place = tuple[str, int, str]
"""A line by its chain, number and hash."""


class Fault(NamedTuple):
    """One thing that is wrong, and where."""

    file: str
    line: int
    what: str


class Verified(NamedTuple):
    """What a look at every line came to."""

    lines: int
    heads: dict[str, Head]
    """End of each chain."""
    faults: list[Fault]
    torn: int
    """Lines that a writer did not finish: nothing of theirs was ever whole."""
    begun_later: int
    """Chains whose first lines were taken out by the size limit or a purge, and are accounted for."""
    taken: list[Taken]
    unfinished: list[str]
    """Chains that were purged and are still there: the purge was broken off, or somebody put them back."""
    sealed: int | None
    """Lines with the seal of the key; None where no key was given."""
    later: dict[str, int] | None
    """Lines beyond what the anchor knows, by chain; None where no anchor was given."""

    @property
    def unproven(self) -> int:
        """Lines that neither key nor anchor vouch for; 0 where neither was given, which asks for hashes only."""
        if self.sealed or (self.sealed is None and self.later is None):
            return 0  # of a trail with this key, a line without its seal is a fault
        return self.lines - self.torn if self.later is None else sum(self.later.values())

    @property
    def is_whole(self) -> bool:
        """Nothing is wrong, and what was given to prove it with proves all of it."""
        return not self.faults and not self.unproven


class _Look:
    """One reading of all files."""

    def __init__(self, key: bytes | None, anchor: Mapping[str, Head] | None, notes: list[tuple[int, Taken]]) -> None:
        self.key = key
        self.anchor = anchor or {}
        taken = [note for _, note in notes]
        known = self.anchor.get(UPKEEP, Head(0, START)).lines
        self.out_since: Counter[str] = Counter()
        """The highest number that was taken out later than the anchor knows, by chain."""
        for since in [note for number, note in notes if number > known]:
            self.out_since |= Counter({chain: end.lines for chain, end in since.until.items()})
        self.gone = {(chain, *end) for note in taken for chain, end in note.until.items()}
        """The last lines that were taken out."""
        self.purged = {chain: end.lines for note in taken if note.reason == PURGED for chain, end in note.until.items()}
        self.heads: dict[str, Head] = {}
        self.faults: list[Fault] = []
        self.gaps: list[tuple[Fault, Place]] = []
        """Lines whose predecessor is not there, until the upkeep chain accounts for it."""
        self.left: Counter[str] = Counter()
        """Lines of what was purged."""
        self.unsealed: dict[str, tuple[str, int, int]] = {}
        """First place without a seal of the key, and how many, by chain."""
        self.at_anchor: dict[str, tuple[Fault, str]] = {}
        self.counts: Counter[str] = Counter()
        self.beyond: Counter[str] = Counter()
        self.lines = self.torn = self.sealed = 0

    def take(self, file: str, number: int, raw: bytes, line: Line | None) -> None:
        self.lines += 1
        if line is None:
            if cut_off(raw, self._may_come):
                self.torn += 1
            else:
                self.faults.append(Fault(file, number, "is no line of a trail: it was changed or added"))
            return
        head = self.heads.get(line.chain) or Head(0, START)
        prev = line.prev or head.hash
        self.heads[line.chain] = Head(line.n, line.hash)
        body = body_of(prev, line.n, line.event)
        self._vouched(file, number, line, body)
        if hash_of(body, line.seal) != line.hash:
            what = "does not fit its hash: it was changed, or lines before it were removed, added or reordered"
            self.faults.append(Fault(file, number, what))
            return
        if (line.n - 1, prev) != head:
            what = f"is number {line.n:,} of its session, expected was {head.lines + 1:,}: lines are missing or moved"
            self.gaps.append((Fault(file, number, what), (line.chain, line.n - 1, prev)))
        if line.chain == UPKEEP and read_note(line.event) is None:
            self.faults.append(Fault(file, number, "says nothing of what was taken out: it was made up"))

    def _may_come(self, chain: str, number: str) -> bool:
        """Whether a line may come next in a chain whose number begins so; a comma ends it."""
        if int(number.rstrip(",")) <= self.purged.get(chain, 0):
            return True  # left by a purge that was broken off
        head = self.heads.get(chain)
        expected = {head.lines + 1} if head else {1, *[n + 1 for of, n, _ in self.gone if of == chain]}
        return any(f"{n},".startswith(number) for n in expected)

    def _vouched(self, file: str, number: int, line: Line, body: str) -> None:
        if self.key is not None:
            if line.seal == seal_of(self.key, line.chain, body):
                self.sealed += 1
            else:
                name, first, count = self.unsealed.get(line.chain, (file, number, 0))
                self.unsealed[line.chain] = (name, first, count + 1)
        known = self.anchor.get(line.chain)
        self.counts[line.chain] += 1
        is_left = line.n <= self.purged.get(line.chain, 0)
        self.left[line.chain] += is_left
        if known is None or line.n > known.lines or is_left:
            self.beyond[line.chain] += 1
        if known is not None and line.n == known.lines:
            what = f"session {line.chain}: is not what the anchor says: it was written anew"
            self.at_anchor[line.chain] = (Fault(file, number, what), line.hash)

    def is_gone(self, place: Place) -> bool:
        """Whether lines up to a place were taken out, or were to go in a purge that was broken off."""
        chain, number, _ = place
        return place in self.gone or number < self.purged.get(chain, 0)


def verify(
    path: Path, anchor: Mapping[str, Head] | None = None, key: bytes | None = None, session: str | None = None
) -> Verified:
    """Read every line of every file of a trail; `key` shows what was made up, `anchor` what was cut off its end.

    `session` is the keyed digest of the only one to look at. A host may go on writing meanwhile: read the anchor
    before. Raises AuditError where there is no trail, or a file cannot be read.
    """
    wanted = None if session is None else {session, UPKEEP}
    if anchor is not None and wanted is not None:
        anchor = {chain: head for chain, head in anchor.items() if chain in wanted}
    for _ in range(MOST_LOOKS):
        files = trail_files(path)
        if not files:
            raise AuditError(f"no trail at {str(path)!r}")
        try:
            before = _identities(files)
            found = _verified(files, anchor, key, wanted)
            if _identities(trail_files(path)) == before:
                return found
        except (AuditError, FileNotFoundError) as error:
            if not isinstance(error.__cause__ or error, FileNotFoundError):
                raise
    raise AuditError(f"trail {str(path)!r}: its files are put aside faster than they can be read; try again")


def _identities(files: list[Path]) -> list[tuple[str, int]]:
    """Their names are no identity: each rotation gives them to others."""
    return [(file.name, file.stat().st_ino) for file in files]


def _verified(
    files: list[Path], anchor: Mapping[str, Head] | None, key: bytes | None, wanted: Collection[str] | None
) -> Verified:
    notes = _notes(files, key, anchor)
    look = _Look(key, anchor, notes)
    for file in files:
        for number, raw, line in read_lines(file):
            if line is None or wanted is None or line.chain in wanted:
                look.take(file.name, number, raw, line)
    begun_later = 0
    for fault, before in look.gaps:
        if look.is_gone(before):
            begun_later += 1
        else:
            look.faults.append(fault)
    if look.sealed:
        for chain, (name, number, count) in look.unsealed.items():
            what = (
                f"session {chain}: lacking the seal of the key from here on: {count:,} of its lines; made up, or"
                " written under another key"
            )
            look.faults.append(Fault(name, number, what))
    later = None if anchor is None else _against(anchor, look, files[-1].name)
    return Verified(
        look.lines,
        look.heads,
        sorted(look.faults),
        look.torn,
        begun_later,
        [note for _, note in notes],
        [chain for chain, count in look.left.items() if count],
        None if key is None else look.sealed,
        later,
    )


def _against(anchor: Mapping[str, Head], look: _Look, file: str) -> dict[str, int]:
    """Adds what does not fit the anchor to the faults; returns how many lines of each chain are later than it."""
    later = dict(look.beyond)
    # So old an anchor that what was taken out since is no longer all told.
    is_old = look.out_since[UPKEEP] > anchor.get(UPKEEP, Head(0, START)).lines
    for chain, known in anchor.items():
        found = look.heads.get(chain)
        at = look.at_anchor.get(chain)
        is_as_known = at is not None and at[1] == known.hash
        if is_as_known and (chain, *known) not in look.gone:
            continue
        if is_old or (chain, *known) in look.gone or look.out_since[chain] >= known.lines:
            # What is there of it has come since.
            later[chain] = look.counts[chain]
        elif at is not None:
            look.faults.append(at[0])
        else:
            have = found.lines if found else 0
            what = f"session {chain}: the anchor knows {known.lines:,} lines, {have:,} are there: the end was cut off"
            look.faults.append(Fault(file, 0, what))
    return {chain: count for chain, count in later.items() if count}


def _notes(files: list[Path], key: bytes | None, anchor: Mapping[str, Head] | None) -> list[tuple[int, Taken]]:
    """What the upkeep chain says was taken out, as far as it can be believed: anybody can add a line that says so."""
    is_by_key = key is not None and any(_begins_sealed(file, key) for file in files)
    known = None if anchor is None else anchor.get(UPKEEP, Head(0, START)).lines
    notes = []
    prev = START
    for file in files:
        for _, _, line in read_lines(file, UPKEEP_START):
            told = None if line is None else read_note(line.event)
            if line is None or told is None:
                continue
            is_sealed = key is not None and line.seal == seal_of(
                key, UPKEEP, body_of(line.prev or prev, line.n, line.event)
            )
            prev = line.hash
            if is_sealed if is_by_key else known is None or line.n <= known:
                notes.append((line.n, told))
    return notes


def _begins_sealed(file: Path, key: bytes) -> bool:
    """Whether a file's first whole line has the seal of a key."""
    line = next((line for _, _, line in read_lines(file) if line is not None), None)
    return line is not None and line.seal == seal_of(key, line.chain, body_of(line.prev, line.n, line.event))
