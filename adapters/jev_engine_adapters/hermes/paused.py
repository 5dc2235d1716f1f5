"""Sessions in which the user wants no passes: kept on disk, because a session outlives the process it began in."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, MutableSet
from pathlib import Path

from jev_engine.audit.files import write_whole

__all__ = ["Paused", "default_path"]

logger = logging.getLogger("jev_engine")

MOST_NAMES = 1_000
"""Sessions remembered, the oldest forgotten first: a user turns passes off in a few."""


def default_path() -> Path:
    """In the user's data folder."""
    import platformdirs  # noqa: PLC0415  # only where the disk is meant

    return Path(platformdirs.user_data_dir("jev-engine", appauthor=False)) / "hermes-paused.json"


class Paused(MutableSet[str]):
    """Names of sessions. Another process of the host may change the file; it is read again when it has changed.

    `path` is None for names that are kept in memory only. A file that cannot be read or written is told once, and what
    is known in this process counts.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._names: dict[str, None] = {}
        self._seen: tuple[int, int, int] | None = None
        self._lock = threading.Lock()
        self._has_told = False

    def __contains__(self, name: object) -> bool:
        with self._lock:
            return name in self._read()

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            return iter(list(self._read()))

    def __len__(self) -> int:
        with self._lock:
            return len(self._read())

    def add(self, name: str) -> None:
        """No passes in that session."""
        with self._lock:
            names = {**self._read(), name: None}
            self._write(dict.fromkeys(list(names)[-MOST_NAMES:]))

    def discard(self, name: str) -> None:
        """Passes again."""
        with self._lock:
            names = self._read()
            if name in names:
                self._write({each: None for each in names if each != name})

    def _read(self) -> dict[str, None]:
        if self._path is None:
            return self._names
        try:
            seen = _version(self._path)
            if seen != self._seen:
                found = json.loads(self._path.read_text(encoding="utf-8")) if seen else []
                self._names = dict.fromkeys([name for name in found if isinstance(name, str)])
                self._seen = seen
        except (OSError, ValueError, TypeError) as error:
            self._tell("read", error)
        return self._names

    def _write(self, names: dict[str, None]) -> None:
        self._names = names
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self._path, json.dumps(list(names)).encode())
            self._seen = _version(self._path)
        except OSError as error:
            self._tell("written", error)

    def _tell(self, deed: str, error: Exception) -> None:
        if not self._has_told:
            self._has_told = True
            logger.warning("%s cannot be %s, /jev off holds until a restart: %s", self._path, deed, error)


def _version(path: Path) -> tuple[int, int, int] | None:
    """What tells one state of a file from another; None where there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
