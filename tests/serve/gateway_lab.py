"""A gateway on loopback, and a small agent that talks to it as clients do: with its whole history every time."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import httpx
import uvicorn
from hosts.messages_api import MessagesApi, Received
from loopback import until
from starlette.applications import Starlette

from jev_engine import ContextEngine
from jev_engine.config import EngineConfig
from jev_engine.serve.gateway import Gateway, routes
from jev_engine.store import OriginalStore
from jev_engine.testing import ScriptedJudge

__all__ = [
    "MODEL", "TOKEN", "TOOLS", "Agent", "Running", "SigningApi", "answer_of", "both", "breaks", "engine_of",
    "events_of", "gateway_for", "markers",
]  # fmt: skip

TOKEN = "t0ken"  # noqa: S105  # opens nothing but this lab
MODEL = "claude-sonnet-4-5"
TOOLS = [
    {"name": name, "description": f"The tool {name}.", "input_schema": {"type": "object", "properties": {}}}
    for name in ("Bash", "Read")
]


def engine_of(*, store: OriginalStore | None = None, **settings: Any) -> ContextEngine:
    """An engine that finds nothing needed, in a window of 20,000 tokens, and offers to expand."""
    config = EngineConfig(**{"window_tokens": 20_000, "expand_tool": "jev_expand", **settings})
    return ContextEngine(config=config, judge=ScriptedJudge(lambda _: (0.9, 0.001)), store=store)


def gateway_for(url: str, engine: ContextEngine | None = None, **options: Any) -> Gateway:
    """A gateway in front of one provider that speaks both forms."""
    return Gateway(engine or engine_of(), {"anthropic": url, "openai": url}, token=TOKEN, **options)


class Running:
    """A gateway that listens on loopback while the block lasts."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
        self._listener = listener
        self.root = f"http://127.0.0.1:{listener.getsockname()[1]}/gateway/{TOKEN}"

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            yield
            await gateway.aclose()

        app = Starlette(routes=routes(gateway), lifespan=lifespan)
        config = uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=1,
            server_header=False,
            date_header=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), daemon=True)

    @property
    def anthropic(self) -> str:
        """The address for clients of the Messages API."""
        return f"{self.root}/anthropic"

    @property
    def openai(self) -> str:
        """The address for clients of Chat Completions."""
        return f"{self.root}/openai/v1"

    @property
    def counts(self) -> dict[str, int]:
        """What the gateway has counted."""
        return dict(self.gateway.brain.counts)

    def __enter__(self) -> Self:
        self._thread.start()
        until(lambda: self._server.started)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(5)
        self._listener.close()


class Agent:
    """A client with one conversation."""

    def __init__(self, url: str, *, chars: int = 6_000, stream: bool = True, **fields: Any) -> None:
        self.url = url
        self.chars = chars
        self.fields = {"model": MODEL, "max_tokens": 1_000, **fields}
        self.stream = stream
        self.messages: list[dict[str, Any]] = []
        self.http = httpx.Client(timeout=20.0)

    def __del__(self) -> None:
        self.http.close()

    def body(self) -> bytes:
        """The request as it is sent."""
        fields = {**self.fields, "messages": self.messages, "tools": TOOLS, "stream": self.stream}
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()

    def ask(self) -> httpx.Response:
        """One request with the history as it is."""
        headers = {"content-type": "application/json", "x-api-key": "sk-test", "anthropic-version": "2023-06-01"}
        return self.http.post(f"{self.url}/v1/messages?beta=true", content=self.body(), headers=headers)

    def step(self) -> dict[str, Any]:
        """One response of the model, with its calls carried out."""
        response = self.ask()
        assert response.status_code == 200, response.text
        said = answer_of(response) if self.stream else response.json()
        self.messages.append({"role": "assistant", "content": said["content"]})
        calls = [block for block in said["content"] if block["type"] == "tool_use"]
        if calls:
            results = [{"type": "tool_result", "tool_use_id": c["id"], "content": self.output(c["id"])} for c in calls]
            self.messages.append({"role": "user", "content": results})
        return said

    def output(self, call_id: str) -> str:
        """What a tool gives."""
        line = f"a line of what {call_id} gave, long enough to fill something\n"
        return line * (self.chars // len(line))

    def say(self, prompt: str) -> dict[str, Any]:
        """A prompt, and everything until the model has nothing more to do."""
        self.messages.append({"role": "user", "content": prompt})
        said = self.step()
        while said["stop_reason"] == "tool_use":
            said = self.step()
        return said


def answer_of(response: httpx.Response) -> dict[str, Any]:
    """The message that a stream amounts to, put together as the SDKs do; blocks have to be numbered without a gap."""
    message: dict[str, Any] = {}
    starts = 0
    for data in events_of(response.text):
        kind = data["type"]
        if kind == "message_start":
            starts += 1
            message = data["message"]
        elif kind == "content_block_start":
            assert data["index"] == len(message["content"])
            message["content"].append({**data["content_block"], "_json": ""})
        elif kind == "content_block_delta":
            block, delta = message["content"][data["index"]], data["delta"]
            for field in ("text", "thinking", "signature"):
                if field in delta:
                    block[field] = block.get(field, "") + delta[field]
            block["_json"] += delta.get("partial_json", "")
        elif kind == "content_block_stop":
            block = message["content"][data["index"]]
            given = block.pop("_json")
            if given:
                block["input"] = json.loads(given)
        elif kind == "message_delta":
            message.update(data["delta"])
            message["usage"] = {**message["usage"], **data["usage"]}
    assert starts == 1
    return message


def events_of(text: str) -> Iterator[Any]:
    """The data of all events."""
    for line in re.split(r"\r\n|\n|\r", text):
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line[6:])


@contextmanager
def both(api: Any, **options: Any) -> Iterator[tuple[Running, Any]]:
    """A gateway before an API."""
    with api as listening, Running(gateway_for(listening.url, **options)) as running:
        yield running, listening


class SigningApi(MessagesApi):
    """A provider that signs thinking for the exact history it was made for, and refuses it anywhere else."""

    def __init__(self, **options: Any) -> None:
        super().__init__(status=self._checked, **options)
        self.refusals: list[str] = []

    def answer(self, received: Received, number: int) -> dict[str, Any]:
        """The answer, its thinking signed."""
        message = super().answer(received, number)
        for block in message["content"]:
            if block["type"] == "thinking":
                block["signature"] = _signature(received.json(), len(received.json()["messages"]))
        return message

    def _checked(self, received: Received) -> int | tuple[int, str]:
        request = received.json()
        if received.path.split("?")[0] != "/v1/messages":
            return 200
        for place, message in enumerate(request["messages"]):
            content = message["content"]
            for block in content if isinstance(content, list) else ():
                if block["type"] == "thinking" and block["signature"] != _signature(request, place):
                    self.refusals.append(f"thinking of message {place} was made for another history")
                    return 400, f"messages.{place}.content.0: Invalid `signature` in `thinking` block"
        return 200


def _signature(request: dict[str, Any], place: int) -> str:
    prefix = [request.get("system"), request.get("tools"), *request["messages"][:place]]
    return hashlib.sha256(json.dumps(without_marks(prefix)).encode()).hexdigest()[:16]


def without_marks(value: Any) -> Any:
    """A value as a provider's cache sees it: no marks, and a text is a list of one block."""
    if isinstance(value, dict):
        kept = {name: without_marks(each) for name, each in value.items() if name != "cache_control"}
        if isinstance(kept.get("content"), str) and "role" in kept:
            kept["content"] = [{"type": "text", "text": kept["content"]}]
        return kept
    return [without_marks(each) for each in value] if isinstance(value, list) else value


def breaks(api: MessagesApi) -> int:
    """How often a request did not begin with all that the one before it held, tools included."""
    seen = [[turn.json()["tools"], *without_marks(turn.json()["messages"])] for turn in api.turns]
    return sum(later[: len(earlier)] != earlier for earlier, later in pairwise(seen))


def markers(messages: Any) -> int:
    """How many results are out."""
    return json.dumps(messages).count("[jev-engine: result of")
