"""Where originals live once they have left a history.

A store is any object with these members; `jev_engine.testing.check_store` tells whether it keeps the contract.
A pass waits for each answer of a store as long as its `deadline_seconds` say, 10 where it has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, runtime_checkable

__all__ = [
    "MESSAGE_TOOL", "Match", "Original", "OriginalStore", "PassHead", "PassRecord", "Ranking", "keyed_reference",
    "message_original",
]  # fmt: skip

MESSAGE_TOOL = "message"
"""Stands for the tool where an original is a whole message of the host, as JSON."""


class Original(NamedTuple):
    """One result as it was, or one whole message."""

    reference: str
    session: str
    key: str
    """The unit's key, see `ledger.assign_keys`."""
    tool: str
    text: str

    def __repr__(self) -> str:
        return f"<Original {self.reference} of {self.tool!r}, {len(self.text)} chars>"


class PassRecord(NamedTuple):
    """What one pass did to a history, enough to undo it."""

    session: str
    anchor: str
    """Digest of the first row of the output: by it the record is found again."""
    sketch: str
    """Digest of all rows of the output, see `restore.sketch_of`."""
    rows_in: int
    rows_out: int
    removed: Sequence[int]
    """Rows of the input that left the history, ascending."""
    originals: Mapping[int, Any]
    """Rows of the input that were changed or removed, as plain JSON values."""
    written: Sequence[tuple[int, str, str]] = ()
    """Rows of the input as their file wrote them, where writing them anew would not: row, the text before it, its text.

    A store may give the triples back as lists.
    """

    def origins(self, count: int) -> list[int | None]:
        """For each of `count` rows before the pass its row after it; None for those that were removed."""
        removed = set(self.removed)
        kept = iter(range(count))
        return [None if row in removed else next(kept) for row in range(count)]

    def __repr__(self) -> str:
        return f"<PassRecord {self.rows_in} rows to {self.rows_out}, {len(self.originals)} kept as they were>"


class PassHead(NamedTuple):
    """As much of a pass record as tells whether it fits a history."""

    number: int
    """Grows with every record of the store."""
    rows_out: int
    sketch: str


class Match(NamedTuple):
    """An original that fits a search."""

    reference: str
    tool: str
    chars: int
    score: float
    """Only to be compared within one search; higher fits better."""


class Ranking(NamedTuple):
    """What a search found, best first."""

    matches: list[Match]
    note: str = ""
    """What a person should know about how it was searched; empty if nothing."""


@runtime_checkable
class OriginalStore(Protocol):
    """Keeps originals by reference, what each pass did, and the ledger of each session."""

    def reference(self, session: str, key: str) -> str:
        """The reference of a unit: the same for the same session and key, and not to be guessed from another one.

        A pass asks only for what is about to be saved, and for the first of it in a worker thread, unless the store has
        `reference_waits = False`: what has to be looked up for that should be known from then on.
        """
        ...

    async def save(self, originals: Sequence[Original]) -> set[str]:
        """Save originals; returns the references that are safe now. Raises StoreError where none could be saved."""
        ...

    async def save_messages(self, session: str, rows: Sequence[Any]) -> list[str]:
        """Save whole messages, as plain JSON values, all or none; returns one reference a row. Raises StoreError."""
        ...

    async def read(self, reference: str, *, session: str | None = None) -> Original:
        """One original, byte for byte.

        Raises OriginalNotFound for an unknown reference and for one of another session, OriginalExpired where a limit
        of the store took it, OriginalUnreadable where its bytes do not match their digest. A session may also read
        what belongs to those it was linked to.
        """
        ...

    async def known(self, references: Iterable[str]) -> dict[str, tuple[str, int]]:
        """Unit key and length in characters of those references that are in the store."""
        ...

    async def save_pass(self, record: PassRecord) -> None:
        """Save what a pass did; raises StoreError where that fails."""
        ...

    async def find_passes(self, anchor: str, most_rows: int | None = None) -> list[PassHead]:
        """Passes whose output began with such a row and had at most so many rows, newest first."""
        ...

    async def load_pass(self, number: int) -> PassRecord:
        """One record, by its head's number; raises OriginalNotFound or OriginalUnreadable."""
        ...

    async def save_ledger(self, session: str, ledger: Mapping[str, Any]) -> None:
        """Join a ledger, as `Ledger.to_json` gives it, to the session's; raises StoreError where that fails."""
        ...

    async def load_ledger(self, session: str) -> dict[str, Any] | None:
        """The session's ledger for `Ledger.from_json`, or None where it has none."""
        ...

    async def link_session(self, new: str, old: str) -> None:
        """A fork or rotation: `new` may read what `old` has, and begins with its ledger. Raises StoreError."""
        ...

    async def rank(self, session: str, query: str, limit: int) -> Ranking:
        """The originals of a session that fit a query best, those of the sessions it was linked to included."""
        ...


def keyed_reference(secret: bytes, session: str, key: str) -> str:
    """`jx-` and 16 hex digits: a keyed digest, so that no session can name another one's originals."""
    body = f"{session}\0{key}".encode("utf-8", "surrogatepass")
    return f"jx-{blake2b(body, key=secret, digest_size=8).hexdigest()}"


def message_original(store: OriginalStore, session: str, text: str) -> Original:
    """The original that a message, as JSON text, is stored as; equal messages of a session are one."""
    key = f"{MESSAGE_TOOL}.{blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
    return Original(store.reference(session, key), session, key, MESSAGE_TOOL, text)
