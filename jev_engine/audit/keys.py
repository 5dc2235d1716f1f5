"""The key of the digests in a trail: random, on this machine only, readable by its owner only."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from jev_engine.errors import AuditError

__all__ = ["KEY_BYTES", "default_key_path", "default_trail_path", "read_key"]

KEY_BYTES = 32
"""A file of any other length is no key."""


def default_key_path() -> Path:
    """The key in the user's data folder: a trail that is passed on does not bring it along."""
    return _folder() / "audit.key"


def default_trail_path() -> Path:
    """The trail in the user's data folder."""
    return _folder() / "audit.jsonl"


def _folder() -> Path:
    import platformdirs  # noqa: PLC0415  # only where a default place is needed

    return Path(platformdirs.user_data_dir("jev-engine", appauthor=False))


def read_key(path: Path, *, make: bool = True) -> bytes | None:
    """The key; made (0600, in a folder of 0700) where there is none, or None without `make`.

    Raises AuditError where it cannot be read or made, or is no key.
    """
    try:
        if not path.exists():
            if not make:
                return None
            _make(path)
        key = path.read_bytes()
    except OSError as error:
        raise AuditError(f"audit key {str(path)!r}: {error.strerror or error}") from error
    if len(key) != KEY_BYTES:
        raise AuditError(f"audit key {str(path)!r}: is no key; move it away, a new one is made")
    return key


def _make(path: Path) -> None:
    """Written aside and linked in, so that of two processes one wins and nobody reads half a key."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(handle, os.urandom(KEY_BYTES))
    finally:
        os.close(handle)
    try:
        with suppress(FileExistsError):
            os.link(part, path)
    finally:
        part.unlink()
