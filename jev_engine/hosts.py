"""Putting the engine into a host, and taking it out: planned first, then carried out, with a backup of every file.

A host integration only plans: it reads files and says what each should hold. `carry_out` does the rest alike for all.

>>> plan = Plan([Change(Path("/nowhere/config.yaml"), b"engine: jev-engine", "names the engine")], [])
>>> [(change.path.name, change.is_done()) for change in plan.changes]
[('config.yaml', False)]
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from jev_engine.errors import HostError

__all__ = ["Carried", "Change", "Finding", "HostIntegration", "Plan", "carry_out", "others_can_read"]

# Modes of what we make: for its owner only. The last holds every right of anybody else.
OURS, OUR_FOLDER = 0o600, 0o700
NOT_OWNER = 0o077


class Change(NamedTuple):
    """What one file should hold."""

    path: Path
    content: bytes | None
    """All of it; None where the file should not be there."""
    why: str
    is_ours: bool = False
    """Made by us alone: no backup, readable by its owner only. Any other file belongs to the user."""
    is_secret: bool = False
    """The content is for its owner only, whosever the file is: written with mode 0600, and tightened to it."""

    def before(self) -> bytes | None:
        """What the file holds now; None where there is none. Raises HostError where it cannot be read."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise HostError(f"{self.path}: {error.strerror or error}") from error

    def is_done(self) -> bool:
        """Whether the file is as it should be, and a secret is kept from others. Raises HostError as `before`."""
        return self.before() == self.content and not self.is_open()

    def is_open(self) -> bool:
        """Whether others can read what only the owner should."""
        return self.is_secret and self.content is not None and others_can_read(self.path)


def others_can_read(path: Path) -> bool:
    """Whether anybody but its owner may read, write or run a file; False where there is none."""
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & NOT_OWNER)
    except OSError:
        return False


class Plan(NamedTuple):
    """What setting up or removing changes."""

    changes: list[Change]
    notes: list[str]
    """What the user should know: the route chosen and why, what to do next."""


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    state: Literal["ok", "note", "bad"]
    text: str


@runtime_checkable
class HostIntegration(Protocol):
    """How one host is set up. Its functions read and say; they write nothing."""

    name: str
    """As written after `jev-engine setup`."""

    summary: str
    """One line for `--help`."""

    options: Mapping[str, str]
    """Names of the options it understands, each with one line on what it does."""

    def setup(self, options: Mapping[str, str]) -> Plan:
        """What has to be written so that the host uses the engine. Raises HostError or ConfigError."""
        ...

    def remove(self, options: Mapping[str, str]) -> Plan:
        """What has to be written so that nothing of it is left but originals. Raises HostError."""
        ...

    def doctor(self, options: Mapping[str, str]) -> Iterator[Finding]:
        """Whether the host uses the engine, and why not."""
        ...


class Carried(NamedTuple):
    """What was written."""

    changed: list[Path]
    backups: list[Path]


def carry_out(plan: Plan) -> Carried:
    """Write what is not yet as it should be, each file whole or not at all; undo all of it where one fails.

    A user's file is copied beside itself before it changes, for its owner only. Raises HostError, and whatever
    interrupts, with every file as it was.
    """
    before: list[tuple[Change, bytes | None, int | None]] = []
    backups: list[Path] = []
    try:
        for change in plan.changes:
            held = change.before()
            if held == change.content and not change.is_open():
                continue
            if held is not None and not change.is_ours and held != change.content:
                backups.append(_back_up(change.path, held))
            before.append((change, held, _mode(change.path)))
            _put(change.path, change.content, is_ours=change.is_ours, mode=OURS if change.is_secret else None)
    except BaseException as error:
        for change, held, mode in reversed(before):
            with suppress(OSError):
                _put(change.path, held, is_ours=change.is_ours, mode=mode)
        for path in backups:
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise HostError(f"{error.filename or 'a file'}: {error.strerror or error}; nothing was changed") from error
        raise
    return Carried([change.path for change, _, _ in before], backups)


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None


def _back_up(path: Path, held: bytes) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1_000):
        copy = path.with_name(f"{path.name}.jev-backup-{stamp}" + (f"-{number}" if number else ""))
        if not copy.exists():
            _write(copy, held, (_mode(path) or OURS) & ~NOT_OWNER)  # may hold a secret that the file held before
            return copy
    raise HostError(f"{path}: a thousand backups of one second lie beside it")


def _put(path: Path, content: bytes | None, *, is_ours: bool, mode: int | None = None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
        if is_ours:
            with suppress(OSError):  # goes only where it is empty
                path.parent.rmdir()
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=OUR_FOLDER)
    # Through a link, the file it leads to is the one to change.
    target = Path(os.path.realpath(path))
    _write(target, content, mode or (OURS if is_ours else _mode(target) or 0o644))


def _write(path: Path, content: bytes, mode: int) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        part.chmod(mode)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
