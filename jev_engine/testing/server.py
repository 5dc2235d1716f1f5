"""A decision server on loopback that answers as a script says: right, wrong, slowly, or not at all.

    with FaultServer({2: Reply(500)}) as server:      the second request gets a 500, all others are answered
        asker = JevAsker(server.url)

Threads and plain sockets, so that it serves asyncio, trio and threads alike and can break every rule of HTTP.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

__all__ = ["FaultServer", "Received", "Reply", "answer_half"]


class Reply(NamedTuple):
    """What one request gets."""

    status: int = 200
    body: bytes | None = None
    """None: the right answer."""
    headers: Mapping[str, str] = {}
    delay_seconds: float = 0.0
    """Waits so long before it says anything."""
    drip_seconds: float = 0.0
    """Sends the body one byte at a time, so far apart."""
    hang: bool = False
    """Says nothing until the client goes away."""
    reset: bool = False
    """Ends the connection without a word."""
    cut_bytes: int = 0
    """Announces so many bytes more than it sends."""


class Received(NamedTuple):
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    def json(self) -> Any:
        """The body as a value."""
        return json.loads(self.body)


Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def answer_half(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The right answer in form, and one that says nothing: about 0.5 for every question, a little apart."""
    answers = {
        name: {"type": "noul", "noul": 0.4 + (sum(name.encode()) % 20) / 100} for name in request.get("questions", {})
    }
    usage = {"input_tokens": len(json.dumps(request)) // 4, "output_tokens": 0}
    return {"model": request.get("model"), "answers": answers, "usage": usage}


class FaultServer:
    """Listens on loopback while the block lasts. `script` gives replies by number of the request, from 1 on."""

    def __init__(
        self,
        script: Mapping[int, Reply] | Callable[[int, Received], Reply | None] | None = None,
        *,
        answer: Answer = answer_half,
        certificate: str | None = None,
    ) -> None:
        self._script = script or {}
        self._answer = answer
        self._tls = _context(certificate) if certificate else None
        self.requests: list[Received] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        scheme = "https" if certificate else "http"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}/v1/systemone"

    def __enter__(self) -> Self:
        threading.Thread(target=self._listen, name="fault server", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._listener.close()
        with self._lock:
            for connection in self._open:
                connection.close()

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="fault connection", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            # Head and body are two writes: without this the second waits 40 ms for the first to be acknowledged.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with self._lock:
                self._open.add(connection)
            with connection, connection.makefile("rb") as stream:
                while (received := _read(stream)) is not None:
                    with self._lock:
                        self.requests.append(received)
                        number = len(self.requests)
                    planned = self._script(number, received) if callable(self._script) else self._script.get(number)
                    if not self._reply(connection, received, planned or Reply()):
                        return
        except (OSError, ValueError):
            return  # the client went away, or never finished the handshake
        finally:
            with self._lock:
                self._open.discard(connection)

    def _reply(self, connection: socket.socket, received: Received, reply: Reply) -> bool:
        """Send it; returns whether the connection may go on."""
        if reply.hang:
            connection.recv(1)
            return False
        if reply.delay_seconds:
            self._closing.wait(reply.delay_seconds)
        if reply.reset:
            # Closing with nothing left to linger sends a reset instead of an end.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        body = reply.body
        if body is None:
            body = json.dumps(self._answer(received.json())).encode() if reply.status == 200 else b"{}"
        headers = {"content-type": "application/json", "content-length": str(len(body) + reply.cut_bytes)}
        headers |= {name.lower(): value for name, value in reply.headers.items()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        connection.sendall(f"HTTP/1.1 {reply.status} scripted\r\n{lines}\r\n".encode("latin-1"))
        if reply.drip_seconds:
            for byte in body:
                connection.sendall(bytes((byte,)))
                if self._closing.wait(reply.drip_seconds):
                    return False
        else:
            connection.sendall(body)
        return not reply.cut_bytes


def _read(stream: Any) -> Received | None:
    first = stream.readline().decode("latin-1").split()
    if len(first) < 2:
        return None
    headers: dict[str, str] = {}
    while (line := stream.readline().decode("latin-1").strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = stream.read(int(headers.get("content-length", "0")))
    return Received(first[1], headers, body, time.monotonic())


def _context(certificate: str) -> ssl.SSLContext:
    """A server's context from the text of a key and certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.pem"
        path.write_text(certificate, encoding="ascii")
        context.load_cert_chain(path)
    return context
