"""The files of a trail: the one that is written, those before it, and the lock."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jev_engine.audit.chain import Line, parse
from jev_engine.errors import AuditError

try:
    import fcntl
except ImportError:  # Windows: one process at a time, as before there were locks
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "locked",
    "older_files",
    "read_lines",
    "trail_files",
    "write_whole",
]

# The end of a rotated file's name: the number it got.
NUMBERED = re.compile(r"\.(\d{6,})$")


def older_files(path: Path) -> list[Path]:
    """Files that were rotated away, oldest first."""
    found = [
        (int(match.group(1)), each)
        for each in path.parent.glob(f"{_escaped(path.name)}.*")
        if (match := NUMBERED.search(each.name)) and each.name == f"{path.name}{match.group()}"
    ]
    return [each for _, each in sorted(found)]


def trail_files(path: Path) -> list[Path]:
    """All files of a trail, oldest first."""
    return [*older_files(path), *([path] if path.exists() else [])]


def _escaped(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def read_lines(path: Path) -> Iterator[tuple[int, bytes, Line | None]]:
    """Number, bytes and content of each line of a file; raises AuditError where it cannot be read."""
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                if raw.strip():
                    yield number, raw, parse(raw) if raw.endswith(b"\n") else None
    except OSError as error:
        raise AuditError(f"trail {str(path)!r}: {error.strerror or error}") from error


def write_whole(path: Path, content: bytes) -> None:
    """Write a file aside and put it in place, mode 0600: whoever reads it finds the old one or the new one."""
    part = f"{path}.{os.getpid()}.part"
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            while content:
                content = content[os.write(handle, content) :]
        finally:
            os.close(handle)
        os.replace(part, path)  # noqa: PTH105  # a Path costs more than the call, once a pass
    except BaseException:
        with suppress(OSError):
            os.unlink(part)  # noqa: PTH108  # see above
        raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the trail against other processes. The lock is a file of its own, because the trail's file is replaced."""
    name = f"{path}.lock"
    try:
        handle = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
