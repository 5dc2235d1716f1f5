"""Our middleware around a summariser that works within a call of the model, as that of deepagents does.

deepagents puts the middleware of a user inside its own summariser, which then counts messages that were never shown.
One middleware under the summariser's name holds both, ours outside: the summariser counts, and cuts, what is left after
pruning. Calls stay, so the indexes it remembers keep their meaning.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelResponse
from langgraph.types import Command
from typing_extensions import TypedDict

from jev_engine_adapters.langgraph.middleware import JevMiddleware

__all__ = ["AroundSummarizer"]

make_schema: Any = TypedDict
"""Its fields are known at run time only."""


class AroundSummarizer(AgentMiddleware):
    """Pruning first, then a summariser, in one middleware."""

    def __init__(self, summarizer: Any, jev: JevMiddleware) -> None:
        super().__init__()
        self.summarizer = summarizer
        self.jev = jev
        self.tools = [*(getattr(summarizer, "tools", None) or ()), *jev.tools]
        fields: dict[str, Any] = {}
        for middleware in (summarizer, jev):
            fields.update(get_type_hints(middleware.state_schema, include_extras=True))
        self.state_schema = make_schema("PrunedState", fields)

    @property
    def name(self) -> str:
        """The summariser's own, so that it takes its place."""
        return str(self.summarizer.name)

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Prune, then let the summariser have its turn."""
        if self.jev.engine.config.handover == "never":
            return self.jev.wrap_model_call(request, handler)
        updates: dict[str, Any] = {}
        response = self.jev.wrap_model_call(
            request, lambda shown: _plain(self.summarizer.wrap_model_call(shown, handler), updates)
        )
        return _with(response, updates)

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Prune, then let the summariser have its turn."""
        if self.jev.engine.config.handover == "never":
            return await self.jev.awrap_model_call(request, handler)
        updates: dict[str, Any] = {}

        async def summarised(shown: Any) -> Any:
            return _plain(await self.summarizer.awrap_model_call(shown, handler), updates)

        return _with(await self.jev.awrap_model_call(request, summarised), updates)


def _plain(response: Any, updates: dict[str, Any]) -> Any:
    """A response without its command, whose update is noted; that of an earlier try is forgotten."""
    updates.clear()
    if not isinstance(response, ExtendedModelResponse):
        return response
    if response.command is not None:
        updates.update(response.command.update or {})
    return response.model_response


def _with(response: Any, updates: dict[str, Any]) -> Any:
    """A response with the summariser's update beside ours."""
    if not updates:
        return response
    ours: dict[str, Any] = {}
    if isinstance(response, ExtendedModelResponse):
        ours = dict(response.command.update) if response.command is not None else {}
        response = response.model_response
    if not isinstance(response, ModelResponse):
        response = ModelResponse(result=[response])
    both = {**updates, **ours}
    if "messages" in updates and "messages" in ours:
        # Theirs last: a result that both wrote is then the one they put a file behind.
        both["messages"] = [*ours["messages"], *updates["messages"]]
    return ExtendedModelResponse(model_response=response, command=Command(update=both))
