"""A client of Chat Completions that talks to a gateway as clients do: with its whole history every time."""

from __future__ import annotations

from typing import Any

import httpx
from serve.gateway_lab import events_of

__all__ = ["ChatAgent"]


class ChatAgent:
    """A client of Chat Completions with one conversation."""

    def __init__(self, url: str, *, stream: bool, **fields: Any) -> None:
        self.url, self.stream, self.fields = url, stream, fields
        self.chars = 6_000
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
        self.http = httpx.Client(timeout=20.0)

    def __del__(self) -> None:
        self.http.close()

    def say(self, prompt: str) -> dict[str, Any]:
        """A prompt, and everything until the model has nothing more to do."""
        self.messages.append({"role": "user", "content": prompt})
        while True:
            tool = {"type": "function", "function": {"name": "Bash", "parameters": {"type": "object"}}}
            body = {"model": "gpt-6", "messages": self.messages, "tools": [tool], "stream": self.stream, **self.fields}
            answer = self.http.post(f"{self.url}/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            said = self.joined(answer.text) if self.stream else answer.json()["choices"][0]["message"]
            self.messages.append(said)
            if not said.get("tool_calls"):
                return said
            for call in said["tool_calls"]:
                content = (f"a line of what {call['id']} gave, long enough\n" * 200)[: self.chars]
                self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})

    def joined(self, text: str) -> dict[str, Any]:
        """The message that a stream amounts to; texts of one name are joined, as the SDK does."""
        said: dict[str, Any] = {"role": "", "content": ""}
        calls: list[dict[str, Any]] = []
        assert text.count("data: [DONE]") == 1
        for chunk in events_of(text):
            for choice in chunk["choices"]:
                delta = choice["delta"]
                said["role"] += delta.get("role") or ""
                said["content"] += delta.get("content") or ""
                for call in delta.get("tool_calls", ()):
                    if call["index"] == len(calls):
                        calls.append({"id": call["id"], "type": "function", "function": dict(call["function"])})
                    else:
                        calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
        return {**said, **({"tool_calls": calls} if calls else {})}
