"""LangGraph and LangChain: middleware, reducers, a node and tools over one adapter for their messages.

Importing this imports nothing of either; the names below are looked up when first used and need the extra `langgraph`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jev_engine.host import RowChange
from jev_engine.transcript import Transcript
from jev_engine_adapters.langgraph import messages as shape

if TYPE_CHECKING:
    from jev_engine_adapters.langgraph.callbacks import audit_callbacks
    from jev_engine_adapters.langgraph.framework_free import (
        CompactedMessages,
        acompact_messages,
        compact_messages,
    )
    from jev_engine_adapters.langgraph.handover import after_pruning
    from jev_engine_adapters.langgraph.middleware import JevMiddleware
    from jev_engine_adapters.langgraph.node import JevMessagesState, make_compaction_node
    from jev_engine_adapters.langgraph.originals import BaseStoreOriginals
    from jev_engine_adapters.langgraph.reducers import (
        JevAgentState,
        JevDeltaAgentState,
        ReducerPolicy,
        compact_marker,
        jev_messages,
        jev_messages_delta,
        jev_reducer,
    )
    from jev_engine_adapters.langgraph.state import merge_states
    from jev_engine_adapters.langgraph.tools import make_expand_tool, make_search_tool
    from jev_engine_adapters.langgraph.view import compacted_view

__all__ = [
    "BaseStoreOriginals", "CompactedMessages", "JevAgentState", "JevDeltaAgentState", "JevMessagesState",
    "JevMiddleware", "LangGraphAdapter", "ReducerPolicy", "acompact_messages", "adapter", "after_pruning",
    "audit_callbacks", "compact_marker", "compact_messages", "compacted_view", "jev_messages", "jev_messages_delta",
    "jev_reducer", "make_compaction_node", "make_expand_tool", "make_search_tool", "merge_states",
]  # fmt: skip

# Names and where they live: importing those modules imports LangChain.
_HOMES = {
    "BaseStoreOriginals": "originals",
    "CompactedMessages": "framework_free",
    "JevAgentState": "reducers",
    "JevDeltaAgentState": "reducers",
    "JevMessagesState": "node",
    "JevMiddleware": "middleware",
    "ReducerPolicy": "reducers",
    "acompact_messages": "framework_free",
    "after_pruning": "handover",
    "audit_callbacks": "callbacks",
    "compact_marker": "reducers",
    "compact_messages": "framework_free",
    "compacted_view": "view",
    "jev_messages": "reducers",
    "jev_messages_delta": "reducers",
    "jev_reducer": "reducers",
    "make_compaction_node": "node",
    "make_expand_tool": "tools",
    "make_search_tool": "tools",
    "merge_states": "state",
}


class LangGraphAdapter:
    """Lists of LangChain messages. Calls stay: what counts rows, such as a summariser, keeps counting right."""

    name = "langgraph"
    is_read_only = False
    can_delete = False
    edit_persists = False
    copies_in_call_row = False

    def sniff(self, messages: Sequence[Any]) -> bool:
        """Whether these are LangChain messages."""
        return shape.sniff(messages)

    def read(self, messages: Sequence[Any]) -> Transcript:
        """The transcript of a list of messages."""
        return shape.read(messages)

    def edit(self, message: Any, change: RowChange) -> Any | None:
        """A changed copy of one message, or None where nothing of it is left."""
        return shape.edit(message, change)

    def check(self, before: Any, after: Any, change: RowChange) -> str | None:
        """What differs beyond the change."""
        return shape.check(before, after, change)

    def dump(self, message: Any) -> Any:
        """The message as plain JSON values."""
        return shape.dump(message)

    def load(self, data: Any) -> Any:
        """The message that `dump` was made from."""
        return shape.load(data)


adapter = LangGraphAdapter()


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  # kept out of the namespace

    try:
        value = getattr(import_module(f"{__name__}.{home}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("langchain", "langchain_core", "langgraph"):
            raise ImportError(f"{name} needs LangChain and LangGraph: pip install 'jev-engine[langgraph]'") from error
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
