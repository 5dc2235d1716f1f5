"""Speaking to the local process over its socket, with the standard library alone."""

from __future__ import annotations

import json
import socket
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from jev_engine.errors import ServeError

__all__ = ["ask"]


class _Connection(HTTPConnection):
    def __init__(self, path: Path, timeout_seconds: float) -> None:
        super().__init__("jev-engine", timeout=timeout_seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ask(path: Path, route: str, body: Any = None, *, timeout_seconds: float = 30.0) -> Any:
    """The answer to a request, a GET where there is no body; raises ServeError where there is none, or an error."""
    connection = _Connection(path, timeout_seconds)
    try:
        if body is None:
            connection.request("GET", route)
        else:
            connection.request("POST", route, json.dumps(body).encode(), {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, HTTPException) as error:
        raise ServeError(f"no answer at {path}: {error}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise ServeError(f"{route} was answered with {answer.status}: {text[:300].decode(errors='replace')}")
    try:
        return json.loads(text)
    except ValueError as error:
        raise ServeError(f"{route} was answered with something that is no JSON") from error
