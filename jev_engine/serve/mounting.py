"""The gateway inside the local process: made when the first agent asks for it, so that plugins do not wait for it."""

from __future__ import annotations

import logging
import math
import threading
import time
import tomllib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from anyio import to_thread
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from jev_engine.engine import ContextEngine
from jev_engine.errors import ConfigError
from jev_engine.settings import default_config_path, load_settings, open_engine
from jev_engine.store.expand import EXPAND_TOOL

__all__ = ["gateway_routes"]

logger = logging.getLogger("jev_engine")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PREFIX = "/gateway"
RETRY_SECONDS = 5.0
"""So long after a fault the user's engine is tried again: the settings may have been mended."""


class _Late:
    """Stands for the gateway until somebody asks.

    Where the user's engine cannot be made, requests go to their providers untouched, and it is tried again later.
    """

    def __init__(self, token: str, records: Path) -> None:
        self._token = token
        self._records = records
        self._made: Any = None
        self._left: list[Any] = []
        """Those that stood for it before, until their last answer has ended."""
        self._upstreams: dict[str, str] = {}
        self._is_whole = False
        self._tried = -math.inf
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, once the gateway is there."""
        if not self._is_whole:
            try:
                await to_thread.run_sync(self._make)
            except Exception as error:
                # Nobody can say where the request, and the key in it, is to go.
                logger.exception("no gateway can be made")
                why = f"jev-engine gateway: {type(error).__name__}: {error}"
                answer = JSONResponse({"type": "error", "error": {"type": "api_error", "message": why}}, 503)
                await answer(scope, receive, send)
                return
        await self._made(scope, receive, send)
        while self._left and not self._left[-1].health()["streams"]:
            await self._left.pop().aclose()

    def _make(self) -> None:
        from jev_engine.serve.gateway import DEFAULT_UPSTREAMS, Gateway, Records  # noqa: PLC0415  # brings httpx along

        with self._lock:
            if self._is_whole or (self._made is not None and time.monotonic() < self._tried + RETRY_SECONDS):
                return
            self._tried = time.monotonic()
            before = self._made
            try:
                settings = load_settings()
                engine = open_engine(settings, expand_tool=EXPAND_TOOL)
                upstreams = {**DEFAULT_UPSTREAMS, **settings.upstreams}
                self._made = Gateway(engine, upstreams, token=self._token, records=Records(self._records))
                self._is_whole = True
            except Exception as error:  # noqa: BLE001  # whatever it is, requests go on
                upstreams = _named_upstreams(DEFAULT_UPSTREAMS)
                if before is None or upstreams != self._upstreams:
                    self._made = Gateway(ContextEngine(), upstreams, token=self._token)
                    self._upstreams = upstreams
                _note(self._made, f"{type(error).__name__}: {error}")
            if before is not None and before is not self._made:
                self._made.brain.counts.update(before.brain.counts)
                self._left.append(before)


def _note(gateway: Any, why: str) -> None:
    if gateway.why_untouched != why:
        gateway.why_untouched = why
        logger.error("requests go on untouched, because no engine can be made: %s", why)


def _named_upstreams(defaults: Mapping[str, str]) -> dict[str, str]:
    """The providers that settings name which are wrong elsewhere; a name whose address is none is not known.

    Raises ConfigError where that cannot be told: no key goes to another provider than the user has named.
    """
    from jev_engine.serve.gateway.upstream import is_safe  # noqa: PLC0415  # as above

    file = default_config_path()
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}; it may name other providers") from error
    try:
        named = tomllib.loads(text).get("upstreams", {})
    except tomllib.TOMLDecodeError as error:
        if "upstreams" in text:
            raise ConfigError(f"{file}: is no TOML, and names providers: {error}") from error
        named = {}
    if not isinstance(named, dict):
        raise ConfigError(f"{file}: upstreams is no table of addresses", setting="upstreams")
    return {name: url for name, url in {**defaults, **named}.items() if isinstance(url, str) and is_safe(url)}


def gateway_routes(token: str, folder: Path) -> list[BaseRoute]:
    """The gateway's routes; what it has to remember over restarts is kept in `folder`."""
    return [Route(PREFIX + "/{rest:path}", _Late(token, folder / "gateway.jsonl"))]
