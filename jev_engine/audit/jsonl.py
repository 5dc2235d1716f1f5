"""A trail as a file of JSON lines: appended only, chained, rotated, and readable by its owner only.

Several processes may write one trail: each batch is written under a lock, after a look at what the others wrote.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from jev_engine.audit.anchor import Anchor, FileAnchor
from jev_engine.audit.chain import LINE_END, START, Head, seal
from jev_engine.audit.files import (
    locked,
    must_be_trail,
    older_files,
    read_lines,
    trail_files,
    write_whole,
)
from jev_engine.audit.keys import default_key_path, read_key
from jev_engine.audit.upkeep import PURGED, UPKEEP, UPKEEP_START, note_of, read_note
from jev_engine.errors import AuditError, StoreError
from jev_engine.events.batch import Batch
from jev_engine.events.event import Event

__all__ = ["MAX_BYTES", "MAX_FILES", "JsonlSink", "purge_session"]

MAX_BYTES = 16 * 1024 * 1024
"""Of one file: some 25,000 decisions."""
MAX_FILES = 8
"""Files of one trail, the one being written included."""
MOST_PARTS = 900
"""Pieces of one write: systems take 1,024."""
LINE_OVERHEAD = 300
"""Of a line beside its event, at most."""


class JsonlSink:
    """Appends events to a file.

    `key` keys the digests in events; without it the one in the user's data folder is used, and made if need be.
    `anchor` is where count and head of each chain are kept: a file beside the trail unless given, `StoreAnchor` for the
    store. Kept apart, it also shows what somebody cut off the end of both. Raises AuditError where the key cannot be
    read.
    """

    name = "jsonl"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: bytes | None = None,
        max_bytes: int = MAX_BYTES,
        max_files: int = MAX_FILES,
        anchor: Anchor | None = None,
    ) -> None:
        self.path = Path(path)
        self.key = read_key(default_key_path()) if key is None else key
        self.max_bytes = max_bytes
        self.max_files = max(1, max_files)
        self.anchor = FileAnchor.beside(self.path) if anchor is None else anchor
        self._lock = threading.Lock()
        self._heads: dict[str, Head] = {}
        self._in_file: set[str] = set()
        self._file = -1
        self._identity: tuple[int, int] | None = None
        self._size = 0
        self._process = 0
        self._is_anchored = True

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            self._let_go()

    def emit(self, event: Event) -> None:
        """Write one event; raises AuditError, which says what to do."""
        self._write(event.session, [event.model_dump_json(exclude_none=True).encode()])

    def emit_many(self, batch: Batch) -> None:
        """Write events in their order; raises AuditError, which says what to do."""
        self._write(batch.session, batch.lines)

    def flush(self) -> None:
        """A pass is over: keep count and head of every chain in the anchor. Raises AuditError."""
        if not self._is_anchored:
            with self._held():
                self._look()
                self.anchor.write(self._heads)
                self._is_anchored = True

    def close(self) -> None:
        """Keep the anchor, and let go of the file."""
        self.flush()
        with self._lock:
            self._let_go()
            self.anchor.close()

    @contextmanager
    def _held(self) -> Iterator[None]:
        """The trail, against other threads and processes; raises AuditError, in words that go to a person."""
        try:
            with self._lock, locked(self.path):
                yield
        except OSError as error:
            raise AuditError(
                f"trail {str(self.path)!r} cannot be written: {error.strerror or error}; check permissions and free "
                "space there, or name another file"
            ) from error
        except StoreError as error:
            raise AuditError(f"anchor of trail {str(self.path)!r} cannot be kept: {error}") from error

    def _write(self, chain: str, events: Sequence[bytes]) -> None:
        with self._held():
            self._look()
            self._is_anchored = False
            parts: list[bytes] = []
            size = 0
            for event in events:
                room = len(event) + LINE_OVERHEAD
                if parts and (self._size + size + room > self.max_bytes or len(parts) + 3 > MOST_PARTS):
                    self._append(parts)
                    parts, size = [], 0
                if self._size + size + room > self.max_bytes and self._size + size:
                    self._rotate()
                start = self._seal(chain, event)
                parts += (start, event, LINE_END)
                size += len(start) + len(event) + len(LINE_END)
            self._append(parts)

    def _seal(self, chain: str, event: bytes) -> bytes:
        head = self._heads.get(chain) or Head(0, START)
        is_first = chain not in self._in_file
        start, self._heads[chain] = seal(chain, head, event, with_prev=is_first, key=self.key)
        self._in_file.add(chain)
        return start

    def _append(self, parts: list[bytes]) -> None:
        """Whole lines in one write: no record is ever in two."""
        if not parts:
            return
        total = sum(map(len, parts))
        self._size += total
        written = os.writev(self._file, parts) if hasattr(os, "writev") else 0
        if written < total:  # a disk that is nearly full takes less than it was given
            rest = b"".join(parts)[written:]
            while rest:
                rest = rest[os.write(self._file, rest) :]

    def _note(self, event: bytes) -> None:
        self._append([self._seal(UPKEEP, event), event, LINE_END])

    def _look(self) -> None:
        """Open the file, or catch up with what other processes wrote to it."""
        if self._file >= 0 and self._process == os.getpid():
            try:
                status = self.path.stat()
            except FileNotFoundError:
                status = None
            if status and (status.st_dev, status.st_ino) == self._identity and status.st_size == self._size:
                return
        self._let_go()
        must_be_trail(self.path)
        self._process = os.getpid()
        self._heads = self.anchor.read()
        files = trail_files(self.path)
        for file in files:
            if file.stat().st_mode & 0o077:
                with suppress(PermissionError):  # another user's file
                    file.chmod(0o600)
        # Without an anchor every file is read; with one, it knows all of the older ones, and the newest may hold more.
        for file in files if not self._heads else files[-1:]:
            self._in_file = set()
            for _, _, line in read_lines(file):
                if line is not None:
                    self._in_file.add(line.chain)
                    known = self._heads.get(line.chain)
                    if known is None or line.n > known.lines:
                        self._heads[line.chain] = Head(line.n, line.hash)
        if not files or files[-1] != self.path:
            self._in_file = set()
        self._open()

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        self._file = os.open(self.path, flags, 0o600)
        status = os.fstat(self._file)
        self._identity, self._size = (status.st_dev, status.st_ino), status.st_size
        if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
            # A writer died in the middle of a line: it stays, on a line of its own, and spoils no other.
            self._size += os.write(self._file, b"\n")

    def _let_go(self) -> None:
        if self._file >= 0 and self._process == os.getpid():
            os.close(self._file)
        self._file = -1

    def _rotate(self) -> None:
        """Put the file aside, begin a new one, and drop the oldest beyond the limit; the new one says what went."""
        # Before anything is done, here and below, so that a process that dies in between leaves what can be proved and
        # gone on with: of the older files, the anchor knows every line.
        self.anchor.write(self._heads)
        older = older_files(self.path)
        number = int(older[-1].name.rsplit(".", 1)[1]) + 1 if older else 1
        self.path.rename(self.path.with_name(f"{self.path.name}.{number:06d}"))
        self._let_go()
        self._in_file = set()
        self._open()
        older = older_files(self.path)
        for file in older[: max(0, len(older) + 1 - self.max_files)]:
            ends = {**self._noted_in(file), **_ends_of([file])}
            self._note(note_of("size limit", ends))
            self.anchor.write(self._heads)
            file.unlink()
            for chain, end in ends.items():
                # What has no line left begins anew, so that the anchor does not grow for ever.
                if chain != UPKEEP and self._heads.get(chain) == end:
                    del self._heads[chain]
            self.anchor.write(self._heads)

    def _noted_in(self, file: Path) -> dict[str, Head]:
        """What the upkeep lines of a file say of chains that go on: it must not be lost with them."""
        lines = [line for _, _, line in read_lines(file, UPKEEP_START) if line is not None]
        notes = [told for line in lines if (told := read_note(line.event)) is not None]
        return {chain: end for told in notes for chain, end in told.until.items() if chain in self._heads}


def _ends_of(files: Sequence[Path]) -> dict[str, Head]:
    ends: dict[str, Head] = {}
    for file in files:
        for _, _, line in read_lines(file):
            if line is not None:
                ends[line.chain] = Head(line.n, line.hash)
    return ends


def purge_session(sink: JsonlSink, chain: str) -> int:
    """Take every line of one session out of all files of a trail; returns how many.

    The upkeep chain says first what will go, with the number and hash of the last line, so that what stays can still be
    proved whole, also where the purge is broken off. Raises AuditError where nothing of that session is there.
    """
    # Looked at before it is held or opened: what is no trail, or not the one that was meant, stays as it is.
    if chain == UPKEEP or chain not in _ends_of(trail_files(sink.path)):
        raise AuditError(f"no line of that session is in {str(sink.path)!r}")
    with sink._held():  # noqa: SLF001  # same file
        sink._look()  # noqa: SLF001
        files = trail_files(sink.path)
        # As it begins, so that a line of it that was cut off goes too.
        start = f'{{"chain":"{chain}"'.encode()
        lines = sum([len(list(read_lines(file, start))) for file in files])
        sink._note(note_of(PURGED, {chain: _ends_of(files)[chain]}, lines))  # noqa: SLF001
        sink.anchor.write(sink._heads)  # noqa: SLF001
        for file in trail_files(sink.path):
            kept = [raw for _, raw, _ in read_lines(file) if not raw.startswith(start)]
            write_whole(file, b"".join([raw if raw.endswith(b"\n") else raw + b"\n" for raw in kept]))
        sink._let_go()  # noqa: SLF001
        sink._open()  # noqa: SLF001
        # It may go on, behind what went.
        sink._in_file.discard(chain)  # noqa: SLF001
    return lines
