"""One SQLite file: made before the first write, opened for each piece of work, and every fault said plainly."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from jev_engine.errors import OriginalNotFound, StoreError
from jev_engine.store import schema

__all__ = ["BUSY_SECONDS", "Database", "Held", "default_path"]

T = TypeVar("T")

BUSY_SECONDS = 10.0
"""How long to wait for another process: a large pass commits in under a second, a slow disk takes several."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.002, 0.1
"""Between tries where SQLite itself does not wait: while another process takes up or gives up the write-ahead log."""
HEADROOM_SHARE = 0.05
"""The file may grow this far beyond its limit while room is being made: deleting from the index writes first."""

REMEDIES = {
    "SQLITE_FULL": "the disk is full, or the limit max_total_bytes is reached: free space on the disk first (taking"
    " originals out needs some too), then run `jev-engine store prune`, or raise max_total_bytes",
    "SQLITE_IOERR": "the disk is full or fails: free space on it first (taking originals out needs some too), or move"
    " the file to another disk and name it with --store (in code: SqliteStore(path))",
    "SQLITE_BUSY": "another process holds it: let that end, or raise busy_seconds",
    "SQLITE_LOCKED": "another process holds it: let that end, or raise busy_seconds",
    "SQLITE_READONLY": "it cannot be written: check the folder's permissions, or name another file with --store"
    " (in code: SqliteStore(path))",
    "SQLITE_CORRUPT": "it is damaged: move it away, a new one is made; `jev-engine store export` saves what can still"
    " be read",
    "SQLITE_NOTADB": "it is no store: name another file with --store (in code: SqliteStore(path))",
    "SQLITE_TOOBIG": "a text is larger than SQLite takes: lower max_text_bytes",
}
UNWRITABLE = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_IOERR")
"""What reading ends with where nothing can be written beside the file: no permission, or a full disk."""
ELSE = "check the folder's permissions and free space"


def default_path() -> Path:
    """The store in the user's data folder."""
    import platformdirs  # noqa: PLC0415  # only where a default place is needed

    return Path(platformdirs.user_data_dir("jev-engine", appauthor=False)) / "originals.sqlite3"


class Database:
    """A file that several threads and processes may use at once; every piece of work has its own connection."""

    def __init__(self, path: Path, busy_seconds: float, most_bytes: int) -> None:
        self.path = path
        self._busy_seconds = busy_seconds
        self._most_bytes = most_bytes

    def exists(self) -> bool:
        """Whether anything was ever stored; raises StoreError for a path no file can have."""
        try:
            return self.path.exists()
        except (OSError, ValueError) as error:
            raise self._fault(error) from error

    def run(self, work: Callable[[sqlite3.Connection], T], *, write: bool = False, free: bool = False) -> T:
        """Do something in one transaction; `free` is for work that makes room, which no limit may stop.

        Raises OriginalNotFound where the file is to be read and is not there, StoreError for anything that goes wrong,
        with what to do about it. A file that another process holds is waited for.
        """
        if not write and not self.exists():
            raise OriginalNotFound(f"nothing is stored yet at {str(self.path)!r}")
        return self.patiently(lambda: self._try(work, write=write, free=free))

    def patiently(self, work: Callable[[], T]) -> T:
        """Do something with the file, and wait while another process holds it. Raises StoreError, with what to do."""
        patience = time.monotonic() + self._busy_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return work()
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > patience:
                    raise self._fault(error) from error
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            except (sqlite3.Error, OSError, zlib.error, RecursionError, TypeError, ValueError) as error:
                raise self._fault(error) from error

    def outside(self, statement: str) -> None:
        """Run a statement that no transaction may hold, such as VACUUM; where it cannot run now, nothing happens."""
        try:
            with closing(self.connect()) as db:
                db.execute(statement)
        except sqlite3.OperationalError:
            return

    def _try(self, work: Callable[[sqlite3.Connection], T], *, write: bool, free: bool) -> T:
        if write:
            self.create()
            with self._open(write=True, free=free) as db:
                return work(db)
        try:
            with self._open(write=False, free=free) as db:
                if not schema.is_older(db):
                    return work(db)
        except sqlite3.OperationalError as error:
            if _kind(error) not in UNWRITABLE or not self._is_at_rest():
                raise
            with self._open(write=False, free=free, is_immutable=True) as db:
                return work(db)
        with self._open(write=True, free=free):
            pass  # brings it up to date
        with self._open(write=False, free=free) as db:
            return work(db)

    def create(self) -> None:
        """Make an empty file, for its owner only, where there is none."""
        if self.path.exists():
            return
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        os.close(descriptor)

    def _is_at_rest(self) -> bool:
        """Nothing is in a write-ahead log beside the file: on a disk that cannot be written, it is all there is."""
        log = Path(f"{self.path}-wal")
        return not log.exists() or not log.stat().st_size

    def connect(self, *, is_immutable: bool = False) -> sqlite3.Connection:
        """A connection that may be handed from thread to thread, used by one at a time."""
        name = f"{self.path.absolute().as_uri()}?immutable=1" if is_immutable else str(self.path)
        return sqlite3.connect(
            name, timeout=self._busy_seconds, isolation_level=None, uri=is_immutable, check_same_thread=False
        )

    @contextmanager
    def _open(self, *, write: bool, free: bool, is_immutable: bool = False) -> Iterator[sqlite3.Connection]:
        with closing(self.connect(is_immutable=is_immutable)) as db:
            schema.check_owner(db, self.path)
            if write:
                db.execute("PRAGMA journal_mode = WAL")
                if not free:
                    (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
                    most = int(self._most_bytes * (1 + HEADROOM_SHARE)) // page_bytes
                    db.execute(f"PRAGMA max_page_count = {max(1, most)}")
                # What is taken out is overwritten: a purge leaves nothing to be found in the file. Elsewhere only where
                # that costs no further writing.
                db.execute(f"PRAGMA secure_delete = {'ON' if free else 'FAST'}")
            with self.transaction(db, write=write):
                yield db

    @contextmanager
    def transaction(self, db: sqlite3.Connection, *, write: bool, survives_power_cut: bool = True) -> Iterator[None]:
        """All of it or nothing, in a file that is up to date."""
        # What was reported as saved must survive a power cut, because markers point to it.
        db.execute(f"PRAGMA synchronous = {'FULL' if survives_power_cut else 'NORMAL'}")
        db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            if write or not schema.is_older(db):
                schema.check_schema(db, self.path, write=write)
            yield
        except BaseException:
            if db.in_transaction:  # some faults, such as a full disk, end it by themselves
                db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    def _fault(self, error: Exception) -> StoreError:
        remedy = REMEDIES.get(_kind(error), ELSE)
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            remedy = "name another file with --store (in code: SqliteStore(path))"
        shown = str(self.path)
        return StoreError(f"store {shown if len(shown) <= 300 else shown[:300] + '…'!r}: {_cause(error)}; {remedy}")


# Connections that came along in a fork: closing one here would take the parent's locks away.
_of_parents: list[sqlite3.Connection] = []


class Held:
    """One connection that stays open, for small writes that come often: opening one costs more than such a write.

    What is written survives the process, not a power cut, as a file would. Not for several threads at once.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int, int] | None = None

    def __del__(self) -> None:
        with suppress(AttributeError, sqlite3.Error):
            self.close()

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Write something in one transaction; raises StoreError."""
        return self._database.patiently(lambda: self._within(work))

    def close(self) -> None:
        """Let go of the file, until it is needed again."""
        db, self._db = self._db, None
        if db is not None and self._file is not None and self._file[0] == os.getpid():
            db.close()
        elif db is not None:
            _of_parents.append(db)

    def _within(self, work: Callable[[sqlite3.Connection], T]) -> T:
        db = self._open()
        try:
            with self._database.transaction(db, write=True, survives_power_cut=False):
                return work(db)
        except BaseException:
            self.close()
            raise

    def _open(self) -> sqlite3.Connection:
        self._database.create()
        status = self._database.path.stat()
        # Of another process after a fork, or of a file that was moved away: not ours any more.
        file = (os.getpid(), status.st_dev, status.st_ino)
        if self._db is None or file != self._file:
            self.close()
            self._db = self._database.connect()
            self._file = file
            schema.check_owner(self._db, self._database.path)
            self._db.execute("PRAGMA journal_mode = WAL")
        return self._db


def _cause(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _kind(error: BaseException) -> str:
    """The primary result code: the extended ones begin with it."""
    name = getattr(error, "sqlite_errorname", None) or ""
    return "_".join(name.split("_")[:2])


def _is_busy(error: BaseException) -> bool:
    return _kind(error) in ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")
