"""Files of the local process: where they are, and that nobody else may use them."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from pathlib import Path
from typing import NamedTuple

from jev_engine.errors import ServeError
from jev_engine.hosts import Change

__all__ = ["FOLDER_VARIABLE", "Places", "open_folder", "places", "planned_token", "read_token", "wrong_files"]

FOLDER_VARIABLE = "JEV_ENGINE_RUNTIME"
"""Names another folder for socket, token and state."""
# sun_path holds 104 bytes on BSD and macOS, 108 on Linux.
LONGEST_SOCKET_BYTES = 100
# Random bytes of the token, written in 43 characters; a text with fewer characters than bytes here is no token.
TOKEN_BYTES = 32


class Places(NamedTuple):
    """The files of one user's process."""

    folder: Path
    socket: Path
    state: Path
    """Who runs, as JSON."""
    lock: Path
    """Held for as long as the process lives."""
    log: Path
    token: Path
    """What requests over TCP have to bring; kept over restarts, because settings of hosts name it."""


def places() -> Places:
    """Where they are for this user; makes nothing."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        folder = kept = Path(named).absolute()
    else:
        import platformdirs  # noqa: PLC0415  # only where a default place is needed

        # Not XDG_RUNTIME_DIR: it is not set in every session of a user, and they all have to find one process.
        kept = Path(platformdirs.user_data_dir("jev-engine", appauthor=False))
        folder = kept / "run"
    socket = folder / "engine.sock"
    if len(os.fsencode(socket)) > LONGEST_SOCKET_BYTES:
        folder = Path(tempfile.gettempdir()) / f"jev-engine-{os.getuid()}"
        socket = folder / "engine.sock"
    return Places(
        folder, socket, folder / "engine.json", folder / "engine.lock", folder / "engine.log", kept / "serve.token"
    )


def open_folder(folder: Path) -> None:
    """Make a folder for this user only; raises ServeError where it is another's, or open to others."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise ServeError(f"{folder}: is not a folder of this user; name another with {FOLDER_VARIABLE}")
        if stat.S_IMODE(found.st_mode) & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise ServeError(f"{folder}: {error.strerror or error}") from error


def wrong_files(at: Places) -> str | None:
    """What is wrong with the files of the process, by looking alone; None for nothing."""
    for folder in (at.folder, at.token.parent):
        held = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
        if held == folder and (not stat.S_ISDIR(folder.lstat().st_mode) or folder.lstat().st_uid != os.getuid()):
            return f"{folder}: is not a folder of this user; name another with {FOLDER_VARIABLE}"
        if not os.access(held, os.W_OK | os.X_OK):
            return f"{held}: cannot be written"
    try:
        if os.path.lexists(at.token):
            _checked_token(at)
    except ServeError as error:
        return str(error)
    return None


def planned_token() -> tuple[str, list[Change]]:
    """The token as it is, or a new one and the change that writes it: for plans, which write nothing themselves."""
    at = places()
    if at.token.exists():
        return read_token(at), []
    token = secrets.token_urlsafe(TOKEN_BYTES)
    return token, [Change(at.token, token.encode(), "the token of the local process", is_ours=True)]


def read_token(at: Places) -> str:
    """The token, made at first use; raises ServeError for a file that others can read."""
    open_folder(at.token.parent)
    try:
        handle = os.open(at.token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    except OSError as error:
        raise ServeError(f"{at.token}: {error.strerror or error}") from error
    else:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(TOKEN_BYTES))
    return _checked_token(at)


def _checked_token(at: Places) -> str:
    try:
        if stat.S_IMODE(at.token.stat().st_mode) & 0o077:
            raise ServeError(f"{at.token}: others can read it; run: chmod 600 {at.token}")
        token = at.token.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ServeError(f"{at.token}: cannot be read: {error}") from error
    if len(token) < TOKEN_BYTES:
        raise ServeError(f"{at.token}: holds no token; remove it, and it is made anew")
    return token
