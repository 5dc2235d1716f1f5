"""A chat model for the LangGraph examples that needs no key: it reads log files and says which one has the error.

Put your own in its place, such as `langchain.chat_models.init_chat_model("…")`.
"""

from __future__ import annotations

from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

FILES = 24
CULPRIT = 17


@tool
def read_log(number: int) -> str:
    """Read one of the 24 log files."""
    lines = [f"2026-11-30 12:{minute:02}:00 worker-{number} handled {minute * 37} requests" for minute in range(60)]
    if number == CULPRIT:
        lines.insert(31, "2026-11-30 12:31:07 worker-17 ERROR disk full while writing /var/lib/queue/17")
    return "\n".join(lines)


class LogReader(BaseChatModel):
    """Calls `read_log` for each file in turn, then answers."""

    shown: list[int] = []  # noqa: RUF012  # a field of a pydantic model, copied for every instance
    """Characters of each request it was sent."""

    @property
    def _llm_type(self) -> str:
        return "log-reader"

    def bind_tools(self, tools: Any, **_: Any) -> LogReader:
        """It knows its tool."""
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.shown.append(sum(len(str(message.content)) for message in messages))
        number = sum(isinstance(message, AIMessage) for message in messages) + 1
        if number <= FILES:
            reply = AIMessage("", tool_calls=[{"name": "read_log", "args": {"number": number}, "id": f"call_{number}"}])
        else:
            reply = AIMessage("worker-17 ran out of disk at 12:31.")
        return ChatResult(generations=[ChatGeneration(message=reply)])
