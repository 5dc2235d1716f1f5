"""The life of the local process: started on demand, one per user, gone when nobody needs it."""

from __future__ import annotations

import fcntl
import json
import math
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import anyio

from jev_engine import __version__
from jev_engine.errors import ServeError
from jev_engine.serve.activity import Activity
from jev_engine.serve.client import ask
from jev_engine.serve.places import Places, open_folder, places, read_token

__all__ = ["DEFAULT_PORT", "IDLE_SECONDS", "Running", "ensure", "running", "serve", "stop"]

DEFAULT_PORT = 47180
"""Fixed, because settings of hosts name it; where it is taken by somebody else, any free one is used."""
IDLE_SECONDS = 1_800.0
"""So long without a request, and the process ends; 0 for never."""
START_SECONDS = 15.0
STOP_SECONDS = 10.0
PROBE_SECONDS = 2.0
BACKLOG = 128
KEEP_ALIVE_SECONDS = 75
"""Longer than clients keep an idle connection (5 to 60 seconds), so that none is closed under a request."""
ERROR = "Error:"
"""How a command of ours begins to say why it ended."""


class Running(NamedTuple):
    """A process that answers."""

    pid: int
    port: int
    version: str
    sessions: int
    uptime_seconds: float


def running(at: Places | None = None) -> Running | None:
    """The process of this user, if one answers."""
    at = places() if at is None else at
    if not at.socket.exists():
        return None
    try:
        told = ask(at.socket, "/health", timeout_seconds=PROBE_SECONDS)
        return Running(*(told[name] for name in Running._fields))
    except (ServeError, KeyError, TypeError):
        return None


def ensure(*, port: int | None = None, idle_seconds: float | None = None) -> Running:
    """The process of this user, started where there is none; one of another version is replaced.

    Raises ServeError where it does not come up.
    """
    at = places()
    found = running(at)
    if found is not None and found.version == __version__:
        return found
    if found is not None:
        stop(at)
    open_folder(at.folder)
    argv = [sys.executable, "-m", "jev_engine", "serve"]
    argv += ["--port", str(port)] if port is not None else []
    argv += ["--idle", str(idle_seconds)] if idle_seconds is not None else []
    with os.fdopen(os.open(at.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
        # The shell ends at once, so that the process is nobody's child: no caller has to wait for its end.
        subprocess.run(  # noqa: S603  # this interpreter, this package
            ["/bin/sh", "-c", '"$@" &', "sh", *argv],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/", check=False,
        )  # fmt: skip
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends:
        found = running(at)
        if found is not None:
            return found
        if ERROR in _said(at):
            break
        time.sleep(0.02)
    said = _said(at).strip().splitlines()
    raise ServeError(f"the local process did not come up: {said[-1] if said else 'it said nothing'} (log: {at.log})")


def _said(at: Places) -> str:
    return at.log.read_text(encoding="utf-8", errors="replace")


def stop(at: Places | None = None) -> bool:
    """End the process of this user; whether there was one. Raises ServeError where it does not end."""
    at = places() if at is None else at
    if running(at) is None:
        return False
    with suppress(ServeError):
        ask(at.socket, "/quit", {}, timeout_seconds=PROBE_SECONDS)
    ends = time.monotonic() + STOP_SECONDS
    while time.monotonic() < ends:
        lock = _claim(at)
        if lock is not None:
            lock.close()
            return True
        time.sleep(0.02)
    raise ServeError("the local process does not end")


def _claim(at: Places) -> IO[bytes] | None:
    """The lock that says who is the one process; None where another holds it."""
    handle = os.fdopen(os.open(at.lock, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        return None
    return handle


def _claim_in_time(at: Places) -> IO[bytes] | None:
    """The lock, once a process that is about to end has let go of it; None where one answers."""
    ends = time.monotonic() + STOP_SECONDS
    while time.monotonic() < ends:
        lock = _claim(at)
        if lock is not None or running(at) is not None:
            return lock
        time.sleep(0.05)
    return None


def _listen(at: Places, port: int | None) -> list[socket.socket]:
    """The socket for this user's programs, and the port on loopback for those that speak TCP only."""
    at.socket.unlink(missing_ok=True)  # left by a process that was killed: the lock says that nobody answers there
    local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        local.bind(str(at.socket))
    finally:
        os.umask(before)
    local.listen(BACKLOG)
    web = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    web.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        web.bind(("127.0.0.1", DEFAULT_PORT if port is None else port))
    except OSError as error:
        if port is not None:
            local.close()
            raise ServeError(f"port {port} of 127.0.0.1: {error.strerror}; choose another with --port") from error
        web.bind(("127.0.0.1", 0))
    web.listen(BACKLOG)
    return [local, web]


def serve(*, port: int | None = None, idle_seconds: float = IDLE_SECONDS) -> bool:
    """Be the process of this user until nobody needs it; False where another one is it already.

    Raises ServeError where the extra `serve` is missing, or folder or port cannot be used.
    """
    try:
        import uvicorn  # noqa: PLC0415  # the extra `serve`

        from jev_engine.serve.app import make_app  # noqa: PLC0415
        from jev_engine.serve.mounting import gateway_routes  # noqa: PLC0415
    except ImportError as error:
        raise ServeError(f"this needs the extra `serve` ({error.name}): pip install 'jev-engine[serve]'") from error
    at = places()
    open_folder(at.folder)
    lock = _claim_in_time(at)
    if lock is None:
        return False
    sockets = []
    try:
        token = read_token(at)
        sockets = _listen(at, port)
        bound = int(sockets[1].getsockname()[1])
        activity = Activity()
        gateway = gateway_routes(token, at.token.parent)
        app = make_app(token=token, port=bound, activity=activity, extra_routes=gateway)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=5,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            server_header=False,
            date_header=False,
        )
        server = uvicorn.Server(config)
        _tell(at, bound)
        anyio.run(_until_idle, server, sockets, activity, idle_seconds)
    finally:
        for each in sockets:
            each.close()
        at.socket.unlink(missing_ok=True)
        at.state.unlink(missing_ok=True)
        lock.close()
    return True


def _tell(at: Places, port: int) -> None:
    told = {"pid": os.getpid(), "port": port, "socket": str(at.socket), "version": __version__}
    part = Path(f"{at.state}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(told, file)
    part.replace(at.state)


async def _until_idle(server: Any, sockets: list[socket.socket], activity: Activity, idle_seconds: float) -> None:
    def end() -> None:
        server.should_exit = True

    async def watch() -> None:
        patience = idle_seconds or math.inf
        while activity.idle_seconds() < patience:  # noqa: ASYNC110  # nothing happens: that is what is waited for
            await anyio.sleep(min(1.0, max(0.05, patience / 4)))
        end()

    activity.quit = end
    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await server.serve(sockets=sockets)
        group.cancel_scope.cancel()
