"""Where count and head of each chain are kept: only they show what was cut off the end of a trail.

In a file beside the trail, or in the store, which whoever can write the trail need not be able to write.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from jev_engine.audit.chain import Head
from jev_engine.audit.files import write_whole
from jev_engine.errors import AuditError
from jev_engine.store.sqlite import SqliteStore

__all__ = ["BUSY_SECONDS", "Anchor", "FileAnchor", "StoreAnchor", "written"]


BUSY_SECONDS = 2.0
"""Longest to wait for a store that another process holds: the anchor of the next pass makes up for this one's."""


class Anchor(Protocol):
    """Keeps the heads of one trail."""

    def read(self) -> dict[str, Head]:
        """Heads by chain; empty where none were kept. Raises AuditError or StoreError."""
        ...

    def write(self, heads: Mapping[str, Head]) -> None:
        """Keep these and no others. Raises OSError or StoreError."""
        ...

    def close(self) -> None:
        """Let go of whatever is open."""
        ...


def written(heads: Mapping[str, Head]) -> bytes:
    """An anchor as a file: a JSON object of chains, each with count and hash of its last line."""
    return json.dumps({chain: list(head) for chain, head in heads.items()}).encode() + b"\n"


class FileAnchor:
    """In a file of its own, replaced in one go, mode 0600."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @classmethod
    def beside(cls, trail: Path) -> FileAnchor:
        """`trail.jsonl.anchor`."""
        return cls(trail.with_name(trail.name + ".anchor"))

    def read(self) -> dict[str, Head]:
        """Heads by chain; empty where there is no file, AuditError where it is no anchor."""
        if not self.path.exists():
            return {}
        try:
            found = json.loads(self.path.read_text())
            return {str(chain): Head(int(count), str(head)) for chain, (count, head) in found.items()}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise AuditError(f"anchor {str(self.path)!r} cannot be read: {type(error).__name__}") from error

    def write(self, heads: Mapping[str, Head]) -> None:
        """Replace the file."""
        write_whole(self.path, written(heads))

    def close(self) -> None:
        """Nothing is open."""


class StoreAnchor:
    """In the store that keeps the originals, under the trail's path: only what changed is written."""

    def __init__(self, store: SqliteStore, trail: str | os.PathLike[str]) -> None:
        # A store object of its own: what it keeps open is used by one sink only.
        self._store = SqliteStore(store.path, limits=store.limits, busy_seconds=BUSY_SECONDS)
        self._trail = os.path.realpath(trail)
        self._written: dict[str, Head] | None = None

    def read(self) -> dict[str, Head]:
        """Heads by chain; empty where this trail has none in the store."""
        self._written = {chain: Head(*head) for chain, head in self._store.heads(self._trail).items()}
        return dict(self._written)

    def write(self, heads: Mapping[str, Head]) -> None:
        """Bring the store up to date."""
        before = self.read() if self._written is None else self._written
        changed = {chain: (head.lines, head.hash) for chain, head in heads.items() if before.get(chain) != head}
        gone = [chain for chain in before if chain not in heads]
        if changed or gone:
            self._store.keep_heads(self._trail, changed, gone)
        self._written = dict(heads)

    def close(self) -> None:
        """Let go of the store."""
        self._store.let_go()
