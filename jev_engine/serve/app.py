"""The HTTP of the local process: who may ask, what is asked, and how large it may be.

The socket is for this user's programs: the file's mode is its lock. Over TCP every request needs the token, has to be
meant for this machine, and may not come from a web page. The gateway's routes bring their own token, in their path.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import partial
from typing import Any

from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from jev_engine import __version__
from jev_engine.serve.activity import Activity
from jev_engine.serve.desk import Desk
from jev_engine.serve.hooks import HookDesk

__all__ = ["LARGEST_BODY_BYTES", "OPEN_PREFIXES", "Guard", "make_app"]

logger = logging.getLogger("jev_engine")

LARGEST_BODY_BYTES = 64 * 1024 * 1024
"""A plugin sends at most 4 MiB of characters over HTTP; the rest is room for other hosts."""
OPEN_PREFIXES = ("/gateway/",)
"""Routes that check a token of their own, because their clients can set nothing but an address."""
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """Refuses what is not meant for this process, before anything reads it."""

    def __init__(self, app: App, *, token: str, port: int, activity: Activity) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = {f"{name}:{port}".encode() for name in LOOPBACK_NAMES}
        self._activity = activity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            return
        refused = self._refused(scope)
        if refused is not None:
            status, why = refused
            await JSONResponse({"error": why}, status)(scope, receive, send)
            return
        # Probes are no sign that anybody needs the process.
        counts = scope["path"] != "/health"
        if counts:
            self._activity.begin()
        try:
            await self._app(scope, receive, send)
        finally:
            if counts:
                self._activity.end()

    def _refused(self, scope: Scope) -> tuple[int, str] | None:
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        is_open = scope["path"].startswith(OPEN_PREFIXES)
        if not is_open and (not length.isdigit() or int(length) > LARGEST_BODY_BYTES):
            return 413, "the body is too large"
        if scope.get("client") is None:
            return None  # the socket has no address: whoever reached it is this user
        if headers.get(b"host", b"").lower() not in self._hosts:
            return 403, "the request is meant for another host"
        if b"origin" in headers:
            return 403, "web pages may not ask"
        if is_open:
            return None
        given = headers.get(b"authorization", b"").removeprefix(b"Bearer ")
        if not secrets.compare_digest(given, self._token):
            return 401, "the token is missing or wrong"
        return None


async def _body(request: Request) -> Any:
    """The body as JSON; raises ValueError for anything else, and for one that is too large."""
    return (await _sized_body(request))[0]


async def _sized_body(request: Request) -> tuple[Any, int]:
    """The same, and how many bytes it had."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST_BODY_BYTES:
            raise ValueError("the body is too large")
        parts.append(part)
    given = await to_thread.run_sync(json.loads, b"".join(parts))
    if not isinstance(given, dict):
        raise ValueError("the body is no object")  # noqa: TRY004  # as any other wrong body
    return given, size


def _answering(work: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that does its work in a thread of its own: one pass never holds up another session."""

    async def endpoint(request: Request) -> Response:
        try:
            given = await _body(request)
        except (ValueError, RecursionError) as error:
            return JSONResponse({"error": f"the body cannot be read: {error}"}, 400)
        try:
            made = await to_thread.run_sync(partial(_encoded, work, given))
        except Exception as error:
            logger.exception("a request of a host failed")
            return JSONResponse({"error": f"{type(error).__name__}: {error}"}, 500)
        return Response(made, media_type="application/json")

    return endpoint


def _encoded(work: Callable[[dict[str, Any]], dict[str, Any]], given: dict[str, Any]) -> bytes:
    # Half a surrogate pair cannot be UTF-8; as an escape it comes through.
    return json.dumps(work(given)).encode()


def make_app(
    *,
    token: str,
    port: int,
    wanted_port: int | None = None,
    activity: Activity,
    desk: Desk | None = None,
    hooks: HookDesk | None = None,
    extra_routes: Sequence[BaseRoute] = (),
) -> App:
    """The whole application; `extra_routes` are the gateway's."""
    desk = Desk() if desk is None else desk
    hooks = HookDesk(desk) if hooks is None else hooks

    async def health(_: Request) -> Response:
        uptime = time.monotonic() - activity.started
        told = {"pid": os.getpid(), "port": port, "version": __version__, "uptime_seconds": uptime}
        kept = {"patience_seconds": activity.told_patience, "in_flight": activity.in_flight}
        return JSONResponse({**told, **kept, "wanted_port": wanted_port, "sessions": len(desk.pool)})

    async def quit_now(request: Request) -> Response:
        try:
            even_busy = (await _body(request)).get("even_busy", True)
        except (ValueError, RecursionError):
            even_busy = True
        if not even_busy and activity.in_flight > 1:  # this request is one of them
            return JSONResponse({"error": "requests are in flight"}, 409)
        activity.quit()
        return JSONResponse({})

    async def keep(request: Request) -> Response:
        try:
            activity.keep(float((await _body(request))["seconds"]))
        except (ValueError, RecursionError, KeyError, TypeError):
            return JSONResponse({"error": "seconds are missing"}, 400)
        return JSONResponse({})

    async def hook(request: Request) -> Response:
        # A hook never holds its host up: it is taken in at once, and an odd one is no reason to complain.
        try:
            hooks.take(*await _sized_body(request))
        except (ValueError, RecursionError):
            logger.debug("a hook sent something that is no payload")
        return JSONResponse({})

    routes: list[BaseRoute] = [
        Route("/health", health),
        Route("/quit", quit_now, methods=["POST"]),
        Route("/keep", keep, methods=["POST"]),
        Route("/hooks", hook, methods=["POST"]),
        *(Route(path, _answering(work), methods=["POST"]) for path, work in desk.routes().items()),
        *extra_routes,
    ]
    return Guard(Starlette(routes=routes), token=token, port=port, activity=activity)
