"""A Messages API on loopback that answers as the user's prompt says, for hosts and gateways that want a provider.

    with MessagesApi() as api:
        run_host(ANTHROPIC_BASE_URL=api.url)      its prompt: "SCRIPT: bash cat a.txt ;; text done"
        api.turns[0].json()["messages"]           what the provider was sent

A script is a list of responses, separated by `;;`; the parts of one response are separated by `&&&`:

    text WORDS            says so
    bash COMMAND          calls Bash
    read PATH             calls Read
    tool NAME {JSON}      calls any tool; `$REFERENCE` in it stands for the first `jx-…` id of the request

The next response is found from the ids of the calls in the request, so that a history that was shortened, or sent
again, goes on where it was. A request without a script is answered with one sentence; one that asks for a summary of
the conversation gets one.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from loopback import Loopback

__all__ = ["MessagesApi", "Received", "text_of"]

SCRIPT = re.compile(r"SCRIPT:(.*)", re.DOTALL)
CALL_ID = re.compile(r"toolu_(\d+)x(\d+)x\d+\Z")
REFERENCE = re.compile(r"jx-[0-9a-f]{16}")
SUMMARY_REQUEST = re.compile(r"create a detailed summary|summari[sz]e the conversation", re.IGNORECASE)


class Received(NamedTuple):
    """One request as it came."""

    method: str
    path: str
    """With its query."""
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    at: float

    def json(self) -> Any:
        """The body as a value."""
        return json.loads(self.body)

    @property
    def is_summary(self) -> bool:
        """The host asks the model to sum the conversation up."""
        # The host may put notes of its own behind the user's last message.
        asked = [m for m in self.json()["messages"] if m.get("role") == "user"][-1:]
        return any(SUMMARY_REQUEST.search(text_of(message.get("content"))) is not None for message in asked)


def text_of(content: Any) -> str:
    """The text of a message's content: a string, or its text blocks joined by line breaks."""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block.get("type") == "text")


class MessagesApi(Loopback):
    """Listens on loopback while the block lasts.

    `input_tokens` is what every answer reports as used, or a function of the request; without it, a quarter of the
    body's length. `status` may give a request another status than 200, and the provider's words with it.
    `pause_seconds` lies between the events of a stream, `thinks` puts a signed thinking block before every answer.
    """

    def __init__(
        self,
        *,
        input_tokens: int | Callable[[Any], int] | None = None,
        status: Callable[[Received], int | tuple[int, str]] | None = None,
        pause_seconds: float = 0.0,
        thinks: bool = True,
    ) -> None:
        super().__init__(_handler(self))
        self.input_tokens = input_tokens
        self.status = status
        self.pause_seconds = pause_seconds
        self.thinks = thinks
        self.requests: list[Received] = []
        self._lock = threading.Lock()

    @property
    def turns(self) -> list[Received]:
        """The requests for an answer, in order: no token counts, no probes."""
        return [each for each in self.requests if each.method == "POST" and each.path.split("?")[0] == "/v1/messages"]

    @property
    def summaries(self) -> list[Received]:
        """Those of them that ask for a summary."""
        return [each for each in self.turns if each.is_summary]

    def take(self, received: Received) -> int:
        """Note a request; returns its number."""
        with self._lock:
            self.requests.append(received)
            return len(self.requests)

    def used(self, request: Any, body: bytes) -> int:
        """Input tokens to report."""
        if callable(self.input_tokens):
            return self.input_tokens(request)
        return len(body) // 4 if self.input_tokens is None else self.input_tokens

    def answer(self, received: Received, number: int) -> dict[str, Any]:
        """The whole message for a request."""
        request = received.json()
        blocks = list(self._blocks(received, request, number))
        if self.thinks and request.get("thinking", {}).get("type") not in (None, "disabled"):
            blocks.insert(
                0, {"type": "thinking", "thinking": f"Thought {number}.", "signature": f"c2lnbmVk{number:04d}"}
            )
        calls = any(block["type"] == "tool_use" for block in blocks)
        usage = {
            "input_tokens": self.used(request, received.body),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 10,
        }
        return {
            "id": f"msg_{number:06d}",
            "type": "message",
            "role": "assistant",
            "model": request.get("model", "unknown"),
            "content": blocks,
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": usage,
        }

    def _blocks(self, received: Received, request: Any, number: int) -> Iterator[dict[str, Any]]:
        if received.is_summary:
            yield {"type": "text", "text": f"<summary>Summary {number} of the conversation.</summary>"}
            return
        at, step = _next_step(request["messages"])
        if step is None:
            yield {"type": "text", "text": f"Answer {number}."}
            return
        for place, part in enumerate(step.split("&&&")):
            yield _block(part.strip(), f"toolu_{number}x{at}x{place}", received.body)


def _next_step(messages: list[Any]) -> tuple[int, str | None]:
    """Number and text of the response that is due, None where the last prompt holds no script or is done with it."""
    asked = -1
    script: list[str] = []
    for index, message in enumerate(messages):
        content = message.get("content")
        if message.get("role") == "user" and (isinstance(content, str) or _is_prompt(content)):
            found = SCRIPT.search(text_of(content))
            if found is not None:
                asked, script = index, found.group(1).split("\n")[0].split(";;")
    done = -1
    for message in messages[asked + 1 :] if asked >= 0 else ():
        content = message.get("content")
        for block in content if message.get("role") == "assistant" and isinstance(content, list) else ():
            made = CALL_ID.match(str(block.get("id"))) if block.get("type") == "tool_use" else None
            if made is not None:
                done = max(done, int(made.group(2)))
    return (done + 1, script[done + 1].strip()) if done + 1 < len(script) else (done + 1, None)


def _is_prompt(content: Any) -> bool:
    """A row of results may carry reminders as text; what a person asked stands in a row without results."""
    return isinstance(content, list) and not any(block.get("type") == "tool_result" for block in content)


def _block(part: str, call_id: str, body: bytes) -> dict[str, Any]:
    """One content block of a script's part; raises ValueError for a part that is none."""
    verb, _, rest = part.partition(" ")
    if verb == "text":
        return {"type": "text", "text": rest}
    if verb == "bash":
        return {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": rest, "description": "Run it"}}
    if verb == "read":
        return {"type": "tool_use", "id": call_id, "name": "Read", "input": {"file_path": rest}}
    if verb == "tool":
        name, _, given = rest.partition(" ")
        found = REFERENCE.search(body.decode())
        given = given.replace("$REFERENCE", found.group() if found else "jx-none")
        return {"type": "tool_use", "id": call_id, "name": name, "input": json.loads(given or "{}")}
    raise ValueError(f"{part!r} is no part of a script")


def _events(message: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A message as the provider streams it."""
    usage = message["usage"]
    yield "message_start", {"message": {**message, "content": [], "stop_reason": None, "usage": usage}}
    for index, block in enumerate(message["content"]):
        kind = block["type"]
        empty = {"text": {"text": ""}, "tool_use": {"input": {}}, "thinking": {"thinking": "", "signature": ""}}[kind]
        yield "content_block_start", {"index": index, "content_block": {**block, **empty}}
        deltas: dict[str, list[dict[str, Any]]] = {
            "text": [{"type": "text_delta", "text": block.get("text")}],
            "tool_use": [{"type": "input_json_delta", "partial_json": json.dumps(block.get("input"))}],
            "thinking": [
                {"type": "thinking_delta", "thinking": block.get("thinking")},
                {"type": "signature_delta", "signature": block.get("signature")},
            ],
        }
        for delta in deltas[kind]:
            yield "content_block_delta", {"index": index, "delta": delta}
        yield "content_block_stop", {"index": index}
    yield "message_delta", {"delta": {"stop_reason": message["stop_reason"], "stop_sequence": None}, "usage": usage}
    yield "message_stop", {}


def _raw(value: Any) -> bytes:
    """JSON as providers write it: every character as it is, half a surrogate pair, which cannot be, as an escape."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _handler(api: MessagesApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name the class gives it
            """Say nothing on the screen."""

        def do_HEAD(self) -> None:  # the name the class gives it
            self._take()
            self._send(200, b"")

        def do_GET(self) -> None:
            self._take()
            self._send(404, b"{}")

        def do_POST(self) -> None:
            received, number = self._take()
            path = received.path.split("?")[0]
            if path not in ("/v1/messages", "/v1/messages/count_tokens"):
                self._send(404, b"{}")
                return
            given = 200 if api.status is None else api.status(received)
            status, words = given if isinstance(given, tuple) else (given, f"scripted {given}")
            if status != 200:
                error = {"type": "error", "error": {"type": "api_error", "message": words}}
                self._send(status, json.dumps(error).encode())
            elif path.endswith("count_tokens"):
                self._send(200, json.dumps({"input_tokens": api.used(received.json(), received.body)}).encode())
            elif received.json().get("stream"):
                self._stream(api.answer(received, number))
            else:
                self._send(200, _raw(api.answer(received, number)))

        def _take(self) -> tuple[Received, int]:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            received = Received(self.command, self.path, headers, body, time.monotonic())
            return received, api.take(received)

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.send_header("request-id", f"req_{len(api.requests):06d}")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _stream(self, message: dict[str, Any]) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for name, data in _events(message):
                event = b"event: %s\ndata: %s\n\n" % (name.encode(), _raw({"type": name, **data}))
                self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
                self.wfile.flush()
                if api.pause_seconds:
                    time.sleep(api.pause_seconds)
            self.wfile.write(b"0\r\n\r\n")

    return Handler
