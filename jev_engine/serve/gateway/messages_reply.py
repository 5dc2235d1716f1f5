"""One answer of the Messages API, put together from one or more responses, with calls in it that stay hidden.

The client sees one message: one start, block numbers without a gap, one end. Events are passed on as the very bytes
they came in until something is hidden; from there on numbers are counted anew. Of the usage, output tokens are summed;
input tokens are those of the last response, because clients read them as the size of the context.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from jev_engine.serve.gateway.body import dump
from jev_engine.serve.gateway.form import encode_event, event_data
from jev_engine.serve.gateway.hidden import Hidden, Round

__all__ = ["MessagesReply", "made_results", "seen_digest"]

USAGE = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class MessagesReply:
    """Reads events or whole responses, keeps calls of `tool` from the client, and numbers the other blocks anew."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.calls: list[dict[str, Any]] = []
        self.spent_tokens = 0
        self._round: list[dict[str, Any]] = []
        """All blocks of this response."""
        self._partial: dict[int, str] = {}
        self._numbers: dict[int, int] = {}
        """The client's number of each block of this response."""
        self._hidden_here: list[tuple[int, dict[str, Any]]] = []
        self._seen: list[dict[str, Any]] = []
        """All blocks the client has."""
        self._rounds: list[Round] = []
        self._output_tokens = 0
        self._output_before = 0
        self._is_opaque = False
        self._message: dict[str, Any] = {}

    @property
    def _is_first(self) -> bool:
        return not self._rounds

    def event(self, raw: bytes) -> bytes:
        """What the client gets for one event."""
        text = event_data(raw)
        if not text:
            return raw
        data = json.loads(text)
        kind = data.get("type")
        if kind == "message_start":
            self._take_usage(data["message"].get("usage"))
            return raw if self._is_first else b""
        if kind == "content_block_start":
            return self._start(raw, data)
        if kind in ("content_block_delta", "content_block_stop"):
            return self._go_on(raw, data, is_end=kind == "content_block_stop")
        if kind == "message_delta":
            return self._end(raw, data)
        if kind == "message_stop":
            return b"" if self.goes_on else raw
        return raw

    def _start(self, raw: bytes, data: dict[str, Any]) -> bytes:
        number, block = data["index"], dict(data["content_block"])
        if number != len(self._round):
            raise ValueError("blocks out of order")
        self._round.append(block)
        if block.get("type") == "tool_use" and block.get("name") == self.tool:
            self._hidden_here.append((len(_solid(self._seen)), block))
            return b""
        self._numbers[number] = len(self._seen)
        self._seen.append(block)
        return self._renumbered(raw, data)

    def _go_on(self, raw: bytes, data: dict[str, Any], *, is_end: bool) -> bytes:
        number = data["index"]
        block = self._round[number]
        if is_end:
            if number in self._partial:
                block["input"] = _value(self._partial.pop(number))
        else:
            self._add(number, block, data["delta"])
        return self._renumbered(raw, data) if number in self._numbers else b""

    def _add(self, number: int, block: dict[str, Any], delta: dict[str, Any]) -> None:
        kind = delta.get("type")
        if kind == "text_delta":
            block["text"] = block.get("text", "") + delta["text"]
        elif kind == "thinking_delta":
            block["thinking"] = block.get("thinking", "") + delta["thinking"]
        elif kind == "signature_delta":
            block["signature"] = block.get("signature", "") + delta["signature"]
        elif kind == "input_json_delta":
            self._partial[number] = self._partial.get(number, "") + delta["partial_json"]
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        else:
            self._is_opaque = True  # it can be passed on, and not said again

    def _renumbered(self, raw: bytes, data: dict[str, Any]) -> bytes:
        number = self._numbers[data["index"]]
        if number == data["index"]:
            return raw
        return encode_event(data["type"], dump({**data, "index": number}))

    def _end(self, raw: bytes, data: dict[str, Any]) -> bytes:
        usage = data.get("usage")
        self._take_usage(usage)
        before = self._output_before
        delta = data.get("delta")
        if self._end_round(delta.get("stop_reason") if isinstance(delta, dict) else None):
            return b""
        if not before or not isinstance(usage, dict):
            return raw
        return encode_event(data["type"], dump({**data, "usage": {**usage, "output_tokens": self._output_tokens}}))

    def _take_usage(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        spent = sum(usage[name] for name in USAGE if isinstance(usage.get(name), int))
        self.spent_tokens = spent or self.spent_tokens
        if isinstance(usage.get("output_tokens"), int):
            self._output_tokens = self._output_before + usage["output_tokens"]

    def _end_round(self, stop_reason: Any) -> bool:
        """Close a response; True where the answer goes on with the next one."""
        if not self._hidden_here or stop_reason != "tool_use":
            return False  # nothing is hidden, or the answer was cut off in the middle of a call
        own = [b for b in self._round if b.get("type") == "tool_use"]
        closes = len(own) == len(self._hidden_here)
        calls = [block for _, block in self._hidden_here]
        self._rounds.append(Round(len(_solid(self._seen)), self._hidden_here, [], closes))
        if self._is_opaque and closes:
            raise ValueError("a block that cannot be said again")
        self.calls = calls
        self._output_before = self._output_tokens
        return closes

    @property
    def withholds(self) -> bool:
        """Something was hidden already."""
        return bool(self._rounds or self._hidden_here)

    def error_event(self, body: bytes) -> bytes:
        """An error in the middle of a stream."""
        return encode_event("error", body.decode())

    @property
    def goes_on(self) -> bool:
        """The response that has ended is not the end of the answer."""
        return bool(self.calls) and self._rounds[-1].closes

    def answered(self, results: Sequence[str]) -> list[Any]:
        """What the provider said, and the results of its hidden calls."""
        made = made_results(self.calls, results)
        said = {"role": "assistant", "content": self._round}
        self._rounds[-1] = self._rounds[-1]._replace(results=made, said=said)
        self.calls, self._round, self._numbers, self._hidden_here = [], [], {}, []
        return [said, {"role": "user", "content": made}]

    def hidden(self) -> Hidden | None:
        """What was hidden in the answer."""
        return Hidden(seen_digest(_solid(self._seen)), self._rounds) if self._rounds else None

    def whole(self, value: dict[str, Any]) -> dict[str, Any] | None:
        """What the client gets for a whole response."""
        content = value.get("content")
        if not isinstance(content, list):
            return value
        self._take_usage(value.get("usage"))
        self._round = content
        for block in content:
            if isinstance(block, dict) and block.get("type") == "tool_use" and block.get("name") == self.tool:
                self._hidden_here.append((len(_solid(self._seen)), block))
            else:
                self._seen.append(block)
        self._message = self._message or value
        if self._end_round(value.get("stop_reason")):
            return None
        if not self._rounds:
            return value
        usage = {**(value.get("usage") or {}), "output_tokens": self._output_tokens}
        return {**value, "id": self._message.get("id"), "content": self._seen, "usage": usage}


def made_results(calls: Sequence[dict[str, Any]], texts: Sequence[str]) -> list[dict[str, Any]]:
    """Results of hidden calls."""
    return [
        {"type": "tool_result", "tool_use_id": call["id"], "content": text}
        for call, text in zip(calls, texts, strict=True)
    ]


def seen_digest(blocks: Sequence[Any]) -> str:
    """Digest of a message's blocks as far as clients send them back alike: kinds, ids, and how texts begin."""
    digest = blake2b(digest_size=8)
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else "?"
        text = str(block.get("text") or block.get("id") or "") if isinstance(block, dict) else ""
        digest.update(f"{kind}\0{text.strip()[:200]}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _solid(blocks: Sequence[Any]) -> list[Any]:
    """The blocks without blank texts, which some clients do not send back."""
    return [b for b in blocks if not (isinstance(b, dict) and b.get("type") == "text" and not str(b["text"]).strip())]


def _value(text: str) -> Any:
    """The arguments of a call; empty ones where it was cut off."""
    try:
        return json.loads(text or "{}")
    except ValueError:
        return {}
