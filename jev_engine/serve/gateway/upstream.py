"""The providers a gateway may speak to, and what of a request's headers goes with it."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import anyio
import httpx
from anyio import to_thread

from jev_engine.errors import ConfigError

__all__ = ["Provider", "Upstreams", "close", "decoder_for", "forwarded", "is_safe", "raw_parts", "returned"]

LOOPBACK = ("127.0.0.1", "::1", "localhost")
# For connecting to a provider.
CONNECT_SECONDS = 15.0
# RFC 9110 section 7.6.1, and what an intermediary has to set anew.
HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
    b"trailer", b"transfer-encoding", b"upgrade",
})  # fmt: skip
NOT_FORWARDED = HOP_BY_HOP | {b"host", b"content-length", b"expect", b"accept-encoding"}
READABLE = (b"gzip", b"identity")

Headers = list[tuple[bytes, bytes]]


class Provider(NamedTuple):
    """One provider."""

    name: str
    """As it stands in the path of the gateway."""
    url: str
    """Where it is; paths are added at its end."""


class Upstreams:
    """The providers that may be asked, and the connections to them. Everything else is unreachable."""

    def __init__(self, urls: Mapping[str, str], *, stall_seconds: float) -> None:
        self._providers = {name: Provider(name, _checked(name, url)) for name, url in urls.items()}
        self._stall_seconds = stall_seconds
        self._client: httpx.AsyncClient | None = None

    def get(self, name: str) -> Provider | None:
        """The provider of that name."""
        return self._providers.get(name)

    def names(self) -> list[str]:
        """All names."""
        return sorted(self._providers)

    async def send(
        self, provider: Provider, method: str, target: str, headers: Headers, content: bytes | AsyncIterator[bytes]
    ) -> httpx.Response:
        """Send a request; the response comes back as soon as its headers are there. Raises httpx.HTTPError."""
        client = self._client
        if client is None:
            # Reading certificates takes 30 ms, which no stream should wait for; of two made at once one is kept.
            client = await to_thread.run_sync(self._make_client)
            client = self._client = self._client or client
        request = httpx.Request(
            method,
            provider.url.rstrip("/") + target,
            headers=headers,
            content=content,
            extensions={"timeout": client.timeout.as_dict()},
        )
        return await client.send(request, stream=True)

    def _make_client(self) -> httpx.AsyncClient:
        timeout = httpx.Timeout(self._stall_seconds, connect=CONNECT_SECONDS, pool=None)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
        # The user's proxy settings count, as they would without us, but never for this machine.
        direct = {f"all://{name}": None for name in ("127.0.0.1", "localhost", "[::1]")}
        return httpx.AsyncClient(timeout=timeout, limits=limits, follow_redirects=False, mounts=direct)

    async def aclose(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None


def raw_parts(response: httpx.Response) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
    """The body as it comes, byte for byte; what reads it is ended with the block."""
    return aclosing(cast("AsyncGenerator[bytes]", response.aiter_raw()))


async def close(response: httpx.Response) -> None:
    """Close a response, cancelled or not."""
    with anyio.CancelScope(shield=True), suppress(httpx.HTTPError, RuntimeError):
        await response.aclose()


def is_safe(url: str) -> bool:
    """Whether keys may be sent to an address: over https, or to this machine."""
    try:
        parts = urlsplit(url)
        is_private = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    except ValueError:
        return False
    return bool(is_private and parts.hostname and not parts.query and not parts.fragment and "@" not in parts.netloc)


def _checked(name: str, url: str) -> str:
    if is_safe(url):
        return url
    raise ConfigError(f"upstream {name!r}: {url!r} is no https address, nor one of this machine", setting="upstreams")


def _named_in_connection(headers: Iterable[tuple[bytes, bytes]]) -> set[bytes]:
    values = b",".join(value for name, value in headers if name.lower() == b"connection")
    return {part.strip().lower() for part in values.split(b",")}


def forwarded(headers: Headers, *, length: int | None, must_read: bool) -> Headers:
    """The headers that go to the provider. `must_read`: the answer may have to be changed, so it comes as it is.

    Of encodings those stay that the gateway can look into.
    """
    dropped = NOT_FORWARDED | _named_in_connection(headers)
    out = [(name, value) for name, value in headers if name.lower() not in dropped]
    wanted = b",".join(value for name, value in headers if name.lower() == b"accept-encoding").lower()
    known = [] if must_read else [each for each in READABLE[:1] if each in wanted]
    out.append((b"accept-encoding", b", ".join(known) or b"identity"))
    if length is not None:
        out.append((b"content-length", str(length).encode()))
    return out


def returned(headers: Headers, *, changed: bool = False) -> Headers:
    """The headers that go back to the client; a body that may change has no length known before."""
    dropped = HOP_BY_HOP | _named_in_connection(headers)
    if changed:
        dropped = dropped | {b"content-length"}
    return [(name.lower(), value) for name, value in headers if name.lower() not in dropped]


def decoder_for(headers: Headers) -> zlib._Decompress | None:
    """What makes the body of a response readable; None where it is readable, or where nothing can."""
    encoding = next((value.strip().lower() for name, value in headers if name.lower() == b"content-encoding"), b"")
    return zlib.decompressobj(wbits=31) if encoding == b"gzip" else None
