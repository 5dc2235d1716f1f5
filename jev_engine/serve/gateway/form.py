"""What the gateway has to know of a provider's wire form, beyond what an adapter knows of its messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from jev_engine.serve.gateway.body import Body
from jev_engine.serve.gateway.hidden import Hidden

__all__ = ["Form", "Reply", "encode_event", "event_data"]

# As the specification of server-sent events has it: other line breaks of Unicode are part of a line.
_LINE_END = re.compile(r"\r\n|\n|\r")


class Reply(Protocol):
    """One answer to the client, put together from one or more responses of the provider."""

    calls: list[dict[str, Any]]
    """Hidden calls of the response that has just ended."""

    spent_tokens: int
    """Prompt tokens of the last response, 0 where it did not say."""

    @property
    def withholds(self) -> bool:
        """Something was hidden already, so that what follows cannot go on as it comes."""
        ...

    @property
    def goes_on(self) -> bool:
        """The response that has ended is not the end of the answer: its calls are answered here, and more follows."""
        ...

    def event(self, raw: bytes) -> bytes:
        """What the client gets for one event of a stream: mostly the very same bytes. Raises ValueError."""
        ...

    def whole(self, value: dict[str, Any]) -> dict[str, Any] | None:
        """What the client gets for a whole response, the same object where nothing is hidden; None where it goes on."""
        ...

    def answered(self, results: Sequence[str]) -> list[Any]:
        """Take in the results of the hidden calls; returns what goes to the provider next: what it said, and them."""
        ...

    def error_event(self, body: bytes) -> bytes:
        """An error in the middle of a stream."""
        ...

    def hidden(self) -> Hidden | None:
        """What was hidden in the answer, once it has ended; None for nothing."""
        ...


class Form(Protocol):
    """One wire form. Holds no state."""

    name: str
    """Of the adapter for its messages."""

    hints_name_sessions: bool
    """A hint is the host's own name for a session, under which its plugin stores too; else any word of a client's."""

    def is_turn(self, path: str) -> bool:
        """Whether a path asks for an answer of the model."""
        ...

    def is_count(self, path: str) -> bool:
        """Whether a path only counts tokens of a history."""
        ...

    def hint(self, headers: Mapping[str, str], fields: Mapping[str, Any]) -> str:
        """The client's own name for its session; empty where it gives none."""
        ...

    def prompt_tokens(self, value: Mapping[str, Any]) -> int | None:
        """Prompt tokens as a response or an event reports them."""
        ...

    def is_overflow(self, status: int, body: bytes) -> bool:
        """Whether the provider refused a request for being longer than the model's window."""
        ...

    def speaks_of_reasoning(self, body: bytes) -> bool:
        """Whether the provider says in a refusal that reasoning is not as it should be."""
        ...

    def error(self, status: int, text: str) -> bytes:
        """An error of the gateway as the provider would put it."""
        ...

    def binds_reasoning(self, fields: Mapping[str, Any]) -> bool:
        """Whether the provider refuses reasoning that was made for another history than the one it stands in."""
        ...

    def may_edit_now(self, fields: Mapping[str, Any], messages: Sequence[Any]) -> bool:
        """Whether a first edit may happen with this request; False where reasoning that would have to go is needed."""
        ...

    def has_reasoning(self, message: Any) -> bool:
        """Whether a message holds reasoning that may be bound."""
        ...

    def without_reasoning(self, message: Any) -> Any | None:
        """The message without it, None where nothing else is in it."""
        ...

    def with_tool(self, body: Body, tool: str) -> str | None:
        """The list of tools with one more, as text; None where it cannot be offered."""
        ...

    def reveal(self, message: Any, behind: Any, hidden: Hidden) -> tuple[list[Any], list[Any]] | None:
        """The client's answer and the message behind it with their hidden calls; None where they do not fit."""
        ...

    def arguments(self, call: dict[str, Any]) -> Any:
        """The arguments of a hidden call, as a value."""
        ...

    def results(self, calls: Sequence[dict[str, Any]], texts: Sequence[str]) -> list[dict[str, Any]]:
        """Results of hidden calls in the form of the provider."""
        ...

    def reply(self, tool: str) -> Reply:
        """A new answer."""
        ...


def event_data(raw: bytes) -> str:
    """The data of one server-sent event."""
    lines = [line[5:].lstrip() for line in _LINE_END.split(raw.decode()) if line.startswith("data:")]
    return "\n".join(lines)


def encode_event(name: str | None, text: str) -> bytes:
    """One server-sent event; `text` is one line that can be UTF-8, such as `dump` writes."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {text}\n\n".encode()
