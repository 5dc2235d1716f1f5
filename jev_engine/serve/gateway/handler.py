"""The HTTP of the gateway: a request comes in, goes on to its provider, and the answer is passed back as it comes.

An ASGI application. Requests that ask for no answer of a model, and whatever cannot be read, pass through untouched.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import anyio
import httpx

from jev_engine.engine import ContextEngine
from jev_engine.serve.gateway.answering import Answering
from jev_engine.serve.gateway.brain import Brain, Prepared
from jev_engine.serve.gateway.chat_form import CHAT
from jev_engine.serve.gateway.form import Form
from jev_engine.serve.gateway.messages_form import MESSAGES
from jev_engine.serve.gateway.records import Records
from jev_engine.serve.gateway.refusals import MAY_BE_OURS, second_try
from jev_engine.serve.gateway.stream import Tap
from jev_engine.serve.gateway.upstream import (
    Headers,
    Provider,
    Upstreams,
    close,
    decoder_for,
    forwarded,
    raw_parts,
    returned,
)

__all__ = ["DEFAULT_UPSTREAMS", "PREFIX", "Gateway"]

logger = logging.getLogger("jev_engine")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PREFIX = "/gateway"
DEFAULT_UPSTREAMS = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com"}
FORMS: tuple[Form, ...] = (MESSAGES, CHAT)
DEADLINE_SECONDS = 10.0
"""For a pass before a request goes on; the default deadline of a judge outside is as long."""
STALL_SECONDS = 600.0
"""Without a byte from provider or client for so long, a request has failed; the SDKs of both providers wait as long."""
MOST_STREAMS = 256
"""Requests in flight; one more is answered with 503."""
MOST_BODY_BYTES = 512 * 1024 * 1024
"""A larger body is not passed on: 413."""
MOST_READ_BYTES = 32 * 1024 * 1024
"""Larger bodies pass through unread; the Messages API takes no larger ones."""
MOST_HELD_BYTES = 256 * 1024 * 1024
"""All bodies held at once; what comes on top passes through unread."""


class _Gone(Exception):
    """The client has gone away."""


class _Stalled(Exception):
    """The client has begun a body and does not go on with it."""


class _TooLarge(Exception):
    """The body is larger than the gateway passes on."""


class Gateway:
    """Providers behind one address of this machine: `/gateway/TOKEN/UPSTREAM/…`.

    Raises ConfigError for an upstream that is neither https nor on this machine.
    """

    def __init__(
        self,
        engine: ContextEngine,
        upstreams: Mapping[str, str] | None = None,
        *,
        token: str,
        records: Records | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
        stall_seconds: float = STALL_SECONDS,
        most_streams: int = MOST_STREAMS,
        most_body_bytes: int = MOST_BODY_BYTES,
        most_read_bytes: int = MOST_READ_BYTES,
    ) -> None:
        self.brain = Brain(engine, records or Records(), deadline_seconds=deadline_seconds)
        self.upstreams = Upstreams(DEFAULT_UPSTREAMS if upstreams is None else upstreams, stall_seconds=stall_seconds)
        self.stall_seconds = stall_seconds
        self.why_untouched: str | None = None
        """Why every request passes through as it came, where the user's engine cannot be made."""
        self._token = token.encode()
        self._most_streams = most_streams
        self._most_body_bytes = most_body_bytes
        self._most_read_bytes = most_read_bytes
        self._streams = 0
        self._held_bytes = 0

    async def aclose(self) -> None:
        """Close the connections to providers."""
        await self.upstreams.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; never raises for what client or provider do."""
        parts = scope["path"].split("/", 4)
        token, name = (parts[2], parts[3]) if len(parts) > 3 else ("", "")
        if not self._token or not hmac.compare_digest(token.encode(), self._token):
            await _tell(send, 401, MESSAGES.error(401, "the address holds no token, or a wrong one"))
        elif name == "health":
            await _tell(send, 200, json.dumps(self.health()).encode())
        elif (provider := self.upstreams.get(name)) is None:
            names = ", ".join(self.upstreams.names())
            await _tell(send, 404, MESSAGES.error(404, f"no such upstream; there are {names}"))
        elif self._streams >= self._most_streams:
            await _tell(send, 503, MESSAGES.error(503, "too many requests at once"), retry=True)
        else:
            self._streams += 1
            try:
                await _Exchange(self, scope, receive, send, provider).run()
            finally:
                self._streams -= 1

    def health(self) -> dict[str, Any]:
        """Counts of what happened; no content."""
        return {
            "status": "ok" if self.why_untouched is None else "untouched",
            "why": self.why_untouched,
            "streams": self._streams,
            "conversations": len(self.brain.conversations),
            "counts": dict(self.brain.counts),
        }

    def may_hold(self, size: int, held: int = 0) -> bool:
        """Whether a body of so many bytes is read, of which so many are held already."""
        return size <= self._most_read_bytes and self._held_bytes - held + size <= MOST_HELD_BYTES

    def hold(self, size: int) -> None:
        """Count bytes of bodies that are held, or no longer are."""
        self._held_bytes += size

    @property
    def most_body_bytes(self) -> int:
        """The largest body that is passed on."""
        return self._most_body_bytes


class _Exchange:
    """One request and its answer."""

    def __init__(self, gateway: Gateway, scope: Scope, receive: Receive, send: Send, provider: Provider) -> None:
        self.gateway = gateway
        self.brain = gateway.brain
        self.provider = provider
        self.method: str = scope["method"]
        self.headers: Headers = list(scope["headers"])
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        parts = raw.split(b"?", 1)[0].split(b"/", 4)
        path = b"/" + (parts[4] if len(parts) > 4 else b"")
        self.path = path.decode("latin-1")
        query: bytes = scope.get("query_string", b"")
        self.target = self.path + (f"?{query.decode('latin-1')}" if query else "")
        self.has_started = False
        self._has_ended = False
        self._receive = receive
        self._send = send
        self._body_is_in = anyio.Event()
        self._size = self._held = 0

    async def run(self) -> None:
        """Serve it; ends early where the client goes away."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch, group.cancel_scope)
            try:
                await self._serve()
            except (httpx.TimeoutException, httpx.HTTPError) as error:
                await self._failed(error)
            except _TooLarge:
                await self._refuse(413, "the body is larger than the gateway passes on")
            except _Stalled:
                await self._refuse(408, "the body did not come to an end")
            except _Gone:
                self.brain.counts["clients gone"] += 1
            except Exception:
                self.brain.counts["faults"] += 1
                logger.exception("a request was not passed on")
                await self._refuse(500, "internal fault, please report it")
            group.cancel_scope.cancel()

    async def _watch(self, scope: anyio.CancelScope) -> None:
        await self._body_is_in.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._has_ended:
            self.brain.counts["clients gone"] += 1
            scope.cancel()

    async def _failed(self, error: Exception) -> None:
        """The provider could not be reached, or broke off; a stream that has begun breaks off as well."""
        self.brain.counts["upstream failures"] += 1
        kind = type(error).__name__
        if isinstance(error, httpx.TimeoutException):
            await self._refuse(504, f"the provider did not answer in time ({kind})")
        else:
            await self._refuse(502, f"the provider cannot be reached ({kind})")

    async def _refuse(self, status: int, why: str) -> None:
        if not self.has_started:
            self.has_started = True
            await _tell(self._send, status, (self._form() or MESSAGES).error(status, why))

    def _form(self) -> Form | None:
        """The form of what is asked, None for what passes through."""
        if self.method != "POST":
            return None
        return next((form for form in FORMS if form.is_turn(self.path) or form.is_count(self.path)), None)

    async def _serve(self) -> None:
        form = self._form()
        length = self._header(b"content-length")
        size = int(length) if length.isdigit() else 0
        if size > self.gateway.most_body_bytes:
            raise _TooLarge
        encoded = self._header(b"content-encoding") not in (b"", b"identity")
        if form is not None and self.gateway.why_untouched is not None:
            self.brain.counts["requests without an engine"] += 1
            form = None
        if form is None or encoded or not self.gateway.may_hold(size):
            await self._pass_through(b"", size if length.isdigit() else None)
            return
        try:
            raw, is_whole = await self._read()
            if not is_whole:
                await self._pass_through(raw, size if length.isdigit() else None)
                return
            given = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.headers}
            prepared = await self.brain.prepare(form, self.path, given, raw)
            await self._answer(prepared)
        finally:
            self.gateway.hold(-self._held)

    def _header(self, name: bytes) -> bytes:
        return next((value for each, value in self.headers if each.lower() == name), b"")

    async def _read(self) -> tuple[bytes, bool]:
        """The body, or as much of it as is held, and whether that is all."""
        parts: list[bytes] = []
        while True:
            data, is_last = await self._part()
            parts.append(data)
            self._held += len(data)
            self.gateway.hold(len(data))
            if is_last:
                return b"".join(parts), True
            if not self.gateway.may_hold(self._held, held=self._held):
                return b"".join(parts), False

    async def _part(self) -> tuple[bytes, bool]:
        with anyio.move_on_after(self.gateway.stall_seconds) as waiting:
            message = await self._receive()
        if waiting.cancelled_caught:
            raise _Stalled
        if message["type"] == "http.disconnect":
            raise _Gone
        data: bytes = message.get("body", b"")
        self._size += len(data)
        if self._size > self.gateway.most_body_bytes:
            raise _TooLarge
        is_last = not message.get("more_body", False)
        if is_last:
            self._body_is_in.set()
        return data, is_last

    async def _pass_through(self, begun: bytes, length: int | None) -> None:
        """Pass a request on as its body comes in."""

        async def body() -> AsyncIterator[bytes]:
            if begun:
                yield begun
            is_last = False
            while not is_last:
                data, is_last = await self._part()
                if data:
                    yield data

        has_body = length != 0 if length is not None else bool(self._header(b"transfer-encoding"))
        if not has_body and not begun:
            await self._part()
        content: bytes | AsyncIterator[bytes] = body() if has_body or begun else b""
        headers = forwarded(self.headers, length=length, must_read=False)
        self.brain.counts["passed through"] += 1
        response = await self.gateway.upstreams.send(self.provider, self.method, self.target, headers, content)
        await self._relay(response, None, None)

    async def send_on(self, content: bytes, *, must_read: bool) -> httpx.Response:
        """Send a body to the provider."""
        headers = forwarded(self.headers, length=len(content), must_read=must_read)
        return await self.gateway.upstreams.send(self.provider, self.method, self.target, headers, content)

    async def _answer(self, prepared: Prepared) -> None:
        is_turn = prepared.form.is_turn(self.path)
        response = await self.send_on(prepared.content, must_read=prepared.reply is not None)
        refusal: bytes | None = None
        if response.status_code in MAY_BE_OURS:
            prepared, response, refusal = await second_try(self, self.brain, prepared, response, is_turn=is_turn)
        if response.status_code == 200 and is_turn:
            self.brain.sent(prepared)
        if refusal is not None:
            await self._relay_whole(response, refusal)
        elif response.status_code == 200 and prepared.reply is not None and _is_readable(response):
            await Answering(self, self.brain, prepared, prepared.reply).run(response)
        else:
            await self._relay(response, prepared if is_turn else None, prepared.form)

    async def start(self, response: httpx.Response, *, changed: bool = False) -> None:
        """Begin the answer to the client."""
        self.has_started = True
        headers = returned(response.headers.raw, changed=changed)
        await self._send({"type": "http.response.start", "status": response.status_code, "headers": headers})

    async def write(self, data: bytes, *, is_last: bool = False) -> None:
        """Pass bytes on to the client."""
        self._has_ended = is_last
        with anyio.move_on_after(self.gateway.stall_seconds) as waiting:
            await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})
        if waiting.cancelled_caught:
            raise _Gone  # it is there, and reads nothing

    async def _relay(self, response: httpx.Response, prepared: Prepared | None, form: Form | None) -> None:
        """Pass a response back byte for byte."""
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        tap = Tap(form, is_stream=is_stream, decoder=decoder_for(response.headers.raw)) if form and prepared else None
        try:
            await self.start(response)
            async with raw_parts(response) as stream:
                async for data in stream:
                    if tap is not None:
                        tap.feed(data)
                    await self.write(data)
            if tap is not None and prepared is not None and response.status_code == 200:
                self.brain.used(prepared, tap.end())
            await self.write(b"", is_last=True)
        finally:
            await close(response)

    async def _relay_whole(self, response: httpx.Response, data: bytes) -> None:
        self.has_started = True
        headers = [
            (name, value) for name, value in returned(response.headers.raw, changed=True) if name != b"content-encoding"
        ]
        headers.append((b"content-length", str(len(data)).encode()))
        await self._send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        await self.write(data, is_last=True)


def _is_readable(response: httpx.Response) -> bool:
    """Whether the body comes as it is, which was asked for."""
    return bool(response.headers.get("content-encoding", "identity") == "identity")


async def _tell(send: Send, status: int, body: bytes, *, retry: bool = False) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if retry:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
