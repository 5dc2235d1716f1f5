"""The wire form of OpenAI Chat Completions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jev_engine.reasoning import binds_reasoning
from jev_engine.serve.gateway.body import Body, dump
from jev_engine.serve.gateway.chat_reply import ChatReply, made_results, seen_digest
from jev_engine.serve.gateway.hidden import Hidden
from jev_engine.store.expand import expand_tool_schema

__all__ = ["CHAT", "ChatForm"]

REASONING = ("reasoning_details", "thinking_blocks")
"""Fields in which gateways to Claude models keep signed thinking; plain reasoning text is bound to nothing."""
SESSION_HEADER = "x-session-id"
# Words of providers of this form for a prompt beyond the window, and for reasoning that no longer fits.
OVERFLOW = re.compile(rb"context_length_exceeded|maximum context length|context window", re.IGNORECASE)
REFUSED_REASONING = re.compile(rb"thinking|signature|prefix.?mismatch|reasoning", re.IGNORECASE)


class ChatForm:
    """Requests to `/v1/chat/completions`."""

    name = "openai"
    hints_name_sessions = False

    def is_turn(self, path: str) -> bool:
        """Whether a path asks for an answer of the model."""
        return path.rstrip("/").endswith("/chat/completions")

    def is_count(self, path: str) -> bool:
        """There is no such path."""
        return False

    def hint(self, headers: Mapping[str, str], fields: Mapping[str, Any]) -> str:
        """A session header some agents send, or the key by which they group requests for the provider's cache."""
        named = headers.get(SESSION_HEADER) or fields.get("prompt_cache_key")
        return named if isinstance(named, str) and re.fullmatch(r"[\w-]{1,64}", named) else ""

    def prompt_tokens(self, value: Mapping[str, Any]) -> int | None:
        """All tokens of the prompt, those from the cache included."""
        usage = value.get("usage")
        tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        return tokens if isinstance(tokens, int) and tokens > 0 else None

    def is_overflow(self, status: int, body: bytes) -> bool:
        """The provider's words for a prompt beyond the window."""
        return status in (400, 413) and OVERFLOW.search(body[:4_000]) is not None

    def speaks_of_reasoning(self, body: bytes) -> bool:
        """As gateways to Claude models pass it on, and in words of their own."""
        return REFUSED_REASONING.search(body[:4_000]) is not None

    def error(self, status: int, text: str) -> bytes:
        """An error as the provider puts it."""
        kind = "server_error" if status >= 500 else "invalid_request_error"
        error = {"message": f"jev-engine gateway: {text}", "type": kind, "param": None, "code": None}
        return json.dumps({"error": error}).encode()

    def binds_reasoning(self, fields: Mapping[str, Any]) -> bool:
        """True for Claude models from version 5 on; other providers drop reasoning of another history themselves."""
        model = str(fields.get("model", "")).lower()
        return "claude" in model and binds_reasoning(model)

    def may_edit_now(self, fields: Mapping[str, Any], messages: Sequence[Any]) -> bool:
        """At any time."""
        return True

    def has_reasoning(self, message: Any) -> bool:
        """Whether a message holds signed thinking."""
        return isinstance(message, dict) and any(message.get(field) for field in REASONING)

    def without_reasoning(self, message: Any) -> Any | None:
        """The message without it, None where it says nothing else."""
        if not self.has_reasoning(message):
            return message
        left = {field: value for field, value in message.items() if field not in REASONING}
        return left if left.get("content") or left.get("tool_calls") else None

    def with_tool(self, body: Body, tool: str) -> str | None:
        """The list of tools with one more at its end.

        None without a list, with the name taken, or where several answers are asked for at once.
        """
        tools = body.fields.get("tools")
        if not isinstance(tools, list) or not tools or body.fields.get("n") not in (None, 1):
            return None
        functions = [each.get("function") for each in tools if isinstance(each, dict)]
        if any(isinstance(each, dict) and each.get("name") == tool for each in functions):
            return None
        start, end = body.values["tools"]
        return f"{body.text[start : end - 1].rstrip()},{dump(expand_tool_schema('openai', name=tool))}]"

    def reveal(self, message: Any, behind: Any, hidden: Hidden) -> tuple[list[Any], list[Any]] | None:
        """The answer in as many messages as the provider gave responses, with the results between them."""
        if not isinstance(message, dict) or message.get("role") != "assistant":
            return None
        text = message.get("content") or ""
        calls = message.get("tool_calls") or []
        if not isinstance(text, str) or not isinstance(calls, list) or seen_digest(text, calls) != hidden.seen:
            return None
        said: list[Any] = []
        start = 0
        for part in hidden.rounds:
            own = [call for _, call in part.calls]
            if not part.closes:
                mixed = list(calls)
                for at, call in reversed(part.calls):
                    mixed.insert(at, call)
                said.append({**message, "content": text[start:] or None, "tool_calls": mixed})
                return said, [*part.results, *([] if behind is None else [behind])]
            again = {"role": "assistant", "content": text[start : part.end] or None, "tool_calls": own}
            said.append(again if part.said is None else part.said)
            said += part.results
            start = part.end
        if text[start:] or calls:
            said.append({**message, "content": text[start:] or None})
        return said, [] if behind is None else [behind]

    def arguments(self, call: dict[str, Any]) -> Any:
        """The arguments of a hidden call; empty ones where they are no JSON."""
        try:
            return json.loads(call["function"]["arguments"])
        except (KeyError, TypeError, ValueError):
            return {}

    def results(self, calls: Sequence[dict[str, Any]], texts: Sequence[str]) -> list[dict[str, Any]]:
        """Results of hidden calls as messages."""
        return made_results(calls, texts)

    def reply(self, tool: str) -> ChatReply:
        """A new answer."""
        return ChatReply(tool)


CHAT = ChatForm()
