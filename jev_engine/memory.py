"""Project memories on disk: what `jev-engine learn` wrote, and the look-up the engine uses.

One file of numbers in the user's data folder, readable by the user alone. A project is the folder a session was
recorded
in, kept as a keyed digest: nobody who reads the file learns a path. Deleting the file is all there is to forgetting.

>>> memories = Memories()
>>> memories.put("/work/project", Remembered(0.9, -0.3, 7, {}, []))
>>> memories.of("/work/project"), memories.of("/work/other")
((0.9, -0.3), None)
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jev_engine.errors import StoreError

__all__ = ["Memories", "Remembered", "default_path", "folder_of"]

VERSION = 1
DIGEST_BYTES = 12
"""Of the keyed digests (HMAC-SHA-256, cut) by which folders and sessions are known here."""
FOLDER_ROWS = 200
"""Rows in which the folder of a session is looked for: hosts write it into the first ones."""


class Remembered(NamedTuple):
    """What is known of one project."""

    slope: float
    intercept: float
    """`logit p' = slope * logit p + intercept`."""
    sessions: int
    counts: dict[str, Any]
    """Counts per bin of log-odds, as `evaluate.memory.ProjectMemory.as_dict` has them, so that sessions can be
    added."""
    seen: list[str]
    """Digests of the sessions that are in, so that none is counted twice."""


def default_path() -> Path:
    """Where memories are kept, in the user's data folder."""
    import platformdirs  # noqa: PLC0415  # only where the disk is meant

    return Path(platformdirs.user_data_dir("jev-engine", appauthor=False)) / "memory.json"


def folder_of(messages: Sequence[Any]) -> str | None:
    """The folder a session was recorded in, where its rows say so (`cwd`)."""
    for message in messages[:FOLDER_ROWS]:
        folder = message.get("cwd") if isinstance(message, Mapping) else None
        if isinstance(folder, str) and folder:
            return folder
    return None


class Memories:
    """All memories of a user. `judge` is the version of the weights they correct: for others they mean nothing."""

    def __init__(self, judge: str = "", key: bytes | None = None) -> None:
        self.judge = judge
        self._key = secrets.token_bytes(32) if key is None else key
        self._projects: dict[str, Remembered] = {}

    def digest(self, name: str) -> str:
        """The keyed digest a folder or session is known by here."""
        return hmac.digest(self._key, name.encode("utf-8", "surrogatepass"), "sha256")[:DIGEST_BYTES].hex()

    def of(self, folder: str | None) -> tuple[float, float] | None:
        """Slope and intercept of a project's memory, None where there is none."""
        known = self.get(folder) if folder else None
        return None if known is None else (known.slope, known.intercept)

    def get(self, folder: str) -> Remembered | None:
        """Everything known of a project."""
        return self._projects.get(self.digest(_plain(folder)))

    def put(self, folder: str, remembered: Remembered) -> None:
        """Take in what is known of a project, in place of what was."""
        self._projects[self.digest(_plain(folder))] = remembered

    def __len__(self) -> int:
        return len(self._projects)

    def __iter__(self) -> Iterator[str]:
        return iter(self._projects)

    @classmethod
    def load(cls, path: Path, judge: str) -> Memories:
        """The memories in a file; none where there is no file, or where another judge's answers were learned from.

        Raises StoreError where the file is there and cannot be used.
        """
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls(judge)
        except (OSError, ValueError) as error:
            raise StoreError(f"cannot read the project memories in {path}: {error}") from error
        try:
            if stored["version"] != VERSION or stored["judge"] != judge:
                return cls(judge)
            memories = cls(judge, bytes.fromhex(stored["key"]))
            memories._projects = {name: Remembered(**values) for name, values in stored["projects"].items()}
        except (TypeError, KeyError, ValueError) as error:
            raise StoreError(
                f"{path} does not hold project memories; `jev-engine learn --forget` removes it"
            ) from error
        return memories

    def save(self, path: Path) -> None:
        """Write them, readable by the user alone and never half; raises StoreError."""
        stored = {
            "version": VERSION,
            "judge": self.judge,
            "key": self._key.hex(),
            "projects": {name: known._asdict() for name, known in sorted(self._projects.items())},
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # mkstemp makes the file 0600 from the start.
            handle, partial = tempfile.mkstemp(dir=path.parent, prefix=".memory-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as stream:
                    json.dump(stored, stream, separators=(",", ":"))
                os.replace(partial, path)  # noqa: PTH105  # both are names already
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(partial).unlink()
                raise
        except OSError as error:
            raise StoreError(f"cannot write the project memories to {path}: {error}") from error


def _plain(folder: str) -> str:
    """One spelling for a folder: no slash at its end."""
    return folder.rstrip("/\\") or folder
