"""A provider that misbehaves as the query says: `?fault=stall`, and how often each was asked."""

from __future__ import annotations

import asyncio
import socket
import threading
import zlib
from collections import Counter
from types import TracebackType
from typing import Self

__all__ = ["EVENT", "HostileProvider"]

EVENT = b'event: ping\ndata: {"type": "ping"}\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class HostileProvider:
    """Listens on loopback while the block lasts, in one thread for any number of connections."""

    def __init__(self, *, events: int = 20, pause_seconds: float = 0.0, pad_bytes: int = 0) -> None:
        self.asked: Counter[str] = Counter()
        self.bytes_received = 0
        self.digests: list[int] = []
        self.open = 0
        self._events = events
        self._event = EVENT + (b": " + b"x" * pad_bytes + b"\n\n" if pad_bytes else b"")
        self._pause_seconds = pause_seconds
        self._loop = asyncio.new_event_loop()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
        self._listener = listener
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._stopped: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._ready = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(5)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._stopped is not None
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(5)
        self._loop.close()

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        server = await asyncio.start_server(self._connection, sock=self._listener, backlog=200)
        self._ready.set()
        await self._stopped.wait()
        server.close()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        fault = first.split(" ")[1].partition("fault=")[2] or "none"
        self.asked[fault] += 1
        await self._body(reader, headers)
        if fault == "reset":
            _reset(writer)
            return False
        if fault == "stall":
            return bool(await reader.read(1))
        if fault in ("refuse", "broken"):
            status = b"500 Internal Server Error" if fault == "broken" else b"400 Bad Request"
            writer.write(b"HTTP/1.1 %s\r\ncontent-length: 2\r\n\r\n{}" % status)
            return True
        writer.write(HEAD)
        for number in range(self._events):
            writer.write(_chunk(self._event))
            await writer.drain()
            await asyncio.sleep(self._pause_seconds)
            if number == self._events // 2:
                if fault == "stall-midway":
                    return bool(await reader.read(1))  # until the other side gives up
                if fault == "reset-midway":
                    _reset(writer)
                    return False
                if fault == "die-midway":
                    return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _body(self, reader: asyncio.StreamReader, headers: dict[str, str]) -> None:
        digest = 0
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await reader.readline(), 16):
                digest = zlib.crc32(await reader.readexactly(size), digest)
                self.bytes_received += size
                await reader.readexactly(2)
            await reader.readline()
        else:
            left = int(headers.get("content-length", "0"))
            while left:
                data = await reader.read(min(left, 1 << 16))
                if not data:
                    raise asyncio.IncompleteReadError(b"", left)
                digest = zlib.crc32(data, digest)
                left -= len(data)
                self.bytes_received += len(data)
        self.digests.append(digest)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close so that the other side gets a reset, not an end."""
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()
