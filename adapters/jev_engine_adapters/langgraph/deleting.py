"""The same adapter for those who let calls leave the history: host `langgraph-delete`.

Only the threshold profiles remove calls at all. Not beside anything that counts messages: an index that another
middleware keeps would point elsewhere.
"""

from __future__ import annotations

from jev_engine_adapters.langgraph import LangGraphAdapter

__all__ = ["DeletingAdapter", "adapter"]


class DeletingAdapter(LangGraphAdapter):
    """Lists of LangChain messages from which calls may be removed."""

    name = "langgraph-delete"
    can_delete = True


adapter = DeletingAdapter()
