"""One answer of Chat Completions, put together from one or more responses, with calls in it that stay hidden.

Chunks are passed on as the very bytes they came in until something is hidden. Of the usage, completion tokens are
summed; prompt tokens are those of the last response.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from jev_engine.serve.gateway.body import dump
from jev_engine.serve.gateway.form import encode_event, event_data
from jev_engine.serve.gateway.hidden import Hidden, Round

__all__ = ["ChatReply", "made_results", "seen_digest"]

DONE = "[DONE]"


class ChatReply:
    """Reads chunks or whole responses, keeps calls of `tool` from the client, and numbers the others without a gap."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.calls: list[dict[str, Any]] = []
        self.spent_tokens = 0
        self._id: Any = None
        self._text = ""
        """All text the client has."""
        self._text_before = 0
        self._details: list[Any] = []
        self._made: dict[int, dict[str, Any]] = {}
        """Calls of this response, by its own number."""
        self._numbers: dict[int, int] = {}
        """The client's number of each call it sees."""
        self._hidden_here: list[tuple[int, dict[str, Any]]] = []
        self._seen: list[dict[str, Any]] = []
        """Calls the client has."""
        self._rounds: list[Round] = []
        self._completion_tokens = self._completion_before = 0

    @property
    def withholds(self) -> bool:
        """Something was hidden already."""
        return bool(self._rounds or self._hidden_here)

    @property
    def goes_on(self) -> bool:
        """The response that has ended is not the end of the answer."""
        return bool(self.calls) and self._rounds[-1].closes

    def error_event(self, body: bytes) -> bytes:
        """An error in the middle of a stream."""
        return encode_event(None, body.decode())

    def event(self, raw: bytes) -> bytes:
        """What the client gets for one event."""
        text = event_data(raw)
        if not text:
            return raw
        if text == DONE:
            return b"" if self.goes_on else raw
        chunk = json.loads(text)
        self._id = self._id or chunk.get("id")
        shown = dict(chunk)
        usage = self._take_usage(chunk.get("usage"))
        if usage is not chunk.get("usage"):
            shown["usage"] = usage
        choices = chunk.get("choices")
        if choices:
            [choice] = choices
            new = self._choice(choice)
            if new is None:
                return b""
            if new is not choice:
                shown["choices"] = [new]
        elif self.goes_on:
            return b""
        if self._rounds and shown.get("id") != self._id:
            shown["id"] = self._id
        return raw if shown == chunk else encode_event(None, dump(shown))

    def _choice(self, choice: dict[str, Any]) -> dict[str, Any] | None:
        """The client's share of a choice, the same object where that is all of it; None for nothing."""
        delta = choice.get("delta") or {}
        if isinstance(delta.get("content"), str):
            self._text += delta["content"]
        if isinstance(delta.get("reasoning_details"), list):
            self._details += delta["reasoning_details"]
        new = dict(delta)
        if self._rounds:
            new.pop("role", None)  # said once; clients join texts of one name
        if delta.get("tool_calls"):
            shown = [made for call in delta["tool_calls"] if (made := self._call(call)) is not None]
            if shown:
                new["tool_calls"] = shown
            else:
                del new["tool_calls"]
        reason = choice.get("finish_reason")
        if reason is not None and self._end_round(reason):
            return None
        if new == delta:
            return choice
        says = {field: value for field, value in new.items() if value is not None}
        return {**choice, "delta": new} if says or reason is not None else None

    def _call(self, call: dict[str, Any]) -> dict[str, Any] | None:
        number, function = call["index"], call.get("function") or {}
        made = self._made.get(number)
        if made is None:
            made = {"id": call.get("id"), "type": "function", "function": {"name": "", "arguments": ""}}
            self._made[number] = made
            if function.get("name") == self.tool:
                self._hidden_here.append((len(self._seen), made))
            else:
                self._numbers[number] = len(self._seen)
                self._seen.append(made)
        made["function"]["name"] += function.get("name") or ""
        made["function"]["arguments"] += function.get("arguments") or ""
        if number not in self._numbers:
            return None
        return call if self._numbers[number] == number else {**call, "index": self._numbers[number]}

    def _take_usage(self, usage: Any) -> Any:
        if not isinstance(usage, dict):
            return usage
        spent, made = usage.get("prompt_tokens"), usage.get("completion_tokens")
        self.spent_tokens = spent if isinstance(spent, int) and spent > 0 else self.spent_tokens
        if not isinstance(made, int):
            return usage
        self._completion_tokens = self._completion_before + made
        if not self._completion_before:
            return usage
        total = self._completion_tokens + self.spent_tokens
        return {**usage, "completion_tokens": self._completion_tokens, "total_tokens": total}

    def _end_round(self, reason: str) -> bool:
        """Close a response; True where the answer goes on with the next one."""
        if not self._hidden_here or reason not in ("tool_calls", "stop"):
            return False
        closes = len(self._hidden_here) == len(self._made)
        self._rounds.append(Round(len(self._text), self._hidden_here, [], closes))
        self.calls = [call for _, call in self._hidden_here]
        return closes

    def answered(self, results: Sequence[str]) -> list[Any]:
        """What the provider said, and the results of its hidden calls."""
        made = made_results(self.calls, results)
        said: dict[str, Any] = {"role": "assistant", "content": self._text[self._text_before :] or None}
        if self._details:
            said["reasoning_details"] = self._details
        said["tool_calls"] = list(self._made.values())
        self._rounds[-1] = self._rounds[-1]._replace(results=made, said=said)
        self.calls, self._hidden_here, self._made, self._details, self._numbers = [], [], {}, [], {}
        self._text_before, self._completion_before = len(self._text), self._completion_tokens
        return [said, *made]

    def hidden(self) -> Hidden | None:
        """What was hidden in the answer."""
        if not self._rounds:
            return None
        return Hidden(seen_digest(self._text, self._seen), self._rounds)

    def whole(self, value: dict[str, Any]) -> dict[str, Any] | None:
        """What the client gets for a whole response."""
        choices = value.get("choices")
        if not isinstance(choices, list) or len(choices) != 1:
            return value
        self._id = self._id or value.get("id")
        [choice] = choices
        message = choice["message"]
        usage = self._take_usage(value.get("usage"))
        self._text += message.get("content") or ""
        self._details = list(message.get("reasoning_details") or [])
        calls = message.get("tool_calls") or []
        shown = [
            made for number, call in enumerate(calls) if (made := self._call({**call, "index": number})) is not None
        ]
        if self._end_round(str(choice.get("finish_reason"))):
            return None
        if not self._rounds:
            return value
        left = {field: each for field, each in message.items() if field != "tool_calls"}
        left["content"] = self._text or None
        if shown:
            left["tool_calls"] = [{field: each for field, each in call.items() if field != "index"} for call in shown]
        return {**value, "id": self._id, "choices": [{**choice, "message": left}], "usage": usage}


def made_results(calls: Sequence[dict[str, Any]], texts: Sequence[str]) -> list[dict[str, Any]]:
    """Results of hidden calls."""
    return [
        {"role": "tool", "tool_call_id": call["id"], "content": text} for call, text in zip(calls, texts, strict=True)
    ]


def seen_digest(text: str, calls: Sequence[Any]) -> str:
    """Digest of an answer as the client got it."""
    ids = [str(call.get("id")) for call in calls if isinstance(call, dict)]
    return blake2b("\0".join([text, *ids]).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
