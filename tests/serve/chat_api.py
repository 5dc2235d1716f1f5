"""A Chat Completions API on loopback that answers as the user's prompt says, in the words of `hosts.messages_api`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

from loopback import Loopback

__all__ = ["ChatApi"]

CALL_ID = re.compile(r"call_\d+x(\d+)x\d+\Z")
REFERENCE = re.compile(r"jx-[0-9a-f]{16}")


class ChatApi(Loopback):
    """Listens on loopback while the block lasts; a quarter of the body's length counts as prompt tokens."""

    def __init__(self, *, reports_usage: bool = True) -> None:
        super().__init__(_handler(self))
        self.bodies: list[bytes] = []
        self.reports_usage = reports_usage

    @property
    def requests(self) -> list[Any]:
        """What was asked, parsed."""
        return [json.loads(body) for body in self.bodies]

    def answer(self, body: bytes, number: int) -> dict[str, Any]:
        """The whole completion for a request."""
        request = json.loads(body)
        asked = max(at for at, m in enumerate(request["messages"]) if m["role"] == "user")
        script = request["messages"][asked]["content"].partition("SCRIPT:")[2].split(";;")
        ids = [c["id"] for m in request["messages"][asked:] for c in m.get("tool_calls") or ()]
        step = max((int(found.group(1)) for each in ids if (found := CALL_ID.match(each))), default=-1) + 1
        texts, calls = [], []
        for place, part in enumerate((script[step] if step < len(script) else "text over").split("&&&")):
            verb, _, rest = part.strip().partition(" ")
            if verb == "text":
                texts.append(rest)
                continue
            name, given = ("Bash", json.dumps({"command": rest})) if verb == "bash" else rest.split(" ", 1)
            found = REFERENCE.search(body.decode())
            given = given.replace("$REFERENCE", found.group() if found else "jx-none")
            function = {"name": name, "arguments": given}
            calls.append({"id": f"call_{number}x{step}x{place}", "type": "function", "function": function})
        message: dict[str, Any] = {"role": "assistant", "content": " ".join(texts) or None}
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        usage = {"prompt_tokens": len(body) // 4, "completion_tokens": 10, "total_tokens": len(body) // 4 + 10}
        return {"id": f"chatcmpl-{number}", "object": "chat.completion", "model": request["model"], "created": 1,
                "choices": [choice], "usage": usage}  # fmt: skip

    def chunks(self, whole: dict[str, Any], *, with_usage: bool) -> Iterator[dict[str, Any]]:
        """The completion as it is streamed, arguments in two pieces."""
        shared = {"id": whole["id"], "object": "chat.completion.chunk", "model": whole["model"], "created": 1}

        def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
            return {**shared, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

        [choice] = whole["choices"]
        message = choice["message"]
        yield chunk({"role": "assistant", "content": ""})
        for word in re.findall(r"\S+\s*", message["content"] or ""):
            yield chunk({"content": word})
        for index, call in enumerate(message.get("tool_calls", ())):
            given = call["function"]["arguments"]
            begun = {**call, "index": index, "function": {**call["function"], "arguments": given[:5]}}
            yield chunk({"tool_calls": [begun]})
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": given[5:]}}]})
        yield chunk({}, choice["finish_reason"])
        if with_usage:
            yield {**shared, "choices": [], "usage": whole["usage"]}


def _handler(api: ChatApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name the class gives it
            """Say nothing on the screen."""

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            api.bodies.append(body)
            request = json.loads(body)
            whole = api.answer(body, len(api.bodies))
            is_stream = bool(request.get("stream"))
            if is_stream:
                usage = api.reports_usage and bool((request.get("stream_options") or {}).get("include_usage"))
                events = [json.dumps(each, ensure_ascii=False) for each in api.chunks(whole, with_usage=usage)]
                data = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()
            else:
                data = json.dumps(whole, ensure_ascii=False).encode()
            self.send_response(200)
            self.send_header("content-type", "text/event-stream" if is_stream else "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler
