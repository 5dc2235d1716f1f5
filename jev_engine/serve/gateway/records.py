"""What outlives the process: for each conversation that was edited, by what it is known again.

The ledger and the originals are in the store. A record holds digests, and the ids and numbers of hidden calls; no word
of a conversation. One line each, appended; the newest of a conversation counts.
"""

from __future__ import annotations

import json
import logging
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from jev_engine.serve.gateway.hidden import Hidden

__all__ = ["Record", "Records"]

logger = logging.getLogger("jev_engine")

MOST_RECORDS = 1_000
"""As many conversations as are known at once, see `conversations.MOST_CONVERSATIONS`."""
MOST_BYTES = 8_000_000
"""A larger file is written anew, with the newest record of each conversation, the newest ones up to half of it."""


class Record(NamedTuple):
    """A conversation as far as it was edited."""

    session: str
    hint: str
    edits: tuple[bytes, ...]
    """Chain digests of the edited messages, in order: a request with the last of them belongs to the conversation."""
    unbound: frozenset[bytes]
    hidden: Mapping[bytes, Sequence[Hidden]]
    offers_expand: bool

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "session": self.session,
            "hint": self.hint,
            "edits": [digest.hex() for digest in self.edits],
            "unbound": sorted(digest.hex() for digest in self.unbound),
            "hidden": {place.hex(): [each.to_json() for each in found] for place, found in self.hidden.items()},
            "offers_expand": self.offers_expand,
        }

    @classmethod
    def from_json(cls, data: Any) -> Record:
        """The record that `to_json` wrote; raises KeyError, TypeError or ValueError for anything else."""
        hidden = {bytes.fromhex(k): [Hidden.from_json(each) for each in found] for k, found in data["hidden"].items()}
        return cls(
            session=str(data["session"]),
            hint=str(data["hint"]),
            edits=tuple(bytes.fromhex(digest) for digest in data["edits"]),
            unbound=frozenset(bytes.fromhex(digest) for digest in data["unbound"]),
            hidden=hidden,
            offers_expand=bool(data["offers_expand"]),
        )


class Records:
    """Records in memory, and in a file where one is named. A file that fails costs memory of restarts, no request."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._records: OrderedDict[str, Record] = OrderedDict()
        if path is not None:
            self._load(path)

    def find(self, chain: Sequence[bytes], hint: str) -> Record | None:
        """The record of the conversation that a history with this chain of digests belongs to."""
        places = {digest: at for at, digest in enumerate(chain)}
        known = [r for r in self._records.values() if r.edits and r.edits[-1] in places]
        # A fork may have a name of its own; the record under the same name comes first.
        return max(known, key=lambda record: (record.hint == hint, places[record.edits[-1]]), default=None)

    def save(self, record: Record) -> None:
        """Keep a record."""
        self._take(record)
        if self.path is None:
            return
        try:
            if self.path.exists() and self.path.stat().st_size > MOST_BYTES:
                self._write_anew(self.path)
            else:
                _append(self.path, _line(record))
        except OSError as error:
            logger.warning("gateway records cannot be written: %s", error.strerror or error)

    def _take(self, record: Record) -> None:
        self._records[record.session] = record
        self._records.move_to_end(record.session)
        while len(self._records) > MOST_RECORDS:
            self._records.popitem(last=False)

    def _load(self, path: Path) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            logger.warning("gateway records cannot be read: %s", error)
            return
        for line in lines:
            # A torn last line is a process that did not survive its write; the record before it still counts.
            with suppress(KeyError, TypeError, ValueError, AttributeError):
                self._take(Record.from_json(json.loads(line)))

    def _write_anew(self, path: Path) -> None:
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        part.unlink(missing_ok=True)
        lines: list[str] = []
        room = MOST_BYTES // 2
        for record in reversed(self._records.values()):
            line = _line(record)
            room -= len(line)
            if room < 0 and lines:
                break
            lines.append(line)
        _append(part, "".join(reversed(lines)))
        part.replace(path)


def _line(record: Record) -> str:
    return json.dumps(record.to_json(), separators=(",", ":")) + "\n"


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(line)
