"""The gateway inside the local process: made when the first agent asks for it, so that plugins do not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from anyio import to_thread
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from jev_engine.errors import JevEngineError
from jev_engine.settings import load_settings, open_engine
from jev_engine.store.expand import EXPAND_TOOL

__all__ = ["gateway_routes"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PREFIX = "/gateway"


class _Late:
    """Stands for the gateway until somebody asks."""

    def __init__(self, token: str, records: Path) -> None:
        self._token = token
        self._records = records
        self._made: Any = None
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, once the gateway is there."""
        if self._made is None:
            try:
                await to_thread.run_sync(self._make)
            except JevEngineError as error:
                answer = JSONResponse({"type": "error", "error": {"type": "api_error", "message": str(error)}}, 503)
                await answer(scope, receive, send)
                return
        await self._made(scope, receive, send)

    def _make(self) -> None:
        from jev_engine.serve.gateway import DEFAULT_UPSTREAMS, Gateway, Records  # noqa: PLC0415  # brings httpx along

        with self._lock:
            if self._made is None:
                settings = load_settings()
                engine = open_engine(settings, expand_tool=EXPAND_TOOL)
                upstreams = {**DEFAULT_UPSTREAMS, **settings.upstreams}
                self._made = Gateway(engine, upstreams, token=self._token, records=Records(self._records))


def gateway_routes(token: str, folder: Path) -> list[BaseRoute]:
    """The gateway's routes; what it has to remember over restarts is kept in `folder`."""
    return [Route(PREFIX + "/{rest:path}", _Late(token, folder / "gateway.jsonl"))]
