"""The life of the local process: started on demand, one per user, gone when nobody needs it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import anyio

from jev_engine import __version__
from jev_engine.errors import ServeError
from jev_engine.serve.activity import Activity
from jev_engine.serve.client import ask
from jev_engine.serve.places import Places, open_folder, places, read_token

__all__ = [
    "DEFAULT_PORT",
    "IDLE_SECONDS",
    "PORT_VARIABLE",
    "Running",
    "default_port",
    "ensure",
    "running",
    "serve",
    "stop",
]

DEFAULT_PORT = 47180
"""Fixed, because settings of hosts name it; where it is taken by somebody else, any free one is used."""
PORT_VARIABLE = "JEV_ENGINE_PORT"
"""Names another one, for this user's process and for the settings that name it."""
IDLE_SECONDS = 1_800.0
"""So long without a request, and the process ends; 0 for never."""
START_SECONDS = 15.0
STOP_SECONDS = 10.0
PROBE_SECONDS = 2.0
BACKLOG = 128
MOST_PORT = 65_535
KEEP_ALIVE_SECONDS = 75
"""Longer than clients keep an idle connection (5 to 60 seconds), so that none is closed under a request."""
ERROR = "Error:"
"""How a command of ours begins to say why it ended."""


def default_port() -> int:
    """The port that is tried first; raises ServeError where the environment names none."""
    named = os.environ.get(PORT_VARIABLE)
    if not named:
        return DEFAULT_PORT
    if not named.isdigit() or int(named) > MOST_PORT:
        raise ServeError(f"{PORT_VARIABLE} = {named!r}: a port from 0 to {MOST_PORT:,} is needed")
    return int(named)


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
        return _kept(at, found, idle_seconds)
    open_folder(at.folder)
    with _alone(at):
        found = running(at)
        if found is not None and found.version == __version__:
            return _kept(at, found, idle_seconds)
        if found is not None:
            stop(at)
        return _start(at, port, idle_seconds)


def _kept(at: Places, found: Running, idle_seconds: float | None) -> Running:
    """The process that runs already, told how long it is wanted."""
    if idle_seconds is not None:
        ask(at.socket, "/keep", {"seconds": idle_seconds}, timeout_seconds=PROBE_SECONDS)
    return found


@contextmanager
def _alone(at: Places) -> Iterator[None]:
    """One caller at a time starts a process: the others wait, and find it running."""
    with os.fdopen(os.open(at.folder / "engine.start", os.O_RDWR | os.O_CREAT, 0o600), "r+b") as handle:
        ends = time.monotonic() + START_SECONDS
        while time.monotonic() < ends:
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.02)
        yield


def _start(at: Places, port: int | None, idle_seconds: float | None) -> Running:
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
    ends = time.monotonic() + STOP_SECONDS
    while time.monotonic() < ends:
        # Asked again: of several that were started at once, another one may have taken over.
        with suppress(ServeError):
            ask(at.socket, "/quit", {}, timeout_seconds=PROBE_SECONDS)
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
    # With the protocol named, asyncio turns Nagle's algorithm off: else each event of a stream waits up to 40 ms.
    web = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    web.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        web.bind(("127.0.0.1", default_port() if port is None else port))
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
        from jev_engine.serve.desk import Desk  # noqa: PLC0415
        from jev_engine.serve.hooks import HookDesk  # noqa: PLC0415
        from jev_engine.serve.mounting import gateway_routes  # noqa: PLC0415
    except ImportError as error:
        raise ServeError(f"this needs the extra `serve` ({error.name}): pip install 'jev-engine[serve]'") from error
    at = places()
    open_folder(at.folder)
    lock = _claim_in_time(at)
    if lock is None:
        return False
    sockets = []
    desk = Desk()
    hooks = HookDesk(desk)
    try:
        token = read_token(at)
        sockets = _listen(at, port)
        bound = int(sockets[1].getsockname()[1])
        activity = Activity(idle_seconds)
        gateway = gateway_routes(token, at.token.parent)
        app = make_app(token=token, port=bound, activity=activity, desk=desk, hooks=hooks, extra_routes=gateway)
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
        anyio.run(_until_idle, server, sockets, activity)
    finally:
        hooks.wait()
        desk.close()
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


async def _until_idle(server: Any, sockets: list[socket.socket], activity: Activity) -> None:
    def end() -> None:
        server.should_exit = True

    async def watch() -> None:
        # Nothing happens: that is what is waited for.
        while activity.idle_seconds() < activity.patience_seconds:  # noqa: ASYNC110
            await anyio.sleep(min(1.0, max(0.05, activity.patience_seconds / 4)))
        end()

    activity.quit = end
    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await server.serve(sockets=sockets)
        group.cancel_scope.cancel()
