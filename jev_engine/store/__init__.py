"""Where originals live once they have left a history.

A store is any object with these members; `jev_engine.testing.check_store` tells whether it keeps the contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, runtime_checkable

__all__ = ["Original", "OriginalStore", "PassRecord", "keyed_reference"]


class Original(NamedTuple):
    """One result as it was."""

    reference: str
    session: str
    key: str
    """The unit's key, see `ledger.assign_keys`."""
    tool: str
    text: str


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


@runtime_checkable
class OriginalStore(Protocol):
    """Keeps originals by reference, and what each pass did."""

    def reference(self, session: str, key: str) -> str:
        """The reference of a unit: the same for the same session and key, and not to be guessed from another one."""
        ...

    async def save(self, originals: Sequence[Original]) -> set[str]:
        """Save originals; returns the references that are safe now. Raises StoreError where none could be saved."""
        ...

    async def read(self, reference: str, *, session: str | None = None) -> Original:
        """One original, byte for byte.

        Raises OriginalNotFound for an unknown reference and for one of another session, OriginalUnreadable where its
        bytes do not match their digest.
        """
        ...

    async def known(self, references: Iterable[str]) -> dict[str, tuple[str, int]]:
        """Unit key and length in characters of those references that are in the store."""
        ...

    async def save_pass(self, record: PassRecord) -> None:
        """Save what a pass did; raises StoreError where that fails."""
        ...

    async def find_passes(self, anchor: str) -> list[PassRecord]:
        """Records of passes whose output began with such a row, newest first."""
        ...


def keyed_reference(secret: bytes, session: str, key: str) -> str:
    """`jx-` and 16 hex digits: a keyed digest, so that no session can name another one's originals."""
    body = f"{session}\0{key}".encode("utf-8", "surrogatepass")
    return f"jx-{blake2b(body, key=secret, digest_size=8).hexdigest()}"
