"""A Chat Completions provider on loopback that plays a script, for the real Hermes hosts. Standard library only.

A script is a list of steps: `("call", tool, arguments)`, `("text", words)`, or a function of the request that gives one
of these. Requests without tools are those of the host's summariser and get one fixed summary.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SUMMARY = "## Summary\nScripted summary of what was replaced."

Step = tuple[Any, ...] | Callable[[dict[str, Any]], tuple[Any, ...]]


def tokens_of(body: dict[str, Any]) -> int:
    """What this provider counts: a token for four characters of all it was sent."""
    return len(json.dumps([body.get("messages"), body.get("tools")])) // 4


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


class Provider:
    """Plays one script. `limit` is the real window: longer requests are refused, as a provider refuses them."""

    def __init__(
        self,
        script: Sequence[Step],
        *,
        limit: int = 10_000_000,
        counts: bool = True,
        helper: tuple[str, Sequence[Step]] | None = None,
        prefix: str = "call",
    ) -> None:
        self.prefix = prefix
        self.script = list(script)
        self.helper = helper
        """The goal of a helper agent, and a script of its own for it."""
        self.helped: list[dict[str, Any]] = []
        self.limit = limit
        self.counts = counts
        self.requests: list[dict[str, Any]] = []
        """Bodies of the agent's own requests that were answered."""
        self.refused: list[dict[str, Any]] = []
        self.summaries: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                data = {"object": "list", "data": [{"id": "mock-model", "object": "model"}]}
                self._send(200, json.dumps(data).encode(), "application/json")

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("content-length", "0"))) or b"{}")
                if not self.path.endswith("/chat/completions"):
                    self._send(404, b"{}", "application/json")
                    return
                status, answer = provider.answer(body)
                if status != 200 or not body.get("stream"):
                    self._send(status, json.dumps(answer).encode(), "application/json")
                else:
                    self._send(200, b"".join(_events(answer)), "text/event-stream")

            def _send(self, status: int, data: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with self._lock:
            used = tokens_of(body)
            if not body.get("tools"):
                self.summaries.append(body)
                return 200, self._reply({"content": SUMMARY}, used)
            if used > self.limit:
                self.refused.append(body)
                text = (
                    f"This model's maximum context length is {self.limit} tokens. However, your messages resulted in "
                    f"{used} tokens. Please reduce the length of the messages."
                )
                return 400, {"error": {"message": text, "code": "context_length_exceeded", "type": "invalid_request"}}
            played, script = self.requests, self.script
            if self.helper is not None and self.helper[0] == body["messages"][1].get("content"):
                played, script = self.helped, list(self.helper[1])
            played.append(body)
            number = len(played)
            step = script[number - 1] if number <= len(script) else ("text", "All done.")
            step = step(body) if callable(step) else step
            if step[0] == "text":
                return 200, self._reply({"content": step[1]}, used)
            calls = [
                {
                    "index": slot,
                    "id": f"{self.prefix}_{number}_{slot}",
                    "type": "function",
                    "function": {"name": tool, "arguments": json.dumps(arguments)},
                }
                for slot, (tool, arguments) in enumerate(zip(step[1::2], step[2::2], strict=True))
            ]
            return 200, self._reply({"content": f"Step {number}.", "tool_calls": calls}, used)

    def _reply(self, message: dict[str, Any], used: int) -> dict[str, Any]:
        usage = {"prompt_tokens": used, "completion_tokens": 20, "total_tokens": used + 20}
        choice = {
            "index": 0,
            "message": {"role": "assistant", **message},
            "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
        }
        reply = {"id": "r", "object": "chat.completion", "created": 1, "model": "mock-model", "choices": [choice]}
        return {**reply, "usage": usage} if self.counts else reply


def _events(answer: dict[str, Any]) -> list[bytes]:
    choice = answer["choices"][0]
    head = {"id": "r", "object": "chat.completion.chunk", "created": 1, "model": "mock-model"}
    chunks: list[dict[str, Any]] = [
        {**head, "choices": [{"index": 0, "delta": choice["message"], "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
    ]
    if "usage" in answer:
        chunks.append({**head, "choices": [], "usage": answer["usage"]})
    return [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks] + [b"data: [DONE]\n\n"]
