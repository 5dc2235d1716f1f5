"""The files of a trail: the one that is written, those before it, and the lock."""

from __future__ import annotations

import os
import re
import stat
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
    "LINE_START",
    "belongs_to",
    "is_trail",
    "locked",
    "must_be_trail",
    "older_files",
    "read_lines",
    "trail_files",
    "write_whole",
]

# The end of a rotated file's name: the number it got.
NUMBERED = re.compile(r"\.(\d{6,})$")
LINE_START = b'{"chain":"'
"""How every line of a trail begins."""


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


def belongs_to(trail: Path, target: Path) -> bool:
    """Whether a file is one of a trail's: the one that is written, one put aside, the lock, or the anchor beside it."""
    found = Path(os.path.realpath(target))
    # The files beside a trail that is a link lie beside the link.
    for own in (Path(os.path.realpath(trail)), Path(os.path.realpath(trail.parent)) / trail.name):
        rest = found.name[len(own.name) :]
        if found == own.with_name(own.name + rest) and (
            rest in ("", ".lock", ".anchor") or NUMBERED.fullmatch(rest) is not None
        ):
            return True
    return False


def must_be_trail(path: Path) -> None:
    """Raises AuditError where something is that is no trail: nothing may be appended to it."""
    try:
        _must_be_ordinary(path)
        with path.open("rb") as file:
            start = file.read(len(LINE_START))
    except FileNotFoundError:
        return
    except OSError as error:
        raise AuditError(f"trail {str(path)!r}: {error.strerror or error}") from error
    # A writer may have died within its first line.
    if not LINE_START.startswith(start):
        raise AuditError(f"{str(path)!r} is there, and is no trail")


def is_trail(path: Path) -> bool:
    """Whether any line of any of its files is one of a trail; raises AuditError where one cannot be read."""
    return any(line is not None for file in trail_files(path) for _, _, line in read_lines(file))


def _must_be_ordinary(path: Path) -> None:
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        what = "is a folder" if stat.S_ISDIR(mode) else "is no ordinary file"
        raise AuditError(f"{str(path)!r} {what}, and no trail")


def read_lines(path: Path, start: bytes = b"") -> Iterator[tuple[int, bytes, Line | None]]:
    """Number, bytes and content of each line of a file that begins so; raises AuditError where it cannot be read."""
    try:
        _must_be_ordinary(path)  # a pipe would be waited for without end
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                if raw.startswith(start) and raw.strip():
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
