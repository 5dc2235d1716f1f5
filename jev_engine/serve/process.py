"""The life of the local process: started on demand, one per user, gone when nobody needs it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, NamedTuple

import anyio

from jev_engine import __version__
from jev_engine.errors import ServeError
from jev_engine.serve.activity import Activity
from jev_engine.serve.client import ask
from jev_engine.serve.places import Places, open_folder, places, read_token, wrong_files
from jev_engine.serve.versions import is_older

__all__ = [
    "DEFAULT_PORT",
    "IDLE_SECONDS",
    "PORT_VARIABLE",
    "Running",
    "default_port",
    "elsewhere",
    "ensure",
    "obstacle",
    "running",
    "serve",
    "stop",
]

DEFAULT_PORT = 47180
"""Fixed, because settings of hosts name it; where another program has it, any free one is used, and that is said."""
PORT_VARIABLE = "JEV_ENGINE_PORT"
"""Names another one, for this user's process and for the settings that name it."""
IDLE_SECONDS = 1_800.0
"""So long without a request, and the process ends; 0 for never."""
START_SECONDS = 15.0
"""So long a process that was started may take until it answers."""
GRACE_SECONDS = 5
"""For requests in flight, when the process is told to end."""
STOP_SECONDS = 25.0
"""For all of it: the grace, hooks that wait (5), trails of eight engines (2), and as much again for a slow machine."""
PROBE_SECONDS = 2.0
"""For the answer to a question about the process itself."""
BACKLOG = 128
"""Connections that wait to be taken."""
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
    patience_seconds: float | None = None
    """It ends after so long without a request; 0: never; None for one that does not say."""
    in_flight: int = 0
    """Requests that it is answering."""
    wanted_port: int | None = None
    """The one it tried first; 0 for any; None for one that does not say."""


def elsewhere(port: int, wanted: int | None = None) -> str | None:
    """What its user should know of a process on `port`; None where it is the wanted one, or any will do.

    Raises ServeError where the environment names no port.
    """
    named = default_port() if wanted is None else wanted
    if named in (0, port):
        return None
    return (
        f"it listens on port {port}, not on {named}: an address with {named} reaches whatever program has that port, "
        "and gives it key and token"
    )


def obstacle() -> str | None:
    """Why the process could not be started, by looking alone: nothing is started, ended or written."""
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        return f"this needs the extra `serve` ({', '.join(missing)}): pip install 'jev-engine[serve]'"
    try:
        default_port()
    except ServeError as error:
        return str(error)
    return wrong_files(places())


def running(at: Places | None = None) -> Running | None:
    """The process of this user, if one answers. It only looks."""
    at = places() if at is None else at
    if not at.socket.exists():
        return None
    try:
        told = ask(at.socket, "/health", timeout_seconds=PROBE_SECONDS)
        return Running(**{name: told[name] for name in Running._fields if name in told})
    except (ServeError, TypeError):
        return None


def ensure(*, port: int | None = None, idle_seconds: float | None = None) -> Running:
    """The process of this user, started where there is none.

    One of an older version is replaced, by one that listens where it did and is as patient, unless it is answering
    somebody. One of a newer version stays: two installations do not replace each other for ever. Raises ServeError
    where it does not come up.
    """
    at = places()
    found = running(at)
    if found is not None and not is_older(found.version, __version__):
        return _kept(at, found, idle_seconds)
    open_folder(at.folder)
    with _alone(at):
        found = running(at)
        if found is None:
            return _start(at, port, idle_seconds)
        if not is_older(found.version, __version__):
            return _kept(at, found, idle_seconds)
        if not stop(at, even_busy=False) and running(at) is not None:
            return _kept(at, found, idle_seconds)  # busy: a later call replaces it
        return _start(at, port, _more_patient(idle_seconds, found.patience_seconds), before=found.port)


def _more_patient(one: float | None, other: float | None) -> float | None:
    """The longer of two, 0 being for ever and None for no wish."""
    given = [each for each in (one, other) if each is not None]
    return None if not given else 0.0 if 0 in given else max(given)


def _kept(at: Places, found: Running, idle_seconds: float | None) -> Running:
    """The process that runs already, told how long it is wanted."""
    if idle_seconds is not None:
        ask(at.socket, "/keep", {"seconds": idle_seconds}, timeout_seconds=PROBE_SECONDS)
    return found


@contextmanager
def _alone(at: Places) -> Iterator[None]:
    """One caller at a time starts a process: the others wait, and find it running."""
    with os.fdopen(os.open(at.folder / "engine.start", os.O_RDWR | os.O_CREAT, 0o600), "r+b") as handle:
        ends = time.monotonic() + START_SECONDS + STOP_SECONDS
        while time.monotonic() < ends:
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.02)
        yield


def _start(at: Places, port: int | None, idle_seconds: float | None, *, before: int | None = None) -> Running:
    """Start one; where no port is wanted it tries the one of the process before it first."""
    from jev_engine.serve.environment import known_environment  # noqa: PLC0415  # costs 100 ms

    environment = known_environment(os.environ)
    if before is not None:
        environment[PORT_VARIABLE] = str(before)
    argv = [sys.executable, "-m", "jev_engine", "serve"]
    argv += ["--port", str(port)] if port is not None else []
    argv += ["--idle", str(idle_seconds)] if idle_seconds is not None else []
    with os.fdopen(os.open(at.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
        # The shell ends at once, so that the process is nobody's child: no caller has to wait for its end.
        subprocess.run(  # noqa: S603  # this interpreter, this package
            ["/bin/sh", "-c", '"$@" &', "sh", *argv],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/", check=False,
            env=environment,
        )  # fmt: skip
    # One that is about to end may hold its place for a while yet.
    ends = time.monotonic() + STOP_SECONDS + START_SECONDS
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


def stop(at: Places | None = None, *, even_busy: bool = True) -> bool:
    """End the process of this user; whether there was one, and none where it is busy and should go on then.

    Raises ServeError where it does not end.
    """
    at = places() if at is None else at
    if running(at) is None:
        return False
    is_told = False
    ends = time.monotonic() + STOP_SECONDS
    while time.monotonic() < ends:
        # Asked again: of several that were started at once, another one may have taken over.
        try:
            ask(at.socket, "/quit", {"even_busy": even_busy}, timeout_seconds=PROBE_SECONDS)
            is_told = True
        except ServeError:
            if not even_busy and not is_told and running(at) is not None:
                return False
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


def serve(
    *, port: int | None = None, idle_seconds: float = IDLE_SECONDS, warn: Callable[[str], None] = lambda _: None
) -> bool:
    """Be the process of this user until nobody needs it; False where another one is it already.

    `warn` is given what its user should know at the start.
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
    # Whatever one step of ending raises, the others are done: the last one lets the next process begin.
    with ExitStack() as ending:
        ending.callback(lock.close)
        ending.callback(at.state.unlink, missing_ok=True)
        ending.callback(at.socket.unlink, missing_ok=True)
        desk = Desk()
        ending.callback(desk.close)
        hooks = HookDesk(desk)
        ending.callback(hooks.wait)
        token = read_token(at)
        sockets = _listen(at, port)
        for each in sockets:
            ending.callback(each.close)
        bound = int(sockets[1].getsockname()[1])
        wanted = default_port() if port is None else port
        why = elsewhere(bound, wanted)
        if why is not None:
            warn(f"Warning: {why}.")
        activity = Activity(idle_seconds)
        gateway = gateway_routes(token, at.token.parent)
        app = make_app(
            token=token, port=bound, wanted_port=wanted, activity=activity, desk=desk, hooks=hooks, extra_routes=gateway
        )
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=GRACE_SECONDS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            server_header=False,
            date_header=False,
        )
        server = uvicorn.Server(config)
        _tell(at, bound)
        anyio.run(_until_idle, server, sockets, activity)
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
