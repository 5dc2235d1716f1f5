"""The command behind a hook: hand the payload to the local process if it runs, and end.

    python -I -S relay.py SOCKET [PROGRAM] < payload

A hook must never hold its host up or fail it: this ends with 0 whatever happens, and says nothing. Where no process
answers, one event less is in the trail, unless PROGRAM is given: then a process of its own starts it and hands the
payload over when it answers. It runs before and after every call of a tool, so it imports nothing but what starting an
interpreter imports, and the C half of `socket`: that is half of the time it takes.
"""

from __future__ import annotations

import os
import sys
import time
from _socket import AF_UNIX, SOCK_STREAM, socket
from io import BufferedIOBase

__all__ = ["relay"]

# For each step of handing a payload over, and for a process that has to be started first; larger payloads are lost.
PATIENCE_SECONDS = 0.5
START_SECONDS = 10.0
LARGEST_PAYLOAD_BYTES = 32 * 1024 * 1024


def relay(stream: BufferedIOBase, path: str, program: str = "") -> bool:
    """Whether the payload was taken; raises nothing."""
    try:
        payload = stream.read(LARGEST_PAYLOAD_BYTES + 1)
        if len(payload) > LARGEST_PAYLOAD_BYTES:
            return False
        try:
            return _send(payload, path)
        except OSError:
            if program:
                _send_later(payload, path, program)
    except Exception:  # noqa: BLE001, S110  # whatever it is, it is no reason to hold a host up
        pass
    return False


def _send(payload: bytes, path: str) -> bool:
    head = f"POST /hooks HTTP/1.1\r\nhost: jev-engine\r\ncontent-length: {len(payload)}\r\nconnection: close\r\n\r\n"
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.settimeout(PATIENCE_SECONDS)
        connection.connect(path)
        connection.sendall(head.encode() + payload)
        return connection.recv(64).startswith(b"HTTP/1.1 200")
    finally:
        connection.close()


def _send_later(payload: bytes, path: str, program: str) -> None:
    """In a process that nobody waits for: start the program, and hand over when it answers."""
    if os.fork():
        return
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)  # whoever reads our output must not wait for us
        if not os.fork():
            os.execv(program, [program, "serve", "--ensure"])  # noqa: S606  # our own program, named by the user's settings
        ends = time.monotonic() + START_SECONDS
        while time.monotonic() < ends:
            time.sleep(0.05)
            try:
                _send(payload, path)
                break
            except OSError:
                continue
    finally:
        os._exit(0)


if __name__ == "__main__":
    relay(os.fdopen(0, "rb", closefd=False), *sys.argv[1:3])
