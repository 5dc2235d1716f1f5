"""The wire form of the Anthropic Messages API."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jev_engine.reasoning import binds_reasoning
from jev_engine.serve.gateway.body import Body, dump
from jev_engine.serve.gateway.hidden import Hidden
from jev_engine.serve.gateway.messages_reply import MessagesReply, made_results, seen_digest
from jev_engine.store.expand import expand_tool_schema

__all__ = ["MESSAGES", "MessagesForm"]

REASONING = ("thinking", "redacted_thinking")
SESSION_HEADER = "x-claude-code-session-id"
# The session within the id of a user.
SESSION_IN_USER = re.compile(r"session(?:_id)?[_\-\"': ]+([0-9a-fA-F-]{36})")
OVERFLOW = re.compile(
    rb"prompt is too long|exceed[^\"]{0,40}context|context[^\"]{0,40}(?:limit|exceed|window)", re.IGNORECASE
)
REFUSED_REASONING = re.compile(rb"thinking|signature|prefix.?mismatch", re.IGNORECASE)
# Parts of a prompt that a usage counts apart; together they fill the window.
USAGE = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
# How the provider names errors of its own by their status.
ERRORS = {
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class MessagesForm:
    """Requests to `/v1/messages` and `/v1/messages/count_tokens`."""

    name = "anthropic"
    hints_name_sessions = True

    def is_turn(self, path: str) -> bool:
        """Whether a path asks for an answer of the model."""
        return path.rstrip("/").endswith("/v1/messages")

    def is_count(self, path: str) -> bool:
        """Whether a path only counts tokens of a history."""
        return path.rstrip("/").endswith("/v1/messages/count_tokens")

    def hint(self, headers: Mapping[str, str], fields: Mapping[str, Any]) -> str:
        """The session that Claude Code names in a header, and in the user's id."""
        named = headers.get(SESSION_HEADER, "")
        if not named:
            metadata = fields.get("metadata")
            user = metadata.get("user_id") if isinstance(metadata, dict) else None
            found = SESSION_IN_USER.search(user) if isinstance(user, str) else None
            named = found.group(1) if found else ""
        return named if re.fullmatch(r"[\w-]{1,64}", named) else ""

    def prompt_tokens(self, value: Mapping[str, Any]) -> int | None:
        """Fresh, written and read tokens together: what fills the window."""
        message = value.get("message")
        usage = message.get("usage") if isinstance(message, dict) else value.get("usage")
        if not isinstance(usage, dict):
            return None
        tokens = sum(usage[name] for name in USAGE if isinstance(usage.get(name), int))
        return tokens or None

    def is_overflow(self, status: int, body: bytes) -> bool:
        """A request beyond the provider's size, or its words for a prompt beyond the window."""
        return status == 413 or (status == 400 and OVERFLOW.search(body[:4_000]) is not None)

    def speaks_of_reasoning(self, body: bytes) -> bool:
        """As the provider does: "Invalid `signature` in `thinking` block"."""
        return REFUSED_REASONING.search(body[:4_000]) is not None

    def error(self, status: int, text: str) -> bytes:
        """An error as the provider puts it."""
        kind = ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return json.dumps({"type": "error", "error": {"type": kind, "message": f"jev-engine gateway: {text}"}}).encode()

    def binds_reasoning(self, fields: Mapping[str, Any]) -> bool:
        """True for models from version 5 on and for unknown ones, unless the request lets the provider drop it."""
        thinking = fields.get("thinking")
        binding = thinking.get("block_binding") if isinstance(thinking, dict) else None
        if isinstance(binding, dict) and binding.get("prefix_mismatch_behavior") == "drop_block":
            return False
        return binds_reasoning(str(fields.get("model", "")))

    def may_edit_now(self, fields: Mapping[str, Any], messages: Sequence[Any]) -> bool:
        """With thinking set by hand, an answer in the middle of its calls has to begin with its thinking."""
        thinking = fields.get("thinking")
        by_hand = isinstance(thinking, dict) and thinking.get("type") == "enabled"
        if not by_hand or not self.binds_reasoning(fields) or not messages:
            return True
        content = messages[-1].get("content") if isinstance(messages[-1], dict) else None
        return not any(isinstance(b, dict) and b.get("type") == "tool_result" for b in _blocks(content))

    def has_reasoning(self, message: Any) -> bool:
        """Whether a message holds thinking."""
        content = message.get("content") if isinstance(message, dict) else None
        return any(isinstance(b, dict) and b.get("type") in REASONING for b in _blocks(content))

    def without_reasoning(self, message: Any) -> Any | None:
        """The message without its thinking, None where nothing else is in it."""
        if not self.has_reasoning(message):
            return message
        left = [b for b in message["content"] if not (isinstance(b, dict) and b.get("type") in REASONING)]
        return {**message, "content": left} if left else None

    def with_tool(self, body: Body, tool: str) -> str | None:
        """The list of tools with one more at its end, behind every cache mark.

        None without a list, or with the name taken.
        """
        tools = body.fields.get("tools")
        if not isinstance(tools, list) or not tools:
            return None
        if any(isinstance(each, dict) and each.get("name") == tool for each in tools):
            return None
        start, end = body.values["tools"]
        return f"{body.text[start : end - 1].rstrip()},{dump(expand_tool_schema('anthropic', name=tool))}]"

    def reveal(self, message: Any, behind: Any, hidden: Hidden) -> tuple[list[Any], list[Any]] | None:
        """The answer in as many messages as the provider gave responses, with the results between them."""
        if not isinstance(message, dict) or message.get("role") != "assistant":
            return None
        # Blank texts are dropped by some clients; their places must not matter.
        blocks = [block for block in _blocks(message.get("content")) if not _is_blank(block)]
        if seen_digest(blocks) != hidden.seen:
            return None
        said: list[Any] = []
        start = 0
        left: list[Any] = []
        for part in hidden.rounds:
            own = blocks[start : part.end]
            if part.closes and part.said is not None and not any("cache_control" in block for block in own):
                # As it was sent before: clients send their blocks back with fields of their own making.
                said.append(part.said)
            else:
                content = list(own)
                for at, call in reversed(part.calls):
                    content.insert(at - start, call)
                said.append({**message, "content": content})
            start = part.end
            if part.closes:
                said.append({"role": "user", "content": part.results})
            else:
                left = part.results
        if start < len(blocks):
            said.append({**message, "content": blocks[start:]})
        return said, _answered(behind, left)

    def arguments(self, call: dict[str, Any]) -> Any:
        """The arguments of a hidden call."""
        return call.get("input")

    def results(self, calls: Sequence[dict[str, Any]], texts: Sequence[str]) -> list[dict[str, Any]]:
        """Results of hidden calls as blocks."""
        return made_results(calls, texts)

    def reply(self, tool: str) -> MessagesReply:
        """A new answer."""
        return MessagesReply(tool)


def _answered(behind: Any, results: list[Any]) -> list[Any]:
    """The client's next message with results in front of it."""
    if behind is None:
        return [{"role": "user", "content": results}] if results else []
    if not results:
        return [behind]
    if isinstance(behind, dict) and behind.get("role") == "user":
        return [{**behind, "content": [*results, *_blocks(behind.get("content"))]}]
    return [{"role": "user", "content": results}, behind]


def _blocks(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _is_blank(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and not str(block.get("text", "")).strip()


MESSAGES = MessagesForm()
