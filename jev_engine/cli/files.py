"""Where a command writes: never over what it reads or keeps, and never half."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import click

from jev_engine.audit.files import LINE_START, belongs_to

__all__ = [
    "Places",
    "Refused",
    "check_target",
    "last_words",
    "named_file",
    "taken",
    "write_session",
]

NOTED = "jev_engine.cli.files"
"""Under it a command's context knows what is being written, and the number by which the file is known again."""
DATABASE_START = b"SQLite format 3\0"
STORE_ENDS = ("", "-wal", "-shm", "-journal")
"""A store in SQLite is up to so many files."""


class Refused(click.ClickException):
    """Bad usage or a file that cannot be read: the message says what is wrong and what to do. Exit code 2."""

    exit_code = 2


def named_file(name: str, option: str) -> Path:
    """The file an option names; raises Refused where it names none."""
    if not name:
        raise Refused(f"{option}: names no file (a variable that is not set?). Name one, or leave {option} out.")
    return Path(name)


class Places(NamedTuple):
    """What a command reads and keeps: nothing it writes may take the place of that."""

    source: str | None = None
    """The session, `-` for standard input."""
    store: Path | None = None
    trail: Path | None = None
    key: Path | None = None
    """Of the trail's digests, where it is not the one in the data folder."""


def check_target(out: str, places: Places) -> None:
    """Whether something may be written to `out`, before any work is done; raises Refused."""
    if out == "-":
        return
    try:
        _check_target(Path(out), out, places)
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        raise Refused(f"-o {out}: {error.strerror or error}. Name another file.") from None


def _check_target(target: Path, out: str, places: Places) -> None:
    if target.is_dir():
        raise Refused(f"-o {out}: is a folder. Name a file in it.")
    if not Path(os.path.realpath(target)).parent.is_dir():
        raise Refused(f"-o {out}: its folder does not exist. Create it first.")
    what = taken(target, places)
    if what is not None:
        raise Refused(f"-o {out}: is {what}. Name another file, and move it afterwards.")
    if not target.exists():
        return
    if not target.is_file():
        raise Refused(f"-o {out}: is no ordinary file. Name another one, or - for standard output.")
    with target.open("rb") as file:
        start = file.read(len(DATABASE_START))
    ours = {DATABASE_START: "a database, such as the store of originals", LINE_START: "an audit trail"}
    for begins, kind in ours.items():
        if start.startswith(begins):
            raise Refused(f"-o {out}: is {kind}, which is never written over. Name another file.")


def taken(target: Path, places: Places) -> str | None:
    """What of those places a file is, in words; None for neither of them."""
    from jev_engine.audit.keys import default_key_path  # noqa: PLC0415

    if places.source is not None and _is_source(target, places.source):
        return "the input file, which is never changed"
    stores = [] if places.store is None else [Path(f"{places.store}{end}") for end in STORE_ENDS]
    if any(_is_same(target, each) for each in stores):
        return "the store of originals"
    if places.trail is not None and belongs_to(places.trail, target):
        return "the audit trail, or one of the files beside it"
    keys = (default_key_path(), *(() if places.key is None else (places.key,)))
    return "the key of audit trails" if any(_is_same(target, each) for each in keys) else None


def _is_same(one: Path, other: Path) -> bool:
    """Whether two names, which need not be there yet, stand for one file."""
    try:
        return one.samefile(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def _is_source(target: Path, source: str) -> bool:
    if source != "-":
        return _is_same(target, Path(source))
    try:
        return os.path.samestat(target.stat(), os.fstat(sys.stdin.fileno()))
    except (OSError, ValueError):  # a stream without a file behind it
        return False


def write_session(data: bytes, out: str) -> None:
    """Write a session whole or not at all, for this user only; raises Refused. A link stays, its file is replaced."""
    if out == "-":
        if getattr(sys.stdout, "name", "") == os.devnull:  # a stand-in, see `cli.main`
            raise Refused("-o -: standard output is closed. Name a file instead.")
        _note(out)
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise  # a reader who went away
        except OSError as error:
            raise Refused(f"-o -: standard output cannot be written: {error.strerror}. Name a file instead.") from None
        return
    target = Path(os.path.realpath(out))
    try:
        handle, temporary = tempfile.mkstemp(prefix=".jev-engine-", suffix=".part", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
                _note(out, os.fstat(stream.fileno()).st_ino)
            Path(temporary).replace(target)
        except BaseException:  # Ctrl-C too: nothing half done stays behind
            with suppress(OSError):
                Path(temporary).unlink()
            raise
    except OSError as error:
        raise Refused(
            f"-o {out}: cannot be written: {error.strerror or error}. Check permissions and free space; "
            "nothing was left behind."
        ) from None


def _note(out: str, number: int | None = None) -> None:
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[NOTED] = out, number


def last_words(context: click.Context) -> str:
    """What of a session a command has written by now, for the message with which it ends early."""
    out, number = context.meta.get(NOTED, ("", None))
    if out == "-":
        return "standard output may hold a part of the session"
    try:
        is_written = number is not None and Path(out).stat().st_ino == number
    except OSError:
        is_written = False
    return f"{out} was written" if is_written else "no session was written"
